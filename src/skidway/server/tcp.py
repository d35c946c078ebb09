"""One client's socket: bytes into its node connection, replies out, and every bound kept.

All whole frames of one read are handled in one pass and their replies leave together. A pass never nests in another:
what the node makes ready meanwhile for other connections is sent at the end of the turn.
An error, a bug included, costs the connection it happened on and no other.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import TYPE_CHECKING, cast

from skidway.server.receiving import GIVEN_BYTES_MIN
from skidway.server.tail import Tail

if TYPE_CHECKING:
    from skidway.server.listener import Listener
    from skidway.server.sending import Sender
    from skidway.server.served import ServedConnection

log = logging.getLogger("skidway.tcp")

LINGER_MS = 10_000
"""How long a connection that is to close may take to send its last replies."""
STALL_MS_MAX = 2_000
"""When replies take too much memory, who reads nothing of its own for so long is dropped."""
FAIR_BYTES_PER_SECOND = 16 * 1024
"""A frame that takes longer than `frame_complete_ms` is still awaited as long as it comes at this rate."""

# Why a socket is not read at the moment; it is read when none of these holds.
WAITS_FOR_NODE = 1
WAITS_FOR_PEER = 2
WAITS_FOR_MEMORY = 4
CLOSING = 8


class Client(asyncio.BufferedProtocol):
    __slots__ = (
        "_aborted",
        "_clients",
        "_close_when_answered",
        "_counted_bytes",
        "_handling",
        "_in_line",
        "_ready",
        "_seen_bytes",
        "_tail",
        "_transport",
        "_waits",
        "active_ms",
        "close_by_ms",
        "connection",
        "ip",
        "listener",
        "partial_since_ms",
        "peer",
        "sender",
    )

    def __init__(self, listener: Listener) -> None:
        self.listener = listener
        self._clients = listener.clients
        self._tail = Tail(listener.clients.memory, self)
        self.connection: ServedConnection | None = None
        self.sender: Sender | None = None
        self.peer = self.ip = ""
        self.active_ms = 0
        self.partial_since_ms = 0  # 0: no partial frame; moves on when enough of a long one has come
        self._seen_bytes = 0  # of the partial frame at that time
        self.close_by_ms = 0  # 0: not closing
        self._close_when_answered = False
        self._aborted = False
        self._transport: asyncio.Transport | None = None
        self._waits = 0
        self._handling = False
        self._ready = False
        self._in_line = False  # for another turn
        self._counted_bytes = 0  # of its queued replies, in the sum of all

    # The loop's side.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        address = transport.get_extra_info("peername") or ("?", 0)
        self.ip = address[0]
        self.peer = f"[{self.ip}]:{address[1]}" if ":" in self.ip else f"{self.ip}:{address[1]}"
        if not self._clients.admit(self):
            self._transport.abort()
            return
        try:
            self._begin(self._transport)
        except OSError as error:  # a peer that is gone already
            self.abort(str(error))
        except Exception:
            self._clients.report_bug(self, "connecting")
            self.abort("a bug")

    def _begin(self, transport: asyncio.Transport) -> None:
        own_socket = transport.get_extra_info("socket")
        own_socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        own_socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        listener = self.listener
        if listener.send_buffer_bytes >= 0:
            own_socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, listener.send_buffer_bytes)
        self.sender = listener.carriage.make_sender(self._clients.loop, transport, self._on_sent, self._on_broken)
        self.active_ms = self._clients.clock.monotonic_ms()
        self.connection = listener.door.connect(self.peer, listener.spec.name)
        self.connection.on_ready, self.connection.peer_left = self.on_ready, self.sender.has_left

    def get_buffer(self, sizehint: int) -> memoryview:
        tail = self._tail
        if tail.holding is not None:
            return tail.holding[tail.end :]
        if tail.stash is None:
            return tail.memory.reading_buffer()
        length = len(tail.stash)
        scratch = tail.memory.scratch
        scratch[:length] = tail.stash
        return scratch[length:]

    def buffer_updated(self, nbytes: int) -> None:
        tail = self._tail
        if tail.holding is not None:
            tail.end += nbytes
            self._handle(tail.holding, tail.start, tail.end)
        elif tail.stash is None:
            self._handle(tail.memory.scratch, 0, nbytes)
        else:
            # `get_buffer` has put the stash in front.
            self._handle(tail.memory.scratch, 0, len(tail.stash) + nbytes)

    def eof_received(self) -> bool:
        """The peer sends no more; it still gets the replies it waits for, unless they are such that nobody must have
        them in vain."""
        if self.connection is None or self.connection.needs_its_peer:
            return False
        self._close_soon(when_answered=True)
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        connection, self.connection = self.connection, None
        self._drop_tail()
        if self.sender is not None:
            self.sender.close()
            self._count_queued()
        self._clients.forget(self)
        if connection is None:
            return
        try:
            connection.closed()
        except Exception:
            self._clients.report_bug(self, "closing")

    # The node's side.

    def on_ready(self) -> None:
        """Replies became ready, or the node can take more requests. Sent at the end of the turn, or by `_handle`."""
        if not self._ready and (not self._handling or _awaits_sent(self.connection)):
            self._ready = True
            self._clients.mark_ready(self)

    def send_ready(self) -> None:
        self._ready = False
        if self.connection is None:
            return
        if isinstance(self.connection.bug, self._clients.hangup):
            self._hang_up(self.connection.bug)
            return
        if self.connection.bug is not None:
            self._clients.report_bug(self, "answering a request", self.connection.bug)
            self.abort("a bug")
            return
        self._send_outbox()
        _tell_sent(self.connection, self.sender)
        if self._waits & WAITS_FOR_NODE and not self._in_line:
            self._take_up_again()
        self._close_if_answered()

    def take_turn(self) -> None:
        """Go on with the requests that were left so that others had their turn."""
        self._in_line = False
        if self.connection is None or self.sender is None:
            return
        if self.sender.is_broken():
            # A socket that is not read does not tell that its peer is gone.
            self.abort("reset by the peer")
        elif self._waits & WAITS_FOR_NODE:
            self._take_up_again()
            self._close_if_answered()

    # What all clients share.

    def on_memory(self) -> None:
        if not self._waits & WAITS_FOR_MEMORY:
            return
        self._waits &= ~WAITS_FOR_MEMORY
        self._take_up_again()

    def check_time(self, now_ms: int) -> None:
        """Called now and then: idle for too long, a frame that never becomes whole, a close that takes too long."""
        limits = self._clients.limits
        if self.close_by_ms:
            if now_ms >= self.close_by_ms:
                self.abort("it did not read its last replies in time")
            return
        if self.is_stalled(now_ms) and (shortage := self._clients.shortage) is not None:
            self.shed(shortage)
            return
        # Also who waits for memory: it holds some, and memory that is short for so long must be freed by somebody.
        if self.partial_since_ms and not self._waits & ~WAITS_FOR_MEMORY:
            waited_ms = now_ms - self.partial_since_ms
            if waited_ms > limits.frame_complete_ms:
                came_bytes = len(self._tail) - self._seen_bytes
                if came_bytes * 1000 < waited_ms * FAIR_BYTES_PER_SECOND:
                    self.abort(f"its request was still incomplete after {waited_ms} ms")
                    return
                self.partial_since_ms = now_ms
                self._seen_bytes = len(self._tail)
        if now_ms - self.active_ms > limits.connection_idle_ms and not (self.connection and self.connection.pending):
            self.abort(f"idle for {now_ms - self.active_ms} ms")

    @property
    def queued_bytes(self) -> int:
        """Memory of its replies that its socket has not taken yet."""
        return self._counted_bytes

    def is_stalled(self, now_ms: int) -> bool:
        """Whether replies wait for it and it has not read any for a while."""
        waits = self.sender is not None and not self.sender.is_idle
        return waits and now_ms - self.active_ms > STALL_MS_MAX

    def shed(self, why: str) -> None:
        """Its replies take what others need: give them up, and the connection with them."""
        self._clients.report_shed(self, why)
        self.abort(f"it does not read its replies, and {why}")
        if self.sender is not None:
            self.sender.drop()
            self._count_queued()

    def drain(self) -> None:
        """Read no more, answer what is under way, then close."""
        self._close_soon(when_answered=True)

    def abort(self, reason: str) -> None:
        """Drop the peer now, with whatever it still waits for."""
        log.debug("%s dropped: %s", self.peer, reason)
        self._aborted = True
        self._stop_reading(CLOSING)
        if self._transport is not None:
            self._transport.abort()

    # Handling.

    def _handle(self, view: memoryview, start: int, end: int) -> None:
        """Offer the bytes to the node, send its replies, keep the tail."""
        connection = self.connection
        if connection is None or self._waits & CLOSING:
            return
        self.active_ms = now_ms = self._clients.clock.monotonic_ms()
        self._handling = True
        if offered := view is self._tail.holding and len(view) >= GIVEN_BYTES_MIN:
            connection.offered = True
        try:
            handled = connection.receive(view[start:end] if start or end < len(view) else view, now_ms)
            if connection.outbox:
                self._send_outbox()
        except self._clients.hangup as reason:
            self._hang_up(reason)
            return
        except Exception:
            self._clients.report_bug(self, "handling a request")
            self.abort("a bug")
            return
        finally:
            self._handling = False
            if offered:
                _end_offer(connection, self._tail)
        if handled == end - start:
            if self.partial_since_ms:
                self._drop_tail()
        else:
            self._keep_tail(view, start + handled, end, began=handled > 0 or not self.partial_since_ms)
            if connection.yielded and not self._in_line:
                self._in_line = True
                self._clients.stand_in_line(self)
        self._clients.turn.check_deadline()

    def _send_outbox(self) -> None:
        connection, sender = self.connection, self.sender
        if connection is None or sender is None:
            return
        if self._aborted:
            # A reply after one that was given up in its middle would be taken for the rest of that one.
            connection.outbox.clear()
        elif connection.outbox:
            sender.send(connection.outbox)
            connection.outbox.clear()
            self._count_queued()
            self._clients.check_replies()
            if sender.queued_bytes > self._queued_bytes_max():
                self._stop_reading(WAITS_FOR_PEER)

    def _count_queued(self) -> None:
        assert self.sender is not None
        queued_bytes = self.sender.queued_bytes
        self._clients.queued_bytes += queued_bytes - self._counted_bytes
        self._clients.waiting += (queued_bytes > 0) - (self._counted_bytes > 0)
        self._counted_bytes = queued_bytes

    def _queued_bytes_max(self) -> int:
        return 0 if self._clients.replies_too_many else self._clients.limits.reply_bytes_max

    def _take_up_again(self) -> None:
        """Offer a kept tail once more, and read on unless something still has to be waited for."""
        if self.connection is None or self._waits & ~WAITS_FOR_NODE:
            return
        self._waits &= ~WAITS_FOR_NODE
        if self.partial_since_ms:
            self.partial_since_ms = self._clients.clock.monotonic_ms()  # the time it had to wait is not its own
            tail = self._tail
            if tail.holding is not None:
                self._handle(tail.holding, tail.start, tail.end)
            elif tail.stash is not None:
                scratch = tail.memory.scratch
                scratch[: len(tail.stash)] = tail.stash
                self._handle(scratch, 0, len(tail.stash))
        if not self._waits and self._transport is not None:
            self._transport.resume_reading()

    def _hang_up(self, reason: Exception) -> None:
        self._clients.report_hangup(self, reason)
        self._send_outbox()
        self._close_soon(when_answered=False)

    def _close_soon(self, *, when_answered: bool) -> None:
        """Close once everything queued has left, and if wanted also what is still being worked on."""
        if self.close_by_ms and when_answered:
            return
        self.close_by_ms = self._clients.clock.monotonic_ms() + LINGER_MS
        self._close_when_answered = when_answered
        self._stop_reading(CLOSING)
        self._close_if_answered()

    def _close_if_answered(self) -> None:
        if not self.close_by_ms or self.connection is None or self.sender is None or not self.sender.is_idle:
            return
        if not (self._close_when_answered and self.connection.pending) and self._transport is not None:
            self._transport.close()

    def _stop_reading(self, reason: int) -> None:
        if not self._waits and self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()
        self._waits |= reason

    def _on_sent(self) -> None:
        """Bytes that had to wait went out."""
        self.active_ms = self._clients.clock.monotonic_ms()
        sender = self.sender
        assert sender is not None
        self._count_queued()
        if self._waits & WAITS_FOR_PEER and sender.queued_bytes <= self._queued_bytes_max() // 2:
            self._waits &= ~WAITS_FOR_PEER
            self._take_up_again()
        _tell_sent(self.connection, sender)
        self._close_if_answered()

    def _on_broken(self, error: Exception) -> None:
        if not isinstance(error, ConnectionError):
            log.warning("%s: a reply could not be sent: %s", self.peer, error)
        self.abort(str(error))

    # What is not handled yet.

    def _keep_tail(self, view: memoryview, position: int, end: int, *, began: bool) -> None:
        connection, memory = self.connection, self._tail.memory
        if connection is None:
            return
        if began:
            self.partial_since_ms = self.active_ms
            self._seen_bytes = 0
            memory.forget(self)
        if not self._tail.keep(view, position, end, connection.needed, waits=connection.paused):
            self._stop_reading(WAITS_FOR_MEMORY)
            memory.waiting.append(self)
        if connection.paused:
            self._stop_reading(WAITS_FOR_NODE)
            if began and not self._waits & WAITS_FOR_PEER:
                # It may have paused only because its outbox was full. It goes on in the next turn, after the others.
                self.on_ready()

    def _drop_tail(self) -> None:
        self._tail.let_go()
        self.partial_since_ms = 0
        self._tail.memory.forget(self)
        if self._tail.memory.waiting:
            self._clients.wake_memory()


def _end_offer(connection: ServedConnection, tail: Tail) -> None:
    connection.offered = False
    if connection.kept and tail.holding is not None:
        connection.kept = False
        tail.give_away()


def _awaits_sent(connection: ServedConnection | None) -> bool:
    return connection is not None and connection.awaits_sent


def _tell_sent(connection: ServedConnection | None, sender: Sender | None) -> None:
    """To a reply that is made as fast as it is read."""
    if connection is None or sender is None or not connection.awaits_sent:
        return
    if sender.is_idle and not connection.outbox:
        connection.sent()
