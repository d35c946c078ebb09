"""Avro values as confluent-kafka's serializer frames them, decoded into columns."""

import datetime
import io
import json
import uuid
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from schema_registry import SchemaRegistry, serving

from skidway.spark.registry.decoding import Decoded, decoder_of
from skidway.spark.registry.http import HttpRegistry
from skidway.spark.registry.schemas import BadSchema

SUBJECT = "orders-value"
AT = datetime.datetime(2026, 1, 31, 12, 0, 10, 123456, tzinfo=datetime.UTC)


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    with serving() as registry:
        yield registry


def record(*fields: dict[str, Any], name: str = "Order", **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "namespace": "shop", "fields": list(fields), **more}


def field(name: Any, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


def framed(registry: SchemaRegistry, schema: Any, value: Any, topic: str = "orders") -> bytes:
    """By the serializer of others, which registers the schema."""
    client = SchemaRegistryClient({"url": registry.url})
    made = AvroSerializer(client, json.dumps(schema))(value, SerializationContext(topic, MessageField.VALUE))
    assert isinstance(made, bytes)
    return made


def by_hand(number: int, payload: bytes) -> bytes:
    return b"\0" + number.to_bytes(4, "big") + payload


def decoded(registry: SchemaRegistry, *values: bytes | None) -> Decoded:
    decoder = decoder_of(HttpRegistry(registry.url), SUBJECT)
    (found,) = decoder.begin().decode(values)
    return found


def reasons(registry: SchemaRegistry, *values: bytes | None) -> list[str | None]:
    return decoded(registry, *values).reasons


def test_every_type_becomes_a_column(registry: SchemaRegistry) -> None:
    line = record(field("sku", "string"), field("count", "int"), name="Line")
    schema = record(
        field("id", "long"),
        field("paid", "boolean"),
        field("ratio", "float"),
        field("amount", "double"),
        field("raw", "bytes"),
        field("hash", {"type": "fixed", "name": "Four", "size": 4}),
        field("state", {"type": "enum", "name": "State", "symbols": ["NEW", "DONE"]}),
        field("price", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}),
        field("day", {"type": "int", "logicalType": "date"}),
        field("at", {"type": "long", "logicalType": "timestamp-micros"}),
        field("seen", {"type": "long", "logicalType": "timestamp-millis"}),
        field("ref", {"type": "string", "logicalType": "uuid"}),
        field("hour", {"type": "int", "logicalType": "time-millis"}),
        field("note", ["null", "string"]),
        field("lines", {"type": "array", "items": line}),
        field("tags", {"type": "map", "values": "long"}),
        field("first", ["null", "Line"]),
    )
    ref = uuid.UUID(int=7)
    value = {
        "id": 2**40, "paid": True, "ratio": 0.5, "amount": 1.25, "raw": b"\xff", "hash": b"abcd", "state": "DONE",
        "price": Decimal("-12.34"), "day": datetime.date(2026, 1, 31), "at": AT, "seen": AT, "ref": ref,
        "hour": datetime.time(0, 0, 1), "note": None, "lines": [{"sku": "a", "count": 1}], "tags": {"x": 5},
        "first": {"sku": "b", "count": 2},
    }  # fmt: skip
    found = decoded(registry, framed(registry, schema, value))
    assert found.reasons == [None]
    assert found.values.to_pylist() == [
        value | {"seen": AT.replace(microsecond=123000), "ref": str(ref), "hour": 1000, "tags": [("x", 5)]}
    ]
    kinds = {one.name: one.type for one in found.values.type}
    assert kinds["price"] == pa.decimal128(9, 2)
    assert kinds["seen"] == kinds["at"] == pa.timestamp("us", "UTC")
    assert kinds["lines"] == pa.list_(pa.struct([("sku", pa.string()), ("count", pa.int32())]))


def test_older_and_newer_writers_are_resolved_to_the_newest_version(registry: SchemaRegistry) -> None:
    old = record(field("id", "int"), field("gone", "string"), field("name", "string"))
    new = record(
        field("id", "long"),
        field("user", ["null", "string"], aliases=["name"], default=None),
        field("price", {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}, default="\u0001"),
        field("since", {"type": "long", "logicalType": "timestamp-millis"}, default=1000),
        field("day", {"type": "int", "logicalType": "date"}, default=1),
        field("raw", "bytes", default="\u00ff"),
        field("tags", {"type": "array", "items": "string"}, default=["t"]),
    )
    before = framed(registry, old, {"id": 1, "gone": "x", "name": "ann"})
    filled: dict[str, Any] = {
        "id": 2, "user": None, "price": Decimal("1.50"), "since": AT, "day": AT.date(), "raw": b"", "tags": []
    }  # fmt: skip
    after = framed(registry, new, filled)
    found = decoded(registry, before, after)
    assert found.reasons == [None, None]
    first, second = found.values.to_pylist()
    assert first == {
        "id": 1,
        "user": "ann",
        "price": Decimal("0.01"),
        "since": datetime.datetime(1970, 1, 1, 0, 0, 1, tzinfo=datetime.UTC),
        "day": datetime.date(1970, 1, 2),
        "raw": b"\xff",
        "tags": ["t"],
    }
    assert second["id"] == 2


def test_a_value_that_is_newer_than_the_columns_is_read_into_them(registry: SchemaRegistry) -> None:
    framed(registry, record(field("id", "long")), {"id": 1})
    decoder = decoder_of(HttpRegistry(registry.url), SUBJECT)
    newer = framed(registry, record(field("id", "long"), field("more", "string")), {"id": 3, "more": "x"})
    (found,) = decoder.begin().decode([newer])
    assert found.values.to_pylist() == [{"id": 3}]


def test_schemas_may_refer_to_others(registry: SchemaRegistry) -> None:
    registry.add("user", record(field("name", "string"), name="User"))
    pointer = [{"name": "shop.User", "subject": "user", "version": 1}]
    order = record(field("by", "User"), field("to", ["null", "shop.User"]))
    number = registry.add(SUBJECT, order, references=pointer)
    assert decoded(registry, by_hand(number, b"\x06ann\x02\x06bob")).values.to_pylist() == [
        {"by": {"name": "ann"}, "to": {"name": "bob"}}
    ]


def test_what_is_wrong_with_a_frame_is_told(registry: SchemaRegistry) -> None:
    number = registry.add(SUBJECT, record(field("id", "long"), field("name", "string")))
    registry.add("other", '{"type": "object"}', "JSON")
    assert reasons(
        registry,
        None,
        b"",
        b"\0\0\0",
        b'{"id": 1}',
        b"\1\0\0\0\1\2",
        by_hand(99, b"\x02\x00"),
        by_hand(2, b"{}"),
        by_hand(number, b""),
        by_hand(number, b"\x02\x20a"),
        by_hand(number, b"\x02\x02\xff"),
        by_hand(number, b"\x02\x02ab"),
        by_hand(number, b"\xff" * 20),
        by_hand(number, b"\x02\x02a"),
    ) == [
        "the value is null",
        "the value ends within its frame",
        "the value ends within its frame",
        "the value has no frame of a schema registry: its first byte is not 0",
        "the value has no frame of a schema registry: its first byte is not 0",
        "the registry does not know the id of its schema",
        "its schema is of another format than that of the columns",
        "the field id does not decode",
        "the field name does not decode",
        "the field name does not decode",
        "bytes are left over behind the value",
        "the field id does not decode",
        None,
    ]


@pytest.mark.parametrize(
    ("writer", "reason"),
    [
        (record(field("id", "string")), "the field id had another type in the schema it was written with"),
        (record(field("n", "long")), "the schema it was written with lacks the field id, which has no default"),
        (
            record(field("id", "long"), name="Other"),
            "the type of the value had another name, or size, in the schema it was written with",
        ),
        (
            record(field("id", {"type": "long", "logicalType": "timestamp-millis"})),
            "the field id had another type in the schema it was written with",
        ),
        (record(field("id", "long"), field("next", ["null", "Order"])), "its schema is recursive"),
        (
            record(field("id", "long"), field("x", {"type": "array", "items": "null"})),
            "its schema has an array whose items are empty",
        ),
        (
            record(field("id", "long"), field("x", {"type": "array", "items": record(field("n", "null"), name="E")})),
            "its schema has an array whose items are empty",
        ),
        ("not JSON", "its schema cannot be parsed"),
        ("string", "its schema cannot be parsed"),
        (record(field("id", "unknown")), "its schema cannot be parsed"),
        (record(field(5, "long"), field({}, "long")), "its schema cannot be parsed"),
        (record(field("id", {"type": {"type": "array"}})), "its schema cannot be parsed"),
        (record(field("id", {"type": "enum", "name": "E"})), "its schema cannot be parsed"),
        (record(field("x", {"type": "fixed", "name": "F", "size": -1})), "its schema cannot be parsed"),
    ],
)  # fmt: skip
def test_values_of_a_schema_that_cannot_be_read_are_rejected(
    registry: SchemaRegistry, writer: Any, reason: str
) -> None:
    number = registry.add("elsewhere", writer)
    registry.add(SUBJECT, record(field("id", "long")))
    assert reasons(registry, by_hand(number, b"\x02\x02")) == [reason]


def nested(levels: int) -> Any:
    kind: Any = "long"
    for _ in range(levels):
        kind = {"type": "array", "items": kind}
    return kind


def chained(levels: int) -> Any:
    """Records that name each other, so that none is deep where it is described."""
    records = [record(field("v", "long"), name="R0")]
    records += [record(field("v", f"R{n}"), name=f"R{n + 1}") for n in range(levels)]
    return [field(f"f{n}", one) for n, one in enumerate(records)]


def test_schemas_that_are_too_deep_are_rejected_whatever_they_say(registry: SchemaRegistry) -> None:
    deep = registry.add("elsewhere", record(field("id", "long"), field("x", nested(100))))
    chain = registry.add("elsewhere", record(field("id", "long"), *chained(100)))
    doubling = [record(field("v", "long"), name="D0")] + [
        record(field("a", f"D{n}"), field("b", f"D{n}"), name=f"D{n + 1}") for n in range(60)
    ]
    wide = registry.add(
        "elsewhere", record(field("id", "long"), *(field(f"g{n}", one) for n, one in enumerate(doubling)))
    )
    registry.add(SUBJECT, record(field("id", "long")))
    found = reasons(registry, by_hand(deep, b"\x02"), by_hand(chain, b"\x02"), by_hand(wide, b"\x02"))
    assert found == ["its schema has more than 64 levels"] * 2 + ["the field g0 does not decode"]


def test_huge_counts_cost_no_more_than_the_value_has_bytes(registry: SchemaRegistry) -> None:
    kinds = {"items": {"type": "array", "items": "long"}, "bag": {"type": "map", "values": "long"}, "text": "string"}
    huge = io.BytesIO()
    fastavro.schemaless_writer(huge, "long", 2**62)
    for name, kind in kinds.items():
        number = registry.add("huge-value", record(field(name, kind)))
        decoder = decoder_of(HttpRegistry(registry.url), "huge-value")
        for payload in (huge.getvalue(), huge.getvalue() + b"\2" * 50, b"\x01" + huge.getvalue(), b"\x03\x01"):
            (found,) = decoder.begin().decode([by_hand(number, payload)])
            assert found.reasons == [f"the field {name} does not decode"]


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        (record(field("a", ["int", "string"])), "a is a union of 2 types, and a column has one; make it a union"),
        (record(field("a", {"type": "array", "items": ["null", "int", "string"]})), r"a\[\] is a union of 2 types"),
        (record(field("a", "null")), "a is always null"),
        (record(field("a", ["null", "Order"])), r"a is of the type it is in \(shop.Order\)"),
        (record(), "the value has no fields"),
        (record(field("a", "int"), field("A", "int")), "fields a and A, which are one to Spark"),
        (record(field("a", nested(70))), "64 levels"),
        (record(field("a", nested(300))), "64 levels"),
        ("string", "not one of a record"),
        ("{", "is not JSON"),
        (record(field("a", {"type": "bytes", "logicalType": "decimal", "precision": 50, "scale": 2})), "50 digits"),
    ],
)  # fmt: skip
def test_schemas_without_columns_are_refused(registry: SchemaRegistry, schema: Any, told: str) -> None:
    registry.add(SUBJECT, schema if isinstance(schema, dict) else (schema if schema == "{" else json.dumps(schema)))
    with pytest.raises(BadSchema, match=told):
        decoder_of(HttpRegistry(registry.url), SUBJECT)


def test_a_schema_that_unfolds_without_end_is_refused(registry: SchemaRegistry) -> None:
    doubling = [record(field("v", "long"), name="D0")] + [
        record(field("a", f"D{n}"), field("b", f"D{n}"), name=f"D{n + 1}") for n in range(40)
    ]
    registry.add(SUBJECT, record(*(field(f"g{n}", one) for n, one in enumerate(doubling))))
    with pytest.raises(BadSchema, match="more than 10000 fields"):
        decoder_of(HttpRegistry(registry.url), SUBJECT)


def test_times_out_of_range_reject_their_value_alone(registry: SchemaRegistry) -> None:
    schema = record(field("at", {"type": "long", "logicalType": "timestamp-millis"}))
    number = registry.add(SUBJECT, schema)
    far = io.BytesIO()
    fastavro.schemaless_writer(far, "long", 2**60)
    assert reasons(registry, by_hand(number, b"\x02"), by_hand(number, far.getvalue())) == [
        None,
        "the field at does not decode",
    ]


def test_a_decimal_with_too_many_digits_rejects_its_value_alone(registry: SchemaRegistry) -> None:
    def schema(precision: int) -> Any:
        return record(field("p", {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": 2}))

    wide = framed(registry, schema(9), {"p": Decimal("1234567.89")})
    narrow = framed(registry, schema(4), {"p": Decimal("12.34")})
    found = decoded(registry, wide, narrow)
    assert found.reasons == ["the field p does not fit its column", None]
    assert found.values.to_pylist() == [None, {"p": Decimal("12.34")}]
