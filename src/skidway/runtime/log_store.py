"""A partition's log as the store of a `Replicated` machine, whatever its records are.

One decision is one batch: after a crash it is there as a whole or not at all. Records carry the wall clock's time, for
people who read the log. What cannot be read raises StorageError: nothing is skipped or guessed.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from skidway.errors import DamagedLog, ProtocolError, StorageError
from skidway.limits import DEFAULT_LIMITS, MIB
from skidway.log.bounds import Bound
from skidway.ports import Buffer, Clock, FileSlice
from skidway.records.batch import BatchHeader, crc_matches, iter_headers, read_header
from skidway.records.record import Record, build_batch, read_records

READ_BYTES = 4 * MIB

Stored = TypeVar("Stored")


@dataclass(frozen=True, slots=True)
class Format(Generic[Stored]):
    """How a machine's records are written."""

    name: str
    """Of the records, in messages."""
    encode: Callable[[Stored], tuple[bytes | None, bytes | None]]
    """Key and value."""
    decode: Callable[[Record], Stored | None]
    """None for a record to be passed over. Raises StorageError."""

    def to_batch(self, records: Sequence[Stored], timestamp_ms: int) -> bytearray:
        return build_batch([Record(0, timestamp_ms, *self.encode(record)) for record in records])

    def from_batches(self, buffer: Buffer) -> Iterator[Stored]:
        """The records of whole batches. Control batches are passed over: they belong to replication."""
        view = memoryview(buffer)
        try:
            for position, header in iter_headers(buffer):
                if header.is_control:
                    continue
                batch = view[position : position + header.size]
                if not crc_matches(batch):
                    raise DamagedLog(f"{self.name} records at offset {header.base_offset} fail their checksum")
                for record in read_records(batch, decompressed_bytes_max=DEFAULT_LIMITS.decompressed_bytes_max):
                    known = self.decode(record)
                    if known is not None:
                        yield known
        except StorageError:
            raise
        except ProtocolError as error:
            raise StorageError(f"unreadable batch of {self.name} records: {error}") from error


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
        self, log: MachineLog, clock: Clock, records: Format[Stored], leader_epoch: int = 0, *, compacted: bool = False
    ) -> None:
        """`compacted`: the log may have gaps, also at its end."""
        self._log = log
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
        batch = self._format.to_batch(records, wall_ms)
        self._log.append(batch, read_header(batch), self._leader_epoch, wall_ms)
        return self._log.end_offset

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
