"""JoinGroup (key 11), v0–v9: become a member of a classic group. Answered when everyone has joined.

From v4 a new member is first given an id and sent away to join with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from skidway.errors import MemberIdRequired, ProtocolError
from skidway.groups.operations import JoinGroup, JoinReply
from skidway.wire.schema.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember

if TYPE_CHECKING:
    from skidway.broker.call import Call
    from skidway.broker.node import Node

REBALANCE_TIMEOUT_SINCE = 1
MEMBER_ID_REQUIRED_SINCE = 4
PROTOCOL_TYPE_SINCE = 7
SKIP_ASSIGNMENT_SINCE = 9


def handle(node: Node, call: Call, request: JoinGroupRequest) -> None:
    has_timeout = call.version >= REBALANCE_TIMEOUT_SINCE
    operation = JoinGroup(
        request.group_id,
        request.member_id,
        request.group_instance_id,
        call.client_id or "",
        call.client_host,
        request.session_timeout_ms,
        request.rebalance_timeout_ms if has_timeout else request.session_timeout_ms,
        request.protocol_type,
        # Copies: the request's bytes are gone when it is answered.
        [(protocol.name, bytes(protocol.metadata)) for protocol in request.protocols],
        member_id_required=call.version >= MEMBER_ID_REQUIRED_SINCE,
        can_skip_assignment=call.version >= SKIP_ASSIGNMENT_SINCE,
    )

    def answer(reply: JoinReply | ProtocolError) -> None:
        call.reply(_response(call.version, request, reply))

    node.groups.submit(request.group_id, operation, call.now_ms, answer)


def _response(version: int, request: JoinGroupRequest, reply: JoinReply | ProtocolError) -> JoinGroupResponse:
    if isinstance(reply, ProtocolError):
        member_id = reply.member_id if isinstance(reply, MemberIdRequired) else request.member_id
        no_protocol = None if version >= PROTOCOL_TYPE_SINCE else ""
        return JoinGroupResponse(error_code=reply.code, protocol_name=no_protocol, member_id=member_id)
    return JoinGroupResponse(
        generation_id=reply.generation,
        protocol_type=reply.protocol_type,
        protocol_name=reply.protocol_name,
        leader=reply.leader,
        skip_assignment=reply.skip_assignment,
        member_id=reply.member_id,
        members=[
            JoinGroupResponseMember(member.member_id, member.instance_id, member.metadata) for member in reply.members
        ],
    )
