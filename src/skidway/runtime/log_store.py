"""A partition's log as the store of a `Replicated` machine, whatever its records are.

One decision is one batch: after a crash it is there as a whole or not at all. Records carry the wall clock's time, for
people who read the log. What cannot be read raises StorageError: nothing is skipped or guessed.

A machine may take part in the transactions of producers, if its format says how (`Transactional`). Then a decision may
be one transaction's batch, or the marker that ends it, and what is read says which transaction it belongs to. The order
in which a machine gets its records is that of the log, markers included.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

import msgspec

from skidway.errors import DamagedLog, ProtocolError, StorageError
from skidway.limits import DEFAULT_LIMITS, MIB
from skidway.log.bounds import Bound
from skidway.ports import Buffer, Clock, FileSlice
from skidway.records.batch import BatchHeader, crc_matches, iter_headers, read_header
from skidway.records.control import (
    ControlType,
    EndTransaction,
    end_transaction_batch,
    read_control_type,
    read_end_transaction,
)
from skidway.records.record import Record, build_batch, read_records

READ_BYTES = 4 * MIB
FIRST_SEQUENCE = 0
"""Of every batch of a transaction that a machine writes, as in Kafka: nobody sends one twice, so nobody counts them."""

Stored = TypeVar("Stored")


class Producer(NamedTuple):
    """Whose transaction it is."""

    id: int
    epoch: int


class Marker(NamedTuple):
    """A producer's transaction ends here."""

    producer: Producer
    end: EndTransaction
    transaction_version: int = 0
    """By which rule the epoch is checked where it is written. 0 where nobody said: then it may also end what a producer
    of the same epoch has open. No log has it."""


class Transactional(msgspec.Struct, Generic[Stored], frozen=True):
    """How a machine's records take part in transactions."""

    part_of: Callable[[Stored], Producer | Marker | None]
    """Whose transaction a record belongs to, or which one it ends."""
    belongs_to: Callable[[Stored, Producer], None]
    """Tells a record that was read whose transaction it belongs to."""
    ended: Callable[[Marker], Stored]
    """A marker as a record of the machine."""


class Format(msgspec.Struct, Generic[Stored], frozen=True):
    """How a machine's records are written."""

    name: str
    """Of the records, in messages."""
    encode: Callable[[Stored], tuple[bytes | None, bytes | None]]
    """Key and value."""
    decode: Callable[[Record], Stored | None]
    """None for a record to be passed over. Raises StorageError."""
    transactional: Transactional[Stored] | None = None
    """None for a machine that takes no part in transactions."""
    placed: Callable[[Stored, int], None] | None = None
    """Tells a record at which offset it lies, for a machine that has to know."""

    def part_of(self, records: Sequence[Stored]) -> Producer | Marker | None:
        """What all records of a decision have in common."""
        if self.transactional is None:
            return None
        part_of = self.transactional.part_of
        part = part_of(records[0])
        if len(records) > 1:
            assert all(part_of(record) == part for record in records), "one decision in several transactions"
        return part

    def to_batch(self, records: Sequence[Stored], timestamp_ms: int) -> bytearray:
        return self.batch_of(self.part_of(records), records, timestamp_ms)

    def batch_of(self, part: Producer | Marker | None, records: Sequence[Stored], timestamp_ms: int) -> bytearray:
        """`part` is what they have in common."""
        if isinstance(part, Marker):
            assert len(records) == 1, "a marker is a batch of its own"
            producer_id, epoch = part.producer
            return end_transaction_batch(
                part.end, producer_id=producer_id, producer_epoch=epoch, timestamp=timestamp_ms
            )
        rows = [Record(0, timestamp_ms, *self.encode(record)) for record in records]
        if part is None:
            return build_batch(rows)
        return build_batch(
            rows, producer_id=part.id, producer_epoch=part.epoch, base_sequence=FIRST_SEQUENCE, transactional=True
        )

    def from_batches(self, buffer: Buffer) -> Iterator[Stored]:
        """The records of whole batches. Control batches are passed over, they belong to replication; but for markers
        that end a transaction, where the machine takes part in transactions."""
        view = memoryview(buffer)
        transactional = self.transactional
        try:
            for position, header in iter_headers(buffer):
                is_part = transactional is not None and header.is_transactional
                if header.is_control and not is_part:
                    continue
                batch = view[position : position + header.size]
                if not crc_matches(batch):
                    raise DamagedLog(f"{self.name} records at offset {header.base_offset} fail their checksum")
                records = read_records(batch, decompressed_bytes_max=DEFAULT_LIMITS.decompressed_bytes_max)
                if is_part:
                    yield from self._of_transaction(header, records)
                    continue
                for record in records:
                    known = self.decode(record)
                    if known is not None:
                        if self.placed is not None:
                            self.placed(known, record.offset)
                        yield known
        except StorageError:
            raise
        except ProtocolError as error:
            raise StorageError(f"unreadable batch of {self.name} records: {error}") from error

    def _of_transaction(self, header: BatchHeader, records: Iterator[Record]) -> Iterator[Stored]:
        transactional = self.transactional
        assert transactional is not None
        producer = Producer(header.producer_id, header.producer_epoch)
        for record in records:
            if header.is_control:
                if read_control_type(record.key) in (ControlType.COMMIT, ControlType.ABORT):
                    yield transactional.ended(Marker(producer, read_end_transaction(record)))
                continue
            known = self.decode(record)
            if known is not None:
                transactional.belongs_to(known, producer)
                yield known


class MachineLog(Protocol):
    """What is asked of the partition's log."""

    @property
    def start_offset(self) -> int: ...

    @property
    def end_offset(self) -> int: ...

    @property
    def high_watermark(self) -> int: ...

    def append(self, batch: memoryview | bytearray, header: BatchHeader, leader_epoch: int, now_ms: int) -> int: ...

    def read(
        self, offset: int, max_bytes: int, upto: Bound = Bound.HIGH_WATERMARK, *, min_one: bool = True
    ) -> FileSlice | None: ...


class LogStore(Generic[Stored]):
    def __init__(
        self,
        log: MachineLog,
        clock: Clock,
        records: Format[Stored],
        leader_epoch: int = 0,
        *,
        compacted: bool = False,
        write_marker: Callable[[Marker, int], None] | None = None,
    ) -> None:
        """`compacted`: the log may have gaps, also at its end. `write_marker` checks a marker and appends it, at a wall
        time; without it markers are appended like all else."""
        self._log = log
        self._write_marker = write_marker
        self._clock = clock
        self._format = records
        self._leader_epoch = leader_epoch
        self._compacted = compacted

    @property
    def end_offset(self) -> int:
        return self._log.end_offset

    @property
    def committed_offset(self) -> int:
        return self._log.high_watermark

    def append(self, records: Sequence[Stored], now_ms: int) -> int:
        wall_ms = self._clock.wall_ms()
        part = None if self._format.transactional is None else self._format.part_of(records)
        if self._write_marker is not None and isinstance(part, Marker):
            self._write_marker(part, wall_ms)
            return self._log.end_offset
        batch = self._format.batch_of(part, records, wall_ms)
        self._log.append(batch, read_header(batch), self._leader_epoch, wall_ms)
        end_offset = self._log.end_offset
        if self._format.placed is not None:
            for offset, record in enumerate(records, end_offset - len(records)):
                self._format.placed(record, offset)
        return end_offset

    def read_all(self) -> Iterator[Stored]:
        offset, end_offset = self._log.start_offset, self._log.end_offset
        while offset < end_offset:
            found = self._log.read(offset, READ_BYTES, Bound.END)
            if found is None and self._compacted:
                return
            if found is None:
                raise StorageError(f"the log of {self._format.name} records ends at {offset}, not at {end_offset}")
            data = found.read()
            yield from self._format.from_batches(data)
            offset = self._offset_after(data)

    def _offset_after(self, data: bytes) -> int:
        headers = [header for _, header in iter_headers(data)]
        if not headers:
            raise StorageError(f"the log of {self._format.name} records has no whole batch where one should be")
        return headers[-1].last_offset + 1
