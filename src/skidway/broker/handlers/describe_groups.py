"""DescribeGroups (key 15), v0–v6: classic groups and their members. An unknown group is Dead; from v6 an error too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skidway.broker.api.authorized import GROUP_OPERATIONS, NOT_ASKED
from skidway.broker.api.many_groups import ReplyRoom, ask_each, each_once
from skidway.errors import ErrorCode, GroupIdNotFound, ProtocolError
from skidway.groups import operations
from skidway.groups.operations import DescribeGroup
from skidway.steps import Steps
from skidway.wire.schema.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

if TYPE_CHECKING:
    from skidway.broker.api.call import Call
    from skidway.broker.services import Services

NOT_FOUND_SINCE = 6
DEAD = "Dead"


def handle(node: Services, call: Call, request: DescribeGroupsRequest) -> Steps[None]:
    response = DescribeGroupsResponse()
    for name in each_once(request.groups):
        response.groups.append(DescribedGroup(group_id=name))
        yield None
    allowed = GROUP_OPERATIONS if request.include_authorized_operations else NOT_ASKED

    room = ReplyRoom(node)

    def take(entry: DescribedGroup, reply: operations.DescribedGroup | ProtocolError) -> None:
        entry.authorized_operations = allowed
        if not isinstance(reply, ProtocolError):
            said = sum(len(member.metadata) + len(member.assignment) for member in reply.members)
            reply = room.take(len(reply.members), said) or reply
        _fill(call.version, entry, reply)

    yield from ask_each(
        node,
        response.groups,
        lambda entry: DescribeGroup(entry.group_id),
        take,
        lambda: call.reply(response),
    )


def _fill(version: int, entry: DescribedGroup, reply: operations.DescribedGroup | ProtocolError) -> None:
    if isinstance(reply, ProtocolError):
        entry.group_state = DEAD if isinstance(reply, GroupIdNotFound) else ""
        if not isinstance(reply, GroupIdNotFound) or version >= NOT_FOUND_SINCE:
            entry.error_code, entry.error_message = reply.code, reply.message
        return
    entry.error_code = ErrorCode.NONE
    entry.group_state = reply.state
    entry.protocol_type = reply.protocol_type
    entry.protocol_data = reply.protocol_name
    entry.members = [
        DescribedGroupMember(
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host,
            member.metadata,
            member.assignment,
        )
        for member in reply.members
    ]
