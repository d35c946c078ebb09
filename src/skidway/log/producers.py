"""What a partition remembers of its idempotent and transactional producers.

`check` answers before an append whether a batch is the next of its producer, a repetition of one of the last five
(then the offset it got the first time), or wrong; `record` notes a batch that was appended or replayed. The state is a
function of the log, so recovery rebuilds it from a snapshot plus the batches after it.

Snapshot files are Kafka's version 1 and readable by its tools. Kafka keeps one batch of each producer there; the
older four follow behind the payload, inside the checksum, where Kafka does not look, between the log's start offset and
how often its tail had been cut.
"""

import struct
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from skidway.errors import InvalidProducerEpoch, OutOfOrderSequence
from skidway.limits import DEFAULT_LIMITS, INT32_MAX, PRODUCER_BATCHES_REMEMBERED
from skidway.ports import Buffer
from skidway.records.batch import BatchHeader

SNAPSHOT_VERSION = 1
_PREAMBLE = Struct(">hIi")  # version, CRC of what follows it, number of producers
_ENTRY = Struct(">qhiqiqiq")
_CRC_END = 6
_OLDER_MARK = b"skidway1"
_START_OFFSET = Struct(">q")
_TRUNCATIONS = Struct(">i")
_OLDER_COUNT = Struct(">b")
_OLDER_BATCH = Struct(">iqiq")

# One remembered batch: (first sequence, last sequence, last offset, offset delta, timestamp).
Remembered = tuple[int, int, int, int, int]


class CorruptSnapshot(Exception):
    """A snapshot file whose bytes cannot be trusted."""


class Taken(NamedTuple):
    """What a snapshot tells of the log it was taken of."""

    start_offset: int | None
    """None when Kafka took it."""
    truncations: int


def sequence_after(sequence: int, steps: int) -> int:
    """Sequences wrap from 2^31 - 1 to 0."""
    return (sequence + steps) & INT32_MAX


class Producer:
    __slots__ = (
        "batches",
        "coordinator_epoch",
        "epoch",
        "last_timestamp",
        "producer_id",
        "seen_ms",
        "transaction_start",
    )

    def __init__(self, producer_id: int, epoch: int) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.coordinator_epoch = -1
        self.last_timestamp = -1
        self.transaction_start = -1
        self.batches: list[Remembered] = []
        # When this broker last heard of it. Record timestamps are the client's word and may lie years back.
        self.seen_ms = 0

    @property
    def last_sequence(self) -> int:
        return self.batches[-1][1] if self.batches else -1

    def state(self) -> tuple[object, ...]:
        """Everything that is a function of the log."""
        return (self.epoch, self.coordinator_epoch, self.last_timestamp, self.transaction_start, tuple(self.batches))


class Producers:
    __slots__ = ("count_max", "entries", "expiry_ms")

    def __init__(
        self,
        *,
        count_max: int = DEFAULT_LIMITS.producers_per_partition_max,
        expiry_ms: int = DEFAULT_LIMITS.producer_expiry_ms,
    ) -> None:
        self.entries: dict[int, Producer] = {}
        self.count_max = count_max
        self.expiry_ms = expiry_ms

    def __len__(self) -> int:
        return len(self.entries)

    def check(self, header: BatchHeader) -> int | None:
        """The offset a repeated batch got the first time; None for one that may be appended."""
        producer = self.entries.get(header.producer_id)
        if producer is None:
            # Forgotten or new: any sequence may begin, as its earlier batches may have been deleted.
            return None
        epoch = header.producer_epoch
        if epoch < producer.epoch:
            raise InvalidProducerEpoch(
                f"producer {header.producer_id} has epoch {producer.epoch}, the batch has {epoch}"
            )
        first = header.base_sequence
        if epoch > producer.epoch:
            if first != 0:
                raise OutOfOrderSequence(
                    f"producer {header.producer_id} begins epoch {epoch} with sequence {first} instead of 0"
                )
            return None
        batches = producer.batches
        # A transaction marker leaves an epoch without batches: sequence -1, so that 0 comes next.
        last = batches[-1][1] if batches else -1
        if first == ((last + 1) & INT32_MAX):
            return None
        last_sequence = sequence_after(first, header.last_offset_delta)
        for known_first, known_last, last_offset, offset_delta, _ in batches:
            if known_first == first and known_last == last_sequence:
                return last_offset - offset_delta
        raise OutOfOrderSequence(f"producer {header.producer_id} sent sequence {first} after {last}")

    def record(
        self,
        producer_id: int,
        epoch: int,
        first_sequence: int,
        base_offset: int,
        offset_delta: int,
        timestamp: int,
        attributes: int,
        now_ms: int,
    ) -> None:
        producer = self.entries.get(producer_id)
        if producer is None:
            if len(self.entries) >= self.count_max:
                self._evict()
            producer = self.entries[producer_id] = Producer(producer_id, epoch)
        elif epoch != producer.epoch:
            producer.epoch = epoch
            producer.batches.clear()
        producer.last_timestamp = timestamp
        producer.seen_ms = now_ms
        if attributes & 0x30:
            self._record_transactional(producer, base_offset, attributes)
            if attributes & 0x20:
                return
        batches = producer.batches
        if len(batches) == PRODUCER_BATCHES_REMEMBERED:
            del batches[0]
        last_sequence = (first_sequence + offset_delta) & INT32_MAX
        batches.append((first_sequence, last_sequence, base_offset + offset_delta, offset_delta, timestamp))

    def _record_transactional(self, producer: Producer, base_offset: int, attributes: int) -> None:
        if attributes & 0x20:
            producer.transaction_start = -1
        elif producer.transaction_start < 0:
            producer.transaction_start = base_offset

    def bear_leap(self, leap_ms: int, before_ms: int) -> None:
        """The clock leapt forwards: who was heard of `before_ms`, as it reads now, was not silent for as long as it
        seems. Forgotten in the middle of its work it would get what it sends again stored twice."""
        for producer in self.entries.values():
            if producer.seen_ms < before_ms:
                producer.seen_ms += leap_ms

    def expire(self, now_ms: int) -> list[int]:
        """Forget producers that were silent for too long, but none that has a transaction open."""
        limit = now_ms - self.expiry_ms
        gone = [
            producer.producer_id
            for producer in self.entries.values()
            if producer.seen_ms < limit and producer.transaction_start < 0
        ]
        for producer_id in gone:
            del self.entries[producer_id]
        return gone

    def _evict(self) -> None:
        # A tenth at once: looking for the oldest costs a pass over all of them.
        idle = sorted(
            (producer for producer in self.entries.values() if producer.transaction_start < 0),
            key=lambda producer: producer.seen_ms,
        )
        for producer in idle[: max(1, self.count_max // 10)]:
            del self.entries[producer.producer_id]

    def state(self) -> dict[int, tuple[object, ...]]:
        return {producer_id: self.entries[producer_id].state() for producer_id in sorted(self.entries)}

    def to_snapshot(self, start_offset: int = 0, truncations: int = 0) -> bytes:
        body = bytearray(_PREAMBLE.pack(SNAPSHOT_VERSION, 0, len(self.entries)))
        older = bytearray(_OLDER_MARK + _START_OFFSET.pack(start_offset))
        for producer in self.entries.values():
            _, last_sequence, last_offset, offset_delta, timestamp = (
                producer.batches[-1] if producer.batches else (-1, -1, -1, 0, producer.last_timestamp)
            )
            body += _ENTRY.pack(
                producer.producer_id,
                producer.epoch,
                last_sequence,
                last_offset,
                offset_delta,
                producer.last_timestamp,
                producer.coordinator_epoch,
                producer.transaction_start,
            )
            older += _OLDER_COUNT.pack(max(0, len(producer.batches) - 1))
            for _, last_sequence, last_offset, offset_delta, timestamp in producer.batches[:-1]:
                older += _OLDER_BATCH.pack(last_sequence, last_offset, offset_delta, timestamp)
        body += older + _TRUNCATIONS.pack(truncations)
        body[2:_CRC_END] = crc32c(memoryview(body)[_CRC_END:]).to_bytes(4, "big")
        return bytes(body)

    def load_snapshot(self, data: Buffer, now_ms: int) -> Taken:
        """Replace all state by the snapshot's.

        Raises CorruptSnapshot and changes nothing when the bytes cannot be trusted.
        """
        try:
            entries, taken = _parse(memoryview(data))
        except struct.error as error:
            raise CorruptSnapshot(str(error)) from error
        for producer in entries:
            producer.seen_ms = now_ms
        self.entries = {producer.producer_id: producer for producer in entries}
        return taken


def _batch(last_sequence: int, last_offset: int, offset_delta: int, timestamp: int) -> Remembered:
    return ((last_sequence - offset_delta) & INT32_MAX, last_sequence, last_offset, offset_delta, timestamp)


def _parse(data: memoryview) -> tuple[list[Producer], Taken]:
    version, crc, count = _PREAMBLE.unpack_from(data)
    if version != SNAPSHOT_VERSION:
        raise CorruptSnapshot(f"version {version}")
    if crc != crc32c(data[_CRC_END:]):
        raise CorruptSnapshot("the checksum does not match")
    entries = []
    position = _PREAMBLE.size
    for _ in range(count):
        producer_id, epoch, last_sequence, last_offset, offset_delta, timestamp, coordinator_epoch, started = (
            _ENTRY.unpack_from(data, position)
        )
        position += _ENTRY.size
        producer = Producer(producer_id, epoch)
        producer.last_timestamp = timestamp
        producer.coordinator_epoch = coordinator_epoch
        producer.transaction_start = started
        if last_offset >= 0:
            producer.batches.append(_batch(last_sequence, last_offset, offset_delta, timestamp))
        entries.append(producer)
    if data[position : position + len(_OLDER_MARK)] != _OLDER_MARK:
        return entries, Taken(None, 0)
    position += len(_OLDER_MARK)
    start_offset: int = _START_OFFSET.unpack_from(data, position)[0]
    position += _START_OFFSET.size
    for producer in entries:
        (older_count,) = _OLDER_COUNT.unpack_from(data, position)
        position += _OLDER_COUNT.size
        older = []
        for _ in range(older_count):
            older.append(_batch(*_OLDER_BATCH.unpack_from(data, position)))
            position += _OLDER_BATCH.size
        producer.batches[:0] = older
    truncations = _TRUNCATIONS.unpack_from(data, position)[0] if position < len(data) else 0
    return entries, Taken(start_offset, truncations)
