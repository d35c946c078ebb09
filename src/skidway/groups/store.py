"""A partition of `__consumer_offsets` as the store of a `Replicated` coordinator."""

from collections.abc import Iterator, Sequence
from typing import Protocol

from skidway.errors import StorageError
from skidway.groups.records import GroupRecord, from_batches, to_batch
from skidway.limits import MIB
from skidway.ports import Clock, FileSlice
from skidway.records.batch import BatchHeader, iter_headers, read_header

READ_BYTES = 4 * MIB


class OffsetsLog(Protocol):
    """What is asked of the partition's log."""

    @property
    def start_offset(self) -> int: ...

    @property
    def end_offset(self) -> int: ...

    @property
    def high_watermark(self) -> int: ...

    def append(self, batch: memoryview | bytearray, header: BatchHeader, leader_epoch: int, now_ms: int) -> int: ...

    def read(
        self, offset: int, max_bytes: int, *, committed: bool = True, min_one: bool = True
    ) -> FileSlice | None: ...


class GroupStore:
    """One decision is one batch: after a crash it is there as a whole or not at all."""

    def __init__(self, log: OffsetsLog, clock: Clock, leader_epoch: int = 0) -> None:
        self._log = log
        self._clock = clock
        self._leader_epoch = leader_epoch

    @property
    def end_offset(self) -> int:
        return self._log.end_offset

    @property
    def committed_offset(self) -> int:
        return self._log.high_watermark

    def append(self, records: Sequence[GroupRecord], now_ms: int) -> int:
        wall_ms = self._clock.wall_ms()
        batch = to_batch(records, wall_ms)
        self._log.append(batch, read_header(batch), self._leader_epoch, wall_ms)
        return self._log.end_offset

    def read_all(self) -> Iterator[GroupRecord]:
        """Compaction leaves gaps, also at the end: nothing more to read is the end."""
        offset = self._log.start_offset
        while offset < self._log.end_offset:
            found = self._log.read(offset, READ_BYTES, committed=False)
            if found is None:
                return
            data = found.read()
            yield from from_batches(data)
            offset = _offset_after(data)


def _offset_after(data: bytes) -> int:
    headers = [header for _, header in iter_headers(data)]
    if not headers:
        raise StorageError("a log of group records has no whole batch where one should be")
    return headers[-1].last_offset + 1
