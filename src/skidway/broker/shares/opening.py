"""Batches opened for groups whose deliveries depend on what is in the records: keys, times of delivery, tenants.

A header `deliver-at` says when a record may be delivered, in ms since 1970; `delay` says how many milliseconds
after the record's timestamp. Both are decimal text. If a record has both, the later time counts; a header that is no
number counts for nothing. What the door of a queue has written, `skidway.deliver-at`, counts alone: so an attribute of
a message may have one of the other names. `skidway.group-id` says whose message it is in a fair queue. A batch
is opened once for a group, when it is first offered or counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from zlib import crc32

from skidway.broker.shares.reading import Read
from skidway.errors import ProtocolError
from skidway.limits import MIB
from skidway.records.batch import is_packed
from skidway.records.queue_headers import GROUP_ID, QUEUE_DELIVER_AT
from skidway.records.record import Record, read_keys, read_records
from skidway.shares.contents import Content
from skidway.shares.delivery import Delivery
from skidway.shares.states import Order

DELIVER_AT, DELAY = "deliver-at", "delay"
TIME_HEADERS = (DELIVER_AT, DELAY, QUEUE_DELIVER_AT)
_AT, _AFTER = DELIVER_AT.encode(), DELAY.encode()
"""One of them is in each of those."""
_WHOSE = GROUP_ID.encode()
BYTES_MAX = MIB
"""Of batches that are opened in one look, unless the first is larger."""
DIGITS_MAX = 15
KEY_BYTES_MAX = 16
"""Longer keys are known by their digest."""


def open_batches(delivery: Delivery, read: Read, now_ms: int, wall_ms: int, decompressed_bytes_max: int) -> None:
    """Those that were not looked into. What is too much for one look is left out of `read`, for the next."""
    fair = delivery.rules.fair
    contents, opened, position = delivery.contents, 0, read.file_slice.position
    found: list[Content] = []
    looked_to = contents.looked_to
    for number, (span, end) in enumerate(zip(read.spans, read.ends, strict=True)):
        size = end - position
        if span.end > looked_to:
            if opened and opened + size > BYTES_MAX:
                del read.spans[number:], read.ends[number:]
                break
            opened += size
            if span.deliverable:
                batch = read.file_slice.file.read_at(position, size)
                if may_say_when(batch) or (fair and _WHOSE in batch):
                    found += _contents(batch, now_ms - wall_ms, decompressed_bytes_max, fair=fair)
                elif contents.order is not Order.NONE:
                    found += _keys(batch)
            looked_to = span.end
        position = end
    if opened:
        contents.examine(delivery, found, looked_to, now_ms)


def may_say_when(batch: bytes) -> bool:
    """Whether a record in it may have a time of delivery. Most have none, and are not looked at one by one for it."""
    return is_packed(batch) or _AT in batch or _AFTER in batch


def _keys(batch: bytes) -> list[Content]:
    """Of a batch that is not compressed and says nothing about time."""
    found: list[Content] = []
    try:
        for offset, key in read_keys(batch):
            found.append(Content(offset, 0, _known_as(key)))
    except ProtocolError:
        pass  # whoever gets the batch finds out
    return found


def _contents(batch: bytes, behind_ms: int, decompressed_bytes_max: int, *, fair: bool) -> Iterator[Content]:
    """`behind_ms`: what the clock of deadlines says, less what the one on the wall says."""
    try:
        for record in read_records(batch, decompressed_bytes_max=decompressed_bytes_max):
            due_ms = due_at(record)
            tenant = tenant_of(record) if fair else 0
            yield Content(record.offset, due_ms + behind_ms if due_ms else 0, _known_as(record.key), tenant)
    except ProtocolError:
        return  # whoever gets the batch finds out


def due_at(record: Record) -> int:
    """By the clock on the wall; 0: it does not say."""
    due_ms, of_queue = 0, False
    for name, value in record.headers:
        if name not in TIME_HEADERS or value is None or len(value) > DIGITS_MAX or not value.isdigit():
            continue
        if name == QUEUE_DELIVER_AT:
            due_ms, of_queue = int(value), True
        elif not of_queue:
            due_ms = max(due_ms, int(value) + (max(0, record.timestamp) if name == DELAY else 0))
    return due_ms


def tenant_of(record: Record) -> int:
    """A number in place of the last group id that it has; 0: it has none. Two groups have the same number once in four
    billion pairs, and count as one then."""
    for name, value in reversed(record.headers):
        if name == GROUP_ID and value:
            return crc32(value) or 1
    return 0


def _known_as(key: bytes | None) -> bytes | None:
    if key is None or len(key) < KEY_BYTES_MAX:
        return key
    return blake2b(key, digest_size=KEY_BYTES_MAX).digest()
