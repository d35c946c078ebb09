"""Requests that only the active controller can answer, sent there by whatever node a client asked.

A forwarded request travels in an Envelope, as in Kafka, and its reply comes back as the bytes for the client. While no
controller can be found it is tried again, so that a change of controllers is a delay and not an error; after a while
the request is handled here, which answers that there is no controller.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from skidway.broker.call import Call, Handle, Route
from skidway.errors import ErrorCode
from skidway.ports import Buffer, FileSlice
from skidway.wire.headers import write_request_header
from skidway.wire.message import Message
from skidway.wire.registry import api
from skidway.wire.schema.envelope import EnvelopeRequest, EnvelopeResponse

if TYPE_CHECKING:
    from skidway.broker.node import Node

CHANNEL = "forward"
RETRY_MS = 50
PATIENCE_MS = 10_000


def forwarded(handle: Handle) -> Handle:
    """The handler for any node: here if this is the controller, else there."""

    def handle_or_forward(node: Node, call: Call, request: Any) -> Any:
        if node.controls or node.quorum.alone or isinstance(call, InnerCall):
            return handle(node, call, request)
        _Forwarded(node, call, handle, request).send()
        return None

    return handle_or_forward


class _Forwarded:
    __slots__ = ("_call", "_deadline_ms", "_envelope", "_handle", "_node", "_request")

    def __init__(self, node: Node, call: Call, handle: Handle, request: Message) -> None:
        self._node = node
        self._call = call
        self._handle = handle
        self._request = request
        self._deadline_ms = call.now_ms + PATIENCE_MS
        self._envelope = EnvelopeRequest(_encode(call, request), None, b"")

    def send(self) -> None:
        now_ms = self._node.clock.monotonic_ms()
        timeout_ms = self._deadline_ms - now_ms
        if timeout_ms <= 0 or self._node.controls:
            self._answer_here()
        else:
            self._node.ask_controller(self._envelope, self._on_answer, now_ms, timeout_ms, CHANNEL)

    def _on_answer(self, response: Message | None) -> None:
        if self._call.connection.gone:
            return
        if isinstance(response, EnvelopeResponse) and response.error_code == 0 and response.response_data is not None:
            self._call.reply_with(response.response_data)
            return
        if isinstance(response, EnvelopeResponse) and response.error_code != ErrorCode.NOT_CONTROLLER:
            self._answer_here()
            return
        self._node.timers.at(self._node.clock.monotonic_ms() + RETRY_MS, self.send)

    def _answer_here(self) -> None:
        response = self._handle(self._node, self._call, self._request)
        if response is not None:
            self._call.reply(response)


def _encode(call: Call, request: Message) -> bytes:
    parts: list[Buffer | FileSlice] = [
        write_request_header(call.route.key, call.version, call.correlation_id, call.client_id)
    ]
    api(call.route.key).request.encoder(call.version)(request, parts)
    return b"".join(part for part in parts if not isinstance(part, FileSlice))


class InnerCall(Call):
    """A request that came to its handler without a connection of its own: in an envelope, or from this very node."""

    __slots__ = ("_respond",)

    def __init__(
        self,
        outer: Call | None,
        route: Route,
        correlation_id: int,
        client_id: str | None,
        now_ms: int,
        respond: Callable[[Any], None],
    ) -> None:
        super().__init__(outer.connection if outer is not None else None, route, correlation_id, client_id, now_ms)  # type: ignore[arg-type]
        self._respond = respond

    @property
    def client_host(self) -> str:
        return "/"

    def reply(self, response: Any) -> None:
        assert self.parts is None, "a call is answered once"
        self.parts = []
        self._respond(response)

    def fail(self, bug: Exception) -> None:
        if self.connection is not None:
            super().fail(bug)
        else:
            raise bug


def ask_here(node: Node, request: Message, now_ms: int, respond: Callable[[Message | None], None]) -> None:
    """Have this node's own handler answer a request of this node."""
    assert request.__key__ is not None
    route = node.routes.newest(request.__key__)
    call = InnerCall(None, route, 0, None, now_ms, respond)
    response = route.handle(node, call, request)
    if response is not None:
        respond(response)
