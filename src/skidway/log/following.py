"""Appending as a follower: batches come whole and stamped, as another node's log holds them.

Everything is checked before a byte is written: checksums, offsets that rise (with gaps where the leader's log was
compacted), epochs that never go down. Then each run of batches that fits a segment is written at once. What is not one
of them: a last batch that a leader cut off to keep to a size; it is left out and comes again whole.
"""

import msgspec

from skidway.errors import CorruptMessage, StorageError
from skidway.limits import INT32_MAX
from skidway.log import markers, retention, truncation
from skidway.log.health import SOUND
from skidway.log.log import Log
from skidway.log.positions import ENDS_MAX
from skidway.log.segment import Segment, schedule_roll
from skidway.ports import Buffer
from skidway.records.batch import CHECKED_POSITION, CONTROL_BIT, HEADER, HEADER_BYTES, MAGIC, PREFIX_BYTES
from skidway.records.checksum import crc32c
from skidway.records.header_fields import (
    ATTRIBUTES,
    BASE_OFFSET,
    BATCH_LENGTH,
    CRC,
    LAST_OFFSET_DELTA,
    LEADER_EPOCH,
    MAGIC_BYTE,
    MAX_TIMESTAMP,
    PRODUCER_ID,
)

_INDEX_ENTRY_BYTES = 8

# Where a batch begins and ends in the buffer, and its header.
_Found = tuple[int, int, tuple[int, ...]]


class BatchRange(msgspec.Struct):
    """Batches that were appended together."""

    base_offset: int
    """Of the first of them; the log's end when there were none."""
    end_offset: int
    size: int
    """In bytes."""
    count: int


class _Run(msgspec.Struct):
    """Neighbours in the buffer that go to one segment, and what they add to its indexes."""

    end: int
    batches: list[_Found]
    max_timestamp: int
    max_timestamp_offset: int
    index_due: int
    entries: list[tuple[int, int, int, int]]


def append(log: Log, records: Buffer, now_ms: int) -> BatchRange:
    """Write batches as a leader sent them. CorruptMessage: nothing was written. StorageError: what is below the log's
    end then was."""
    if log.health is not SOUND:
        raise log.refusal()
    view = memoryview(records)
    batches = _check(log, view)
    if not batches:
        return BatchRange(log.end_offset, log.end_offset, 0, 0)
    first = batches[0][2]
    start_offset = log.start_offset
    if first[0] < log.end_offset:
        truncation.restart(log, first[0], now_ms)
    number = 0
    while number < len(batches):
        segment = _segment_for(log, batches[number], now_ms)
        run = _plan(log, segment, batches, number)
        _write(log, segment, view, run, now_ms)
        number += len(run.batches)
    if start_offset > log.start_offset:
        log.advance_high_watermark(start_offset)
        retention.advance_start(log, start_offset, now_ms)
    return BatchRange(first[0], log.end_offset, batches[-1][1], len(batches))


def _check(log: Log, view: memoryview) -> list[_Found]:
    unpack = HEADER.unpack_from
    next_offset = log.end_offset
    epoch = log.epochs.epoch_at(next_offset - 1)
    size = len(view)
    start = 0
    found: list[_Found] = []
    while size - start >= HEADER_BYTES:
        fields = unpack(view, start)
        end = start + fields[BATCH_LENGTH] + PREFIX_BYTES
        if fields[MAGIC_BYTE] != MAGIC or end - start < HEADER_BYTES:
            raise CorruptMessage(f"{log.directory}: the fetched bytes have no batch at byte {start}")
        if end > size:
            break
        if crc32c(view[start + CHECKED_POSITION : end]) != fields[CRC]:
            raise CorruptMessage(
                f"{log.directory}: the fetched batch at offset {fields[BASE_OFFSET]} has a wrong checksum"
            )
        if fields[BASE_OFFSET] < next_offset or fields[LAST_OFFSET_DELTA] < 0 or fields[LEADER_EPOCH] < epoch:
            _check_order(log, fields, next_offset, epoch)
        next_offset = fields[BASE_OFFSET] + fields[LAST_OFFSET_DELTA] + 1
        epoch = fields[LEADER_EPOCH]
        found.append((start, end, fields))
        start = end
    return found


def _check_order(log: Log, fields: tuple[int, ...], next_offset: int, epoch: int) -> None:
    base_offset, last_offset = fields[BASE_OFFSET], fields[BASE_OFFSET] + fields[LAST_OFFSET_DELTA]
    if fields[LAST_OFFSET_DELTA] < 0 or base_offset < 0:
        raise CorruptMessage(f"{log.directory}: a fetched batch from offset {base_offset} to {last_offset}")
    if fields[LEADER_EPOCH] < epoch:
        raise CorruptMessage(
            f"{log.directory}: epoch {fields[LEADER_EPOCH]} was fetched at {base_offset}, after epoch {epoch}"
        )
    # An empty log may begin in the middle of a batch: records before were deleted, the batch is still whole.
    if not (log.start_offset == log.end_offset == next_offset and last_offset >= next_offset):
        raise CorruptMessage(f"{log.directory}: offset {base_offset} was fetched where {next_offset} is the next")


def _segment_for(log: Log, batch: _Found, now_ms: int) -> Segment:
    """The active segment, a new one if this batch does not belong into it."""
    start, end, fields = batch
    segment = log.active
    last_offset = fields[BASE_OFFSET] + fields[LAST_OFFSET_DELTA]
    if segment.size and (
        # A batch that is larger than a segment should be was written under other settings: it gets one of its own.
        segment.size + end - start > log.settings.segment_bytes
        or fields[MAX_TIMESTAMP] > segment.roll_after_timestamp
        or now_ms > segment.roll_after_ms
        or last_offset - segment.base_offset > INT32_MAX
    ):
        log.roll(now_ms)
        segment = log.active
    if last_offset - segment.base_offset > INT32_MAX:
        raise CorruptMessage(f"{log.directory}: offset {last_offset} was fetched after {segment.base_offset}: too far")
    return segment


def _plan(log: Log, segment: Segment, batches: list[_Found], first: int) -> _Run:
    """The batches from `first` on that `Log.append` would put into the segment one by one."""
    settings = log.settings
    interval, size_max = settings.index_interval_bytes, settings.segment_bytes
    entries_max = settings.segment_index_bytes // _INDEX_ENTRY_BYTES - len(segment.index)
    position, base_offset = segment.size, segment.base_offset
    run = _Run(0, [], segment.max_timestamp, segment.max_timestamp_offset, segment.index_due, [])
    for number in range(first, len(batches)):
        batch = batches[number]
        start, end, fields = batch
        last_offset = fields[BASE_OFFSET] + fields[LAST_OFFSET_DELTA]
        timestamp = fields[MAX_TIMESTAMP]
        if number > first and (
            position + end - start > size_max
            or timestamp > segment.roll_after_timestamp
            or last_offset - base_offset > INT32_MAX
        ):
            break
        if timestamp > run.max_timestamp:
            run.max_timestamp, run.max_timestamp_offset = timestamp, last_offset
        if position > run.index_due:
            run.entries.append((last_offset, position, run.max_timestamp, run.max_timestamp_offset))
            run.index_due = position + interval
        run.batches.append(batch)
        run.end = end
        position += end - start
        # When to roll is known once the first batch of a segment is.
        if not segment.size or len(run.entries) >= entries_max:
            break
    return run


def _write(log: Log, segment: Segment, view: memoryview, run: _Run, now_ms: int) -> None:
    begin = segment.size
    data = view[run.batches[0][0] : run.end]
    try:
        written_at = segment.file.append(data)
    except OSError as error:
        raise StorageError(f"{log.directory}: {error}") from error
    assert written_at == begin, "somebody else wrote to the segment"
    segment.size = begin + len(data)
    if begin == segment.synced_size:
        log.unsynced.segments.append(segment)
    segment.max_timestamp, segment.max_timestamp_offset = run.max_timestamp, run.max_timestamp_offset
    for last_offset, entry_position, timestamp, timestamp_offset in run.entries:
        segment.index.append(last_offset - segment.base_offset, entry_position)
        segment.times.append(timestamp, timestamp_offset - segment.base_offset)
    segment.index_due = run.index_due
    _note(log, segment, view, run, now_ms)
    log.saved.bytes_since += len(data)
    if begin == 0:
        segment.first_timestamp = run.batches[0][2][8]
        segment.created_ms = now_ms
    schedule_roll(segment, log.settings)


def _note(log: Log, segment: Segment, view: memoryview, run: _Run, now_ms: int) -> None:
    """What the batches tell beyond their segment: producers, epochs, where reads may end."""
    epochs = log.epochs
    if run.batches[0][2][2] != epochs.latest and epochs.truncate_to(log.end_offset):
        # This node had led epochs without writing anything; the log went on without them.
        log.saved.epochs_changed = True
    latest = epochs.latest
    ends = log.positions.ends
    position = segment.size - (run.end - run.batches[0][0])
    for start, end, fields in run.batches:
        base_offset, delta = fields[BASE_OFFSET], fields[LAST_OFFSET_DELTA]
        if fields[PRODUCER_ID] < 0:
            pass
        elif fields[ATTRIBUTES] & CONTROL_BIT:
            markers.note(log.producers, segment.aborted, view[start:end], fields, now_ms)
        else:
            markers.record(log.producers, fields, now_ms)
        if fields[LEADER_EPOCH] != latest:
            epochs.assign(fields[LEADER_EPOCH], base_offset)
            latest = epochs.latest
            log.saved.epochs_changed = True
        position += end - start
        ends.append((base_offset + delta + 1, position, segment))
    log.epoch = latest
    log.end_offset = ends[-1][0]
    if len(ends) > ENDS_MAX:
        ends.clear()
