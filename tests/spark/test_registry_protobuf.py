"""Protobuf values as confluent-kafka's serializer frames them, decoded into columns."""

import base64
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.message_factory import GetMessageClass
from schema_registry import SchemaRegistry, serving

from skidway.spark.registry.decoding import Decoded, decoder_of
from skidway.spark.registry.folder import FolderRegistry
from skidway.spark.registry.http import HttpRegistry
from skidway.spark.registry.protobuf import Messages
from skidway.spark.registry.schemas import PROTOBUF, BadSchema, Schema

SUBJECT = "orders-value"
ORDER = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
import "google/protobuf/empty.proto";
message Other { string x = 1; }
message Order {
  message Line { string sku = 1; int32 count = 2; }
  enum State { NEW = 0; DONE = 1; }
  int64 id = 1;
  bool paid = 2;
  float ratio = 3;
  double amount = 4;
  bytes raw = 5;
  State state = 6;
  google.protobuf.Timestamp at = 7;
  google.protobuf.StringValue note = 8;
  repeated Line lines = 9;
  map<string, Line> tags = 10;
  uint32 small = 11;
  uint64 large = 12;
  optional string nick = 13;
  oneof pay { string card = 14; int64 cash = 15; google.protobuf.Empty free = 16; }
  repeated int32 packed = 17;
  Line first = 18;
}
"""


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    with serving() as registry:
        yield registry


def message(text: str, name: str) -> Any:
    """A class of messages, as protoc would make one."""
    return GetMessageClass(Messages(Schema(PROTOBUF, text)).named(name))


def framed(registry: SchemaRegistry, value: Any, topic: str = "orders") -> bytes:
    """By the serializer of others, which registers the schema, serialized."""
    client = SchemaRegistryClient({"url": registry.url})
    made = ProtobufSerializer(type(value), client)(value, SerializationContext(topic, MessageField.VALUE))
    assert isinstance(made, bytes)
    return made


def by_hand(number: int, payload: bytes, numbers: bytes = b"\0") -> bytes:
    return b"\0" + number.to_bytes(4, "big") + numbers + payload


def decoded(registry: SchemaRegistry, *values: bytes, name: str | None = None) -> Decoded:
    decoder = decoder_of(HttpRegistry(registry.url), SUBJECT, name)
    (found,) = decoder.begin().decode(values)
    return found


def test_every_type_becomes_a_column(registry: SchemaRegistry) -> None:
    made = message(ORDER, "shop.Order")
    order = made(id=2**40, paid=True, ratio=0.5, amount=1.25, raw=b"\xff", state=1, small=2**32 - 1, large=2**64 - 1)
    order.at.FromJsonString("2026-01-31T12:00:10.123456789Z")
    order.note.value = "n"
    order.lines.add(sku="a", count=1)
    order.tags["k"].sku = "b"
    order.nick = ""
    order.free.SetInParent()
    order.packed.extend([1, -2])
    found = decoded(registry, framed(registry, order), framed(registry, made()), name="shop.Order")
    assert found.reasons == [None, None]
    full, empty = found.values.to_pylist()
    assert full == {
        "id": 2**40, "paid": True, "ratio": 0.5, "amount": 1.25, "raw": b"\xff", "state": "DONE",
        "at": datetime(2026, 1, 31, 12, 0, 10, 123456, UTC), "note": "n", "lines": [{"sku": "a", "count": 1}],
        "tags": [("k", {"sku": "b", "count": 0})], "small": 2**32 - 1, "large": Decimal(2**64 - 1), "nick": "",
        "card": None, "cash": None, "free": True, "packed": [1, -2], "first": None,
    }  # fmt: skip
    assert empty == {
        "id": 0, "paid": False, "ratio": 0.0, "amount": 0.0, "raw": b"", "state": "NEW", "at": None, "note": None,
        "lines": [], "tags": [], "small": 0, "large": Decimal(0), "nick": None, "card": None, "cash": None,
        "free": None, "packed": [], "first": None,
    }  # fmt: skip


OLD = 'syntax = "proto3"; message Order { int32 id = 1; string gone = 2; string name = 3; }'
NEW = 'syntax = "proto3"; message Order { int64 id = 1; string user = 3; optional string more = 4; }'


def test_older_writers_are_read_by_the_numbers_of_fields(registry: SchemaRegistry) -> None:
    before = framed(registry, message(OLD, "Order")(id=1, gone="x", name="ann"))
    registry.add(SUBJECT, NEW, "PROTOBUF")
    after = framed(registry, message(NEW, "Order")(id=2, user="bob", more="m"), "elsewhere")
    found = decoded(registry, before, after)
    assert found.values.to_pylist() == [
        {"id": 1, "user": "ann", "more": None},
        {"id": 2, "user": "bob", "more": "m"},
    ]


def test_text_and_serialized_schemas_with_references(registry: SchemaRegistry) -> None:
    user = 'syntax = "proto3"; package people; message User { string name = 1; }'
    order = (
        'syntax = "proto3"; package shop; import "people/user.proto"; import "google/protobuf/timestamp.proto";'
        " message Order { people.User by = 1; google.protobuf.Timestamp at = 2; }"
    )
    registry.add("user", user, "PROTOBUF")
    pointer = [{"name": "people/user.proto", "subject": "user", "version": 1}]
    number = registry.add(SUBJECT, order, "PROTOBUF", pointer)
    value = b"\x0a\x05\x0a\x03ann"
    assert decoded(registry, by_hand(number, value)).values.to_pylist() == [{"by": {"name": "ann"}, "at": None}]
    # The same as the serializer of others writes it: it registers what a schema needs, too.
    made = GetMessageClass(Messages(Schema(PROTOBUF, order, (("people/user.proto", user),))).named("shop.Order"))
    registry.subjects.clear()
    sent = framed(registry, made.FromString(value))
    assert registry.described(registry.subjects[SUBJECT][-1])["references"]
    assert decoded(registry, sent).values.to_pylist() == [{"by": {"name": "ann"}, "at": None}]


def test_the_message_is_found_by_its_number_and_another_is_rejected(registry: SchemaRegistry) -> None:
    number = registry.add(SUBJECT, ORDER, "PROTOBUF")
    line = decoder_of(HttpRegistry(registry.url), SUBJECT, "shop.Order.Line").begin()
    values = [
        by_hand(number, b"\x0a\x01a", b"\x04\x02\x00"),
        by_hand(number, b"\x0a\x01a", b"\x02\x02"),
        by_hand(number, b"\x0a\x01a", b"\x00"),
        by_hand(number, b"\x0a\x01a", b"\x02\x0e"),
        by_hand(number, b"\x0a\x01a", b"\x02\x01"),
        by_hand(number, b"\x0a\x01a", b"\xfe\xff\xff\x0f"),
        by_hand(number, b"", b"\xff\xff\xff\xff\xff\xff\xff"),
        by_hand(number, b"", b""),
        by_hand(number, b"", b"\x04\x02"),
        by_hand(number, b"\x0a\x05a", b"\x04\x02\x00"),
        by_hand(number, b"\x0a\x01\xff", b"\x04\x02\x00"),
    ]
    (found,) = line.decode(values)
    other = "the value is another message of its schema than the columns are made by"
    wrong = "the number of the message in the value's frame is wrong"
    short = "the value ends within its frame"
    broken = "the value does not decode as Protobuf"
    assert found.reasons == [None, other, other, wrong, wrong, wrong, wrong, short, short, broken, broken]


def test_a_number_that_changed_its_type_is_rejected_with_its_field(registry: SchemaRegistry) -> None:
    changed = 'syntax = "proto3"; message Order { string id = 1; }'
    value = framed(registry, message(changed, "Order")(id="a"))
    registry.add(SUBJECT, NEW, "PROTOBUF")
    assert decoded(registry, value).reasons == ["the field id had another type in the schema it was written with"]


def test_deep_values_and_times_that_cannot_be_are_rejected(registry: SchemaRegistry) -> None:
    text = (
        'syntax = "proto3"; import "google/protobuf/timestamp.proto";'
        " message Order { google.protobuf.Timestamp at = 1; }"
    )
    number = registry.add(SUBJECT, text, "PROTOBUF")
    far = b"\x0a\x0a\x08" + b"\xff" * 8 + b"\x7f"
    groups = b"\x13" * 100_000
    assert decoded(registry, by_hand(number, far), by_hand(number, groups), by_hand(number, b"")).reasons == [
        "the value has a time that is not in the years 1 to 9999",
        "the value does not decode as Protobuf",
        None,
    ]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('syntax = "proto3"; message A { A again = 1; }', r"again is of the message it is in \(A\)"),
        ('syntax = "proto3"; message A { map<string, A> again = 1; }', r"again\[\] is of the message it is in"),
        ('syntax = "proto3"; message A {}', "has no fields"),
        ('syntax = "proto3";', "has no message"),
        ('syntax = "proto3"; message A { unknown.B x = 1; }', "cannot be compiled"),
        ('syntax = "proto3"; import "absent.proto"; message A { int32 x = 1; }', "cannot be compiled"),
        ('syntax = "proto3"; import "/etc/passwd"; message A { int32 x = 1; }', "cannot be compiled"),
        ("not Protobuf", "cannot be compiled"),
        ("message A { optional int32 x = 1; optional int32 X = 2; }", "fields x and X"),
        ('syntax = "proto3"; ' + "message A { " * 2000, "cannot be compiled"),
    ],
)
def test_schemas_without_columns_are_refused(registry: SchemaRegistry, text: str, told: str) -> None:
    registry.add(SUBJECT, text, "PROTOBUF")
    with pytest.raises(BadSchema, match=told):
        decoder_of(HttpRegistry(registry.url), SUBJECT)


def test_an_import_stays_in_its_folder(registry: SchemaRegistry) -> None:
    registry.add("evil", 'syntax = "proto3";', "PROTOBUF")
    for name in ("../evil.proto", "/evil.proto", "a/../../evil.proto", "", "a//b.proto"):
        registry.add(SUBJECT, ORDER, "PROTOBUF", [{"name": name, "subject": "evil", "version": 1}])
        with pytest.raises(BadSchema, match="which is no path of a file"):
            decoder_of(HttpRegistry(registry.url), SUBJECT)
        registry.subjects.pop(SUBJECT)


def test_a_folder_of_proto_files_is_a_registry(tmp_path: Path) -> None:
    folder = tmp_path / SUBJECT
    folder.mkdir()
    (folder / "1-7.proto").write_text(OLD)
    (folder / "2-8.proto").write_text(NEW)
    decoder = decoder_of(FolderRegistry(str(tmp_path)), SUBJECT)
    (found,) = decoder.begin().decode([by_hand(7, b"\x08\x01"), by_hand(8, b"\x08\x02"), by_hand(9, b"")])
    assert found.values.to_pylist() == [
        {"id": 1, "user": "", "more": None},
        {"id": 2, "user": "", "more": None},
        None,
    ]


def test_a_file_without_what_it_needs_is_refused() -> None:
    alone = FileDescriptorProto(name="a.proto", dependency=["b.proto"])
    text = base64.b64encode(alone.SerializeToString()).decode()
    with pytest.raises(BadSchema, match="cannot be read"):
        Messages(Schema(PROTOBUF, text))
