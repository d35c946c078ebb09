"""What a share fetch reads: whole batches, of which headers tell which offsets they have and whether they are for
readers. No record is opened, and the bytes go to the socket from their file."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from skidway.errors import DamagedLog
from skidway.log.aborted import AbortedRange
from skidway.log.bounds import Bound
from skidway.log.log import Log
from skidway.log.lookup import aborted_in
from skidway.ports import FileSlice
from skidway.records.batch import CONTROL_BIT, HEADER, HEADER_BYTES, MAGIC, PREFIX_BYTES, TRANSACTIONAL_BIT
from skidway.records.header_fields import (
    ATTRIBUTES,
    BASE_OFFSET,
    BATCH_LENGTH,
    LAST_OFFSET_DELTA,
    MAGIC_BYTE,
    PRODUCER_ID,
)
from skidway.shares.acquiring import Acquired, Span

HEADERS_MAX = 1_000
"""Batches that one look goes through: more small ones wait for the next."""
_LOOK_BYTES = 4_096


class Read(msgspec.Struct):
    """Batches of one file, one behind the other."""

    file_slice: FileSlice
    spans: list[Span]
    ends: list[int]
    """Where each ends in the file."""

    def note_end(self, log: Log, end_offset: int) -> None:
        """Who reads next most likely goes on at the end of what was taken now."""
        start = self.file_slice.position
        for span, stop in zip(self.spans, self.ends, strict=True):
            if end_offset < span.end:
                break
            start = stop
        log.positions.note_place(end_offset, self.file_slice.file, start)

    def part(self, acquired: list[Acquired]) -> FileSlice:
        """The batches from the first to the last of which something was acquired."""
        first_offset, end_offset = acquired[0].first, acquired[-1].end
        start = end = self.file_slice.position
        for span, stop in zip(self.spans, self.ends, strict=True):
            if span.end <= first_offset:
                start = stop
            if span.first < end_offset:
                end = stop
        return FileSlice(self.file_slice.file, start, end - start)


def look(
    log: Log,
    offset: int,
    max_bytes: int,
    upto: Bound,
    headers_max: int = HEADERS_MAX,
    enough: Callable[[int], bool] | None = None,
) -> Read | None:
    """From the batch that holds `offset`; one at least, however large. None: nothing is there yet. `enough`: whether
    who looks needs nothing behind the end of a batch."""
    found = log.read(offset, max_bytes, upto)
    if found is None:
        return None
    aborted = aborted_in(log, offset, found) if upto is Bound.LAST_STABLE else []
    return _spans(found, aborted, headers_max, enough)


def _spans(
    found: FileSlice, aborted: list[AbortedRange], headers_max: int, enough: Callable[[int], bool] | None
) -> Read:
    spans: list[Span] = []
    ends: list[int] = []
    position, end = found.position, found.position + found.length
    chunk, chunk_position = b"", position
    coming = sorted(aborted, key=lambda each: each[1], reverse=True)
    failed: set[int] = set()
    while position < end and len(spans) < headers_max:
        at = position - chunk_position
        if at + HEADER_BYTES > len(chunk):
            chunk, chunk_position, at = found.file.read_at(position, min(_LOOK_BYTES, end - position)), position, 0
        if len(chunk) - at < HEADER_BYTES:
            raise DamagedLog(f"a batch ends inside its header at {position}")
        fields = HEADER.unpack_from(chunk, at)
        size = fields[BATCH_LENGTH] + PREFIX_BYTES
        if size < HEADER_BYTES or fields[MAGIC_BYTE] != MAGIC:
            raise DamagedLog(f"there is no batch at {position}")
        first, last = fields[BASE_OFFSET], fields[BASE_OFFSET] + fields[LAST_OFFSET_DELTA]
        while coming and coming[-1][1] <= last:
            failed.add(coming.pop()[0])
        producer, attributes = fields[PRODUCER_ID], fields[ATTRIBUTES]
        deliverable = True
        if attributes & CONTROL_BIT:
            deliverable = False
            failed.discard(producer)  # its transaction ends here
        elif attributes & TRANSACTIONAL_BIT and producer in failed:
            deliverable = False
        position += size
        spans.append(Span(first, last + 1, deliverable))
        ends.append(position)
        if enough is not None and deliverable and enough(last + 1):
            break
    return Read(found, spans, ends)
