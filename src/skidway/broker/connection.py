"""One client connection: whole frames in, replies out in the order of their requests.

The shell hands over what it received and sends what it finds in `outbox`. Requests of one connection are handled
as they come, also while an earlier one still waits (a long poll, a sync); only their replies keep the order.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from skidway.broker.call import Call, Part
from skidway.errors import InvalidRequest
from skidway.ports import FileSlice
from skidway.wire.headers import read_request_header

if TYPE_CHECKING:
    from skidway.broker.node import Node

FRAME_LENGTH = struct.Struct(">i")
FRAME_LENGTH_BYTES = 4
HEADER_BYTES_MIN = 8
PASS_BYTES_MAX = 1 << 20
"""Replies of one pass, in memory: small requests with large replies must not fill memory before anything is sent."""
TURN_MS_MAX = 10
"""So long one connection's requests are handled in one go; then the others have their turn."""


class Hangup(Exception):
    """This peer must be dropped, after what is in its outbox has been sent."""


def _nothing_to_do() -> None:
    pass


class Connection:
    __slots__ = (
        "bug",
        "gone",
        "needed",
        "node",
        "on_closed",
        "on_ready",
        "outbox",
        "pass_bytes",
        "paused",
        "peer",
        "pending",
        "receiving",
        "waiting_bytes",
        "yielded",
    )

    def __init__(self, node: Node, peer: str) -> None:
        self.node = node
        self.peer = peer
        self.outbox: list[Part] = []
        self.pending: deque[Call] = deque()
        self.on_ready: Callable[[], None] = _nothing_to_do
        self.on_closed: Callable[[], None] = _nothing_to_do
        self.needed = 0
        self.pass_bytes = 0
        self.paused = False
        self.bug: Exception | None = None
        """A reply that was waited for could not be made: the shell reports it and drops the connection."""
        self.gone = False
        self.receiving = False
        self.waiting_bytes = 0
        self.yielded = False

    def receive(self, data: memoryview, now_ms: int) -> int:
        """Handle every whole frame in `data`; returns how many bytes are done with.

        `needed` then tells the full size of the frame that is not whole yet, or 0 if that is not known.
        `paused` tells that too much waits for an answer: offer the rest again after `on_ready`. `yielded` with it
        tells that nothing waits but the other connections: offer the rest again after their turn.
        """
        position, end = 0, len(data)
        frame_bytes_max = self.node.limits.frame_bytes_max
        clock = self.node.clock
        self.needed = self.pass_bytes = 0
        self.paused = self.yielded = False
        self.receiving = True
        try:
            while end - position >= FRAME_LENGTH_BYTES:
                (length,) = FRAME_LENGTH.unpack_from(data, position)
                if length < HEADER_BYTES_MIN or length > frame_bytes_max:
                    raise Hangup(f"a frame of {length} bytes; {HEADER_BYTES_MIN} to {frame_bytes_max} are served")
                frame_end = position + FRAME_LENGTH_BYTES + length
                if frame_end > end:
                    self.needed = FRAME_LENGTH_BYTES + length
                    break
                if self.pending and self._is_full():
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

    def on_reply(self, call: Call) -> None:
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
        self.gone = True
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
            request, _ = route.decode(frame, position)
        except KeyError:
            raise Hangup(f"API {key} version {version} is not served") from None
        except InvalidRequest as error:
            raise Hangup(f"a request that cannot be read: {error}") from error
        call = Call(self, route, correlation_id, client_id, now_ms)
        response = route.handle(self.node, call, request)
        if response is not None:
            if not self.pending:
                parts = route.reply(correlation_id, response)
                self.pass_bytes += len(parts[0])
                self.outbox += parts
                return
            call.parts = route.reply(correlation_id, response)
            self._wait(_bytes_in_memory(call.parts))
            self.pending.append(call)
        elif not call.silent:
            self.pending.append(call)
            self._release()

    def _is_full(self) -> bool:
        node, limits = self.node, self.node.limits
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


def _bytes_in_memory(parts: list[Part]) -> int:
    return sum(len(part) for part in parts if not isinstance(part, FileSlice))
