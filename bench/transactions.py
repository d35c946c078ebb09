"""The loads of transactions: how many a second, how long until a reader sees one, and what they cost beside produce.

Producers are raw connections of one process that speak as Java from 4.0 on does: partitions are added by writing
(Produce v12), and every end brings another epoch (EndTxn v5). Their batches are prepared; ids, sequence and checksum
are patched in. Every error code is checked; a broker that asks for another try (the transaction before is still ending)
gets it after RETRY_S, and the time counts.

Figures beyond those of workloads.py: `tx` transactions per second, `cpu_tx` broker CPU milliseconds per transaction,
`p50` `p99` milliseconds from the first byte of a transaction until a reader at read_committed has its last record,
`commit` those from EndTxn to its answer at p50, `again` the share of requests that had to be sent again, `id_kb`
resident kilobytes per transactional id, `cpu_id` CPU milliseconds to take one, `idle` CPU milliseconds of a second, at
the median, of a broker that has ids and nothing to do.
"""

import os
import selectors
import socket
import struct
import time
from statistics import median

import crc32c

from bench.frames import BenchError, Peer, batch, compact, frame, text, uvarint
from bench.load import nearest_rank
from bench.subject import Subject, cpu_seconds, fine_cpu_seconds, resident_mb

PRODUCE, FETCH, FIND_COORDINATOR, INIT_PRODUCER_ID, END_TXN = 0, 1, 10, 22, 26
TRANSACTION = b"\1"
NOT_YET = {14, 15, 16, 51}
"""The coordinator loads, or the transaction before is still ending."""
TIMEOUT_S = 30.0
TRANSACTION_MS = 60_000
RETRY_S = 0.002
PRODUCERS = 16
VALUE_BYTES = 100
COMMIT, ABORT = b"\1", b"\0"
ERROR_AT, IDS_AT = 13, 15
"""In a reply to InitProducerId or EndTxn, from the length prefix on."""
ANSWER_BYTES = 33
"""Of one partition in a reply to Produce v12, where nothing went wrong."""

Figures = dict[str, float]


def init_producer_id(transactional_id: str | None) -> bytes:
    name = b"\0" if transactional_id is None else compact(transactional_id.encode())
    body = name + struct.pack(">iqh", TRANSACTION_MS, -1, -1) + b"\0"
    return frame(INIT_PRODUCER_ID, 4, body, flexible=True)


def find_coordinator(transactional_id: str) -> bytes:
    return frame(FIND_COORDINATOR, 1, text(transactional_id) + TRANSACTION, flexible=False)


def take_id(peer: Peer, transactional_id: str | None) -> tuple[int, int]:
    """Producer id and epoch, as soon as the coordinator gives them."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        error = 0
        if transactional_id is not None:
            (error,) = struct.unpack_from(">h", peer.exchange(find_coordinator(transactional_id)), 12)
        if not error:
            reply = peer.exchange(init_producer_id(transactional_id))
            error, producer_id, epoch = struct.unpack_from(">hqh", reply, ERROR_AT)
        if not error:
            return producer_id, epoch
        if error not in NOT_YET or time.monotonic() > deadline:
            raise BenchError(f"no producer id for {transactional_id}: error {error}")
        time.sleep(0.02)


class Batch:
    """A prepared batch with a place for the producer's ids and the sequence."""

    def __init__(self, records: int, value_bytes: int, *, transactional: bool) -> None:
        prepared = batch(value_bytes, records=records)
        self.data, self.records = bytearray(prepared.data), records
        if transactional:
            struct.pack_into(">h", self.data, 21, 0x10)

    def of(self, producer_id: int, epoch: int, sequence: int) -> bytearray:
        struct.pack_into(">qhi", self.data, 43, producer_id, epoch, sequence)
        struct.pack_into(">I", self.data, 17, crc32c.crc32c(memoryview(self.data)[21:]))
        return self.data


def produce_request(topic: str, name: str | None, batches: dict[int, bytearray]) -> list[bytes | bytearray]:
    """Produce v12 in parts, so that large batches are not copied."""
    whose = b"\0" if name is None else compact(name.encode())
    parts: list[bytes | bytearray] = [
        whose + struct.pack(">hi", -1, 30_000) + b"\2" + compact(topic.encode()) + uvarint(len(batches) + 1)
    ]
    for partition, data in batches.items():
        parts += [struct.pack(">i", partition) + uvarint(len(data) + 1), data, b"\0"]
    parts.append(b"\0\0")
    head = frame(PRODUCE, 12, b"", flexible=True)
    size = len(head) - 4 + sum(map(len, parts))
    return [struct.pack(">i", size) + head[4:], *parts]


def produce_answers(reply: bytes, topic: str, partitions: int) -> tuple[int, list[tuple[int, int, int]]]:
    """The first error, and for each partition (index, error, base offset) if there is none."""
    at = 4 + 4 + 1 + 1 + len(compact(topic.encode())) + len(uvarint(partitions + 1))
    found = []
    for _ in range(partitions):
        index, error, base = struct.unpack_from(">ihq", reply, at)
        if error:
            return error, []
        found.append((index, error, base))
        at += ANSWER_BYTES
    return 0, found


class Producer:
    """One transactional id (or none, for plain idempotent produce) over one connection that does not block."""

    def __init__(self, subject: Subject, topic: str, transactional_id: str | None) -> None:
        self.peer = Peer(subject.bootstrap)
        self.topic, self.id = topic, transactional_id
        self.producer_id, self.epoch = take_id(self.peer, transactional_id)
        self.sequences: dict[int, int] = {}
        self.again = self.requests = 0

    @property
    def socket(self) -> socket.socket:
        return self.peer.socket

    def produce(self, places: list[int], prepared: Batch) -> list[bytes | bytearray]:
        batches = {}
        for index in places:
            sequence = self.sequences.get(index, 0)
            self.sequences[index] = sequence + prepared.records
            batches[index] = bytearray(prepared.of(self.producer_id, self.epoch, sequence))
        self.requests += 1
        return produce_request(self.topic, self.id, batches)

    def end(self, how: bytes = COMMIT) -> bytes:
        assert self.id is not None
        self.requests += 1
        body = compact(self.id.encode()) + struct.pack(">qh", self.producer_id, self.epoch) + how + b"\0"
        return frame(END_TXN, 5, body, flexible=True)

    def ended(self, reply: bytes) -> int:
        """The error; without one the ids of the next transaction are taken over."""
        error, producer_id, epoch = struct.unpack_from(">hqh", reply, ERROR_AT)
        if not error:
            self.producer_id, self.epoch = producer_id, epoch
            self.sequences.clear()
        return int(error)

    def check(self, error: int) -> bool:
        """Whether it went well; False: it has to be sent again."""
        if error and error not in NOT_YET:
            raise BenchError(f"{self.id}: error {error}")
        self.again += bool(error)
        return not error


def spread(number: int, records: int, partitions: int) -> list[int]:
    """The partitions that a transaction writes to, one batch each."""
    touched = min(records, partitions)
    return [(number + index) % partitions for index in range(touched)]


class _Machine:
    """A producer that runs one transaction after the other: produce, end, produce, …"""

    def __init__(self, producer: Producer, records: int, partitions: int, number: int) -> None:
        self.producer, self.records, self.partitions, self.number = producer, records, partitions, number
        self.prepared = Batch(records // min(records, partitions), VALUE_BYTES, transactional=True)
        self.ends = self.stops = False
        self.committed = 0
        self.under_way: list[bytes | bytearray] = []
        self.places: list[int] = []
        self.received = bytearray()
        self.resume_at = 0.0

    def begin(self) -> None:
        self.places = spread(self.number, self.records, self.partitions)
        self.number += 1
        self.ends = False
        self.send(self.producer.produce(self.places, self.prepared))

    def send(self, parts: list[bytes | bytearray]) -> None:
        self.under_way = parts
        self.producer.socket.sendall(b"".join(parts))

    def on_reply(self, reply: bytes, now: float) -> None:
        if self.ends:
            if not self.producer.check(self.producer.ended(reply)):
                self.resume_at = now + RETRY_S
                return
            self.committed += 1
            self.under_way = []
            if not self.stops:
                self.begin()
            return
        error, _ = produce_answers(reply, self.producer.topic, len(self.places))
        if not self.producer.check(error):
            self.resume_at = now + RETRY_S
            return
        self.ends = True
        self.send([self.producer.end()])

    def on_readable(self, now: float) -> None:
        data = self.producer.socket.recv(65_536)
        if not data:
            raise BenchError("the broker closed a connection")
        self.received += data
        while len(self.received) >= 4:
            size = 4 + int(struct.unpack_from(">i", self.received)[0])
            if len(self.received) < size:
                return
            reply = bytes(self.received[:size])
            del self.received[:size]
            self.on_reply(reply, now)

    def on_time(self, now: float) -> None:
        if self.resume_at and now >= self.resume_at:
            self.resume_at = 0.0
            self.send(self.under_way)


def _own_cpu() -> float:
    used = os.times()
    return used.user + used.system


def rate(subject: Subject, topic: str, records: int, partitions: int, seconds: float) -> Figures:
    """PRODUCERS side by side, as many transactions as the broker takes."""
    stem = f"rate-{time.monotonic_ns()}"
    producers = [Producer(subject, topic, f"{stem}-{number}") for number in range(PRODUCERS)]
    machines = [_Machine(each, records, partitions, number) for number, each in enumerate(producers)]
    with selectors.DefaultSelector() as selector:
        for machine in machines:
            selector.register(machine.producer.socket, selectors.EVENT_READ, machine)
            machine.begin()
        began, warm = time.monotonic(), seconds / 5
        counted = broker = own = started = 0.0
        while (now := time.monotonic()) < began + warm + seconds:
            if not started and now >= began + warm:
                started, broker, own = now, cpu_seconds(subject.pid), _own_cpu()
                counted = sum(machine.committed for machine in machines)
            for key, _ in selector.select(RETRY_S):
                key.data.on_readable(now)
            for machine in machines:
                machine.on_time(now)
        elapsed = now - started
        done = sum(machine.committed for machine in machines) - counted
        broker, own = cpu_seconds(subject.pid) - broker, _own_cpu() - own
        # None stays open: readers would have to wait until it times out.
        for machine in machines:
            machine.stops = True
        while any(machine.under_way for machine in machines):
            now = time.monotonic()
            for key, _ in selector.select(RETRY_S):
                key.data.on_readable(now)
            for machine in machines:
                machine.on_time(now)
    for producer in producers:
        producer.socket.close()
    requests = sum(each.requests for each in producers)
    return {
        "tx": done / elapsed,
        "cpu_tx": 1e3 * broker / max(1, done),
        "cores": broker / elapsed,
        "client": own / elapsed,
        "again": sum(each.again for each in producers) / requests,
    }


class _Fields:
    """Reads the fields of one reply, in their order."""

    def __init__(self, data: bytes, at: int) -> None:
        self.data, self.at = data, at

    def take(self, layout: struct.Struct) -> tuple[int, ...]:
        self.at += layout.size
        return layout.unpack_from(self.data, self.at - layout.size)

    def count(self) -> int:
        number = shift = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return number - 1


_FETCHED = struct.Struct(">ihqqq")
_ABORTED = struct.Struct(">qqb")
_BASE_AND_LENGTH = struct.Struct(">qi")


class Reader:
    """All partitions of a topic at read_committed, one long poll after the other."""

    def __init__(self, subject: Subject, topic: str, positions: dict[int, int]) -> None:
        self.peer = Peer(subject.bootstrap)
        self.topic, self.positions = topic, positions
        self.ask()

    def ask(self) -> None:
        body = struct.pack(">iiiibii", -1, 500, 1, 50 << 20, 1, 0, -1) + b"\2" + compact(self.topic.encode())
        body += uvarint(len(self.positions) + 1)
        for index, position in self.positions.items():
            body += struct.pack(">iiqiqi", index, -1, position, -1, -1, 1 << 20) + b"\0"
        self.peer.socket.sendall(frame(FETCH, 12, body + b"\0\1\1\0", flexible=True))

    def read(self) -> None:
        """Wait for the next reply, go on behind it, ask again."""
        (size,) = struct.unpack(">i", self.peer._receive(4))
        fields = _Fields(bytes(self.peer._receive(size)), 4 + 1 + 4 + 2 + 4)
        if fields.count() > 0:
            name_bytes = fields.count()
            fields.at += name_bytes
            for _ in range(fields.count()):
                self._go_on(fields)
        self.ask()

    def _go_on(self, fields: _Fields) -> None:
        index, error, _, _, _ = fields.take(_FETCHED)
        if error:
            raise BenchError(f"{self.topic}-{index}: error {error}")
        for _ in range(max(0, fields.count())):
            fields.take(_ABORTED)
        fields.at += 4
        records_bytes = max(0, fields.count())
        end = fields.at + records_bytes
        while fields.at + 61 <= end:
            base, length = _BASE_AND_LENGTH.unpack_from(fields.data, fields.at)
            if fields.at + 12 + length > end:
                break
            (last,) = struct.unpack_from(">i", fields.data, fields.at + 23)
            self.positions[index] = base + last + 1
            fields.at += 12 + length
        fields.at = end + 1

    def close(self) -> None:
        self.peer.socket.close()


def latencies(subject: Subject, topic: str, records: int, partitions: int, seconds: float) -> Figures:
    """One producer, one reader, one transaction at a time."""
    with Peer(subject.bootstrap) as peer:
        reader = Reader(subject, topic, {index: peer.end_offset(topic, index) for index in range(partitions)})
    producer = Producer(subject, topic, f"latency-{time.monotonic_ns()}")
    prepared = Batch(records // min(records, partitions), VALUE_BYTES, transactional=True)
    visible, commits = [], []
    number, began = 0, time.monotonic()
    while time.monotonic() < began + seconds * 1.2:
        start = time.perf_counter()
        ends = _write(producer, spread(number, records, partitions), prepared)
        ending = time.perf_counter()
        while not producer.check(producer.ended(producer.peer.exchange(producer.end()))):
            time.sleep(RETRY_S)
        ended = time.perf_counter()
        while any(reader.positions[index] < end for index, end in ends.items()):
            reader.read()
        if time.monotonic() > began + seconds * 0.2:
            visible.append((time.perf_counter() - start) * 1e3)
            commits.append((ended - ending) * 1e3)
        number += 1
    reader.close()
    producer.socket.close()
    visible.sort()
    commits.sort()
    return {"p50": nearest_rank(visible, 50), "p99": nearest_rank(visible, 99), "commit": nearest_rank(commits, 50)}


def _write(producer: Producer, places: list[int], prepared: Batch) -> dict[int, int]:
    """The end of what was written, by partition."""
    request = b"".join(producer.produce(places, prepared))
    while True:
        error, answers = produce_answers(producer.peer.exchange(request), producer.topic, len(places))
        if producer.check(error):
            return {index: base + prepared.records for index, _, base in answers}
        time.sleep(RETRY_S)


STREAMS = 4
STREAM_DEPTH = 4
STREAM_VALUE_BYTES = 1_000
STREAM_RECORDS = 15
"""16 KB a batch."""
PER_TRANSACTION_S = 0.1
SLICE_S = 0.25


class _Stream:
    """A producer that keeps its connection full, in transactions of PER_TRANSACTION_S if it has a transactional id."""

    def __init__(self, producer: Producer, partition: int) -> None:
        self.producer, self.partition = producer, partition
        self.prepared = Batch(STREAM_RECORDS, STREAM_VALUE_BYTES, transactional=producer.id is not None)
        self.error_at = 4 + 4 + 1 + 1 + len(compact(producer.topic.encode())) + 1 + 4
        self.unanswered: list[list[bytes | bytearray]] = []
        self.acknowledged = 0
        self.transactions = 0
        self.began = 0.0
        self.ends = False
        self.stops = False

    def fill(self, now: float) -> None:
        if self.ends:
            return
        if self.stops or (self.producer.id is not None and 0 < self.began < now - PER_TRANSACTION_S):
            if not self.unanswered and self.producer.id is not None and self.began:
                self.ends = True
                self.producer.socket.sendall(self.producer.end())
            return
        self.began = self.began or now
        while len(self.unanswered) < STREAM_DEPTH:
            parts = self.producer.produce([self.partition], self.prepared)
            self.unanswered.append(parts)
            self._send(parts)

    def _send(self, parts: list[bytes | bytearray]) -> None:
        self.producer.socket.sendall(b"".join(parts))

    def on_readable(self, now: float) -> None:
        (size,) = struct.unpack(">i", self.producer.peer._receive(4))
        reply = struct.pack(">i", size) + self.producer.peer._receive(size)
        if self.ends:
            if self.producer.check(self.producer.ended(reply)):
                self.ends, self.began = False, 0.0
                self.transactions += 1
            else:
                time.sleep(RETRY_S)
                self.producer.socket.sendall(self.producer.end())
                return
        else:
            (error,) = struct.unpack_from(">h", reply, self.error_at)
            if error:
                self._start_over(error)
                return
            del self.unanswered[0]
            self.acknowledged += 1
        self.fill(now)

    def _start_over(self, error: int) -> None:
        """Only the first batches of a transaction may be refused: the one before is still ending."""
        self.producer.check(error)
        for _ in self.unanswered[1:]:
            (size,) = struct.unpack(">i", self.producer.peer._receive(4))
            self.producer.peer._receive(size)
        time.sleep(RETRY_S)
        for parts in self.unanswered:
            self._send(parts)

    @property
    def quiet(self) -> bool:
        return not self.unanswered and not self.ends and (self.producer.id is None or not self.began)


def _run_streams(streams: list[_Stream], subject: Subject, seconds: float) -> tuple[int, float, float]:
    """Batches acknowledged, seconds, broker CPU seconds; ends with the last answer."""
    before, broker, began = sum(each.acknowledged for each in streams), cpu_seconds(subject.pid), time.monotonic()
    with selectors.DefaultSelector() as selector:
        for stream in streams:
            stream.stops = False
            selector.register(stream.producer.socket, selectors.EVENT_READ, stream)
            stream.fill(began)
        while not all(stream.quiet for stream in streams):
            now = time.monotonic()
            if now > began + seconds:
                for stream in streams:
                    stream.stops = True
                    stream.fill(now)
            for key, _ in selector.select(0.01):
                key.data.on_readable(now)
    elapsed = time.monotonic() - began
    return sum(each.acknowledged for each in streams) - before, elapsed, cpu_seconds(subject.pid) - broker


def streams(subject: Subject, topic: str, seconds: float) -> Figures:
    """Plain idempotent produce and transactional produce in turns, each to partitions of its own."""
    stem = f"stream-{time.monotonic_ns()}"
    plain = [_Stream(Producer(subject, topic, None), index) for index in range(STREAMS)]
    inside = [_Stream(Producer(subject, topic, f"{stem}-{index}"), STREAMS + index) for index in range(STREAMS)]
    totals = {True: [0.0, 0.0, 0.0], False: [0.0, 0.0, 0.0]}
    for number in range(2 + 2 * max(1, round(seconds / SLICE_S / 2))):
        transactional = number % 2 == 1
        found = _run_streams(inside if transactional else plain, subject, 4 * PER_TRANSACTION_S)
        if number >= 2:  # the first of each kind warms up
            totals[transactional] = [total + part for total, part in zip(totals[transactional], found, strict=True)]
    for stream in plain + inside:
        stream.producer.socket.close()
    size = len(plain[0].prepared.data)
    rates = {kind: batches * size / 1e6 / elapsed for kind, (batches, elapsed, _) in totals.items()}
    cpu = {kind: broker / (batches * size / 1e9) for kind, (batches, _, broker) in totals.items()}
    return {
        "mb": rates[True],
        "plain": rates[False],
        "ratio": rates[True] / rates[False],
        "cpu_gb": cpu[True],
        "cpu_plain": cpu[False],
        "cpu_ratio": cpu[True] / cpu[False],
        "cores": totals[True][2] / totals[True][1],
    }


IDS = 10_000
IDS_DEPTH = 50
IDS_FIRST = 300
"""So many, one by one, reach each partition that keeps ids: it may have to be loaded first."""
IDLE_SECONDS = 9


def _idle(subject: Subject) -> float:
    """CPU milliseconds of a second at rest: the median of a few. What a load leaves to be done later, a checkpoint of
    its logs or old files, falls into one of them, and is not what resting costs."""
    seconds = []
    for _ in range(IDLE_SECONDS):
        before, began = fine_cpu_seconds(subject.pid), time.monotonic()
        time.sleep(1.0)
        seconds.append((fine_cpu_seconds(subject.pid) - before) * 1e3 / (time.monotonic() - began))
    return median(seconds)


def _take_ids(peer: Peer, wanted: list[str]) -> list[str]:
    """Ask for all of them at once; returns those to ask for again: Kafka fetches producer ids by the thousand."""
    again = []
    peer.socket.sendall(b"".join(map(init_producer_id, wanted)))
    for name in wanted:
        (size,) = struct.unpack(">i", peer._receive(4))
        (error,) = struct.unpack_from(">h", peer._receive(size), ERROR_AT - 4)
        if error in NOT_YET:
            again.append(name)
        elif error:
            raise BenchError(f"no producer id for {name}: error {error}")
    return again


def many_ids(subject: Subject, _: float) -> Figures:
    """IDS more transactional ids, and what the broker uses for them when nobody does anything."""
    with Peer(subject.bootstrap) as peer:
        stem = f"ids-{time.monotonic_ns()}"
        for number in range(IDS_FIRST):
            take_id(peer, f"{stem}-first-{number}")
        idle, resident = _idle(subject), resident_mb(subject.pid)
        began, busy = time.monotonic(), cpu_seconds(subject.pid)
        wanted = [f"{stem}-{number}" for number in range(IDS)]
        while wanted:
            wanted = wanted[IDS_DEPTH:] + _take_ids(peer, wanted[:IDS_DEPTH])
        elapsed, busy = time.monotonic() - began, cpu_seconds(subject.pid) - busy
        return {
            "id_kb": (resident_mb(subject.pid) - resident) * 1024 / IDS,
            "idle": _idle(subject),
            "idle_before": idle,
            "ids": IDS / elapsed,
            "cpu_id": 1e3 * busy / IDS,
        }
