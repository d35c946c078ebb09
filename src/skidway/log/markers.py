"""What the markers in a log tell: they are the only batches whose records a log reads.

A control batch of a producer ends its transaction. It holds one record, of a few bytes, so this costs little, and
nothing for a log without transactions.
"""

from bisect import bisect_left
from collections.abc import Sequence

from skidway.limits import INT64_MAX
from skidway.log.aborted import AbortedIndex, AbortedRange, CorruptTransactionIndex
from skidway.log.producers import Producers
from skidway.log.segment import Segment
from skidway.ports import Buffer
from skidway.records.batch import CONTROL_BIT, PREFIX_BYTES
from skidway.records.control import MARKER_BYTES_MAX, read_marker
from skidway.records.header_fields import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_SEQUENCE,
    BATCH_LENGTH,
    LAST_OFFSET_DELTA,
    MAX_TIMESTAMP,
    PRODUCER_EPOCH,
    PRODUCER_ID,
)


def note(producers: Producers, index: AbortedIndex | None, batch: Buffer, header: Sequence[int], now_ms: int) -> None:
    """A control batch of a producer is in the log; `header` has its offset there, `index` is that of its segment."""
    aborted = producers.end_transaction(header, read_marker(batch), now_ms)
    if aborted is not None and index is not None:
        index.append(aborted)


def replay(
    producers: Producers,
    segment: Segment,
    position: int,
    now_ms: int,
    index: AbortedIndex | None = None,
    *,
    end: int | None = None,
) -> None:
    """Tell the producers once more of all batches of a segment from a position on, up to `end` if there is one; and the
    index, if one is wanted."""
    for at, fields in segment.headers(position, segment.size if end is None else end):
        if fields[PRODUCER_ID] < 0:
            continue
        if fields[ATTRIBUTES] & CONTROL_BIT:
            size = min(fields[BATCH_LENGTH] + PREFIX_BYTES, MARKER_BYTES_MAX)
            note(producers, index, segment.file.read_at(at, size), fields, now_ms)
        else:
            record(producers, fields, now_ms)


def find_aborted(segments: Sequence[Segment], from_offset: int, upto_offset: int) -> list[AbortedRange]:
    """Aborted transactions that have records between the offsets, by their first offsets: clients want them so.

    The marker may be in a later segment than the records. CorruptTransactionIndex when a file cannot be read.
    """
    found: list[AbortedRange] = []
    number = bisect_left(segments, from_offset + 1, key=lambda segment: segment.base_offset) - 1
    for segment in segments[max(number, 0) :]:
        if segment.aborted.collect(from_offset, upto_offset, found):
            break
    found.sort(key=lambda entry: entry[1])
    return found


def keep_aborted(segment: Segment, upto: int) -> bool:
    """Forget what markers at or above the offset tell. False: all is forgotten, the file cannot be believed."""
    try:
        segment.aborted.cut(upto)
    except CorruptTransactionIndex:
        segment.aborted = AbortedIndex()
        return upto <= segment.base_offset
    return True


def rebuild_aborted(segments: Sequence[Segment]) -> None:
    """Make all transaction indexes again, after one was found damaged: a transaction may have begun in any segment.
    Only for bytes that were proven before."""
    producers = Producers(count_max=INT64_MAX)
    for segment in segments:
        segment.aborted = index = AbortedIndex()
        segment.index_saved = False
        replay(producers, segment, 0, 0, index)


def record(producers: Producers, fields: Sequence[int], now_ms: int) -> None:
    producers.record(
        fields[PRODUCER_ID],
        fields[PRODUCER_EPOCH],
        fields[BASE_SEQUENCE],
        fields[BASE_OFFSET],
        fields[LAST_OFFSET_DELTA],
        fields[MAX_TIMESTAMP],
        fields[ATTRIBUTES],
        now_ms,
    )
