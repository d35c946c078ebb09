"""`python -m bench.stalls [--elements N] [--only PATTERN]`: how long the worst request of every API holds others up.

A client in a process of its own asks the broker ApiVersions over and over, one request at a time, a millisecond apart.
While each of the worst requests is worked on, three figures are taken of it, the longest of all its requests each:

- `wait`: from its request to the answer;
- `loop`: CPU time of the broker's event loop meanwhile, as the kernel counts it (`/proc/…/schedstat`). This is what
  the broker does; unlike `wait` it leaves out other processes that had the core. A request that arrives in the middle
  of a turn is answered in the next one, so this may be two turns;
- `empty`: how long a second client waited at the same time for an event loop that does nothing but echo. This is what
  the machine does: no broker can be quicker on it.

Beside them, how long the worst request itself took and what it was answered with (bytes, or that the broker hung up).
"""

import argparse
import asyncio
import itertools
import multiprocessing
import re
import socket
import struct
import sys
import time
import zlib
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

import zstandard

from bench.broker import Skidway
from bench.worst_requests import World, Worst, worst_requests
from skidway.records.batch import HEADER_BYTES, BatchHeader
from skidway.records.record import Record, assemble, build_batch
from skidway.wire.headers import read_response_header, write_request_header
from skidway.wire.registry import api

ELEMENTS = 199_000
PARTITIONS, TOPICS = 1_000, 2_000
REPLY_S = 60.0
API_VERSIONS, CREATE_TOPICS, PRODUCE, METADATA, LIST_OFFSETS, DESCRIBE_PRODUCERS = 18, 19, 0, 3, 2, 61


class Peer:
    def __init__(self, bootstrap: str) -> None:
        host, _, port = bootstrap.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), REPLY_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def close(self) -> None:
        self.socket.close()

    def exchange(self, frame: bytes) -> bytes:
        self.socket.sendall(frame)
        (length,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(length)

    def call(self, key: int, version: int, **fields: Any) -> Any:
        cls = api(key).request.message
        parts: list[Any] = [write_request_header(key, version, 1, "bench")]
        api(key).request.encoder(version)(cls(**fields), parts)
        content = b"".join(map(bytes, parts))
        reply = self.exchange(struct.pack(">i", len(content)) + content)
        _, position = read_response_header(key, version, reply)
        return api(key).response.decoder(version)(reply, position, 10_000_000)[0]

    def _exactly(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            piece = self.socket.recv(min(count - len(data), 1 << 20))
            if not piece:
                raise ConnectionError("the broker hung up")
            data += piece
        return bytes(data)


class Pinger:
    """A good client in a process of its own."""

    def __init__(self, bootstrap: str, loop_pid: int) -> None:
        self._pipe, there = multiprocessing.Pipe()
        context = multiprocessing.get_context("spawn")
        self._process = context.Process(target=_ping, args=(bootstrap, loop_pid, there), daemon=True)
        self._process.start()
        self._pipe.recv()

    def longest(self) -> tuple[float, float]:
        """Seconds since this was asked last: the longest wait, and the most that the loop did during one."""
        self._pipe.send(True)
        waited, worked = self._pipe.recv()
        return waited, worked

    def stop(self) -> None:
        with suppress(OSError):
            self._pipe.send(None)
        self._process.join(5)


def _ping(bootstrap: str, loop_pid: int, pipe: Connection) -> None:
    peer = Peer(bootstrap)
    header = write_request_header(API_VERSIONS, 0, 1, "ping")
    frame = struct.pack(">i", len(header)) + header
    waited = worked = 0.0
    pipe.send((waited, worked))
    while True:
        began, worked_before = time.perf_counter(), _cpu_seconds(loop_pid)
        peer.exchange(frame)
        waited = max(waited, time.perf_counter() - began)
        worked = max(worked, _cpu_seconds(loop_pid) - worked_before)
        if pipe.poll(0.001):
            if pipe.recv() is None:
                return
            pipe.send((waited, worked))
            waited = worked = 0.0


def _cpu_seconds(pid: int) -> float:
    """Of the main thread alone, which runs the event loop."""
    with open(f"/proc/{pid}/task/{pid}/schedstat") as file:
        return int(file.read().split()[0]) / 1e9


class EmptyLoop:
    """A server whose event loop only echoes frames."""

    def __init__(self) -> None:
        here, there = multiprocessing.Pipe()
        self._process = multiprocessing.get_context("spawn").Process(target=_echo, args=(there,), daemon=True)
        self._process.start()
        self.bootstrap = f"127.0.0.1:{here.recv()}"
        self.pid = self._process.pid or 0

    def stop(self) -> None:
        self._process.terminate()
        self._process.join(5)


class _Echo(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._transport.write(data)  # type: ignore[attr-defined]


def _echo(pipe: Connection) -> None:
    async def serve() -> None:
        server = await asyncio.get_running_loop().create_server(_Echo, "127.0.0.1", 0)
        pipe.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(serve())


def prepare(bootstrap: str) -> World:
    peer = Peer(bootstrap)
    module = sys.modules[api(CREATE_TOPICS).request.message.__module__]
    names = [f"small-{number}" for number in range(TOPICS)]
    topics = [module.CreatableTopic("wide", PARTITIONS, 1, configs=[module.CreatableTopicConfig("flush", "os")])]
    topics += [module.CreatableTopic(name, 1, 1) for name in names]
    topics.append(
        module.CreatableTopic(
            "packed",
            20,
            1,
            configs=[
                module.CreatableTopicConfig("compression.type", "zstd"),
                module.CreatableTopicConfig("compression.zstd.level", "22"),
            ],
        )
    )
    topics.append(module.CreatableTopic("plain", 20, 1))
    for at in range(0, len(topics), 500):
        peer.call(CREATE_TOPICS, 7, topics=topics[at : at + 500], timeout_ms=60_000)
    found = peer.call(METADATA, 9, topics=None)
    assert len(found.topics) >= len(topics), len(found.topics)
    ids = peer.call(METADATA, 12, topics=None)
    (topic_id,) = [topic.topic_id for topic in ids.topics if topic.name == "wide"]
    return World("wide", topic_id, PARTITIONS, names)


def produce(version: int, topic: str, batches: list[bytes]) -> bytes:
    module = sys.modules[api(PRODUCE).request.message.__module__]
    data = [module.PartitionProduceData(index, batch) for index, batch in enumerate(batches)]
    request = module.ProduceRequest(
        acks=1, timeout_ms=10_000, topic_data=[module.TopicProduceData(topic, partition_data=data)]
    )
    parts: list[Any] = []
    api(PRODUCE).request.encoder(version)(request, parts)
    return b"".join(map(bytes, parts))


def packed(payload: bytes, count: int, codec: int, max_timestamp: int) -> bytes:
    """A batch of `count` records whose bytes are `payload`, already packed."""
    header = BatchHeader(
        0, HEADER_BYTES - 12 + len(payload), -1, 2, 0, codec, count - 1, 1, max_timestamp, -1, -1, -1, count
    )
    return bytes(assemble(header, payload))


def special(bootstrap: str, world: World) -> Iterator[tuple[str, bytes]]:
    """What a count of elements does not show."""
    now_ms = time.time_ns() // 1_000_000
    large = bytes(build_batch([Record(0, now_ms, None, bytes(1_000_000))]))
    yield "Produce of 100 batches of 1 MB", Worst(0, 8, "", produce(8, "wide", [large] * 100)).frame()
    record = bytes(build_batch([Record(0, 1, None, b"")]))[HEADER_BYTES:]
    bomb = zstandard.ZstdCompressor(level=3).compress(bytes(250 << 20))
    stored = packed(bomb, 400_000, 4, now_ms)
    yield "store 20 batches that unpack to 250 MiB", Worst(0, 8, "", produce(8, "plain", [stored] * 20)).frame()
    module = sys.modules[api(LIST_OFFSETS).request.message.__module__]
    asked = [module.ListOffsetsPartition(index, timestamp=now_ms - 1000) for index in range(20)]
    request = module.ListOffsetsRequest(topics=[module.ListOffsetsTopic("plain", asked)])
    parts: list[Any] = []
    api(LIST_OFFSETS).request.encoder(7)(request, parts)
    yield "ListOffsets by time over them", Worst(2, 7, "", b"".join(parts)).frame()
    many = zlib.compressobj(wbits=31)
    payload = many.compress(record * 500_000) + many.flush()
    future = packed(payload, 500_000, 1, now_ms + 10**10)
    yield "Produce of 20 × 500,000 records, future", Worst(0, 8, "", produce(8, "plain", [future] * 20)).frame()
    zeros = bytes(build_batch([Record(0, now_ms, None, bytes(31 << 20))]))[HEADER_BYTES:]
    squeezed = zlib.compressobj(wbits=31)
    converted = packed(squeezed.compress(zeros) + squeezed.flush(), 1, 1, now_ms)
    yield "Produce of gzip to zstd level 22", Worst(0, 8, "", produce(8, "packed", [converted] * 3)).frame()
    tags = b"\xa0\xc2\x1e" + b"\x7f\x00" * 500_000
    header = write_request_header(API_VERSIONS, 3, 1, "tags")[:-1]
    content = header + tags + b"\x05bench\x041.0\x00"
    yield "a header of 500,000 tags", struct.pack(">i", len(content)) + content


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--elements", type=int, default=ELEMENTS)
    parser.add_argument("--only", default="", help="a regular expression")
    options = parser.parse_args()
    broker, empty = Skidway(), EmptyLoop()
    broker.start()
    try:
        run(broker, empty, options)
    finally:
        broker.stop()
        empty.stop()


def run(broker: Skidway, empty: EmptyLoop, options: argparse.Namespace) -> None:
    world = prepare(broker.bootstrap)
    pingers = [Pinger(broker.bootstrap, broker.pid), Pinger(empty.bootstrap, empty.pid)]
    requests = special(broker.bootstrap, world)
    frames = ((each.name, each.frame()) for each in worst_requests(world, options.elements))
    print(f"{'wait':>9}  {'loop':>9}  {'empty':>9}  {'took':>10}  {'reply':>12}  request", flush=True)
    try:
        for name, frame in itertools.chain([("nothing, for a second", b"")], requests, frames):
            if re.search(options.only, name):
                measure(broker.bootstrap, pingers, name, frame)
    finally:
        for pinger in pingers:
            pinger.stop()


def measure(bootstrap: str, pingers: list[Pinger], name: str, frame: bytes) -> None:
    time.sleep(0.2)
    for pinger in pingers:
        pinger.longest()
    began = time.perf_counter()
    reply = exchange(bootstrap, frame)
    took = time.perf_counter() - began
    (waited, worked), (machine, _) = (pinger.longest() for pinger in pingers)
    figures = "  ".join(f"{seconds * 1000:6,.0f} ms" for seconds in (waited, worked, machine))
    print(f"{figures}  {took * 1000:7,.0f} ms  {reply:>12}  {name}, {len(frame):,} bytes", flush=True)


def exchange(bootstrap: str, frame: bytes) -> str:
    if not frame:
        time.sleep(1)
        return ""
    peer = Peer(bootstrap)
    try:
        return f"{len(peer.exchange(frame)):,}"
    except (ConnectionError, TimeoutError) as error:
        return type(error).__name__[:12]
    finally:
        peer.close()


if __name__ == "__main__":
    main()
