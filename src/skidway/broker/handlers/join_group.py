"""JoinGroup (key 11), v0–v9: become a member of a classic group. Answered when everyone has joined.

From v4 a new member is first given an id and sent away to join with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from skidway.errors import MemberIdRequired, ProtocolError
from skidway.groups.bounds import check_joining, client_name
from skidway.groups.operations import JoinGroup, JoinReply
from skidway.ports import Buffer
from skidway.wire.schema.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember

if TYPE_CHECKING:
    from skidway.broker.api.call import Call
    from skidway.broker.services import Services

REBALANCE_TIMEOUT_SINCE = 1
MEMBER_ID_REQUIRED_SINCE = 4
PROTOCOL_TYPE_SINCE = 7
SKIP_ASSIGNMENT_SINCE = 9


def handle(node: Services, call: Call, request: JoinGroupRequest) -> JoinGroupResponse | None:
    version, member_id = call.version, request.member_id
    # One more than there may be is enough to refuse them all.
    looked_at = request.protocols[: node.world.limits.group_protocols_max + 1]
    protocols: list[tuple[str, Buffer]] = [(protocol.name, protocol.metadata) for protocol in looked_at]
    try:
        check_joining(node.world.limits, request.group_instance_id, protocols)
    except ProtocolError as refusal:
        return _response(version, member_id, refusal)
    has_timeout = call.version >= REBALANCE_TIMEOUT_SINCE
    operation = JoinGroup(
        request.group_id,
        request.member_id,
        request.group_instance_id,
        client_name(call.caller.client_id),
        call.caller.shown_host,
        request.session_timeout_ms,
        request.rebalance_timeout_ms if has_timeout else request.session_timeout_ms,
        request.protocol_type,
        # Copies: the request's bytes are gone when it is answered.
        [(name, bytes(metadata)) for name, metadata in protocols],
        member_id_required=call.version >= MEMBER_ID_REQUIRED_SINCE,
        can_skip_assignment=call.version >= SKIP_ASSIGNMENT_SINCE,
    )

    def answer(reply: JoinReply | ProtocolError) -> None:
        # Nothing of the request is kept but this: its frame may be large, and the wait long.
        call.reply(_response(version, member_id, reply))

    node.groups.submit(request.group_id, operation, call.now_ms, answer)
    return None


def _response(version: int, member_id: str, reply: JoinReply | ProtocolError) -> JoinGroupResponse:
    if isinstance(reply, ProtocolError):
        if isinstance(reply, MemberIdRequired):
            member_id = reply.member_id
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
