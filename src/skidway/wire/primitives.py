"""What the compiled encoders and decoders lean on: varints, tagged fields, arrays of fixed-size values.

Decoding functions take a position and return the next one. They check every length against the end of the buffer
before anything is allocated, and raise nothing but `DecodeError`, `IndexError` and `struct.error`; a compiled decoder
turns the latter two into the first.
"""

from struct import Struct
from struct import error as struct_error

from skidway.errors import InvalidRequest
from skidway.ports import Buffer
from skidway.wire.message import UUID_BYTES

STRING_BYTES_MAX = 2**15 - 1
UVARINT_MAX = 2**32 - 1
TAGS_MAX = 64
"""Tagged fields of one struct, known or not. No message of the protocol has more than a handful."""
_UVARINT_SHIFT_MAX = 28

FORMATS = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "int64": "q",
    "float64": "d",
    "uuid": f"{UUID_BYTES}s",
}


class DecodeError(InvalidRequest):
    """The bytes are not a message of the kind and version they claim to be."""


MALFORMED = (IndexError, struct_error, UnicodeDecodeError, ValueError, OverflowError, MemoryError)


def encode_uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


# Lengths of names and counts of arrays nearly always fall in here; larger ones are worked out.
SHORT_UVARINTS = [encode_uvarint(value) for value in range(1024)]


def uvarint_rest(buffer: Buffer, position: int, first: int) -> tuple[int, int]:
    """The value of a varint whose first byte has been read and announced more."""
    value = first & 0x7F
    shift = 7
    while True:
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > _UVARINT_SHIFT_MAX:
            raise DecodeError("a varint is longer than five bytes")
    if value > UVARINT_MAX:
        raise DecodeError("a varint exceeds 32 bits")
    return value, position


def read_uvarint(buffer: Buffer, position: int) -> tuple[int, int]:
    first = buffer[position]
    if first < 0x80:
        return first, position + 1
    return uvarint_rest(buffer, position + 1, first)


def tag_header(buffer: Buffer, position: int, end: int) -> tuple[int, int, int]:
    """(tag, position of the value, position after the value)"""
    tag, position = read_uvarint(buffer, position)
    size, position = read_uvarint(buffer, position)
    if size > end - position:
        raise DecodeError("a tagged field is longer than the message")
    return tag, position, position + size


def skip_tags(buffer: Buffer, position: int, end: int, first: int, budget: int) -> tuple[int, int]:
    """Pass over tagged fields none of which is known; `first` is the first byte of their count, just read.

    Returns the position after them and what is left of the budget.
    """
    count = first
    if first > 0x7F:
        count, position = uvarint_rest(buffer, position, first)
    if count > min(budget, TAGS_MAX):
        raise DecodeError("too many tagged fields")
    for _ in range(count):
        _, _, position = tag_header(buffer, position, end)
    return position, budget - count


class StructsByCount(dict[int, Struct]):
    """Structs for n values of one format, kept for the small n that recur."""

    _KEPT_MAX = 256

    def __init__(self, code: str) -> None:
        super().__init__()
        self._code = code

    def __missing__(self, count: int) -> Struct:
        packed = Struct(f">{count}{self._code}")
        if count < self._KEPT_MAX:
            self[count] = packed
        return packed


ARRAYS = {kind: StructsByCount(code) for kind, code in FORMATS.items() if kind != "uuid"}


def read_uuids(buffer: Buffer, position: int, count: int) -> list[bytes]:
    """The caller has checked that they are all there."""
    end = position + count * UUID_BYTES
    return [bytes(buffer[at : at + UUID_BYTES]) for at in range(position, end, UUID_BYTES)]


def write_uuids(values: list[bytes]) -> bytes:
    if any(len(value) != UUID_BYTES for value in values):
        raise ValueError("a UUID has 16 bytes")
    return b"".join(values)
