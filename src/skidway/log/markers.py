"""What the markers in a log tell: they are the only batches whose records a log reads.

A control batch of a producer ends its transaction. It holds one record, of a few bytes, so this costs little, and
nothing for a log without transactions.
"""

from collections.abc import Sequence

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


def note(producers: Producers, batch: Buffer, header: Sequence[int], now_ms: int) -> None:
    """A control batch of a producer has come to the log; `header` has its offset there."""
    producers.end_transaction(header, read_marker(batch), now_ms)


def replay(producers: Producers, segment: Segment, position: int, now_ms: int) -> None:
    """Tell the producers once more of all batches of a segment from a position on."""
    for at, fields in segment.headers(position, segment.size):
        if fields[PRODUCER_ID] < 0:
            continue
        if fields[ATTRIBUTES] & CONTROL_BIT:
            size = min(fields[BATCH_LENGTH] + PREFIX_BYTES, MARKER_BYTES_MAX)
            note(producers, segment.file.read_at(at, size), fields, now_ms)
        else:
            record(producers, fields, now_ms)


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
