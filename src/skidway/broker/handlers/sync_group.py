"""SyncGroup (key 14), v0–v5: the leader brings the assignment, everyone else gets theirs once it is committed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skidway.errors import InconsistentGroupProtocol, ProtocolError
from skidway.groups.bounds import check_assignments
from skidway.groups.operations import SyncGroup, SyncReply
from skidway.ports import Buffer
from skidway.wire.schema.sync_group import SyncGroupRequest, SyncGroupResponse

if TYPE_CHECKING:
    from skidway.broker.api.call import Call
    from skidway.broker.services import Services

PROTOCOL_SINCE = 5


def handle(node: Services, call: Call, request: SyncGroupRequest) -> SyncGroupResponse | None:
    if call.version >= PROTOCOL_SINCE and (request.protocol_type is None or request.protocol_name is None):
        return SyncGroupResponse(error_code=InconsistentGroupProtocol.code)
    # One more than there may be is enough to refuse them all.
    looked_at = request.assignments[: node.world.limits.group_members_max + 1]
    assignments: list[tuple[str, Buffer]] = [(each.member_id, each.assignment) for each in looked_at]
    try:
        check_assignments(node.world.limits, assignments)
    except ProtocolError as refusal:
        return SyncGroupResponse(error_code=refusal.code)
    operation = SyncGroup(
        request.group_id,
        request.member_id,
        request.group_instance_id,
        request.generation_id,
        request.protocol_type,
        request.protocol_name,
        [(member_id, bytes(assignment)) for member_id, assignment in assignments],
    )

    def answer(reply: SyncReply | ProtocolError) -> None:
        if isinstance(reply, ProtocolError):
            call.reply(SyncGroupResponse(error_code=reply.code))
        else:
            call.reply(SyncGroupResponse(0, 0, reply.protocol_type, reply.protocol_name, reply.assignment))

    node.groups.submit(request.group_id, operation, call.now_ms, answer)
    return None
