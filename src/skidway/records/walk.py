"""A quick walk over the records of one batch, for compaction: where each one lies, its key, and whether it has a value.

It holds every length against what is left, like `record.read_records`, but looks neither at headers nor into values.
"""

from skidway.errors import InvalidRecord
from skidway.records.batch import wrap_timestamp

# Start, end, where the offset delta begins, timestamp delta, offset delta, key, whether there is a value.
Spot = tuple[int, int, int, int, int, bytes | None, bool]

_RECORD_BYTES_MIN = 6


def walk(data: bytes, position: int, end: int, count: int, last_delta: int) -> list[Spot]:
    """The `count` records that fill `data` from `position` to `end`.

    InvalidRecord when they do not, or when their offset deltas do not rise, to `last_delta` at most.
    """
    spots: list[Spot] = []
    note = spots.append
    before = -1
    try:
        for _ in range(count):
            start = position
            byte = data[position]
            if byte < 0x80:
                length, position = (byte >> 1) ^ -(byte & 1), position + 1
            elif (high := data[position + 1]) < 0x80:
                byte = (byte & 0x7F) | (high << 7)
                length, position = (byte >> 1) ^ -(byte & 1), position + 2
            else:
                length, position = _varint(data, position)
            stop = position + length
            if length < _RECORD_BYTES_MIN or stop > end:
                raise InvalidRecord(f"a record of {length} bytes where {end - position} are left")
            position += 1
            byte = data[position]
            if byte < 0x80:
                timestamp_delta, position = (byte >> 1) ^ -(byte & 1), position + 1
            else:
                timestamp_delta, position = _varint(data, position)
            numbered = position
            byte = data[position]
            if byte < 0x80:
                offset_delta, position = (byte >> 1) ^ -(byte & 1), position + 1
            elif (high := data[position + 1]) < 0x80:
                byte = (byte & 0x7F) | (high << 7)
                offset_delta, position = (byte >> 1) ^ -(byte & 1), position + 2
            else:
                offset_delta, position = _varint(data, position)
            if not before < offset_delta <= last_delta:
                raise InvalidRecord(f"offset {offset_delta} after {before} in a batch that ends with {last_delta}")
            before = offset_delta
            byte = data[position]
            if byte < 0x80:
                length, position = (byte >> 1) ^ -(byte & 1), position + 1
            else:
                length, position = _varint(data, position)
            key = None
            if length >= 0:
                key, position = data[position : position + length], position + length
            if position >= stop:
                raise InvalidRecord(f"a key of {length} bytes reaches past its record")
            byte = data[position]
            # -1 is written as 1, or begins with 0x81.
            has_value = byte != 1 and (byte != 0x81 or _varint(data, position)[0] != -1)
            note((start, stop, numbered, timestamp_delta, offset_delta, key, has_value))
            position = stop
    except IndexError:
        raise InvalidRecord("the records end in the middle of one") from None
    if position != end:
        raise InvalidRecord(f"{end - position} bytes after the last of {count} records")
    return spots


def retime(data: bytes, spots: list[Spot], shift: int) -> bytes:
    """The records again, with `shift` added to their timestamp deltas, which wrap around at 64 bits."""
    payload = bytearray()
    for _, stop, numbered, timestamp_delta, _, _, _ in spots:
        # Records have no attributes: that byte is 0 in format v2.
        body = b"\0" + _encode(wrap_timestamp(timestamp_delta + shift)) + data[numbered:stop]
        payload += _encode(len(body))
        payload += body
    return bytes(payload)


def _encode(value: int) -> bytes:
    value = value << 1 if value >= 0 else (~value << 1) | 1
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> 64:
                raise InvalidRecord("a number of more than 64 bits")
            return (value >> 1) ^ -(value & 1), position
        shift += 7
        if shift > 63:
            raise InvalidRecord("a number of more than ten bytes")
