"""A record batch (format v2) seen from outside: its 61-byte header, its checksum, and what a broker writes into it.

A batch is opaque bytes for nearly everything a broker does. The checksum covers everything from the attributes on,
so the base offset and the leader epoch can be stamped in place without touching it.
Functions that take a buffer expect the batch at its beginning unless they take a position.
"""

from collections.abc import Iterator
from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from skidway.errors import CorruptMessage
from skidway.limits import INT32_MAX
from skidway.ports import Buffer
from skidway.records.checksum import crc32c

HEADER = Struct(">qiibIhiqqqhii")
HEADER_BYTES = HEADER.size
PREFIX_BYTES = 12
"""Base offset and length: what `batch_length` does not count."""
MAGIC = 2

CODEC_MASK = 0x07
_ATTRIBUTES_END = 23
TIMESTAMP_TYPE_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40

NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1
NO_SEQUENCE = -1

CRC_POSITION = 17
CHECKED_POSITION = 21
"""Where the bytes begin that the checksum covers."""
MAX_TIMESTAMP_POSITION = 35

_BASE_OFFSET = Struct(">q")
_LEADER_EPOCH = Struct(">i")
_CRC = Struct(">I")
_ATTRIBUTES = Struct(">h")
_TIMESTAMP = Struct(">q")
_LEADER_EPOCH_POSITION = 12
_INT64_HALF, _INT64_MASK = 1 << 63, (1 << 64) - 1

assert HEADER_BYTES == 61


class TimestampType(IntEnum):
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class BatchHeader(NamedTuple):
    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def timestamp_type(self) -> TimestampType:
        return TimestampType.LOG_APPEND_TIME if self.attributes & TIMESTAMP_TYPE_BIT else TimestampType.CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_BIT)

    @property
    def has_producer(self) -> bool:
        return self.producer_id > NO_PRODUCER_ID

    @property
    def size(self) -> int:
        return self.batch_length + PREFIX_BYTES

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def last_sequence(self) -> int:
        """Sequences count to 2^31 - 1 and go on at 0."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & INT32_MAX


_new_header = tuple.__new__
"""Without a call of Python's own: every batch is read here."""


def is_packed(batch: Buffer) -> bool:
    """Whether its records are compressed."""
    return bool(batch[_ATTRIBUTES_END - 1] & CODEC_MASK)


def wrap_timestamp(timestamp: int) -> int:
    """A base timestamp and a delta can add up to more than 64 bits. They wrap around then, as in every Kafka client, so
    that all readers see the same time."""
    return (timestamp + _INT64_HALF & _INT64_MASK) - _INT64_HALF


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    if position < 0 or len(buffer) - position < HEADER_BYTES:
        raise CorruptMessage(f"a batch header takes {HEADER_BYTES} bytes, {len(buffer) - position} are left")
    return _new_header(BatchHeader, HEADER.unpack_from(buffer, position))


def iter_headers(buffer: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """The position and header of each whole batch; a partial one at the end is left out, as in a fetch reply.

    Checksums are not looked at. CorruptMessage where a length or magic cannot be.
    """
    position = 0
    while len(buffer) - position >= HEADER_BYTES:
        header = read_header(buffer, position)
        if header.magic != MAGIC or header.size < HEADER_BYTES:
            raise CorruptMessage(f"no batch at position {position}: magic {header.magic}, size {header.size}")
        if header.size > len(buffer) - position:
            return
        yield position, header
        position += header.size


def checksum(buffer: Buffer) -> int:
    """The CRC-32C the batch should carry; the batch must fill the buffer."""
    crc: int = crc32c(memoryview(buffer)[CHECKED_POSITION:])
    return crc


def crc_matches(buffer: Buffer) -> bool:
    """Whether the batch that fills the buffer carries the checksum of its bytes."""
    if len(buffer) < HEADER_BYTES:
        return False
    stored: int = _CRC.unpack_from(buffer, CRC_POSITION)[0]
    return stored == checksum(buffer)


def stamp(buffer: bytearray | memoryview, base_offset: int, leader_epoch: int) -> None:
    """Place the batch in a log. The checksum does not cover these fields and stays."""
    _BASE_OFFSET.pack_into(buffer, 0, base_offset)
    _LEADER_EPOCH.pack_into(buffer, _LEADER_EPOCH_POSITION, leader_epoch)


def set_log_append_time(buffer: bytearray | memoryview, now_ms: int) -> None:
    """Every record of the batch now counts as written at `now_ms`; the batch must fill the buffer."""
    set_timestamps(buffer, TimestampType.LOG_APPEND_TIME, now_ms)


def set_timestamps(buffer: bytearray | memoryview, timestamp_type: TimestampType, max_timestamp: int) -> None:
    """Whose clock the timestamps are from, and the largest of them; the batch must fill the buffer."""
    attributes: int = _ATTRIBUTES.unpack_from(buffer, CHECKED_POSITION)[0] & ~TIMESTAMP_TYPE_BIT
    if timestamp_type == TimestampType.LOG_APPEND_TIME:
        attributes |= TIMESTAMP_TYPE_BIT
    _ATTRIBUTES.pack_into(buffer, CHECKED_POSITION, attributes)
    _TIMESTAMP.pack_into(buffer, MAX_TIMESTAMP_POSITION, max_timestamp)
    set_crc(buffer)


def set_crc(buffer: bytearray | memoryview) -> None:
    _CRC.pack_into(buffer, CRC_POSITION, crc32c(memoryview(buffer)[CHECKED_POSITION:]))
