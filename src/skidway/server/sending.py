"""Replies to one socket: as many as possible in one system call, file slices by sendfile.

The transport only reads; sending goes straight to its descriptor, which stays valid until `connection_lost` returned.
What the socket does not take waits in a queue, and a duplicate of the descriptor is watched until it takes more (the
loops refuse to watch a descriptor that belongs to a transport). The duplicate exists only while something waits.
No slice is read before the socket has room: a peer that does not read its replies costs no copy of them.
"""

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable
from typing import Protocol

from skidway.limits import KIB, MIB, PART_BYTES
from skidway.ports import Buffer, FileSlice

Part = Buffer | FileSlice

BUFFERS_PER_SEND_MAX = 1024  # IOV_MAX
SMALL_SLICE_BYTES = 16 * KIB
"""Up to this, reading a slice and sending it together with its neighbours is cheaper than a sendfile of its own."""
JOINED_BYTES_MAX = 256 * KIB
"""Up to this, buffers are joined for one send; more of them are handed to the kernel as they are."""
RUN_BYTES_MAX = 256 * KIB
"""How much of small slices is read for one system call; what the socket does not take of it is read again later."""
SENDFILE_BYTES_MAX = MIB
TURN_BYTES_MAX = 4 * MIB
"""After this the other connections have their turn, however fast this peer reads."""

MSG_MORE = getattr(socket, "MSG_MORE", 0)
TCP_INFO: int | None = getattr(socket, "TCP_INFO", None)
"""Of Linux."""
ESTABLISHED = 1
"""The first byte of TCP_INFO while both sides are open."""


class FileTooShort(Exception):
    """A slice promised bytes that its file does not have: the reply cannot be completed."""


class Sender(Protocol):
    """The seam for other ways to send (TLS goes through the transport and reads slices)."""

    queued_bytes: int
    """Memory of what waits: of a file slice only the object counts, not its bytes."""

    @property
    def is_idle(self) -> bool: ...

    def send(self, parts: list[Part]) -> None:
        """Takes the parts; the list may be reused at once. Errors come by `on_broken`."""
        ...

    def is_broken(self) -> bool:
        """Whether the peer has reset the connection, also while nothing is sent or read."""
        ...

    def has_left(self) -> bool:
        """Whether the peer has closed its side or is gone, also while nothing is sent or read."""
        ...

    def drop(self) -> None:
        """Give up what waits. The caller ends the connection: its peer cannot make sense of what follows."""
        ...

    def close(self) -> None: ...


class PlainSender:
    __slots__ = ("_loop", "_on_broken", "_on_progress", "_queue", "_socket", "_watched_fd", "queued_bytes")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        fd: int,
        on_progress: Callable[[], None],
        on_broken: Callable[[Exception], None],
    ) -> None:
        """`on_progress` is called when waiting bytes went out later, `on_broken` at most once."""
        self._loop = loop
        # Borrowed from the transport, for the sake of send's flags; given back by `detach`.
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, fileno=fd)
        self._on_progress = on_progress
        self._on_broken = on_broken
        self._queue: deque[Part] = deque()
        self._watched_fd = -1
        self.queued_bytes = 0

    @property
    def is_idle(self) -> bool:
        return not self._queue

    def send(self, parts: list[Part]) -> None:
        try:
            if not self._queue and FileSlice not in map(type, parts) and _are_few(parts):
                self._send_buffers(parts)
                return
            self._enqueue(parts)
            if self._watched_fd < 0:
                self._pump()
        except (OSError, FileTooShort) as error:
            self._break(error)

    def is_broken(self) -> bool:
        return self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) != 0

    def has_left(self) -> bool:
        try:
            if TCP_INFO is not None:
                # The end of what it sends is known before all of that is read.
                return self._socket.getsockopt(socket.IPPROTO_TCP, TCP_INFO, 1)[0] != ESTABLISHED
            return not self._socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def drop(self) -> None:
        self._unwatch()
        self._queue.clear()
        self.queued_bytes = 0

    def close(self) -> None:
        self.drop()
        self._socket.detach()

    def _send_buffers(self, parts: list[Part]) -> None:
        """The common case: nothing waits and everything is in memory."""
        data: Buffer = parts[0] if len(parts) == 1 else b"".join(parts)  # type: ignore[arg-type, assignment]
        try:
            sent = self._socket.send(data)
        except BlockingIOError:
            sent = 0
        if sent < len(data):
            rest = memoryview(data)[sent:]
            self._queue.append(rest)
            self.queued_bytes += len(rest) + PART_BYTES
            self._watch()

    def _enqueue(self, parts: list[Part]) -> None:
        queue = self._queue
        for part in parts:
            if isinstance(part, FileSlice):
                if part.length:
                    queue.append(part)
                    self.queued_bytes += PART_BYTES
            elif len(part):
                queue.append(part)
                self.queued_bytes += len(part) + PART_BYTES

    def _pump(self) -> None:
        """Send until the queue is empty, the socket is full or this connection's turn is over."""
        queue = self._queue
        left = TURN_BYTES_MAX
        try:
            while queue and left > 0:
                head = queue[0]
                large = isinstance(head, FileSlice) and head.length > SMALL_SLICE_BYTES
                left -= self._send_slice(head) if large else self._send_run()  # type: ignore[arg-type]
        except BlockingIOError:
            pass
        if queue:
            self._watch()
        else:
            self._unwatch()

    def _send_slice(self, head: FileSlice) -> int:
        fd = head.file.fileno()
        sent = os.sendfile(self._socket.fileno(), fd, head.position, min(head.length, SENDFILE_BYTES_MAX))
        if sent == 0:
            raise FileTooShort(f"{head.length} bytes at {head.position} are missing")
        if sent == head.length:
            self._queue.popleft()
            self.queued_bytes -= PART_BYTES
        else:
            self._queue[0] = FileSlice(head.file, head.position + sent, head.length - sent)
        return sent

    def _send_run(self) -> int:
        """Everything up to the next large slice; the kernel is told when one follows, so their packets are shared."""
        run: list[Buffer] = []
        more = read_bytes = 0
        for part in self._queue:
            if isinstance(part, FileSlice):
                if part.length > SMALL_SLICE_BYTES:
                    more = MSG_MORE
                    break
                if read_bytes + part.length > RUN_BYTES_MAX:
                    break
                read_bytes += part.length
                part = _read_whole(part)
            if len(run) == BUFFERS_PER_SEND_MAX:
                break
            run.append(part)
        sent = self._socket.send(run[0], more) if len(run) == 1 else self._socket.sendmsg(run, (), more)
        self._take_off(run, sent)
        return sent

    def _take_off(self, run: list[Buffer], sent: int) -> None:
        """The socket took so many bytes of `run`, which is the head of the queue with its slices read."""
        queue = self._queue
        for data in run:
            held = queue[0]
            in_memory = 0 if isinstance(held, FileSlice) else len(held)
            if sent < len(data):
                if sent:
                    queue[0] = memoryview(data)[sent:]
                    self.queued_bytes += len(data) - sent - in_memory
                return
            sent -= len(data)
            queue.popleft()
            self.queued_bytes -= in_memory + PART_BYTES

    def _on_writable(self) -> None:
        try:
            self._pump()
        except (OSError, FileTooShort) as error:
            self._break(error)
            return
        self._on_progress()

    def _break(self, error: Exception) -> None:
        self.drop()
        self._on_broken(error)

    def _watch(self) -> None:
        if self._watched_fd < 0:
            self._watched_fd = os.dup(self._socket.fileno())
            self._loop.add_writer(self._watched_fd, self._on_writable)

    def _unwatch(self) -> None:
        fd, self._watched_fd = self._watched_fd, -1
        if fd >= 0:
            # First out of the poll set: the kernel keeps a closed duplicate there as long as the original is open.
            self._loop.remove_writer(fd)
            os.close(fd)


def _are_few(parts: list[Part]) -> bool:
    return len(parts) == 1 or sum(map(len, parts)) <= JOINED_BYTES_MAX


def _read_whole(part: FileSlice) -> bytes:
    data = part.read()
    if len(data) < part.length:
        raise FileTooShort(f"{part.length - len(data)} of {part.length} bytes at {part.position} are missing")
    return data
