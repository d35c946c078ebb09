"""What a partition remembers of its idempotent and transactional producers.

`check` answers before an append whether a batch is the next of its producer, a repetition of one of the last five
(then the offset it got the first time), or wrong; `record` notes a batch that was appended or replayed. The state is a
function of the log, so recovery rebuilds it from a snapshot plus the batches after it. Control batches do not go to
`record` but to `end_transaction`: theirs is a record that has to be read.

Snapshot files are Kafka's version 1 and readable by its tools. Kafka keeps one batch of each producer there; the
older four (and that one with its own time, if a marker came later) follow behind the payload, inside the checksum,
where Kafka does not look, between the log's start offset and how often its tail had been cut. Behind that are the
transactions whose markers were not committed at that time, and what was.
"""

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from struct import Struct
from typing import NamedTuple

from skidway.errors import InvalidProducerEpoch, OutOfOrderSequence, TransactionCoordinatorFenced
from skidway.limits import DEFAULT_LIMITS, INT32_MAX, PRODUCER_BATCHES_REMEMBERED
from skidway.log.aborted import Aborted
from skidway.log.open_transactions import Ended, OpenTransactions
from skidway.ports import Buffer
from skidway.records.batch import TRANSACTIONAL_BIT, BatchHeader
from skidway.records.checksum import crc32c
from skidway.records.control import EndTransaction
from skidway.records.header_fields import BASE_OFFSET, LAST_OFFSET_DELTA, MAX_TIMESTAMP, PRODUCER_EPOCH, PRODUCER_ID

SNAPSHOT_VERSION = 1
_PREAMBLE = Struct(">hIi")  # version, CRC of what follows it, number of producers
_ENTRY = Struct(">qhiqiqiq")
_CRC_END = 6
_OLDER_MARK = b"skidway1"
_START_OFFSET = Struct(">q")
_TRUNCATIONS = Struct(">i")
_OLDER_COUNT = Struct(">b")
_OLDER_BATCH = Struct(">iqiq")
_COMMITTED = Struct(">qi")  # below which offset markers were committed, and how many were not
_ENDED = Struct(">qq")

EPOCHS_END_TRANSACTIONS = 2
"""From this transaction version on every end has an epoch of its own, and its markers carry it."""

# What is kept of a producer: epoch, coordinator epoch, last timestamp, start of its transaction, when it was last heard
# of; then the batches it is remembered by: last sequence, last offset, offset delta, timestamp.
_HEAD = Struct("<hiqqq")
_EPOCH = Struct("<h")
_SEEN = Struct("<qq")
_SEEN_AT = _HEAD.size - _SEEN.size
_BATCH = Struct("<iqiq")
_BATCHES_BYTES_MAX = PRODUCER_BATCHES_REMEMBERED * _BATCH.size

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


@dataclass(slots=True)
class Producer:
    """One producer as it is described; what a partition keeps of it is packed."""

    producer_id: int
    epoch: int
    coordinator_epoch: int = -1
    last_timestamp: int = -1
    transaction_start: int = -1
    seen_ms: int = 0
    """When this broker last heard of it. Record timestamps are the client's word and may lie years back."""
    batches: list[Remembered] = field(default_factory=list)

    @property
    def last_sequence(self) -> int:
        return self.batches[-1][1] if self.batches else -1

    def state(self) -> tuple[object, ...]:
        """Everything that is a function of the log."""
        return (self.epoch, self.coordinator_epoch, self.last_timestamp, self.transaction_start, tuple(self.batches))


class Entries(Mapping[int, Producer]):
    """Producers by their ids, unpacked when they are looked at."""

    __slots__ = ("_packed",)

    def __init__(self, packed: dict[int, bytes]) -> None:
        self._packed = packed

    def __getitem__(self, producer_id: int) -> Producer:
        return _unpack(producer_id, self._packed[producer_id])

    def __iter__(self) -> Iterator[int]:
        return iter(self._packed)

    def __len__(self) -> int:
        return len(self._packed)

    def __contains__(self, producer_id: object) -> bool:
        return producer_id in self._packed


class Producers:
    """Each producer is one bytes object that is replaced, never changed: it takes half the memory of an object with a
    list, and a copy of the dict is a picture that a worker can turn into a snapshot."""

    __slots__ = ("_packed", "count_max", "expiry_ms", "transactions")

    def __init__(
        self,
        *,
        count_max: int = DEFAULT_LIMITS.producers_per_partition_max,
        expiry_ms: int = DEFAULT_LIMITS.producer_expiry_ms,
    ) -> None:
        self._packed: dict[int, bytes] = {}
        self.count_max = count_max
        self.expiry_ms = expiry_ms
        self.transactions = OpenTransactions()

    def __len__(self) -> int:
        return len(self._packed)

    @property
    def entries(self) -> Entries:
        return Entries(self._packed)

    def knows(self, producer_id: int) -> bool:
        return producer_id in self._packed

    def open_transaction(self, producer_id: int) -> int:
        """The first offset of the transaction that the producer has open; -1 if it has none."""
        return self.transactions.first_offset(producer_id)

    def continues(self, header: BatchHeader) -> bool:
        """Whether the batch's producer has a transaction open that is of its epoch."""
        packed = self._packed.get(header.producer_id)
        if packed is None:
            return False
        known_epoch, _, _, transaction_start, _ = _HEAD.unpack_from(packed)
        return bool(header.producer_epoch == known_epoch and transaction_start >= 0)

    def clear(self) -> None:
        self._packed = {}
        self.transactions = OpenTransactions()

    def check(self, header: BatchHeader) -> int | None:
        """The offset a repeated batch got the first time; None for one that may be appended."""
        packed = self._packed.get(header.producer_id)
        if packed is None:
            # Forgotten or new: any sequence may begin, as its earlier batches may have been deleted.
            return None
        epoch = header.producer_epoch
        (known_epoch,) = _EPOCH.unpack_from(packed)
        if epoch < known_epoch:
            raise InvalidProducerEpoch(f"producer {header.producer_id} has epoch {known_epoch}, the batch has {epoch}")
        first = header.base_sequence
        if epoch > known_epoch:
            if first != 0:
                raise OutOfOrderSequence(
                    f"producer {header.producer_id} begins epoch {epoch} with sequence {first} instead of 0"
                )
            return None
        # A transaction marker leaves an epoch without batches: sequence -1, so that 0 comes next.
        last = -1
        if len(packed) > _HEAD.size:
            last = _BATCH.unpack_from(packed, len(packed) - _BATCH.size)[0]
        if first == ((last + 1) & INT32_MAX):
            return None
        last_sequence = sequence_after(first, header.last_offset_delta)
        for known_last, last_offset, offset_delta, _ in _BATCH.iter_unpack(memoryview(packed)[_HEAD.size :]):
            if known_last == last_sequence and (known_last - offset_delta) & INT32_MAX == first:
                return int(last_offset - offset_delta)
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
        """Note a batch of records."""
        packed = self._packed.get(producer_id)
        coordinator_epoch = transaction_start = -1
        batches = b""
        if packed is not None:
            known_epoch, coordinator_epoch, _, transaction_start, _ = _HEAD.unpack_from(packed)
            if epoch == known_epoch:
                batches = packed[_HEAD.size :]
        elif len(self._packed) >= self.count_max:
            self._evict()
        if attributes & TRANSACTIONAL_BIT and transaction_start < 0:
            transaction_start = base_offset
            self.transactions.begin(producer_id, base_offset)
        if len(batches) == _BATCHES_BYTES_MAX:
            batches = batches[_BATCH.size :]
        last_sequence = (first_sequence + offset_delta) & INT32_MAX
        batches += _BATCH.pack(last_sequence, base_offset + offset_delta, offset_delta, timestamp)
        self._packed[producer_id] = _HEAD.pack(epoch, coordinator_epoch, timestamp, transaction_start, now_ms) + batches

    def check_marker(self, producer_id: int, epoch: int, marker: EndTransaction, transaction_version: int) -> None:
        """Whether a coordinator may end the producer's transaction. What it does again must succeed again."""
        packed = self._packed.get(producer_id)
        if packed is None:
            return
        known_epoch, coordinator_epoch, _, transaction_start, _ = _HEAD.unpack_from(packed)
        ends_later = transaction_version >= EPOCHS_END_TRANSACTIONS and transaction_start >= 0
        if epoch < known_epoch or (epoch == known_epoch and ends_later):
            raise InvalidProducerEpoch(
                f"producer {producer_id} has epoch {known_epoch} here; a marker of epoch {epoch} is too old"
            )
        if marker.coordinator_epoch < coordinator_epoch:
            raise TransactionCoordinatorFenced(
                f"coordinator {coordinator_epoch} has ended a transaction of producer {producer_id}; "
                f"{marker.coordinator_epoch} came before it"
            )

    def end_transaction(self, header: Sequence[int], marker: EndTransaction | None, now_ms: int) -> Aborted | None:
        """Note a control batch, of which `marker` is what its record says; None if compaction has left no record.

        Nothing is checked: what is in the log has happened. Returns what was aborted, if it had written anything.
        """
        producer_id, epoch, offset = header[PRODUCER_ID], header[PRODUCER_EPOCH], header[BASE_OFFSET]
        packed = self._packed.get(producer_id)
        coordinator_epoch = first_offset = -1
        batches = b""
        if packed is not None:
            known_epoch, coordinator_epoch, _, first_offset, _ = _HEAD.unpack_from(packed)
            if epoch == known_epoch:
                batches = packed[_HEAD.size :]
        elif len(self._packed) >= self.count_max:
            self._evict()
        if marker is not None:
            coordinator_epoch = marker.coordinator_epoch
        # The time of a marker counts as a sign of life like that of a batch (KAFKA-9144).
        self._packed[producer_id] = _HEAD.pack(epoch, coordinator_epoch, header[MAX_TIMESTAMP], -1, now_ms) + batches
        if first_offset < 0:
            return None
        offset += header[LAST_OFFSET_DELTA]
        stable_offset = self.transactions.end(producer_id, offset)
        if marker is None or marker.committed:
            return None
        return Aborted(producer_id, first_offset, offset, stable_offset)

    def compensate_clock_jump(self, leap_ms: int, before_ms: int) -> None:
        """The clock jumped forwards: producers that last wrote before `before_ms`, as the clock reads now, were idle
        for less time than it seems. If an active producer were forgotten, its retries would be stored twice."""
        for producer_id, packed in self._packed.items():
            head = _HEAD.unpack_from(packed)
            if head[4] < before_ms:
                self._packed[producer_id] = _HEAD.pack(*head[:4], head[4] + leap_ms) + packed[_HEAD.size :]

    def expire(self, now_ms: int) -> list[int]:
        """Forget producers that were silent for too long, but none that has a transaction open."""
        return self.forget_silent(now_ms - self.expiry_ms)

    def forget_silent(self, since_ms: int) -> list[int]:
        """Forget producers that were not heard of since then, but none that has a transaction open."""
        gone = []
        for producer_id, packed in self._packed.items():
            transaction_start, seen_ms = _SEEN.unpack_from(packed, _SEEN_AT)
            if seen_ms < since_ms and transaction_start < 0:
                gone.append(producer_id)
        for producer_id in gone:
            del self._packed[producer_id]
        return gone

    def _evict(self) -> None:
        # A tenth at once: looking for the oldest costs a pass over all of them.
        idle = []
        for producer_id, packed in self._packed.items():
            transaction_start, seen_ms = _SEEN.unpack_from(packed, _SEEN_AT)
            if transaction_start < 0:
                idle.append((seen_ms, producer_id))
        # By time only: of those heard of in the same millisecond the first to come is the first to go.
        idle.sort(key=itemgetter(0))
        for _, producer_id in idle[: max(1, self.count_max // 10)]:
            del self._packed[producer_id]

    def state(self) -> dict[int, tuple[object, ...]]:
        return {producer_id: self.entries[producer_id].state() for producer_id in sorted(self._packed)}

    def snapshot(self, start_offset: int = 0, truncations: int = 0) -> "Snapshot":
        """What is known now; quick, however many there are."""
        return Snapshot(self._packed.copy(), start_offset, truncations, self.transactions)

    def to_snapshot(self, start_offset: int = 0, truncations: int = 0) -> bytes:
        return self.snapshot(start_offset, truncations).to_bytes()

    def load_snapshot(self, data: Buffer, now_ms: int) -> Taken:
        """Replace all state by the snapshot's.

        Raises CorruptSnapshot and changes nothing when the bytes cannot be trusted.
        """
        try:
            entries, taken, committed, ended = _parse(memoryview(data))
        except struct.error as error:
            raise CorruptSnapshot(str(error)) from error
        for producer in entries:
            producer.seen_ms = now_ms
        self._packed = {producer.producer_id: _pack(producer) for producer in entries}
        opened = [(each.producer_id, each.transaction_start) for each in entries if each.transaction_start >= 0]
        self.transactions = OpenTransactions(opened, ended, committed)
        return taken


class Snapshot:
    """The producers of one moment, to be written by a worker."""

    __slots__ = ("_committed", "_ended", "_packed", "_start_offset", "_truncations")

    def __init__(
        self, packed: dict[int, bytes], start_offset: int, truncations: int, transactions: OpenTransactions
    ) -> None:
        self._packed = packed
        self._start_offset = start_offset
        self._truncations = truncations
        self._committed = transactions.committed
        self._ended = transactions.ended

    def to_bytes(self) -> bytes:
        body = bytearray(_PREAMBLE.pack(SNAPSHOT_VERSION, 0, len(self._packed)))
        older = bytearray(_OLDER_MARK + _START_OFFSET.pack(self._start_offset))
        for producer_id, packed in self._packed.items():
            epoch, coordinator_epoch, last_timestamp, transaction_start, _ = _HEAD.unpack_from(packed)
            batches = list(_BATCH.iter_unpack(memoryview(packed)[_HEAD.size :]))
            last_sequence, last_offset, offset_delta, _ = batches[-1] if batches else (-1, -1, 0, 0)
            body += _ENTRY.pack(
                producer_id,
                epoch,
                last_sequence,
                last_offset,
                offset_delta,
                last_timestamp,
                coordinator_epoch,
                transaction_start,
            )
            # The entry has one time for the producer and its last batch: where a marker came later, they differ.
            told = batches[:-1] if batches and batches[-1][3] == last_timestamp else batches
            older += _OLDER_COUNT.pack(len(told))
            for batch in told:
                older += _OLDER_BATCH.pack(*batch)
        body += older + _TRUNCATIONS.pack(self._truncations) + _COMMITTED.pack(self._committed, len(self._ended))
        for ended in self._ended:
            body += _ENDED.pack(*ended)
        body[2:_CRC_END] = crc32c(memoryview(body)[_CRC_END:]).to_bytes(4, "big")
        return bytes(body)


def _pack(producer: Producer) -> bytes:
    head = _HEAD.pack(
        producer.epoch,
        producer.coordinator_epoch,
        producer.last_timestamp,
        producer.transaction_start,
        producer.seen_ms,
    )
    return head + b"".join(_BATCH.pack(*batch[1:]) for batch in producer.batches)


def _unpack(producer_id: int, packed: bytes) -> Producer:
    batches = [_batch(*fields) for fields in _BATCH.iter_unpack(memoryview(packed)[_HEAD.size :])]
    epoch, coordinator_epoch, last_timestamp, transaction_start, seen_ms = _HEAD.unpack_from(packed)
    return Producer(producer_id, epoch, coordinator_epoch, last_timestamp, transaction_start, seen_ms, batches)


def _batch(last_sequence: int, last_offset: int, offset_delta: int, timestamp: int) -> Remembered:
    return ((last_sequence - offset_delta) & INT32_MAX, last_sequence, last_offset, offset_delta, timestamp)


def _parse(data: memoryview) -> tuple[list[Producer], Taken, int, list[Ended]]:
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
        return entries, Taken(None, 0), 0, []
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
        if older and producer.batches and older[-1][2] == producer.batches[-1][2]:
            producer.batches.clear()
        producer.batches[:0] = older
    truncations = _TRUNCATIONS.unpack_from(data, position)[0] if position < len(data) else 0
    return entries, Taken(start_offset, truncations), *_parse_ended(data, position + _TRUNCATIONS.size)


def _parse_ended(data: memoryview, position: int) -> tuple[int, list[Ended]]:
    if position >= len(data):
        return 0, []  # written before there were transactions
    committed, count = _COMMITTED.unpack_from(data, position)
    position += _COMMITTED.size
    return committed, [_ENDED.unpack_from(data, position + number * _ENDED.size) for number in range(count)]
