"""Protobuf: columns by one message of a schema, and values read into them by the numbers of their fields.

Columns: messages are structs, maps are maps, enums are the names of their values, and unsigned numbers take the next
larger type (uint64 decimal(20)). Timestamps and the wrappers of google.protobuf are what they stand for. A field is
null where it can be told that it was not set; elsewhere it has its default. A message without fields is true where it
was set. Messages that contain themselves are refused.

A value says which message of its schema it is, so its schema is asked for too: another message than that of the
columns is rejected, and so is one whose fields have other types under the same numbers. The library takes no more than
100 levels of a value.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from google.protobuf import (
    any_pb2,
    descriptor_pb2,
    duration_pb2,
    empty_pb2,
    field_mask_pb2,
    struct_pb2,
    timestamp_pb2,
    wrappers_pb2,
)
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from skidway.spark.registry.frames import BAD_INDEX, message_at
from skidway.spark.registry.protoc import files_of
from skidway.spark.registry.schemas import (
    DEPTH_MAX,
    FIELDS_MAX,
    BadSchema,
    Schema,
    Undecodable,
    Unreadable,
    check_names,
)

Get = Callable[[Any], Any]
"""From a value as the library has it to one that Arrow takes."""
WELL_KNOWN = (
    any_pb2,
    descriptor_pb2,
    duration_pb2,
    empty_pb2,
    field_mask_pb2,
    struct_pb2,
    timestamp_pb2,
    wrappers_pb2,
)
PLAIN = {
    FieldDescriptor.CPPTYPE_INT32: pa.int32(),
    FieldDescriptor.CPPTYPE_INT64: pa.int64(),
    FieldDescriptor.CPPTYPE_UINT32: pa.int64(),
    FieldDescriptor.CPPTYPE_UINT64: pa.decimal128(20, 0),
    FieldDescriptor.CPPTYPE_DOUBLE: pa.float64(),
    FieldDescriptor.CPPTYPE_FLOAT: pa.float32(),
    FieldDescriptor.CPPTYPE_BOOL: pa.bool_(),
    FieldDescriptor.CPPTYPE_ENUM: pa.string(),
    FieldDescriptor.CPPTYPE_STRING: pa.string(),
}
SAME = (
    {FieldDescriptor.TYPE_INT32, FieldDescriptor.TYPE_INT64, FieldDescriptor.TYPE_UINT32}
    | {FieldDescriptor.TYPE_UINT64, FieldDescriptor.TYPE_BOOL, FieldDescriptor.TYPE_ENUM},
    {FieldDescriptor.TYPE_SINT32, FieldDescriptor.TYPE_SINT64},
    {FieldDescriptor.TYPE_FIXED32, FieldDescriptor.TYPE_SFIXED32},
    {FieldDescriptor.TYPE_FIXED64, FieldDescriptor.TYPE_SFIXED64},
    {FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES},
)
"""Types that are the same on the wire, so that a field may change from one to another."""
WRAPPERS = {one.full_name for one in wrappers_pb2.DESCRIPTOR.message_types_by_name.values()}
TIMESTAMP = "google.protobuf.Timestamp"
TIMES = (-62_135_596_800, 253_402_300_800)
"""The seconds of the years 1 to 9999."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
OUT_OF_TIME = "the value has a time that is not in the years 1 to 9999"
BROKEN = "the value does not decode as Protobuf"
OTHER_MESSAGE = "the value is another message of its schema than the columns are made by"
NOT_PROTOBUF = "its schema cannot be parsed"


class Messages:
    """All messages of a schema; BadSchema if it is none."""

    def __init__(self, schema: Schema) -> None:
        files = files_of(schema)
        self._pool = DescriptorPool()
        self._own = {one.DESCRIPTOR.name: one.DESCRIPTOR.serialized_pb for one in WELL_KNOWN}
        self._there: set[str] = set()
        try:
            for one in files:
                self._add(one)
            # What is missing is found out here.
            self._file = FileDescriptorProto()
            found: Any = self._pool.FindFileByName(files[-1].name)
            found.CopyToProto(self._file)
        except (TypeError, KeyError, ValueError, RecursionError) as error:
            raise BadSchema(f"the Protobuf schema cannot be read: {str(error)[:200]}") from None

    def _add(self, one: FileDescriptorProto) -> None:
        for name in one.dependency:
            if name in self._own and name not in self._there:
                self._add(FileDescriptorProto.FromString(self._own[name]))
        if one.name not in self._there:
            self._there.add(one.name)
            self._pool.Add(one)

    def named(self, name: str) -> Descriptor:
        """LookupError if there is none."""
        return self._pool.FindMessageTypeByName(name)

    def at(self, numbers: tuple[int, ...]) -> Descriptor:
        """By its place in the file, and in the messages that it is in. LookupError if there is none."""
        scope: Any = self._file.message_type
        path = [self._file.package] if self._file.package else []
        for number in numbers:
            if number >= len(scope):
                raise LookupError(f"there is no message {numbers}")
            path.append(scope[number].name)
            scope = scope[number].nested_type
        return self.named(".".join(path))


class Columns:
    """Of a message: their type, and what reads them."""

    def __init__(self, message: Descriptor) -> None:
        self._count = 0
        if not message.fields:
            raise BadSchema(f"the message {message.full_name} has no fields for columns")
        self.type, self.get = self._message(message, "", ())

    def _message(self, message: Descriptor, path: str, inside: tuple[str, ...]) -> tuple[pa.DataType, Get]:
        if message.full_name == TIMESTAMP:
            return pa.timestamp("us", "UTC"), _time
        if message.full_name in WRAPPERS:
            kind, get = self._plain(message.fields_by_name["value"])
            return kind, lambda one: get(one.value)
        if message.full_name in inside:
            raise BadSchema(f"{path} is of the message it is in ({message.full_name}); a table has no columns for that")
        if len(inside) > DEPTH_MAX:
            raise BadSchema(f"the Protobuf schema has more than {DEPTH_MAX} levels")
        if not message.fields:
            return pa.bool_(), lambda one: True
        check_names([one.name for one in message.fields], path)
        kinds, gets = [], []
        for one in message.fields:
            inner = f"{path}.{one.name}" if path else one.name
            kind, get = self._field(one, inner, (*inside, message.full_name))
            kinds.append((one.name, kind))
            gets.append((one.name, get))
        return pa.struct(kinds), lambda one: {name: get(one) for name, get in gets}

    def _field(self, field: FieldDescriptor, path: str, inside: tuple[str, ...]) -> tuple[pa.DataType, Get]:
        """Reads the field of a message."""
        self._count += 1
        if self._count > FIELDS_MAX:
            raise BadSchema(f"the Protobuf schema has more than {FIELDS_MAX} fields")
        name = field.name
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            key, get_key = self._plain(field.message_type.fields_by_name["key"])
            value, get_value = self._one(field.message_type.fields_by_name["value"], f"{path}[]", inside)
            return pa.map_(key, value), lambda of: [
                (get_key(one), get_value(other)) for one, other in getattr(of, name).items()
            ]
        kind, get = self._one(field, f"{path}[]" if field.is_repeated else path, inside)
        if field.is_repeated:
            return pa.list_(kind), lambda of: [get(one) for one in getattr(of, name)]
        if field.has_presence:
            return kind, lambda of: get(getattr(of, name)) if of.HasField(name) else None
        return kind, lambda of: get(getattr(of, name))

    def _one(self, field: FieldDescriptor, path: str, inside: tuple[str, ...]) -> tuple[pa.DataType, Get]:
        if field.message_type is not None:
            return self._message(field.message_type, path, inside)
        return self._plain(field)

    def _plain(self, field: FieldDescriptor) -> tuple[pa.DataType, Get]:
        if field.type == FieldDescriptor.TYPE_BYTES:
            return pa.binary(), _same
        if field.enum_type is not None:
            names = {number: one.name for number, one in field.enum_type.values_by_number.items()}
            # A number that the schema of the columns does not have yet.
            return pa.string(), lambda number: names.get(number) or str(number)
        return PLAIN[field.cpp_type], _same


def _same(value: Any) -> Any:
    return value


def _time(value: Any) -> datetime:
    if not TIMES[0] <= value.seconds < TIMES[1] or not 0 <= value.nanos < 1_000_000_000:
        raise OverflowError("a time before the year 1 or after 9999")
    return EPOCH + timedelta(seconds=value.seconds, microseconds=value.nanos // 1000)


def check_same_wire(writer: Descriptor, reader: Descriptor) -> None:
    """Unreadable if a field has another type on the wire under its number."""
    done: set[tuple[str, str]] = set()
    left = [(writer, reader, "")]
    while left:
        one, other, path = left.pop()
        if (one.full_name, other.full_name) in done:
            continue
        done.add((one.full_name, other.full_name))
        for number, wanted in other.fields_by_number.items():
            found = one.fields_by_number.get(number)
            if found is None:
                continue
            inner = f"{path}.{wanted.name}" if path else wanted.name
            if not _same_wire(found, wanted):
                raise Unreadable(f"the field {inner} had another type in the schema it was written with")
            if found.message_type is not None and wanted.message_type is not None:
                left.append((found.message_type, wanted.message_type, inner))


def _same_wire(one: FieldDescriptor, other: FieldDescriptor) -> bool:
    return one.type == other.type or any(one.type in family and other.type in family for family in SAME)


Read = Callable[[bytes], dict[str, Any]]


class ProtobufReader:
    """Of one message; `reader_of` answers what reads the values of a writer's schema into its columns."""

    def __init__(self, schema: Schema, name: str | None) -> None:
        messages = Messages(schema)
        try:
            self._message = messages.named(name) if name else messages.at((0,))
        except LookupError:
            raise BadSchema(f"the Protobuf schema has no message{f' {name}' if name else ''}") from None
        columns = Columns(self._message)
        self._get = columns.get
        self.type: pa.StructType = columns.type
        self._class: Any = GetMessageClass(self._message)

    def reader_of(self, schema: Schema) -> Read:
        """The value begins with the number of its message."""
        try:
            messages = Messages(schema)
        except BadSchema:
            raise Unreadable(NOT_PROTOBUF) from None
        checked: set[tuple[int, ...]] = set()

        def read(value: bytes) -> dict[str, Any]:
            numbers, place = message_at(value)
            if numbers not in checked:
                self._check(messages, numbers)
                checked.add(numbers)
            try:
                message = self._class.FromString(value[place:])
            except (DecodeError, ValueError):  # ValueError: text that is not UTF-8.
                raise Undecodable(BROKEN) from None
            return self._read(message)

        return read

    def _read(self, message: Any) -> dict[str, Any]:
        try:
            found: dict[str, Any] = self._get(message)
            return found
        except OverflowError:
            raise Undecodable(OUT_OF_TIME) from None

    def _check(self, messages: Messages, numbers: tuple[int, ...]) -> None:
        try:
            writer = messages.at(numbers)
        except LookupError:
            raise Undecodable(BAD_INDEX) from None
        if writer.full_name != self._message.full_name:
            raise Undecodable(OTHER_MESSAGE)
        check_same_wire(writer, self._message)
