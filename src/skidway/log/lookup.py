"""Finding records by time: the time index narrows it to a few batches, one of which is opened. And how far bytes reach.

A batch that a client filled with what are no records stands for itself: its first offset, its largest timestamp.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from skidway.errors import CorruptMessage, InvalidRecord, StorageError
from skidway.log.segment import Batch, Segment
from skidway.records.batch import HEADER_BYTES
from skidway.records.record import Outline, read_outlines

if TYPE_CHECKING:
    from skidway.log.log import Log

Found = tuple[int, int, int]


def bytes_between(segments: list[Segment], first: Segment, last: Segment) -> int:
    """From the beginning of one segment to that of another."""
    return sum(segment.size for segment in segments if first.base_offset <= segment.base_offset < last.base_offset)


def offset_for_timestamp(log: Log, timestamp: int) -> Found | None:
    try:
        return _first_at_or_after(log, timestamp)
    except OSError as error:
        raise StorageError(f"{log.directory}: {error}") from error


def offset_of_max_timestamp(log: Log) -> Found | None:
    """The first record that has the largest timestamp of all committed ones."""
    try:
        return _latest(log)
    except OSError as error:
        raise StorageError(f"{log.directory}: {error}") from error


def _first_at_or_after(log: Log, timestamp: int) -> Found | None:
    for segment in log.segments:
        if segment.base_offset >= log.high_watermark:
            return None
        if segment.load_max_timestamp() < timestamp:
            continue
        found = _search(log, segment, timestamp)
        if found is not None:
            return found if found[0] < log.high_watermark else None
    return None


def _search(log: Log, segment: Segment, timestamp: int) -> Found | None:
    offset = max(segment.base_offset + segment.times.offset_before(timestamp), log.start_offset)
    first = segment.find(offset)
    if first is None:
        return None
    for batch in segment.batches(first[0], segment.size):
        if batch[4] < timestamp:
            continue
        try:
            for record in _records(log, segment, batch):
                if record.timestamp >= timestamp and record.offset >= log.start_offset:
                    return record.offset, record.timestamp, batch[5]
        except (CorruptMessage, InvalidRecord):
            return max(batch[1], log.start_offset), batch[4], batch[5]
    return None


def _latest(log: Log) -> Found | None:
    best: Found | None = None
    for segment in log.segments:
        if segment.load_max_timestamp() <= (best[1] if best else -1):
            continue
        largest: Batch | None = None
        for batch in segment.batches(*_bounds(log, segment)):
            if batch[2] >= log.high_watermark:
                break
            if batch[3] == HEADER_BYTES:
                continue  # compaction left nothing of it but its header
            if batch[1] < log.start_offset <= batch[2]:
                # Its largest timestamp may belong to a deleted record.
                best = _latest_record(log, segment, batch)
            elif batch[1] >= log.start_offset and batch[4] > (largest[4] if largest else best[1] if best else -1):
                largest = batch
        if largest is not None:
            best = _latest_record(log, segment, largest)
    return best


def _latest_record(log: Log, segment: Segment, batch: Batch) -> Found | None:
    try:
        records = [record for record in _records(log, segment, batch) if record.offset >= log.start_offset]
    except (CorruptMessage, InvalidRecord):
        return max(batch[1], log.start_offset), batch[4], batch[5]
    if not records:
        return None
    latest = max(records, key=lambda record: record.timestamp)
    return latest.offset, latest.timestamp, batch[5]


def _bounds(log: Log, segment: Segment) -> tuple[int, int]:
    """Where the batch with the largest timestamp may be."""
    whole = segment.base_offset >= log.start_offset and segment.max_timestamp_offset < log.high_watermark
    found = segment.find(segment.max_timestamp_offset) if whole else None
    return (found[0], found[0] + found[3]) if found and found[3] > HEADER_BYTES else (0, segment.size)


def _records(log: Log, segment: Segment, batch: Batch) -> Iterator[Outline]:
    """One by one and without contents: a client's batch may unpack to much more than it looks like."""
    data = segment.file.read_at(batch[0], batch[3])
    return read_outlines(data, decompressed_bytes_max=log.limits.decompressed_bytes_max)
