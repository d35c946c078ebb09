"""The load behind `skidway bench`: threads with a connection each that produce prepared batches, fetch, or tick.

Batches are built once and sent many times, and fetched ones are counted by their headers, so that the broker is
measured and not this client. Still, it is Python: for the last bit of speed use the project's `make bench`.
"""

import random
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from skidway.blocking_client.cluster import Cluster
from skidway.blocking_client.connection import Connection
from skidway.blocking_client.errors import BadReply, check
from skidway.limits import MIB
from skidway.ports import FileSlice
from skidway.records.batch import iter_headers
from skidway.records.record import Record, build_batch
from skidway.wire.schema.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from skidway.wire.schema.metadata import MetadataRequest, MetadataResponse
from skidway.wire.schema.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData

LETTERS = b"abcdefghijklmnopqrstuvwxyz012345"
FETCH_BYTES = 32 * MIB
PARTITION_FETCH_BYTES = 4 * MIB
FETCH_WAIT_MS = 500


@dataclass(slots=True)
class Tally:
    """What one worker did. Read by the main thread while the worker goes on: plain counters, no lock needed."""

    messages: int = 0
    bytes: int = 0
    latencies_ns: list[int] = field(default_factory=list)
    error: BaseException | None = None


def payload(size: int, seed: int = 1) -> bytes:
    """Letters and digits: compresses a little, as real messages do."""
    return bytes(random.Random(seed).choices(LETTERS, k=size))


class Batches:
    """Prepared batches of about `batch_bytes` (before compression): full ones, and a smaller one where fewer messages
    are left to send."""

    def __init__(self, message_bytes: int, batch_bytes: int, codec: int) -> None:
        self.message_bytes = message_bytes
        self.full_messages = max(1, (batch_bytes - 61) // (message_bytes + 9))
        self.codec = codec
        now_ms = time.time_ns() // 1_000_000
        seeds = range(min(self.full_messages, 1000))
        self._records = [Record(0, now_ms, None, payload(message_bytes, seed)) for seed in seeds]
        self.full = self.of(self.full_messages)

    def of(self, messages: int) -> bytes:
        """A batch with exactly that many messages."""
        records = [self._records[number % len(self._records)] for number in range(messages)]
        return bytes(build_batch(records, codec=self.codec))


@dataclass(slots=True)
class ProduceLoad:
    """Sends exactly `messages`: the last batch has what is left."""

    topic: str
    partitions: list[int]
    batches: Batches
    acks: int
    pipeline: int
    messages: int

    def run(self, cluster: Cluster, tally: Tally, stopping: threading.Event) -> None:
        connections = {partition: cluster.leader(self.topic, partition) for partition in self.partitions}
        requests = [
            _produce_batch(cluster, self.topic, partition, self.batches.full, self.acks)
            for partition in self.partitions
        ]
        last = self.messages % self.batches.full_messages
        rest = self.batches.of(last) if last else b""
        sent: deque[tuple[Connection, int, int]] = deque()
        turn = 0
        started = 0
        while tally.messages < self.messages and not stopping.is_set():
            if started < self.messages and len(sent) < self.pipeline:
                partition, request = self.partitions[turn % len(requests)], requests[turn % len(requests)]
                count = min(self.batches.full_messages, self.messages - started)
                if count < self.batches.full_messages:
                    request = _produce_batch(cluster, self.topic, partition, rest, self.acks)
                turn += 1
                started += count
                sent.append((connections[partition], count, time.perf_counter_ns()))
                connections[partition].send(request, answered=self.acks != 0)
                if self.acks != 0:
                    continue
            self._acknowledged(tally, *sent.popleft())
        if self.acks == 0:
            # Replies come in order: when this one is here, the broker has read all before it.
            for connection in set(connections.values()):
                connection.call(MetadataRequest(topics=[]), MetadataResponse)

    def _acknowledged(self, tally: Tally, connection: Connection, messages: int, began_ns: int) -> None:
        if self.acks != 0:
            _check_produced(connection.receive(ProduceResponse), self.topic)
            tally.latencies_ns.append(time.perf_counter_ns() - began_ns)
        tally.messages += messages
        tally.bytes += messages * self.batches.message_bytes


@dataclass(slots=True)
class FetchLoad:
    topic: str
    positions: dict[int, int]
    ends: dict[int, int]

    def run(self, cluster: Cluster, tally: Tally, stopping: threading.Event) -> None:
        positions = {part: at for part, at in self.positions.items() if at < self.ends[part]}
        while positions and not stopping.is_set():
            by_leader: dict[Connection, list[int]] = {}
            for partition in positions:
                by_leader.setdefault(cluster.leader(self.topic, partition), []).append(partition)
            for connection, partitions in by_leader.items():
                asked_ns = time.perf_counter_ns()
                chosen = {partition: positions[partition] for partition in partitions}
                reply = connection.call(_fetch(cluster, self.topic, chosen), FetchResponse)
                tally.latencies_ns.append(time.perf_counter_ns() - asked_ns)
                self._count(reply, positions, tally)
            # Another partition first in the next request: all of them get their turn.
            positions = {part: at for part, at in reversed(positions.items()) if at < self.ends[part]}

    def _count(self, reply: FetchResponse, positions: dict[int, int], tally: Tally) -> None:
        check(reply.error_code, f"fetching {self.topic}")
        for data in (data for topic in reply.responses for data in topic.partitions):
            check(data.error_code, f"{self.topic} partition {data.partition_index}")
            if not data.records:
                continue
            assert not isinstance(data.records, FileSlice)
            for _, header in iter_headers(data.records):
                tally.messages += header.record_count
                tally.bytes += header.size
                positions[data.partition_index] = header.last_offset + 1


@dataclass(slots=True)
class TickLoad:
    """One message a request at a fixed rate. Latency counts from when a message was due, not from when it was sent:
    a broker that stalls does not hide it by stalling the clock."""

    topic: str
    partition: int
    message_bytes: int
    acks: int
    rate: float
    seconds: float

    def run(self, cluster: Cluster, tally: Tally, stopping: threading.Event) -> None:
        connection = cluster.leader(self.topic, self.partition)
        value = payload(max(8, self.message_bytes))
        due: deque[int] = deque()
        interval_ns = int(1e9 / self.rate)
        total = max(1, int(self.rate * self.seconds))
        next_ns = time.perf_counter_ns()
        sent = 0
        while (sent < total or due) and not stopping.is_set():
            now_ns = time.perf_counter_ns()
            if sent < total and now_ns >= next_ns:
                due.append(next_ns)
                batch = build_batch([_stamped(value, next_ns)])
                connection.send(_produce_batch(cluster, self.topic, self.partition, batch, self.acks))
                next_ns += interval_ns
                sent += 1
            elif connection.readable((next_ns - now_ns) / 1e9 if sent < total else 1.0):
                _check_produced(connection.receive(ProduceResponse), self.topic)
                tally.latencies_ns.append(time.perf_counter_ns() - due.popleft())
                tally.messages += 1
                tally.bytes += self.message_bytes


@dataclass(slots=True)
class ListenLoad:
    """The other end of `TickLoad`: how long after it was due each message reached a consumer."""

    topic: str
    partition: int
    offset: int
    messages: int
    seconds: float

    def run(self, cluster: Cluster, tally: Tally, stopping: threading.Event) -> None:
        from skidway.blocking_client.consumer import Consumer

        consumer = Consumer(cluster, self.topic, {self.partition: self.offset})
        give_up = time.monotonic() + self.seconds + 10
        while tally.messages < self.messages and not stopping.is_set() and time.monotonic() < give_up:
            for record in consumer.poll(timeout_ms=200):
                tally.latencies_ns.append(time.perf_counter_ns() - int.from_bytes((record.value or b"")[:8], "big"))
                tally.messages += 1


Load = ProduceLoad | FetchLoad | TickLoad | ListenLoad


def run_all(loads: list[Load], bootstrap: str, timeout_ms: int, watch: Callable[[list[Tally]], None]) -> list[Tally]:
    """One thread with its own connections for each load; the first error of any ends them all and is raised."""
    tallies = [Tally() for _ in loads]
    stopping = threading.Event()

    def work(load: Load, tally: Tally) -> None:
        try:
            with Cluster(bootstrap, client_id="skidway-bench", timeout_ms=timeout_ms) as cluster:
                load.run(cluster, tally, stopping)
        except BaseException as error:
            tally.error = error
            stopping.set()

    threads = [threading.Thread(target=work, args=pair, daemon=True) for pair in zip(loads, tallies, strict=True)]
    for thread in threads:
        thread.start()
    try:
        while any(thread.is_alive() for thread in threads):
            threads[0].join(0.1) if threads[0].is_alive() else time.sleep(0.02)
            watch(tallies)
    finally:
        stopping.set()
    for tally in tallies:
        if tally.error is not None:
            raise tally.error
    return tallies


def _stamped(value: bytes, due_ns: int) -> Record:
    return Record(0, time.time_ns() // 1_000_000, None, due_ns.to_bytes(8, "big") + value[8:])


def _produce_batch(cluster: Cluster, topic: str, partition: int, batch: bytes | bytearray, acks: int) -> ProduceRequest:
    data = [PartitionProduceData(index=partition, records=batch)]
    named = TopicProduceData(name=topic, topic_id=cluster.topic(topic).id, partition_data=data)
    return ProduceRequest(acks=acks, timeout_ms=cluster.timeout_ms, topic_data=[named])


def _fetch(cluster: Cluster, topic: str, positions: dict[int, int]) -> FetchRequest:
    wanted = [
        FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=PARTITION_FETCH_BYTES)
        for partition, offset in positions.items()
    ]
    named = FetchTopic(topic=topic, topic_id=cluster.topic(topic).id, partitions=wanted)
    return FetchRequest(max_wait_ms=FETCH_WAIT_MS, min_bytes=1, max_bytes=FETCH_BYTES, topics=[named])


def _check_produced(reply: ProduceResponse, topic: str) -> None:
    answers = [answer for answered in reply.responses for answer in answered.partition_responses]
    if not answers:
        raise BadReply(f"producing to {topic}: an empty reply")
    for answer in answers:
        check(answer.error_code, f"{topic} partition {answer.index}", answer.error_message)
