"""FindCoordinator (key 10), v0–v6: which broker coordinates a group or a transactional id.

The key type selects the kind of coordinator (`Services.coordinators`). A key's coordinator is the leader of the
partition that its state is kept in, at the address of the listener by which the client came; COORDINATOR_NOT_AVAILABLE
while there is none, or if it lacks that listener. The first question of a kind creates its topic, and is answered when
that is there.
Not served: share groups, and transactional ids unless `experimental_transactions` is on. Clients that ask in batches
(Java, franz-go) are told so with UNSUPPORTED_VERSION and a message. Older ones would ask again for ever: librdkafka
takes only a failed authorisation for final, and shows the message beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from skidway.broker.api.call import answer_later
from skidway.errors import CoordinatorNotAvailable, ErrorCode, ProtocolError
from skidway.steps import Steps
from skidway.wire.schema.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

if TYPE_CHECKING:
    from skidway.broker.api.call import Call
    from skidway.broker.coordinators.host import Coordinators
    from skidway.broker.services import Services

BATCHED_SINCE = 4
TRANSACTION = 1
NO_TRANSACTIONS = "transactions are not available in this version of Skidway"


def handle(node: Services, call: Call, request: FindCoordinatorRequest) -> Steps[FindCoordinatorResponse | None]:
    coordinators = node.coordinators_of(request.key_type)
    if coordinators is None:
        return (yield from _response(call, request, partial(_none_of_this_kind, call.version, request.key_type)))

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


def _none_of_this_kind(version: int, key_type: int, key: str) -> Coordinator:
    if key_type == TRANSACTION:
        batched = version >= BATCHED_SINCE
        code = ErrorCode.UNSUPPORTED_VERSION if batched else ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return Coordinator(key, -1, "", -1, code, NO_TRANSACTIONS)
    message = f"coordinators of type {key_type} are not available"
    return Coordinator(key, -1, "", -1, ErrorCode.INVALID_REQUEST, message)


def _found(
    coordinators: Coordinators[Any, Any], listener: str | None, error: ProtocolError | None, key: str
) -> Coordinator:
    if error is not None:
        return Coordinator(key, -1, "", -1, CoordinatorNotAvailable.code, error.message)
    try:
        broker = coordinators.find(key)
    except CoordinatorNotAvailable as refusal:
        return Coordinator(key, -1, "", -1, refusal.code, refusal.message)
    endpoint = broker.endpoint(listener)
    if endpoint is None:
        message = f"the coordinator is broker {broker.id}, which has no listener {listener}"
        return Coordinator(key, -1, "", -1, CoordinatorNotAvailable.code, message)
    return Coordinator(key, broker.id, endpoint.host, endpoint.port, 0, "")
