"""The frame around a value: which schema it was written with, and where the value begins.

A zero byte, then the schema's id in four bytes, the greatest first. Or, in the record's header `__value_schema_id`
instead of before the value, the same, or a one byte and the schema's GUID in 16 bytes. For Protobuf there follows which
message of the schema it is: how many numbers, then these, the place in the file and in the messages around it, as
varints in zigzag; a single zero byte stands for the first message.
"""

from dataclasses import dataclass
from uuid import UUID

from skidway.spark.registry.schemas import Undecodable

ID_MAGIC, GUID_MAGIC = 0, 1
ID_BYTES, GUID_BYTES = 4, 16
VALUE_HEADER = "__value_schema_id"
MESSAGE_DEPTH_MAX = 64
VARINT_BYTES_MAX = 5

SHORT = "the value ends within its frame"
NO_FRAME = "the value has no frame of a schema registry: its first byte is not 0"
BAD_HEADER = f"the header {VALUE_HEADER} is not that of a schema registry"
BAD_INDEX = "the number of the message in the value's frame is wrong"


@dataclass(slots=True, frozen=True)
class Frame:
    schema: int | str
    """Id, or GUID."""
    rest: bytes
    """What follows the id: message numbers, if there are any, and the value."""


def unframe(value: bytes) -> Frame:
    if len(value) < 1 + ID_BYTES:
        raise Undecodable(SHORT if value[:1] == b"\0" or not value else NO_FRAME)
    if value[0] != ID_MAGIC:
        raise Undecodable(NO_FRAME)
    return Frame(int.from_bytes(value[1 : 1 + ID_BYTES], "big"), value[1 + ID_BYTES :])


def unframe_by_header(header: bytes | None, value: bytes) -> Frame:
    """`header`: that of the record."""
    if header and header[0] == ID_MAGIC and len(header) >= 1 + ID_BYTES:
        return Frame(int.from_bytes(header[1 : 1 + ID_BYTES], "big"), header[1 + ID_BYTES :] + value)
    if header and header[0] == GUID_MAGIC and len(header) >= 1 + GUID_BYTES:
        return Frame(str(UUID(bytes=header[1 : 1 + GUID_BYTES])), header[1 + GUID_BYTES :] + value)
    raise Undecodable(BAD_HEADER)


def message_at(rest: bytes) -> tuple[tuple[int, ...], int]:
    """Which message of a Protobuf schema, and where it begins."""
    count, place = _zigzag(rest, 0)
    if count == 0:
        return (0,), place
    if not 0 < count <= MESSAGE_DEPTH_MAX:
        raise Undecodable(BAD_INDEX)
    numbers = []
    for _ in range(count):
        number, place = _zigzag(rest, place)
        if number < 0:
            raise Undecodable(BAD_INDEX)
        numbers.append(number)
    return tuple(numbers), place


def _zigzag(data: bytes, place: int) -> tuple[int, int]:
    result = 0
    for n in range(VARINT_BYTES_MAX):
        if place + n >= len(data):
            raise Undecodable(SHORT)
        byte = data[place + n]
        result |= (byte & 0x7F) << (7 * n)
        if byte < 0x80:
            return (result >> 1) ^ -(result & 1), place + n + 1
    raise Undecodable(BAD_INDEX)
