"""Finding records by time: the time index narrows it to a few batches, one of which is opened.

In steps: a segment may have thousands of batches to pass over, a batch thousands of records, and a worker unpacks it.
A batch that a client filled with what are no records, or whose records are larger than `UNPACKED_BYTES_MAX`, stands for
itself: its first offset, its largest timestamp.
"""

from bisect import bisect_right
from functools import partial

from skidway.errors import CorruptMessage, InvalidRecord
from skidway.limits import MIB
from skidway.log import markers
from skidway.log.aborted import AbortedRange, CorruptTransactionIndex
from skidway.log.bounds import Bound
from skidway.log.log import Log
from skidway.log.segment import Batch, Segment, unreadable
from skidway.ports import FileSlice
from skidway.records.batch import CODEC_MASK, HEADER_BYTES, BatchHeader, read_header
from skidway.records.record import open_batch, outline_records
from skidway.steps import Job, Steps

Found = tuple[int, int, int]
UNPACKED_BYTES_MAX = 32 * MIB
"""What one batch may unpack to here: as much as a leader unpacks of one that a client sends, unless a topic allows
larger ones than most do."""
STEP_RECORDS = 256


def aborted(log: Log, from_offset: int, upto_offset: int) -> list[AbortedRange]:
    """(producer id, first offset) of those that have records between the offsets, by their first offsets."""
    try:
        try:
            return markers.find_aborted(log.segments, from_offset, upto_offset)
        except CorruptTransactionIndex:
            markers.rebuild_aborted(log.segments)
            return markers.find_aborted(log.segments, from_offset, upto_offset)
    except OSError as error:
        raise unreadable(log.directory, error) from error


def aborted_in(log: Log, offset: int, read: FileSlice) -> list[AbortedRange]:
    """Of what `Log.read` got from `offset` on. Not much more: who reads old records is not told of all that follows."""
    try:
        number = bisect_right(log.segments, offset, key=lambda segment: segment.base_offset)
        if not any(segment.aborted for segment in log.segments[max(number - 1, 0) :]):
            return []
        upto_offset = min(end_of_slice(log, offset, read), log.last_stable_offset)
    except CorruptTransactionIndex:
        upto_offset = log.last_stable_offset
    except OSError as error:
        raise unreadable(log.directory, error) from error
    return aborted(log, offset, upto_offset)


def end_of_slice(log: Log, offset: int, read: FileSlice) -> int:
    """By the index: what it names next is near enough, and no batch has to be looked at."""
    number = bisect_right(log.segments, offset, key=lambda segment: segment.base_offset)
    segment = log.segments[number - 1]
    index = segment.index
    entry = index.entries_before_position(read.position + read.length)
    if entry < len(index):
        return segment.base_offset + index.offsets[entry]
    return log.segments[number].base_offset if number < len(log.segments) else log.end_offset


def offset_for_timestamp(log: Log, timestamp: int, upto: Bound = Bound.HIGH_WATERMARK) -> Steps[Found | None]:
    """(offset, timestamp, leader epoch) of the first record below the bound at or after `timestamp`."""
    try:
        return (yield from _first_at_or_after(log, timestamp, upto))
    except OSError as error:
        raise unreadable(log.directory, error) from error


def offset_of_max_timestamp(log: Log, upto: Bound = Bound.HIGH_WATERMARK) -> Steps[Found | None]:
    """The first record that has the largest timestamp of all below the bound."""
    try:
        return (yield from _latest(log, upto))
    except OSError as error:
        raise unreadable(log.directory, error) from error


def _first_at_or_after(log: Log, timestamp: int, upto: Bound) -> Steps[Found | None]:
    for segment in list(log.segments):
        yield None
        if segment.base_offset >= log.bound(upto):
            return None
        if segment.load_max_timestamp() < timestamp:
            continue
        found = yield from _search(log, segment, timestamp)
        if found is not None:
            return found if found[0] < log.bound(upto) else None
    return None


def _search(log: Log, segment: Segment, timestamp: int) -> Steps[Found | None]:
    offset = max(segment.base_offset + segment.times.offset_before(timestamp), log.start_offset)
    first = segment.find(offset)
    if first is None:
        return None
    for batch in segment.batches(first[0], segment.size):
        yield None
        if batch[4] < timestamp:
            continue
        try:
            header, payload = yield from _open(log, segment, batch)
            for number, record in enumerate(outline_records(header, payload)):
                if record.timestamp >= timestamp and record.offset >= log.start_offset:
                    return record.offset, record.timestamp, batch[5]
                if not number % STEP_RECORDS:
                    yield None
        except (CorruptMessage, InvalidRecord):
            return max(batch[1], log.start_offset), batch[4], batch[5]
    return None


def _latest(log: Log, upto: Bound) -> Steps[Found | None]:
    best: Found | None = None
    for segment in list(log.segments):
        yield None
        if segment.load_max_timestamp() <= (best[1] if best else -1):
            continue
        largest: Batch | None = None
        for batch in segment.batches(*_bounds(log, segment, upto)):
            yield None
            if batch[2] >= log.bound(upto):
                break
            if batch[3] == HEADER_BYTES:
                continue  # compaction left nothing of it but its header
            if batch[1] < log.start_offset <= batch[2]:
                # Its largest timestamp may belong to a deleted record.
                best = yield from _latest_record(log, segment, batch)
            elif batch[1] >= log.start_offset and batch[4] > (largest[4] if largest else best[1] if best else -1):
                largest = batch
        if largest is not None:
            best = yield from _latest_record(log, segment, largest)
    return best


def _latest_record(log: Log, segment: Segment, batch: Batch) -> Steps[Found | None]:
    latest: Found | None = None
    try:
        header, payload = yield from _open(log, segment, batch)
        for number, record in enumerate(outline_records(header, payload)):
            if record.offset >= log.start_offset and (latest is None or record.timestamp > latest[1]):
                latest = record.offset, record.timestamp, batch[5]
            if not number % STEP_RECORDS:
                yield None
    except (CorruptMessage, InvalidRecord):
        return max(batch[1], log.start_offset), batch[4], batch[5]
    return latest


def _bounds(log: Log, segment: Segment, upto: Bound) -> tuple[int, int]:
    """Where the batch with the largest timestamp may be."""
    whole = segment.base_offset >= log.start_offset and segment.max_timestamp_offset < log.bound(upto)
    found = segment.find(segment.max_timestamp_offset) if whole else None
    return (found[0], found[0] + found[3]) if found and found[3] > HEADER_BYTES else (0, segment.size)


def _open(log: Log, segment: Segment, batch: Batch) -> Steps[tuple[BatchHeader, bytes | bytearray]]:
    data = segment.file.read_at(batch[0], batch[3])
    bytes_max = min(UNPACKED_BYTES_MAX, log.limits.decompressed_bytes_max)
    unpack = partial(open_batch, data, decompressed_bytes_max=bytes_max)
    if not read_header(data).attributes & CODEC_MASK:
        return unpack()
    opened: tuple[BatchHeader, bytes | bytearray] = yield Job(unpack)
    return opened
