"""The least a server can do to answer the fetch load: take a Fetch request, send a head, sendfile the records.

The same requests on the same number of connections as the brokers get, so this is the machine's limit for that very
traffic; `machine.send_limit` is the limit for one endless stream, which no request-and-reply protocol reaches.
Runs in a process of its own: `python -m bench.floor` prints its port, serves until every connection is closed, and
prints the bytes it sent and the CPU time that took.
"""

import json
import os
import resource
import select
import socket
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.frames import compact, fetch, fetch_error_at, fetch_records_at, uvarint
from bench.load import FetchPlan, fetch_load
from bench.machine import SEND_BUFFERS, Limit, best
from bench.workloads import CONNECTIONS, READ_BATCH, READ_BYTES, READ_TOPIC

# Per partition: half of what the brokers hold, and still more than the largest reply.
BATCHES = READ_BYTES // 2 // CONNECTIONS // len(READ_BATCH.data)
# A Fetch v12 frame ends with offset, epoch, log start, size (24 bytes) and five bytes of tags, lists and rack.
OFFSET_FROM_END = 29


def serve_limit(reply_bytes: int, seconds: float) -> Limit:
    """The better of two: with the send buffer that the broker has by default, and with the kernel's own choice."""
    return best([_serve(reply_bytes, seconds / 2, size) for size in SEND_BUFFERS])


def _serve(reply_bytes: int, seconds: float, send_buffer_bytes: int) -> Limit:
    prepared = [fetch(READ_TOPIC, partition, max_bytes=reply_bytes) for partition in range(CONNECTIONS)]
    plan = FetchPlan(
        frames=[one.data for one in prepared],
        end_offsets=[BATCHES * READ_BATCH.records] * CONNECTIONS,
        offset_at=prepared[0].offset_at,
        error_at=fetch_error_at(READ_TOPIC),
        records_at=fetch_records_at(READ_TOPIC),
        batch_bytes=len(READ_BATCH.data),
        batch_records=READ_BATCH.records,
    )
    command = [sys.executable, "-m", "bench.floor", str(send_buffer_bytes)]
    root = Path(__file__).resolve().parents[1]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=root) as child:
        assert child.stdout is not None
        port = int(child.stdout.readline())
        got = fetch_load(f"127.0.0.1:{port}", plan, seconds=seconds)
        result = json.loads(child.communicate(timeout=30)[0])
    return Limit(got.bytes / 1e6 / got.elapsed_s, result["cpu"] / (result["bytes"] / 1e9))


class Server:
    def __init__(self, file: int, send_buffer_bytes: int) -> None:
        self.file = file
        self.send_buffer_bytes = send_buffer_bytes
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.poll = select.epoll()
        self.poll.register(self.listener, select.EPOLLIN)
        self.peers: dict[int, socket.socket] = {}
        self.left: dict[int, tuple[int, int]] = {}  # what a connection is still owed: position, bytes
        self.sent = 0

    def accept(self) -> None:
        peer, _ = self.listener.accept()
        peer.setblocking(False)
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.send_buffer_bytes > 0:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self.send_buffer_bytes)
        self.peers[peer.fileno()] = peer
        self.poll.register(peer, select.EPOLLIN)

    def run(self) -> None:
        """Until the last connection has been closed."""
        while True:
            for fd, _ in self.poll.poll():
                if fd == self.listener.fileno():
                    self.accept()
                elif fd in self.left or self.begin(fd):
                    self.go_on(fd)
                elif not self.peers:
                    return

    def begin(self, fd: int) -> bool:
        """Read a request and send the head of its reply; False if the peer has gone."""
        request = self.peers[fd].recv(4096)
        if not request:
            self.peers.pop(fd).close()
            return False
        partition, _, offset, _, _, size = struct.unpack_from(">iiqiqi", request, len(request) - OFFSET_FROM_END - 8)
        first = offset // READ_BATCH.records
        length = min(BATCHES - first, size // len(READ_BATCH.data)) * len(READ_BATCH.data)
        head = struct.pack(">ibihi", 0, 0, 0, 0, 0) + b"\2" + compact(READ_TOPIC.encode()) + b"\2"
        head += struct.pack(">ihqqqbi", partition, 0, 0, 0, 0, 0, -1) + uvarint(length + 1)
        self.peers[fd].send(struct.pack(">i", len(head) + length + 3) + head, socket.MSG_MORE)
        self.left[fd] = (partition * BATCHES + first) * len(READ_BATCH.data), length
        return True

    def go_on(self, fd: int) -> None:
        position, length = self.left[fd]
        try:
            while length:
                sent = os.sendfile(fd, self.file, position, length)
                position, length, self.sent = position + sent, length - sent, self.sent + sent
            self.peers[fd].send(b"\0\0\0")
            del self.left[fd]
            self.poll.modify(fd, select.EPOLLIN)
        except BlockingIOError:
            self.left[fd] = position, length
            self.poll.modify(fd, select.EPOLLOUT)


def cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main() -> None:
    with tempfile.TemporaryFile() as file:
        for _ in range(BATCHES * CONNECTIONS):
            os.write(file.fileno(), READ_BATCH.data)
        server = Server(file.fileno(), int(sys.argv[1]))
        print(server.listener.getsockname()[1], flush=True)
        before = cpu()
        server.run()
        print(json.dumps({"bytes": server.sent, "cpu": cpu() - before}), flush=True)


if __name__ == "__main__":
    main()
