"""One request that came in a frame by a connection, from its bytes to the bytes of its reply."""

from __future__ import annotations

from collections.abc import Callable
from types import GeneratorType
from typing import Any, Protocol

from skidway.broker.api.call import Call, Malformed, Part, Route
from skidway.broker.api.caller import Caller
from skidway.broker.services import Services
from skidway.errors import InvalidRequest
from skidway.ports import Buffer
from skidway.steps import Steps
from skidway.wire.release import release


class Origin(Protocol):
    """The connection by which a request came."""

    node: Services
    gone: bool
    on_closed: Callable[[], None]

    def on_reply(self, call: WireCall) -> None:
        """A call that had to wait has its reply."""
        ...

    def on_bug(self, bug: Exception) -> None: ...

    def keep_buffer(self) -> bool:
        """Whether the bytes that are being handled stay as they are."""
        ...


def _nothing_more(_: None) -> None:
    pass


class WireCall(Call):
    """A request that came in a frame, and the place of its reply in its connection's order."""

    __slots__ = ("connection", "parts")

    def __init__(self, connection: Origin, route: Route, correlation_id: int, caller: Caller, now_ms: int) -> None:
        self.connection = connection
        self.route = route
        self.version = route.version
        self.correlation_id = correlation_id
        self.caller = caller
        self.now_ms = now_ms
        self.silent = False
        self.is_long = False
        self.gone = connection.gone
        self.on_gone = None
        self.parts: list[Part] | None = None

    def reply(self, response: Any) -> None:
        assert self.parts is None, "a call is answered once"
        # It leads back here through whatever waited: thousands of such rings a second would be work for the collector.
        self.on_gone = None
        if self.gone:
            return
        if self.is_long:
            work = self.connection.node.world.slices.begin(self._reply_in_steps([response]), _nothing_more, self.fail)
            self.on_gone = None if work.over else work.cancel
            return
        try:
            self.parts = self.route.reply(self.correlation_id, response)
        except Exception as bug:
            self.fail(bug)
            return
        self.connection.on_reply(self)

    def serve(self, frame: Buffer, position: int) -> Steps[None]:
        """A large request from the beginning: decode it, handle it, reply."""
        assert self.route.decode_steps is not None
        try:
            request, _ = yield from self.route.decode_steps(frame, position)
        except InvalidRequest as error:
            raise Malformed(f"the request cannot be decoded: {error}") from error
        held = [request]
        del request
        yield from self.answer([self.route.handle(self.connection.node, self, held[0])])
        yield from release(held)

    def answer(self, held: list[Any]) -> Steps[None]:
        """Reply with what a handler returned, once it is there. The list must hold nothing else, and is emptied."""
        response = held.pop()
        if isinstance(response, GeneratorType):
            response = yield from response
        if response is None:
            return
        if self.is_long:
            held.append(response)
            del response
            yield from self._reply_in_steps(held)
        else:
            self.reply(response)

    def _reply_in_steps(self, held: list[Any]) -> Steps[None]:
        """With the one response in the list."""
        parts = yield from self.route.reply_steps(self.correlation_id, held[0])
        self._reply_parts(parts)
        yield from release(held)

    def _reply_parts(self, parts: list[Part]) -> None:
        assert self.parts is None, "a call is answered once"
        self.on_gone = None
        if not self.gone:
            self.parts = parts
            self.connection.on_reply(self)

    def reply_with(self, reply: Buffer) -> None:
        self._reply_parts([len(reply).to_bytes(4, "big") + bytes(reply)])

    def keep_request(self) -> bool:
        return self.is_long or self.connection.keep_buffer()

    def fail(self, bug: Exception) -> None:
        # The code that called us serves others, too: so nothing is raised, and the shell finds `Connection.bug`.
        if not self.gone:
            self.connection.on_bug(bug)

    def when_disconnected(self, act: Callable[[], None]) -> None:
        self.connection.on_closed = act
