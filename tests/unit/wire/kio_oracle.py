"""kio as an independent oracle: the same message as one of its entities, and its bytes.

kio's fields stand in wire order, so they are paired with ours by position; it makes dates, durations, UUIDs and error
codes of plain numbers and bytes, and drops `_ms` from the names.
"""

import dataclasses
from datetime import UTC, datetime, timedelta
from functools import cache
from io import BytesIO
from typing import Any, get_args, get_type_hints
from uuid import UUID

from kio.index import load_entity_schema, load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from skidway.wire.message import ZERO_UUID, Field, Message

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@cache
def entity_class(message: type[Message], version: int) -> Any:
    """Raises kio.index.KioIndexError where kio does not know the message."""
    if message.__key__ is not None and message.__name__.endswith("Request"):
        return load_request_schema(message.__key__, version)
    if message.__key__ is not None and message.__name__.endswith("Response"):
        return load_response_schema(message.__key__, version)
    return load_entity_schema(_snake_case(message.__name__), version, EntityType.data)


def _snake_case(name: str) -> str:
    words = ["_" + letter.lower() if letter.isupper() else letter for letter in name]
    return "".join(words).lstrip("_")


def is_own(field: Field) -> bool:
    """Tagged fields from 1000 on are Skidway's: others pass over them."""
    return field.tag is not None and field.tag >= 1000


@cache
def _pairs(message: type[Message], entity: Any, version: int) -> list[tuple[str, str, str, Any]]:
    """(our name, kio's name, kio's type, kio's class of a nested struct) of each field of the version"""
    ours = [field for field in message.__fields__ if version in field.versions and not is_own(field)]
    theirs = dataclasses.fields(entity)
    hints = get_type_hints(entity)
    assert len(ours) == len(theirs), (message, version)
    pairs = []
    for our, their in zip(ours, theirs, strict=True):
        assert their.name.rstrip("_") in (our.name, our.name.removesuffix("_ms")), (message, our.name, their.name)
        nested = _nested_class(hints[their.name]) if our.struct else None
        pairs.append((our.name, their.name, their.metadata.get("kafka_type", "struct"), nested))
    return pairs


def _nested_class(hint: Any) -> Any:
    if dataclasses.is_dataclass(hint):
        return hint
    return next((found for part in get_args(hint) if (found := _nested_class(part))), None)


def to_entity(message: Message, entity: Any, version: int) -> Any:
    values = {}
    for our_name, their_name, kind, nested in _pairs(type(message), entity, version):
        value = getattr(message, our_name)
        if isinstance(value, list):
            values[their_name] = tuple(_to_kio(item, kind, nested, version) for item in value)
        else:
            values[their_name] = _to_kio(value, kind, nested, version)
    return entity(**values)


def _to_kio(value: Any, kind: str, nested: Any, version: int) -> Any:
    if value is None:
        return None
    match kind:
        case "struct":
            return to_entity(value, nested, version)
        case "error_code":
            return ErrorCode(value)
        case "timedelta_i32" | "timedelta_i64":
            return timedelta(milliseconds=value)
        case "datetime_i64":
            return None if value == -1 else EPOCH + timedelta(milliseconds=value)
        case "uuid":
            return None if value == ZERO_UUID else UUID(bytes=value)
    return value


def kio_writes(entity: Any) -> bytes:
    out = BytesIO()
    entity_writer(type(entity))(out, entity)
    return out.getvalue()


def kio_reads(data: bytes, entity_type: Any) -> Any:
    entity, size = entity_reader(entity_type)(data, 0)
    assert size == len(data)
    return entity
