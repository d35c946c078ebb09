"""Envelope (key 58), v0: a client's request that another node could not answer, for the active controller.

The request is handled on behalf of the client: the envelope carries its principal, address and listener.
"""

from __future__ import annotations

from types import GeneratorType
from typing import TYPE_CHECKING, Any

from skidway.broker.api.call import LocalCall
from skidway.broker.api.caller import from_envelope
from skidway.errors import ErrorCode, InvalidRequest
from skidway.steps import Steps
from skidway.wire.framing import joined
from skidway.wire.headers import read_request_header
from skidway.wire.release import release
from skidway.wire.schema.envelope import EnvelopeRequest, EnvelopeResponse

if TYPE_CHECKING:
    from skidway.broker.api.call import Call, Route
    from skidway.broker.services import Services

LENGTH_BYTES = 4


def handle(node: Services, call: Call, request: EnvelopeRequest) -> Steps[EnvelopeResponse | None]:
    held: list[Any] = []
    try:
        return (yield from _handle(node, call, request, held))
    finally:
        node.world.slices.begin_unwatched(release(held))


def _handle(node: Services, call: Call, request: EnvelopeRequest, held: list[Any]) -> Steps[EnvelopeResponse | None]:
    """`held` gets the request inside."""
    if not node.controller.is_here:
        return EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)
    data = memoryview(bytes(request.request_data))
    try:
        key, version, correlation_id, client_id, position = read_request_header(data)
        route = node.routes[key, version]
        if not route.forwarded:
            return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
        assert route.decode_steps is not None
        yield from route.decode_steps(data, position, held)
    except (KeyError, InvalidRequest):
        return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)

    try:
        caller = from_envelope(request, client_id)
    except InvalidRequest:
        return EnvelopeResponse(error_code=ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE)

    def answer(response: Any) -> None:
        node.world.slices.begin(_enveloped(route, correlation_id, response), call.reply, call.fail)

    inner_call = LocalCall(route, caller, call.now_ms, answer, call.fail)
    inner_call.is_long = call.is_long
    # If this node lost the control meanwhile, the handler says so: nothing is forwarded twice.
    response = route.handle_here(node, inner_call, held[0])
    if isinstance(response, GeneratorType):
        response = yield from response
    return None if response is None else (yield from _enveloped(route, correlation_id, response))


def _enveloped(route: Route, correlation_id: int, response: Any) -> Steps[EnvelopeResponse]:
    parts = yield from route.reply_steps(correlation_id, response)
    whole = joined(parts)
    return EnvelopeResponse(memoryview(whole)[LENGTH_BYTES:])
