"""Requests that only the active controller can answer, sent there by whatever node a client asked.

A forwarded request travels in an Envelope, as in Kafka, and its reply comes back as the bytes for the client. While no
controller can be found it is tried again, so that a change of controllers is a delay and not an error; after a while
the request is handled here, which answers that there is no controller.
"""

from __future__ import annotations

from collections.abc import Callable
from types import GeneratorType
from typing import Any

from skidway.broker.api.call import Call, Handle, LocalCall, answer_later
from skidway.broker.api.caller import Caller, this_node, to_envelope
from skidway.broker.services import Services
from skidway.errors import ErrorCode
from skidway.ports import Buffer, FileSlice
from skidway.steps import Steps
from skidway.wire.framing import joined
from skidway.wire.headers import write_request_header
from skidway.wire.message import Message
from skidway.wire.registry import api
from skidway.wire.schema.envelope import EnvelopeRequest, EnvelopeResponse

CHANNEL = "forward"
RETRY_MS = 50
PATIENCE_MS = 10_000


def forwarded(handle: Handle, stays_here: Callable[[Any], bool] | None = None) -> Handle:
    """The handler for any node: it answers here if this is the controller, else it forwards the request."""

    def handle_or_forward(node: Services, call: Call, request: Any) -> Any:
        if node.controller.answers_here or (stays_here is not None and stays_here(request)):
            return handle(node, call, request)
        return _forward(node, call, handle, request)

    return handle_or_forward


def _forward(node: Services, call: Call, handle: Handle, request: Message) -> Steps[None]:
    parts: list[Buffer | FileSlice] = [
        write_request_header(call.route.key, call.version, call.correlation_id, call.caller.client_id)
    ]
    codec = api(call.route.key).request
    if call.is_long:
        yield from codec.stepwise_encoder(call.version)(request, parts)
    else:
        codec.encoder(call.version)(request, parts)
    whole = joined(parts)
    _Forwarded(node, call, handle, request, to_envelope(call.caller, whole)).send()


class _Forwarded:
    __slots__ = ("_call", "_deadline_ms", "_envelope", "_handle", "_node", "_request")

    def __init__(self, node: Services, call: Call, handle: Handle, request: Message, envelope: EnvelopeRequest) -> None:
        self._node = node
        self._call = call
        self._handle = handle
        self._request = request
        self._deadline_ms = call.now_ms + PATIENCE_MS
        self._envelope = envelope

    def send(self) -> None:
        now_ms = self._node.world.clock.monotonic_ms()
        timeout_ms = self._deadline_ms - now_ms
        if timeout_ms <= 0 or self._node.controller.is_here:
            self._answer_here()
        else:
            self._node.controller.ask(self._envelope, self._on_answer, now_ms, timeout_ms, CHANNEL)

    def _on_answer(self, response: Message | None) -> None:
        if self._call.gone:
            return
        if isinstance(response, EnvelopeResponse) and response.error_code == 0 and response.response_data is not None:
            self._call.reply_with(response.response_data)
            return
        if isinstance(response, EnvelopeResponse) and response.error_code != ErrorCode.NOT_CONTROLLER:
            self._answer_here()
            return
        self._node.world.timers.at(self._node.world.clock.monotonic_ms() + RETRY_MS, self.send)

    def _answer_here(self) -> None:
        handle_later(self._node, self._call, self._handle, self._request)


def ask_here(
    node: Services, caller: Caller, request: Message, now_ms: int, respond: Callable[[Message | None], None]
) -> None:
    """Have this node's own handler answer a request of this node."""
    assert request.__key__ is not None
    route = node.routes.newest(request.__key__)
    handle_later(node, LocalCall(route, caller, now_ms, respond), route.handle_here, request)


def ask_node(
    node: Services,
    node_id: int,
    channel: str,
    request: Message,
    now_ms: int,
    timeout_ms: int,
    respond: Callable[[Message | None], None],
) -> None:
    """Ask a node, which may be this one."""
    if node_id == node.world.settings.node_id:
        ask_here(node, this_node(node_id), request, now_ms, respond)
    else:
        node.peers.ask(node_id, channel, request, now_ms, timeout_ms, respond)


def handle_later(node: Services, call: Call, handle: Handle, request: Message) -> None:
    """Have a handler answer a call outside of a connection's pass over its frames."""
    response = handle(node, call, request)
    if isinstance(response, GeneratorType):
        answer_later(node.world.slices, call, response)
    elif response is not None:
        call.reply(response)
