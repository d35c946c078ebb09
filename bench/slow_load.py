"""The load generator's loops in plain Python, for machines without a C compiler. Same contract as generator.c."""

import array
import selectors
import socket
import struct
import time
from typing import TYPE_CHECKING

from bench.frames import BenchError

if TYPE_CHECKING:
    from bench.load import FetchPlan

STALL_S = 20.0


class Inbox:
    """The replies of one connection, cut into frames and checked."""

    def __init__(self, peer: socket.socket, error_at: int) -> None:
        self.peer = peer
        self.error_at = error_at
        self.data = bytearray()
        self.acked = 0

    def receive(self, correlations: int) -> int:
        """How many more requests were answered; correlation ids run from 0 to `correlations` and again."""
        try:
            got = self.peer.recv(1 << 16)
        except BlockingIOError:
            return 0
        if not got:
            raise BenchError("load stopped: closed the connection")
        self.data += got
        at, before = 0, self.acked
        while len(self.data) - at >= 4:
            (size,) = struct.unpack_from(">i", self.data, at)
            if len(self.data) - at < 4 + size:
                break
            (correlation,) = struct.unpack_from(">i", self.data, at + 4)
            (error,) = struct.unpack_from(">h", self.data, at + self.error_at)
            if error or correlation != self.acked % correlations:
                raise BenchError(f"load stopped: error code {error}, correlation id {correlation}")
            at += 4 + size
            self.acked += 1
        del self.data[:at]
        return self.acked - before


def produce(
    sockets: list[socket.socket], blocks: list[bytearray], depth: int, error_at: int, seconds: float
) -> tuple[int, float]:
    """Acknowledged requests and elapsed seconds."""
    inboxes = [Inbox(one, error_at) for one in sockets]
    sent = [0] * len(sockets)
    start = progress = now = time.monotonic()
    with selectors.DefaultSelector() as selector:
        for index, one in enumerate(sockets):
            selector.register(one, selectors.EVENT_READ | selectors.EVENT_WRITE, index)
        while True:
            for key, events in selector.select(0.1):
                index = key.data
                if events & selectors.EVENT_READ and inboxes[index].receive(depth):
                    progress = time.monotonic()
                size = len(blocks[index]) // depth
                begun = -(-sent[index] // size) * size
                allowed = (inboxes[index].acked + depth) * size if now < start + seconds else begun
                sent[index] += push(sockets[index], blocks[index], sent[index], allowed)
                wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if sent[index] < allowed else 0)
                selector.modify(sockets[index], wanted, index)
            now = time.monotonic()
            if now - progress > STALL_S:
                raise BenchError("load stopped: no reply in 20 s")
            answered = all(
                box.acked * len(data) >= many * depth for box, data, many in zip(inboxes, blocks, sent, strict=True)
            )
            if now >= start + seconds and answered:
                return sum(box.acked for box in inboxes), now - start


def push(peer: socket.socket, data: bytearray, sent: int, allowed: int) -> int:
    """Send from a block that repeats for ever, from `sent` up to `allowed`; the bytes taken."""
    begin = sent
    while sent < allowed:
        at = sent % len(data)
        try:
            sent += peer.send(memoryview(data)[at : min(len(data), at + allowed - sent)])
        except BlockingIOError:
            break
    return sent - begin


def receive_exactly(peer: socket.socket, view: memoryview) -> None:
    while view:
        got = peer.recv_into(view)
        if not got:
            raise BenchError("load stopped: closed the connection")
        view = view[got:]


def fetch(sockets: list[socket.socket], plan: "FetchPlan", seconds: float) -> tuple[int, int, int, float]:
    """Replies, bytes, records, elapsed seconds; the connections take turns."""
    offsets = [0] * len(sockets)
    buffer = bytearray(64 << 20)
    replies = batches_all = 0
    start = time.monotonic()
    for one in sockets:
        one.settimeout(STALL_S)
    while (now := time.monotonic()) < start + seconds:
        for index, peer in enumerate(sockets):
            struct.pack_into(">q", plan.frames[index], plan.offset_at, offsets[index])
            peer.sendall(plan.frames[index])
        for index, peer in enumerate(sockets):
            view = memoryview(buffer)
            receive_exactly(peer, view[:4])
            (size,) = struct.unpack_from(">i", buffer)
            receive_exactly(peer, view[4 : 4 + size])
            errors = struct.unpack_from(">h", buffer, 13)[0], struct.unpack_from(">h", buffer, plan.error_at)[0]
            batches = length_of_records(buffer, plan.records_at) // plan.batch_bytes
            if errors != (0, 0) or not batches:
                raise BenchError(f"load stopped: error codes {errors}, {batches} batches in a reply")
            offsets[index] += batches * plan.batch_records
            if offsets[index] >= plan.end_offsets[index]:
                offsets[index] = 0
            batches_all += batches
            replies += 1
    return replies, batches_all * plan.batch_bytes, batches_all * plan.batch_records, now - start


def length_of_records(reply: bytearray, at: int) -> int:
    number = shift = 0
    while True:
        number |= (reply[at] & 0x7F) << shift
        if reply[at] < 0x80:
            return number - 1
        at += 1
        shift += 7


def latency(
    sockets: list[socket.socket],
    frames: list[bytearray],
    error_at: int,
    rate: float,
    latencies: "array.array[float]",
    lags: "array.array[float]",
) -> None:
    inboxes = [Inbox(one, error_at) for one in sockets]
    count, many = len(latencies), len(sockets)
    answered = begun = 0
    start = progress = time.monotonic() + 0.01
    with selectors.DefaultSelector() as selector:
        for index, one in enumerate(sockets):
            selector.register(one, selectors.EVENT_READ, index)
        while answered < count:
            while begun < count and (now := time.monotonic()) >= start + begun / rate:
                index = begun % many
                struct.pack_into(">i", frames[index], 8, begun // many)
                lags[begun] = now - (start + begun / rate)
                sockets[index].sendall(frames[index])
                begun += 1
            wait = start + begun / rate - time.monotonic() if begun < count else 0.01
            for key, _ in selector.select(max(0.0, wait)):
                index = key.data
                first = inboxes[index].acked
                new = inboxes[index].receive(1 << 31)
                now = time.monotonic()
                for number in range(first, first + new):
                    message = number * many + index
                    latencies[message] = now - (start + message / rate)
                answered += new
                progress = now if new else progress
            if time.monotonic() - progress > STALL_S:
                raise BenchError("load stopped: no reply in 20 s")
