"""FindCoordinator (key 10), v0–v6: which broker coordinates a group or a transactional id.

With one node that is this node, whatever is asked for. The APIs of the coordinators themselves are not served yet and
not advertised; this one is, because librdkafka compresses with lz4 only where it finds it.
Not served: share groups.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from skidway.errors import ErrorCode
from skidway.wire.schema.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

if TYPE_CHECKING:
    from skidway.broker.call import Call
    from skidway.broker.node import Node

BATCHED_SINCE = 4
KEY_TYPES = (0, 1)
"""Groups and transactional ids."""


def handle(node: Node, call: Call, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    keys = request.coordinator_keys if call.version >= BATCHED_SINCE else [request.key]
    found = [_coordinator(node, request.key_type, key) for key in keys]
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


def _coordinator(node: Node, key_type: int, key: str) -> Coordinator:
    if key_type not in KEY_TYPES:
        message = f"coordinators of type {key_type} are not available"
        return Coordinator(key, -1, "", -1, ErrorCode.INVALID_REQUEST, message)
    return Coordinator(key, node.settings.node_id, node.settings.host, node.settings.port, 0, "")
