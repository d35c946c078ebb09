"""Single records: reading them out of a batch and building a batch from them. For cold paths.

`read_records` and `read_outlines` trust nothing: every length, count and varint is held against what is left, so
that a hostile batch ends in CorruptMessage (not a batch, or its compressed bytes do not unpack) or InvalidRecord
(the records inside are malformed). They do not look at the checksum: `batch.crc_matches` does.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from skidway.errors import CorruptMessage, InvalidRecord
from skidway.limits import INT64_MAX
from skidway.ports import Buffer
from skidway.records.batch import (
    CONTROL_BIT,
    HEADER,
    HEADER_BYTES,
    MAGIC,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    PREFIX_BYTES,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    TimestampType,
    read_header,
    set_crc,
    wrap_timestamp,
)
from skidway.records.compression import Codec, compress, decompress

RECORD_BYTES_MIN = 7
"""Length, attributes, two deltas, two lengths and a header count, one byte each."""
HEADER_PAIR_BYTES_MIN = 2
RECORD_HEADERS_MAX = 65_536
"""Read into memory for one record; two bytes each on the wire become a hundred here."""

Headers = Sequence[tuple[str, bytes | None]]


class Record(NamedTuple):
    """Header names are text; bytes that are not UTF-8 survive the round trip as surrogates."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class Outline(NamedTuple):
    """What most questions about a record need, without its contents."""

    offset: int
    timestamp: int
    has_key: bool


_new_outline = tuple.__new__


def read_records(batch: Buffer, *, decompressed_bytes_max: int) -> Iterator[Record]:
    """The records of the batch that begins the buffer, one by one."""
    return unpack_records(*open_batch(batch, decompressed_bytes_max=decompressed_bytes_max))


def unpack_records(header: BatchHeader, payload: bytes | bytearray) -> Iterator[Record]:
    """What `open_batch` gave, record by record."""
    position = 0
    try:
        for _ in range(header.record_count):
            position, end = _enter_record(payload, position)
            timestamp_delta, position = _read_varint(payload, position, 64)
            offset_delta, position = _read_varint(payload, position, 32)
            key, position = _read_bytes(payload, position, end)
            value, position = _read_bytes(payload, position, end)
            headers, position = _read_headers(payload, position, end)
            if position != end:
                raise InvalidRecord(f"a record ends at {position} and should end at {end}")
            yield Record(*_place(header, offset_delta, timestamp_delta), key, value, headers)
    except IndexError:
        raise InvalidRecord("the records end in the middle of one") from None
    if position != len(payload):
        raise InvalidRecord(f"{len(payload) - position} bytes after the last of {header.record_count} records")


@dataclass(slots=True)
class Bookmark:
    """How far a batch was read."""

    records: int = 0
    position: int = 0
    """Where the next one begins."""
    end_offset: int = 0
    """Of those that were read: none of them has it, nor a higher one."""


def pick_records(
    header: BatchHeader, payload: bytes | bytearray, wanted: Collection[int], bookmark: Bookmark | None = None
) -> Iterator[Record]:
    """Those of `unpack_records` at these offsets. Others are stepped over, and what is behind the last is not read:
    a batch may have a million records, of which somebody takes one after the other. Nothing before the bookmark is read
    if nothing there is wanted; it is moved behind the last that is."""
    mark = Bookmark() if bookmark is None else bookmark
    if min(wanted) < mark.end_offset:
        mark.records = mark.position = mark.end_offset = 0
    position, last = mark.position, max(wanted)
    try:
        for number in range(mark.records + 1, header.record_count + 1):
            position, end = _enter_record(payload, position)
            timestamp_delta, position = _read_varint(payload, position, 64)
            offset_delta, position = _read_varint(payload, position, 32)
            offset = header.base_offset + offset_delta
            if offset in wanted:
                key, position = _read_bytes(payload, position, end)
                value, position = _read_bytes(payload, position, end)
                headers, position = _read_headers(payload, position, end)
                yield Record(*_place(header, offset_delta, timestamp_delta), key, value, headers)
            position = end
            if offset >= last:
                mark.records, mark.position, mark.end_offset = number, position, offset + 1
                return
    except IndexError:
        raise InvalidRecord("the records end in the middle of one") from None


def read_keys(batch: Buffer) -> Iterator[tuple[int, bytes | None]]:
    """Offset and key of each record of a batch that is not compressed; past its key a record is stepped over."""
    header = read_header(batch)
    payload, position = bytes(memoryview(batch)[HEADER_BYTES : header.size]), 0
    base_offset, last_delta = header.base_offset, header.last_offset_delta
    try:
        for _ in range(header.record_count):
            position, end = _enter_record(payload, position)
            _, position = _read_varint(payload, position, 64)
            offset_delta, position = _read_varint(payload, position, 32)
            if not 0 <= offset_delta <= last_delta:
                raise InvalidRecord(f"offset {offset_delta} in a batch of offsets 0 to {last_delta}")
            yield base_offset + offset_delta, _read_bytes(payload, position, end)[0]
            position = end
    except IndexError:
        raise InvalidRecord("the records end in the middle of one") from None


def read_outlines(batch: Buffer, *, decompressed_bytes_max: int) -> Iterator[Outline]:
    """Like `read_records` without keys, values and headers."""
    return outline_records(*open_batch(batch, decompressed_bytes_max=decompressed_bytes_max))


def outline_records(header: BatchHeader, payload: bytes | bytearray) -> Iterator[Outline]:
    """What `open_batch` gave, record by record; past its key a record is stepped over by its length."""
    # A batch may have a million records, and all clients wait meanwhile: short numbers are read without a call.
    position, total = 0, len(payload)
    base_offset, last_delta, base_timestamp = header.base_offset, header.last_offset_delta, header.base_timestamp
    by_broker = bool(header.attributes & TIMESTAMP_TYPE_BIT)
    try:
        for _ in range(header.record_count):
            byte = payload[position]
            if byte < 0x80 and not byte & 1 and byte >> 1 >= RECORD_BYTES_MIN - 1:
                end = position + 1 + (byte >> 1)
                position += 2
                if end > total:
                    raise InvalidRecord("the records end in the middle of one")
            else:
                position, end = _enter_record(payload, position)
            timestamp_delta, position = _read_varint(payload, position, 64)
            offset_delta, position = _read_varint(payload, position, 32)
            key_bytes, position = _read_varint(payload, position, 32)
            if key_bytes < -1 or key_bytes > end - position:
                raise InvalidRecord(f"a key of {key_bytes} bytes where {end - position} are left in the record")
            timestamp = base_timestamp + timestamp_delta
            if by_broker or not 0 <= offset_delta <= last_delta or not -INT64_MAX <= timestamp <= INT64_MAX:
                offset, timestamp = _place(header, offset_delta, timestamp_delta)
                yield _new_outline(Outline, (offset, timestamp, key_bytes >= 0))
            else:
                yield _new_outline(Outline, (base_offset + offset_delta, timestamp, key_bytes >= 0))
            position = end
    except IndexError:
        raise InvalidRecord("the records end in the middle of one") from None
    if position != len(payload):
        raise InvalidRecord(f"{len(payload) - position} bytes after the last of {header.record_count} records")


def open_batch(batch: Buffer, *, decompressed_bytes_max: int) -> tuple[BatchHeader, bytes | bytearray]:
    """The header and the unpacked bytes of the records."""
    header = read_header(batch)
    if header.magic != MAGIC:
        raise CorruptMessage(f"magic {header.magic}, not {MAGIC}")
    if not HEADER_BYTES <= header.size <= len(batch):
        raise CorruptMessage(f"a batch of {header.size} bytes in a buffer of {len(batch)}")
    payload = decompress(header.codec, memoryview(batch)[HEADER_BYTES : header.size], decompressed_bytes_max)
    if header.record_count < 0 or header.record_count * RECORD_BYTES_MIN > len(payload):
        raise InvalidRecord(f"{header.record_count} records cannot be in {len(payload)} bytes")
    return header, payload


def build_batch(
    records: Sequence[Record],
    *,
    base_offset: int = 0,
    codec: int = Codec.NONE,
    level: int | None = None,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = -1,
    base_sequence: int = NO_SEQUENCE,
    leader_epoch: int = -1,
    transactional: bool = False,
    control: bool = False,
    timestamp_type: int = TimestampType.CREATE_TIME,
) -> bytearray:
    """A whole batch. The records are numbered from `base_offset` in their order; their own offsets are not read."""
    assert records, "a batch has at least one record"
    base_timestamp = max_timestamp = records[0].timestamp
    payload = bytearray()
    for delta, record in enumerate(records):
        timestamp = record.timestamp
        if timestamp > max_timestamp:
            max_timestamp = timestamp
        _write_record(payload, delta, timestamp - base_timestamp, record)
    body = compress(codec, payload, level) if codec else payload
    attributes = codec
    if timestamp_type == TimestampType.LOG_APPEND_TIME:
        attributes |= TIMESTAMP_TYPE_BIT
    if transactional:
        attributes |= TRANSACTIONAL_BIT
    if control:
        attributes |= CONTROL_BIT
    count, length = len(records), HEADER_BYTES - PREFIX_BYTES + len(body)
    header = (base_offset, length, leader_epoch, MAGIC, 0, attributes, count - 1, base_timestamp, max_timestamp)
    batch = bytearray(HEADER.pack(*header, producer_id, producer_epoch, base_sequence, count))
    batch += body
    set_crc(batch)
    return batch


def assemble(header: BatchHeader, body: Buffer) -> bytearray:
    """Header and (compressed) records in one buffer, with the checksum they need."""
    batch = bytearray(HEADER_BYTES)
    HEADER.pack_into(batch, 0, *header)
    batch += body
    set_crc(batch)
    return batch


def _enter_record(payload: bytes | bytearray, position: int) -> tuple[int, int]:
    """Where the record's timestamp delta begins and where the record ends."""
    length, position = _read_varint(payload, position, 32)
    end = position + length
    if length < RECORD_BYTES_MIN - 1 or end > len(payload):
        raise InvalidRecord(f"a record of {length} bytes where {len(payload) - position} are left")
    return position + 1, end


def _place(header: BatchHeader, offset_delta: int, timestamp_delta: int) -> tuple[int, int]:
    """The record's offset, within its batch, and its timestamp, within 64 bits: both go into replies and indexes."""
    if not 0 <= offset_delta <= header.last_offset_delta:
        raise InvalidRecord(f"offset {offset_delta} in a batch of offsets 0 to {header.last_offset_delta}")
    if header.attributes & TIMESTAMP_TYPE_BIT:
        return header.base_offset + offset_delta, header.max_timestamp
    return header.base_offset + offset_delta, wrap_timestamp(header.base_timestamp + timestamp_delta)


def _read_bytes(payload: bytes | bytearray, position: int, end: int) -> tuple[bytes | None, int]:
    length, position = _read_varint(payload, position, 32)
    if length == -1:
        return None, position
    if length < 0 or length > end - position:
        raise InvalidRecord(f"a field of {length} bytes where {end - position} are left in the record")
    return bytes(payload[position : position + length]), position + length


def _read_headers(payload: bytes | bytearray, position: int, end: int) -> tuple[Headers, int]:
    count, position = _read_varint(payload, position, 32)
    if count == 0:
        return (), position
    if count < 0 or count * HEADER_PAIR_BYTES_MIN > end - position or count > RECORD_HEADERS_MAX:
        raise InvalidRecord(f"{count} headers where {end - position} bytes are left in the record")
    headers = []
    for _ in range(count):
        name, position = _read_bytes(payload, position, end)
        if name is None:
            raise InvalidRecord("a header without a name")
        value, position = _read_bytes(payload, position, end)
        headers.append((name.decode("utf-8", "surrogateescape"), value))
    return tuple(headers), position


def _read_varint(payload: bytes | bytearray, position: int, bits: int) -> tuple[int, int]:
    """A zigzag varint: up to five bytes (32 bits) or ten (64). IndexError past the end of the payload."""
    byte = payload[position]
    position += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position
    value = byte & 0x7F
    shift = 7
    while True:
        byte = payload[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift >= bits:
            raise InvalidRecord("a variable-length number that does not end")
    # The last byte of the longest form has more room than the number has bits.
    if value >> bits:
        raise InvalidRecord("a variable-length number that is too large")
    return (value >> 1) ^ -(value & 1), position


def _varint(number: int) -> bytes:
    value = number << 1 if number >= 0 else (-number << 1) - 1
    written = bytearray()
    while value > 0x7F:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    written.append(value)
    return bytes(written)


_SHORT = 1024
_SHORT_VARINTS = [_varint(number) for number in range(_SHORT)]
"""Nearly all there are in records: lengths and deltas. A call for each would be half of what it costs to write one."""


def _write_record(buffer: bytearray, offset_delta: int, timestamp_delta: int, record: Record) -> None:
    short, timestamp_is_short = _SHORT_VARINTS, 0 <= timestamp_delta < _SHORT
    body = bytearray(1)
    body += short[timestamp_delta] if timestamp_is_short else _varint(wrap_timestamp(timestamp_delta))
    body += short[offset_delta] if offset_delta < _SHORT else _varint(offset_delta)
    _, _, key, value, headers = record
    _write_fields(body, (key, value))
    count = len(headers)
    body += short[count] if count < _SHORT else _varint(count)
    for name, field in headers:
        _write_fields(body, (name.encode("utf-8", "surrogateescape"), field))
    size = len(body)
    buffer += short[size] if size < _SHORT else _varint(size)
    buffer += body


def _write_fields(buffer: bytearray, fields: tuple[bytes | None, bytes | None]) -> None:
    for field in fields:
        if field is None:
            buffer.append(1)
        else:
            size = len(field)
            buffer += _SHORT_VARINTS[size] if size < _SHORT else _varint(size)
            buffer += field
