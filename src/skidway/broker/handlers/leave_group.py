"""LeaveGroup (key 13), v0–v5: members go; from v3 several at once, and static ones by their instance id."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skidway.errors import ErrorCode, ProtocolError
from skidway.groups.operations import LeaveGroup, Leaving
from skidway.wire.schema.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse

if TYPE_CHECKING:
    from skidway.broker.call import Call
    from skidway.broker.node import Node

BATCHED_SINCE = 3


def handle(node: Node, call: Call, request: LeaveGroupRequest) -> None:
    if call.version >= BATCHED_SINCE:
        members = [Leaving(member.member_id, member.group_instance_id) for member in request.members]
    else:
        members = [Leaving(request.member_id)]

    def answer(reply: list[ErrorCode] | ProtocolError) -> None:
        if isinstance(reply, ProtocolError):
            call.reply(LeaveGroupResponse(error_code=reply.code))
        elif call.version < BATCHED_SINCE:
            call.reply(LeaveGroupResponse(error_code=reply[0]))
        else:
            call.reply(
                LeaveGroupResponse(
                    members=[
                        MemberResponse(member.member_id, member.instance_id, code)
                        for member, code in zip(members, reply, strict=True)
                    ]
                )
            )

    node.groups.submit(request.group_id, LeaveGroup(request.group_id, members), call.now_ms, answer)
