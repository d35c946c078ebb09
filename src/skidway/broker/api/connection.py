"""One client connection: whole frames in, replies out in the order of their requests.

The shell hands over what it received and sends what it finds in `outbox`. Requests of one connection are handled
as they come, also while an earlier one still waits (a long poll, a sync); only their replies keep the order.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable
from types import GeneratorType

from skidway.broker.api.call import Hangup, Malformed, Part
from skidway.broker.api.caller import anonymous
from skidway.broker.api.wire_call import WireCall
from skidway.broker.services import Services
from skidway.errors import InvalidRequest
from skidway.limits import PART_BYTES
from skidway.ports import FileSlice
from skidway.runtime.slices import Work
from skidway.steps import Steps
from skidway.wire.headers import read_request_header
from skidway.wire.other_protocols import FIRST_BYTES, advice

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
        "pending",
        "receiving",
        "waiting_bytes",
        "work",
        "yielded",
    )

    def __init__(self, node: Services, peer: str, listener: str) -> None:
        """`listener` is the name of the one by which the peer came."""
        self.node = node
        node.counts.connections_opened += 1
        self.peer = peer
        self.caller = anonymous(peer, listener, is_node=not node.world.settings.authenticates)
        """Of the last request: all of them come from one, who may change the client id."""
        self.outbox: list[Part] = []
        self.pending: deque[WireCall] = deque()
        self.on_ready: Callable[[], None] = _nothing_to_do
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
        """A call that had to wait has its reply."""
        assert call.parts is not None
        self._wait(_bytes_in_memory(call.parts))
        if not self.pending or self.pending[0] is not call:
            return
        self._release()
        if not self.receiving:
            self.on_ready()

    def on_bug(self, bug: Exception) -> None:
        self.bug = bug
        if not self.receiving:
            self.on_ready()

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
            if not self.node.serving and not route.early:
                raise Hangup("this node is not ready for clients yet")
            caller = self.caller
            if client_id != caller.client_id:
                caller = self.caller = caller.named(client_id)
            size = len(frame)
            in_steps = size > LARGE_BYTES and route.decode_steps is not None and not route.tried_at_once
            request = None
            if not in_steps:
                try:
                    request, _ = route.decode(frame, position)
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
        if response is not None:
            if isinstance(response, GeneratorType):
                self._begin(call, call.answer([response]))
                return
            if not self.pending:
                parts = route.reply(correlation_id, response)
                self.pass_bytes += len(parts[0]) + PART_BYTES * len(parts)
                self.outbox += parts
                return
            call.parts = route.reply(correlation_id, response)
            self._wait(_bytes_in_memory(call.parts))
            self.pending.append(call)
        elif not call.silent:
            self.pending.append(call)
            self._release()

    def _begin(self, call: WireCall, steps: Steps[None]) -> None:
        """Work on a request in steps. As long as it takes no later request of this connection is handled: what a
        client sends behind it, it expects to happen after it."""
        self.pending.append(call)

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
        if not work.over:
            call.is_long = True
            call.on_gone = work.cancel
            self.work = work

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
    return sum(len(part) for part in parts if not isinstance(part, FileSlice)) + PART_BYTES * len(parts)
