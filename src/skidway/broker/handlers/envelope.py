"""Envelope (key 58), v0: a client's request that another node could not answer, for the active controller."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from skidway.broker.forwarding import InnerCall
from skidway.errors import ErrorCode, InvalidRequest
from skidway.wire.headers import read_request_header
from skidway.wire.schema.envelope import EnvelopeRequest, EnvelopeResponse

if TYPE_CHECKING:
    from skidway.broker.call import Call
    from skidway.broker.node import Node

LENGTH_BYTES = 4


def handle(node: Node, call: Call, request: EnvelopeRequest) -> EnvelopeResponse | None:
    if not node.controls:
        return EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)
    data = memoryview(bytes(request.request_data))
    try:
        key, version, correlation_id, client_id, position = read_request_header(data)
        route = node.routes[key, version]
        if not route.forwarded:
            return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
        inner, _ = route.decode(data, position)
    except (KeyError, InvalidRequest):
        return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)

    def answer(response: Any) -> None:
        (reply,) = route.reply(correlation_id, response)
        call.reply(EnvelopeResponse(memoryview(reply)[LENGTH_BYTES:]))  # type: ignore[arg-type]

    response = route.handle(node, InnerCall(call, route, correlation_id, client_id, call.now_ms, answer), inner)
    if response is not None:
        answer(response)
    return None
