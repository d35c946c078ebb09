"""A whole node on a simulated disk, without sockets and threads: the test is its shell, its clients and its workers.

Requests go in as real frames and replies come out as bytes, so nothing between the wire and the disk is left out.
Sync tickets run when the test says so. While one runs, `SimulatedNode.interrupt` is called before each of its disk
operations: what a real event loop does while a worker thread waits for the disk.
"""

import struct
from collections.abc import Callable
from random import Random
from typing import Any

from skidway.broker.api.connection import Connection
from skidway.broker.events import Event
from skidway.broker.listeners import DEFAULT_NAME, only_listener
from skidway.broker.node import Node
from skidway.broker.settings import NodeSettings
from skidway.ports import Buffer, FileSlice
from skidway.records.batch import BatchHeader, iter_headers
from skidway.records.record import Record, build_batch, read_records
from skidway.runtime.jobs import Job
from skidway.server.event_text import line_of
from skidway.sim.world.disk import SimDisk
from skidway.wire.framing import frame
from skidway.wire.headers import read_response_header, write_request_header
from skidway.wire.message import Message
from skidway.wire.registry import api
from skidway.wire.schema.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from skidway.wire.schema.fetch import FetchPartition, FetchRequest, FetchTopic
from skidway.wire.schema.produce import PartitionProduceData, ProduceRequest, TopicProduceData

FAR_MS = 10**9
ACKS_ALL = -1
BEGIN_MS = 1_700_000_000_000


class ManualClock:
    def __init__(self) -> None:
        self.now_ms = 1_000

    def wall_ms(self) -> int:
        return BEGIN_MS + self.now_ms

    def monotonic_ms(self) -> int:
        return self.now_ms


class WatchedDisk(SimDisk):
    """Calls `before` ahead of every operation that changes something."""

    def __init__(self, *, capacity: int | None = None) -> None:
        super().__init__(capacity=capacity)
        self.before: Callable[[str], None] = lambda kind: None

    def operation(self, kind: str, size: int = 0) -> int | None:
        self.before(kind)
        return super().operation(kind, size)


class SimulatedClient:
    """One connection. `send` takes what is to be done with the reply; replies come with `collect`."""

    def __init__(self, shell: "SimulatedNode") -> None:
        self.shell = shell
        self.connection: Connection = shell.node.connect("simulated", DEFAULT_NAME)
        self.waiting: dict[int, tuple[int, int, Callable[[Any], None]]] = {}
        self.correlation_id = 0

    def send(self, request: Message, on_reply: Callable[[Any], None]) -> None:
        key = request.__key__
        assert key is not None
        version = self.shell.node.routes.advertised[key][1]
        self.correlation_id += 1
        self.waiting[self.correlation_id] = (key, version, on_reply)
        parts: list[Buffer | FileSlice] = [write_request_header(key, version, self.correlation_id, "simulated")]
        api(key).request.encoder(version)(request, parts)
        data = bytearray(b"".join(frame(parts)))  # type: ignore[arg-type]
        assert self.connection.receive(memoryview(data), self.shell.clock.now_ms) == len(data)

    def collect(self) -> None:
        """Take what the node has answered."""
        outbox = self.connection.outbox
        parts, outbox[:] = list(outbox), []
        data = b"".join(part.read() if isinstance(part, FileSlice) else part for part in parts)
        position = 0
        while position < len(data):
            (length,) = struct.unpack_from(">i", data, position)
            body = memoryview(data)[position + 4 : position + 4 + length]
            position += 4 + length
            (correlation_id,) = struct.unpack_from(">i", body)
            key, version, on_reply = self.waiting.pop(correlation_id)
            on_reply(api(key).response.decoder(version)(body, read_response_header(key, version, body)[1])[0])


class SimulatedNode:
    def __init__(self, disk: WatchedDisk, random: Random, clock: ManualClock, **settings: Any) -> None:
        self.disk = disk
        self.random = random
        self.clock = clock
        self.events: list[str] = []
        self.queued: list[Job] = []
        self.finished: list[tuple[Job, OSError | None]] = []
        self.working = False
        """Whether a worker, not the loop, is at the disk."""
        self.interrupt: Callable[[], None] = lambda: None
        disk.before = lambda kind: None
        base: dict[str, Any] = {"node_id": 1, "listeners": only_listener("sim", 9092), "data_dir": "sim"}

        def report(event: Event) -> None:
            self.events.append(line_of(event))

        self.node = Node(NodeSettings(**{**base, **settings}), disk, clock, random, report=report)
        self.node.open(clock.monotonic_ms(), clock.wall_ms())
        self.clients: list[SimulatedClient] = []
        disk.before = self._before

    def _before(self, kind: str) -> None:
        if self.working:
            # The loop itself is never interrupted.
            self.working = False
            try:
                self.interrupt()
            finally:
                self.working = True

    def connect(self) -> SimulatedClient:
        client = SimulatedClient(self)
        self.clients.append(client)
        return client

    # The shell's part.

    def end_turn(self) -> None:
        self.queued += self.node.end_turn()

    def run_job(self, number: int = 0) -> None:
        """A worker takes a job and works on it; the node hears of it with `deliver`."""
        job = self.queued.pop(number)
        error = None
        self.working = True
        try:
            job.run()
        except OSError as failure:
            error = failure
        finally:
            self.working = False
        self.finished.append((job, error))

    def deliver(self, number: int = 0) -> None:
        job, error = self.finished.pop(number)
        job.done(error, self.clock.now_ms)

    def pass_time(self, elapsed_ms: int) -> None:
        self.clock.now_ms += elapsed_ms
        deadline_ms = self.node.deadline_ms
        if deadline_ms is not None and deadline_ms <= self.clock.now_ms:
            self.node.on_time(self.clock.now_ms)

    def collect(self) -> None:
        for client in self.clients:
            client.collect()

    def settle(self) -> None:
        """Until nothing is left to do, in the plainest order."""
        self.end_turn()
        while self.queued or self.finished:
            while self.queued:
                self.run_job()
            while self.finished:
                self.deliver()
            self.end_turn()
        self.collect()

    def call(self, request: Message) -> Any:
        """One request from its sending to its reply."""
        replies: list[Any] = []
        self.connect().send(request, replies.append)
        self.settle()
        (reply,) = replies
        return reply


def create_topic(name: str, partitions: int = 1, **configs: Any) -> CreateTopicsRequest:
    settings = [CreatableTopicConfig(key.replace("_", "."), str(value)) for key, value in configs.items()]
    return CreateTopicsRequest([CreatableTopic(name, partitions, 1, [], settings)])


def batch_of(values: list[bytes], timestamp: int, pid: int = -1, epoch: int = -1, sequence: int = -1) -> bytes:
    records = [Record(0, timestamp, None, value, ()) for value in values]
    return bytes(build_batch(records, producer_id=pid, producer_epoch=epoch, base_sequence=sequence))


def produce(topic_id: bytes, partition: int, batch: bytes, acks: int = ACKS_ALL) -> ProduceRequest:
    data = [PartitionProduceData(partition, bytearray(batch))]
    return ProduceRequest(None, acks, FAR_MS, [TopicProduceData("", topic_id, data)])


def fetch(topic_id: bytes, partition: int, offset: int, max_bytes: int = 1 << 20) -> FetchRequest:
    asked = [FetchPartition(partition, -1, offset, -1, -1, max_bytes)]
    return FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=max_bytes, topics=[FetchTopic("", topic_id, asked)])


def records_in(data: Buffer | None) -> list[tuple[BatchHeader, list[tuple[int, bytes]]]]:
    """Batches of a fetch reply: header and (offset, value) of each record."""
    batches = []
    raw = bytes(data or b"")
    for position, header in iter_headers(raw):
        read = read_records(raw[position : position + header.size], decompressed_bytes_max=1 << 24)
        batches.append((header, [(record.offset, record.value or b"") for record in read]))
    return batches
