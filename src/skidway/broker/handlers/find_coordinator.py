"""FindCoordinator (key 10), v0–v6: who coordinates a group, transactional id, share-partition or a queue's schedules.

The key type selects the kind of coordinator (`Services.coordinators`). A key's coordinator is the leader of the
partition that its state is kept in, at the address of the listener by which the client came; COORDINATOR_NOT_AVAILABLE
while there is none, or if it lacks that listener. The first question of a kind creates its topic, and is answered when
that is there. A key that cannot be one of its kind is an INVALID_REQUEST.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from skidway.broker.api.call import answer_later
from skidway.errors import CoordinatorNotAvailable, ErrorCode, InvalidRequest, ProtocolError
from skidway.steps import Steps
from skidway.wire.schema.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

if TYPE_CHECKING:
    from skidway.broker.api.call import Call
    from skidway.broker.coordinators.host import Coordinators
    from skidway.broker.services import Services

BATCHED_SINCE = 4
SHARE, SHARES_SINCE = 2, 6


def handle(node: Services, call: Call, request: FindCoordinatorRequest) -> Steps[FindCoordinatorResponse | None]:
    coordinators = node.coordinators_of(request.key_type)
    if coordinators is None or (request.key_type == SHARE and call.version < SHARES_SINCE):
        return (yield from _response(call, request, partial(_none_of_this_kind, request.key_type)))

    if coordinators.has_topic:
        return (yield from _response(call, request, partial(_found, coordinators, call.caller.listener, None)))

    def answer(error: ProtocolError | None) -> None:
        found = partial(_found, coordinators, call.caller.listener, error)
        answer_later(node.world.slices, call, _response(call, request, found))

    coordinators.prepare(call.now_ms, answer)
    return None


def _response(
    call: Call, request: FindCoordinatorRequest, find: Callable[[str], Coordinator]
) -> Steps[FindCoordinatorResponse]:
    keys = request.coordinator_keys if call.version >= BATCHED_SINCE else [request.key]
    found = []
    for key in keys:
        found.append(find(key))
        yield None
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


def _none_of_this_kind(key_type: int, key: str) -> Coordinator:
    message = f"coordinators of type {key_type} are not available"
    return Coordinator(key, -1, "", -1, ErrorCode.INVALID_REQUEST, message)


def _found(
    coordinators: Coordinators[Any, Any], listener: str | None, error: ProtocolError | None, key: str
) -> Coordinator:
    if error is not None:
        return Coordinator(key, -1, "", -1, CoordinatorNotAvailable.code, error.message)
    try:
        coordinators.kind.check_key(key)
        broker = coordinators.find(key)
    except (CoordinatorNotAvailable, InvalidRequest) as refusal:
        return Coordinator(key, -1, "", -1, refusal.code, refusal.message)
    endpoint = broker.endpoint(listener)
    if endpoint is None:
        message = f"the coordinator is broker {broker.id}, which has no listener {listener}"
        return Coordinator(key, -1, "", -1, CoordinatorNotAvailable.code, message)
    return Coordinator(key, broker.id, endpoint.host, endpoint.port, 0, "")
