"""Dead letters as records: what is read of the dead from their log, and what is said about each.

A letter has the key, value and headers of its record, and headers that tell how it died. Its own timestamp is the time
at which it was written, so that retention leaves people time to look; the record's is in a header. Headers that look
like a report of an earlier death are left out; how often the record was sent back (`dlq.replays`) stays.
"""

from __future__ import annotations

from functools import partial

from skidway.errors import CorruptMessage, InvalidRecord
from skidway.limits import KIB, MIB
from skidway.log.log import Log
from skidway.records.batch import CODEC_MASK, CONTROL_BIT, iter_headers
from skidway.records.dead_letter_headers import EXHAUSTED, REJECTED, DeathReport, read_replays
from skidway.records.record import Record, open_batch, unpack_records
from skidway.shares.letter_notes import LETTERS_MAX, UNKNOWN_MS, Death
from skidway.shares.states import Cause
from skidway.steps import Job, Steps

READ_BYTES = 256 * KIB
COPIED_BYTES_MAX = 4 * MIB
"""Of the records that one look copies; the first of them may be larger."""
STEP_RECORDS = 200
RECORD_OVERHEAD = 40
HEADER_OVERHEAD = 10
TEXTS = {
    Cause.REJECTED: (REJECTED, "Offset rejected by client."),
    Cause.EXHAUSTED: (EXHAUSTED, "Offset delivery count exceeded the threshold."),
}
GONE = "Offset rejected or exhausted; the log had deleted the record before its letter was written."


def records_between(log: Log, first: int, end: int) -> Steps[dict[int, Record]]:
    """Those that the log has, by offset, as many as one batch of letters may have."""
    found: dict[int, Record] = {}
    size, offset = 0, max(first, log.start_offset)
    while offset < end and offset < log.high_watermark:
        read = log.read(offset, READ_BYTES)
        if read is None:
            break
        data = read.read()
        offset += 1  # at least, whatever was read
        for position, header in iter_headers(data):
            offset = max(offset, header.last_offset + 1)
            if header.last_offset < first or header.attributes & CONTROL_BIT:
                continue
            if header.base_offset >= end:
                return found
            unpack = partial(open_batch, data[position : position + header.size], decompressed_bytes_max=_most(log))
            opened = (yield Job(unpack)) if header.attributes & CODEC_MASK else unpack()
            for number, record in enumerate(unpack_records(*opened), 1):
                if not number % STEP_RECORDS:
                    yield None
                if not first <= record.offset < end:
                    continue
                size += size_of(record)
                if found and (len(found) >= LETTERS_MAX or size > COPIED_BYTES_MAX):
                    return found
                found[record.offset] = record
        yield None
    return found


def _most(log: Log) -> int:
    return log.limits.decompressed_bytes_max


def size_of(record: Record) -> int:
    """More than it takes in a batch."""
    headers = sum(len(name) * 4 + len(value or b"") + HEADER_OVERHEAD for name, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers + RECORD_OVERHEAD


class Scribe:
    """Writes the letters of one share-partition."""

    __slots__ = ("_copies", "_group", "_partition", "_topic")

    def __init__(self, topic: str, partition: int, group: str, copies: bool) -> None:
        self._topic = topic
        self._partition = partition
        self._group = group
        self._copies = copies

    def letter(self, offset: int, record: Record | None, death: Death, count: int, wall_ms: int) -> Record:
        """`record`: None if the log has it no longer."""
        disposition, text = TEXTS[death.cause]
        report = DeathReport(
            self._topic,
            self._partition,
            offset,
            UNKNOWN_MS if record is None else record.timestamp,
            self._group,
            disposition,
            GONE if record is None else death.reason or text,
            count,
            death.failed_first_ms,
            death.failed_last_ms,
            0 if record is None else read_replays(record.headers),
            self._copies and record is not None,
        )
        if record is None or not self._copies:
            return Record(0, wall_ms, None, None, report.broker_headers(()))
        return Record(0, wall_ms, record.key, record.value, report.broker_headers(record.headers))


Unreadable = (CorruptMessage, InvalidRecord)
