"""A broker made of cardboard: enough of the protocol for the benchmark's own requests, and faults on demand.

It keeps no data but one batch and an end offset per partition. Also runs alone, to try the whole benchmark on it:
BENCH_SKIDWAY="python tests/unit/bench/stub_broker.py" python -m bench --only tiny p1kl f1 lat1
"""

import socket
import socketserver
import struct
import sys
import threading
import time
from dataclasses import dataclass, field

PRODUCE, FETCH, LIST_OFFSETS, METADATA, CREATE_TOPICS, DELETE_TOPICS = 0, 1, 2, 3, 19, 20


@dataclass
class Faults:
    """What goes wrong, and with which Produce request (counted over all connections)."""

    error_at: int = -1
    error_code: int = 0
    correlation_at: int = -1
    close_at: int = -1
    pause_at: int = -1
    pause_s: float = 0.0


@dataclass
class Stub:
    faults: Faults = field(default_factory=Faults)
    topics: dict[str, int] = field(default_factory=dict)
    ends: dict[tuple[str, int], int] = field(default_factory=dict)
    batches: dict[tuple[str, int], bytes] = field(default_factory=dict)
    produced: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, request: bytes) -> bytes | None:
        api, _, correlation, client = struct.unpack_from(">hhih", request)
        handle = {
            PRODUCE: self.produce,
            FETCH: self.fetch,
            LIST_OFFSETS: self.list_offsets,
            METADATA: self.metadata,
            CREATE_TOPICS: self.create,
            DELETE_TOPICS: self.delete,
        }[api]
        body = memoryview(request)[10 + client + (api in (PRODUCE, FETCH)) :]
        with self.lock:
            if api == PRODUCE:
                self.produced += 1
                if self.produced == self.faults.correlation_at:
                    correlation += 1
                if self.produced == self.faults.close_at:
                    return None
                if self.produced == self.faults.pause_at:
                    time.sleep(self.faults.pause_s)
            return struct.pack(">i", correlation) + handle(body)

    def produce(self, body: memoryview) -> bytes:
        name_bytes = body[8] - 1
        name = bytes(body[9 : 9 + name_bytes])
        at = 9 + name_bytes + 1
        (partition,) = struct.unpack_from(">i", body, at)
        length, at = uvarint(body, at + 4)
        batch = body[at : at + length - 1]
        key = (name.decode(), partition)
        (records,) = struct.unpack_from(">i", batch, 57)
        base = self.ends.get(key, 0)
        self.ends[key] = base + records
        self.batches[key] = bytes(batch)
        error = self.faults.error_code if self.produced == self.faults.error_at else 0
        reply = struct.pack(">ihqqq", partition, error, base, -1, 0) + b"\1\0\0\0"
        return b"\0\2" + bytes([len(name) + 1]) + name + b"\2" + reply + struct.pack(">i", 0) + b"\0"

    def fetch(self, body: memoryview) -> bytes:
        name_bytes = body[26] - 1
        name = bytes(body[27 - 0 : 27 + name_bytes])
        at = 27 + name_bytes + 1
        partition, _, offset, _, _, size = struct.unpack_from(">iiqiqi", body, at)
        key = (name.decode(), partition)
        batch = self.batches[key]
        (records,) = struct.unpack_from(">i", batch, 57)
        many = max(1, min(size // len(batch), (self.ends[key] - offset) // records))
        data = batch * many
        head = b"\0" + struct.pack(">ihi", 0, 0, 0) + b"\2" + bytes([len(name) + 1]) + name + b"\2"
        head += struct.pack(">ihqqq", partition, 0, self.ends[key], self.ends[key], 0) + b"\0" + struct.pack(">i", -1)
        length, prefix = len(data) + 1, bytearray()
        while length >= 0x80:
            prefix.append(length & 0x7F | 0x80)
            length >>= 7
        prefix.append(length)
        return b"".join((head, bytes(prefix), data, b"\0\0\0"))

    def list_offsets(self, body: memoryview) -> bytes:
        (name_bytes,) = struct.unpack_from(">h", body, 8)
        name = bytes(body[10 : 10 + name_bytes])
        (partition,) = struct.unpack_from(">i", body, 14 + name_bytes)
        end = self.ends.get((name.decode(), partition), 0)
        return struct.pack(">ih", 1, len(name)) + name + struct.pack(">iihqq", 1, partition, 0, -1, end)

    def metadata(self, body: memoryview) -> bytes:
        head = struct.pack(">iih", 1, 1, 1) + b"x" + struct.pack(">ihi", 9092, -1, 1)
        if struct.unpack_from(">i", body)[0] < 1:
            return head + struct.pack(">i", 0)
        name = bytes(body[6:])
        partitions = self.topics.get(name.decode())
        if partitions is None:
            return head + struct.pack(">ihh", 1, 3, len(name)) + name + struct.pack(">bi", 0, 0)
        listed = b"".join(struct.pack(">hiiiiii", 0, index, 1, 1, 1, 1, 1) for index in range(partitions))
        return head + struct.pack(">ihh", 1, 0, len(name)) + name + struct.pack(">bi", 0, partitions) + listed

    def create(self, body: memoryview) -> bytes:
        (name_bytes,) = struct.unpack_from(">h", body, 4)
        name = bytes(body[6 : 6 + name_bytes])
        (self.topics[name.decode()],) = struct.unpack_from(">i", body, 6 + name_bytes)
        return struct.pack(">iih", 0, 1, len(name)) + name + struct.pack(">hh", 0, -1)

    def delete(self, body: memoryview) -> bytes:
        name = bytes(body[6:-4])
        del self.topics[name.decode()]
        return struct.pack(">iih", 0, 1, len(name)) + name + struct.pack(">h", 0)


def uvarint(data: memoryview, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        number |= (data[at] & 0x7F) << shift
        at += 1
        if data[at - 1] < 0x80:
            return number, at
        shift += 7


class Handler(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        stub: Stub = self.server.stub  # type: ignore[attr-defined]
        try:
            while prefix := self.rfile.read(4):
                reply = stub.answer(self.rfile.read(struct.unpack(">i", prefix)[0]))
                if reply is None:
                    return
                self.wfile.write(struct.pack(">i", len(reply)) + reply)
        except ConnectionError:
            return


class StubServer(socketserver.ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True

    def __init__(self, address: tuple[str, int] = ("127.0.0.1", 0), faults: Faults | None = None) -> None:
        self.stub = Stub(faults or Faults())
        super().__init__(address, Handler)

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"


if __name__ == "__main__":
    listen = sys.argv[sys.argv.index("--listen") + 1]
    StubServer(("127.0.0.1", int(listen.rpartition(":")[2]))).serve_forever()
