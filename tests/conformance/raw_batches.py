"""Record batches (magic 2) written and read by the tests themselves, uncompressed or compressed by a given function."""

import struct
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from crc32c import crc32c

HEADER = struct.Struct(">qiibIhiqqqhii")
Headers = Sequence[tuple[str, bytes | None]]


@dataclass(frozen=True)
class Record:
    value: bytes | None = b""
    key: bytes | None = None
    headers: Headers = ()
    timestamp_delta: int = 0


@dataclass(frozen=True)
class Batch:
    base_offset: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int
    payload: bytes = field(repr=False, default=b"")

    @property
    def codec(self) -> int:
        return self.attributes & 7

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def varint(value: int) -> bytes:
    zigzag = (value << 1) ^ (value >> 63)
    out = bytearray()
    while zigzag > 0x7F:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    out.append(zigzag)
    return bytes(out)


def sized(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def encode_record(record: Record, offset_delta: int) -> bytes:
    body = b"\x00" + varint(record.timestamp_delta) + varint(offset_delta) + sized(record.key) + sized(record.value)
    body += varint(len(record.headers))
    for name, value in record.headers:
        body += sized(name.encode()) + sized(value)
    return varint(len(body)) + body


def build(
    values: Sequence[Record | bytes | None],
    *,
    timestamp: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    attributes: int = 0,
    magic: int = 2,
    compress: Callable[[bytes], bytes] = bytes,
    last_offset_delta: int | None = None,
    count: int | None = None,
) -> bytes:
    records = [value if isinstance(value, Record) else Record(value) for value in values]
    base = now_ms() if timestamp is None else timestamp
    payload = compress(b"".join(encode_record(record, index) for index, record in enumerate(records)))
    top = base + max((record.timestamp_delta for record in records), default=0)
    checked = struct.pack(
        ">hiqqqhii",
        attributes,
        len(records) - 1 if last_offset_delta is None else last_offset_delta,
        base,
        top,
        producer_id,
        producer_epoch,
        base_sequence,
        len(records) if count is None else count,
    )
    checked += payload
    tail = struct.pack(">ibI", -1, magic, crc32c(checked)) + checked
    return struct.pack(">qi", 0, len(tail)) + tail


def read(data: bytes | None) -> list[Batch]:
    """The whole batches of a fetch answer. Kafka may cut the last one off at the limit; clients ignore that part."""
    return list(_batches(data or b""))


def _batches(data: bytes) -> Iterator[Batch]:
    position = 0
    while position + HEADER.size <= len(data):
        base, length, *rest = HEADER.unpack_from(data, position)
        end = position + 12 + length
        if end > len(data):
            return
        batch = replace(Batch(base, *rest), payload=data[position + HEADER.size : end])
        assert crc32c(data[position + 21 : end]) == batch.crc, "the broker sent a batch with a wrong CRC"
        yield batch
        position = end


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position


def records_of(batch: Batch) -> Iterator[tuple[int, bytes | None, bytes | None]]:
    """(offset, key, value) of every record of an uncompressed batch."""
    assert batch.codec == 0
    position = 0
    for _ in range(batch.count):
        size, position = read_varint(batch.payload, position)
        end = position + size
        _, position = read_varint(batch.payload, position + 1)
        delta, position = read_varint(batch.payload, position)
        key, position = _sized_at(batch.payload, position)
        value, position = _sized_at(batch.payload, position)
        yield batch.base_offset + delta, key, value
        position = end


def _sized_at(payload: bytes, position: int) -> tuple[bytes | None, int]:
    size, position = read_varint(payload, position)
    return (None, position) if size < 0 else (payload[position : position + size], position + size)


def values(data: bytes | None) -> list[tuple[int, bytes | None]]:
    """(offset, value) of every record in uncompressed batches."""
    return [(offset, value) for batch in read(data) for offset, _, value in records_of(batch)]
