"""One client connection: whole frames in, replies out in the order of their requests.

The shell hands over what it received and sends what it finds in `outbox`. Requests of one connection are handled
as they come, also while an earlier one still waits (a long poll, a sync); only their replies keep the order.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable
from types import GeneratorType
from typing import Any

from skidway.broker.api.call import Call, Hangup, Malformed, Part, Route
from skidway.broker.api.caller import Caller, anonymous
from skidway.broker.services import Services
from skidway.errors import InvalidRequest
from skidway.limits import PART_BYTES
from skidway.ports import Buffer, FileSlice
from skidway.runtime.slices import Work
from skidway.steps import Steps, first_steps, resumed
from skidway.wire.headers import read_request_header
from skidway.wire.other_protocols import FIRST_BYTES, advice
from skidway.wire.release import release

FRAME_LENGTH = struct.Struct(">i")
FRAME_LENGTH_BYTES = 4
HEADER_BYTES_MIN = 8
PASS_BYTES_MAX = 1 << 20
"""Replies of one pass, in memory: small requests with large replies must not fill memory before anything is sent."""
TURN_MS_MAX = 10
"""So long one connection's requests are handled in one go; then the others have their turn."""
LARGE_BYTES = 32 << 10
"""A request above this is decoded in steps, and so is its reply encoded."""


class OtherProtocol(Malformed):
    """This peer does not speak Kafka's protocol: somebody has to change its settings."""


def _nothing_to_do() -> None:
    pass


def _nothing_more(_: None) -> None:
    pass


class WireCall(Call):
    """A request that came in a frame, and the place of its reply in its connection's order."""

    __slots__ = ("connection", "parts", "waits")

    def __init__(self, connection: Connection, route: Route, correlation_id: int, caller: Caller, now_ms: int) -> None:
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
        self.waits = False
        """Whether the pass over its frame has left it without a reply."""

    def reply(self, response: Any) -> None:
        assert self.parts is None, "a call is answered once"
        # It leads back here through whatever waited: thousands of such rings a second would be work for the collector.
        self.on_gone = None
        if self.gone:
            return
        if self.is_long:
            work = self.connection.slices.begin(self._reply_in_steps([response]), _nothing_more, self.fail)
            self.on_gone = None if work.over else work.cancel
            return
        try:
            self.parts = self.route.reply(self.correlation_id, response)
        except Exception as bug:
            self.fail(bug)
            return
        self.connection.on_reply(self)

    def serve(self, frame: Buffer, position: int) -> Steps[None]:
        """A large request from the beginning: decode it, handle it, reply. However that ends, it is freed in steps."""
        assert self.route.decode_steps is not None
        held: list[Any] = []
        refusal: str | None = None
        try:
            try:
                yield from self.route.decode_steps(frame, position, held)
            except InvalidRequest as error:
                # The error itself refers to the frames that decoded, and they to the request.
                refusal = f"the request cannot be decoded: {error}"
            if refusal is None:
                yield from self.answer([self.route.handle(self.connection.node, self, held[0])])
            yield from release(held)
        finally:
            self._free(held)
        if refusal is not None:
            raise Malformed(refusal)

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
        try:
            parts = yield from self.route.reply_steps(self.correlation_id, held[0])
            self._reply_parts(parts)
            yield from release(held)
        finally:
            self._free(held)

    def _free(self, held: list[Any]) -> None:
        """What is left of a message because its peer has gone."""
        if held:
            self.connection.slices.begin_unwatched(release(held))

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

    def has_left(self) -> bool:
        return self.connection.peer_left()

    @property
    def origin(self) -> object:
        return self.connection


class Connection:
    __slots__ = (
        "bug",
        "caller",
        "gone",
        "kept",
        "needed",
        "node",
        "offered",
        "on_closed",
        "on_ready",
        "outbox",
        "pass_bytes",
        "paused",
        "peer",
        "peer_left",
        "pending",
        "receiving",
        "slices",
        "waiting_bytes",
        "work",
        "yielded",
    )

    awaits_sent = False

    def __init__(self, node: Services, peer: str, listener: str) -> None:
        """`listener` is the name of the one by which the peer came."""
        self.node = node
        self.slices = node.world.slices
        node.counts.connections_opened += 1
        self.peer = peer
        self.caller = anonymous(peer, listener, is_node=not node.world.settings.authenticates)
        """Of the last request: all of them come from one, who may change the client id."""
        self.outbox: list[Part] = []
        self.pending: deque[WireCall] = deque()
        self.on_ready: Callable[[], None] = _nothing_to_do
        self.peer_left: Callable[[], bool] = lambda: False
        self.on_closed: Callable[[], None] = _nothing_to_do
        self.needed = 0
        self.pass_bytes = 0
        self.paused = False
        self.bug: Exception | None = None
        """A reply that was waited for could not be made: the shell reports it and drops the connection."""
        self.gone = False
        self.receiving = False
        self.offered = False
        """Set by the shell during `receive`: it gives its buffer away if `kept` is true afterwards."""
        self.kept = False
        self.waiting_bytes = 0
        self.yielded = False
        self.work: Work | None = None
        """What the last request takes more than one turn for. Those behind it wait until it is over."""

    @property
    def needs_its_peer(self) -> bool:
        return any(call.route.takes for call in self.pending)

    def receive(self, data: memoryview, now_ms: int) -> int:
        """Handle every whole frame in `data`; returns how many bytes are done with.

        `needed` then tells the full size of the frame that is not whole yet, or 0 if that is not known.
        `paused` tells that too much waits for an answer: offer the rest again after `on_ready`. `yielded` with it
        tells that nothing waits but the other connections: offer the rest again after their turn.
        """
        position, end = 0, len(data)
        frame_bytes_max = self.node.world.limits.frame_bytes_max
        clock = self.node.world.clock
        self.needed = self.pass_bytes = 0
        self.paused = self.yielded = False
        self.receiving = True
        try:
            while end - position >= FRAME_LENGTH_BYTES:
                (length,) = FRAME_LENGTH.unpack_from(data, position)
                if length < HEADER_BYTES_MIN or length > frame_bytes_max:
                    raise _refusal(bytes(data[position : position + FIRST_BYTES]), length, frame_bytes_max)
                frame_end = position + FRAME_LENGTH_BYTES + length
                if frame_end > end:
                    self.needed = FRAME_LENGTH_BYTES + length
                    break
                if self.work is not None or (self.pending and self._is_full()):
                    self.paused = True
                    break
                # A small request may have a large answer, so a full buffer of them is neither cheap nor short.
                if position and (self.pass_bytes > PASS_BYTES_MAX or clock.monotonic_ms() - now_ms >= TURN_MS_MAX):
                    self.paused = self.yielded = True
                    break
                self._handle(data[position + FRAME_LENGTH_BYTES : frame_end], now_ms)
                position = frame_end
                if self.bug is not None:
                    raise self.bug
        finally:
            self.receiving = False
        return position

    def keep_buffer(self) -> bool:
        """Take the buffer whose bytes `receive` is handling from the shell, which gives away large ones: copying
        100 MiB would take too long. False: it is the shell's, and what is needed later must be copied."""
        if self.offered:
            self.kept = True
        return self.kept

    def on_reply(self, call: WireCall) -> None:
        """A call has its reply. Of one that is still being handled, `_handle` finds it."""
        assert call.parts is not None
        if not call.waits:
            return
        waits, waited_ms = call.route.waits, self.node.world.clock.monotonic_ms() - call.now_ms
        waits.count += 1
        waits.total_ms += waited_ms
        waits.times.add(waited_ms * 1_000)
        if waited_ms > waits.longest_ms:
            waits.longest_ms = waited_ms
        pending = self.pending
        if not pending or pending[0] is not call:
            self._wait(_bytes_in_memory(call.parts))
            return
        self.outbox += call.parts
        pending.popleft()
        if pending and pending[0].parts is not None:
            self._release()
        if not self.receiving:
            self.on_ready()

    def on_bug(self, bug: Exception) -> None:
        self.bug = bug
        if not self.receiving:
            self.on_ready()

    def sent(self) -> None:
        raise AssertionError("a reply of Kafka's protocol does not ask when it was sent")

    def closed(self) -> None:
        """The peer is gone: whatever still waits for it is given up."""
        if not self.gone:
            self.node.counts.connections_closed += 1
        self.gone = True
        for call in self.pending:
            call.gone = True
        self.on_closed()
        for call in self.pending:
            if call.parts is None and call.on_gone is not None:
                call.on_gone()
        self.pending.clear()
        self.outbox.clear()
        self._wait(-self.waiting_bytes)

    def _handle(self, frame: memoryview, now_ms: int) -> None:
        try:
            key, version, correlation_id, client_id, position = read_request_header(frame)
            route = self.node.routes[key, version]
            if not route.early and not self.node.world.serving:
                raise Hangup("this node is not ready for clients yet")
            caller = self.caller
            if client_id != caller.client_id:
                caller = self.caller = caller.named(client_id)
            size = len(frame)
            in_steps = size > LARGE_BYTES and route.decode_steps is not None and not route.tried_at_once
            request = None
            if not in_steps:
                try:
                    request, _ = route.decode(frame, position, route.elements_at_once)
                except InvalidRequest:
                    if not route.tried_at_once:
                        raise
                    # Perhaps there is nothing wrong but the number of its elements.
                    in_steps = True
        except KeyError:
            raise Malformed(f"API {key} version {version} is not served") from None
        except InvalidRequest as error:
            raise Malformed(f"the request cannot be decoded: {error}") from error
        route.requests += 1
        route.request_bytes += size
        call = WireCall(self, route, correlation_id, caller, now_ms)
        if in_steps:
            call.is_long = True
            # Unless the buffer is ours, the shell reads into it again while the work goes on.
            self._begin(call, call.serve(frame if self.keep_buffer() else bytearray(frame), position))
            return
        response = route.handle(self.node, call, request)
        if isinstance(response, GeneratorType):
            # Most are over after a few steps: then they cost no more than a function.
            try:
                wanted = first_steps(response)
            except StopIteration as end:
                response = end.value
            else:
                self._begin(call, call.answer([resumed(response, wanted)]))
                return
        if response is not None:
            parts = route.reply(correlation_id, response)
        elif call.silent:
            return
        elif call.parts is None:
            self._await(call)
            return
        else:
            parts = call.parts
        if not self.pending:
            self.pass_bytes += len(parts[0]) + PART_BYTES * len(parts)
            self.outbox += parts
        else:
            call.parts = parts
            self._wait(_bytes_in_memory(parts))
            self.pending.append(call)

    def _begin(self, call: WireCall, steps: Steps[None]) -> None:
        """Work on a request in steps. As long as it takes no later request of this connection is handled: what a
        client sends behind it, it expects to happen after it."""
        self._await(call)

        def over() -> None:
            self.work = None
            if call.silent:
                self.pending.remove(call)
            if not self.receiving:
                self.on_ready()

        def done(_: None) -> None:
            over()

        def failed(error: Exception) -> None:
            self.on_bug(error)
            over()

        work = self.node.world.slices.begin(steps, done, failed)
        call.goes_on_in(work)
        if not work.over:
            self.work = work

    def _await(self, call: WireCall) -> None:
        """Its reply comes later, or has come although its handler is not done."""
        call.waits = True
        self.pending.append(call)
        if call.parts is not None:
            self._wait(_bytes_in_memory(call.parts))
            self._release()

    def _is_full(self) -> bool:
        node, limits = self.node, self.node.world.limits
        return (
            len(self.pending) >= limits.inflight_requests_max
            or self.waiting_bytes >= limits.reply_bytes_max
            or (node.waiting_bytes >= limits.replies_bytes_max and self.waiting_bytes > 0)
        )

    def _wait(self, size: int) -> None:
        """So many more bytes of replies wait behind an older request (fewer, if negative)."""
        self.waiting_bytes += size
        self.node.waiting_bytes += size

    def _release(self) -> None:
        """Move the replies that nothing older holds back to the outbox."""
        pending = self.pending
        while pending and (parts := pending[0].parts) is not None:
            self._wait(-_bytes_in_memory(parts))
            self.outbox += parts
            pending.popleft()


def _refusal(first: bytes, length: int, frame_bytes_max: int) -> Hangup:
    spoken = advice(first)
    if spoken is not None:
        return OtherProtocol(spoken)
    return Malformed(f"it sent a frame of {length} bytes; {HEADER_BYTES_MIN} to {frame_bytes_max} are allowed")


def _bytes_in_memory(parts: list[Part]) -> int:
    size = PART_BYTES * len(parts)
    for part in parts:
        if part.__class__ is not FileSlice:
            size += len(part)
    return size
