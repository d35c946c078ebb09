"""FindCoordinator (key 10), v0–v6: which broker coordinates a group or a transactional id.

That of a group is whoever leads the partition its state is kept in; COORDINATOR_NOT_AVAILABLE while nobody does. The
first question about a group makes the topic, and is answered when that is there.
Not served: share groups. Transactional ids have no coordinator yet: this node answers for itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from skidway.errors import CoordinatorNotAvailable, ErrorCode, ProtocolError
from skidway.wire.schema.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

if TYPE_CHECKING:
    from skidway.broker.call import Call
    from skidway.broker.node import Node

BATCHED_SINCE = 4
GROUP, TRANSACTION = 0, 1


def handle(node: Node, call: Call, request: FindCoordinatorRequest) -> FindCoordinatorResponse | None:
    if request.key_type != GROUP:
        return _response(node, call, request, None)
    node.groups.prepare(call.now_ms, lambda error: call.reply(_response(node, call, request, error)))
    return None


def _response(
    node: Node, call: Call, request: FindCoordinatorRequest, error: ProtocolError | None
) -> FindCoordinatorResponse:
    keys = request.coordinator_keys if call.version >= BATCHED_SINCE else [request.key]
    found = [_coordinator(node, request.key_type, key, error) for key in keys]
    if call.version >= BATCHED_SINCE:
        return FindCoordinatorResponse(coordinators=found)
    (only,) = found
    return FindCoordinatorResponse(
        error_code=only.error_code,
        error_message=only.error_message,
        node_id=only.node_id,
        host=only.host,
        port=only.port,
    )


def _coordinator(node: Node, key_type: int, key: str, error: ProtocolError | None) -> Coordinator:
    if key_type not in (GROUP, TRANSACTION):
        message = f"coordinators of type {key_type} are not available"
        return Coordinator(key, -1, "", -1, ErrorCode.INVALID_REQUEST, message)
    if error is not None:
        return Coordinator(key, -1, "", -1, CoordinatorNotAvailable.code, error.message)
    if key_type == TRANSACTION:
        return Coordinator(key, node.settings.node_id, node.settings.host, node.settings.port, 0, "")
    try:
        broker = node.groups.find(key)
    except CoordinatorNotAvailable as refusal:
        return Coordinator(key, -1, "", -1, refusal.code, refusal.message)
    return Coordinator(key, broker.id, broker.endpoints[0].host, broker.endpoints[0].port, 0, "")
