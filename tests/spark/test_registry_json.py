"""JSON values with a schema in a registry, as confluent-kafka's serializer frames them, decoded into columns."""

import datetime
import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from schema_registry import SchemaRegistry, serving

from skidway.spark.registry.decoding import Decoded, decoder_of
from skidway.spark.registry.http import HttpRegistry
from skidway.spark.registry.schemas import BadSchema

SUBJECT = "orders-value"
TEXT = {"type": "string"}


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    with serving() as registry:
        yield registry


def objects(**properties: Any) -> dict[str, Any]:
    return {"title": "Order", "type": "object", "properties": properties}


def framed(registry: SchemaRegistry, schema: Any, value: Any) -> bytes:
    client = SchemaRegistryClient({"url": registry.url})
    made = JSONSerializer(json.dumps(schema), client)(value, SerializationContext("orders", MessageField.VALUE))
    assert isinstance(made, bytes)
    return made


def by_hand(number: int, payload: bytes) -> bytes:
    return b"\0" + number.to_bytes(4, "big") + payload


def decoded(registry: SchemaRegistry, *values: bytes) -> Decoded:
    (found,) = decoder_of(HttpRegistry(registry.url), SUBJECT).begin().decode(values)
    return found


def test_every_type_becomes_a_column(registry: SchemaRegistry) -> None:
    schema = objects(
        id={"type": "integer"},
        amount={"type": "number"},
        paid={"type": "boolean"},
        user={"oneOf": [{"type": "null"}, TEXT]},
        state={"enum": ["NEW", "DONE"]},
        day={"type": "string", "format": "date"},
        at={"type": "string", "format": "date-time"},
        lines={"type": "array", "items": {"$ref": "#/definitions/line"}},
        tags={"type": "object", "additionalProperties": {"type": ["integer", "null"]}},
        first={"$ref": "#/definitions/line"},
    )
    schema["definitions"] = {"line": {"type": "object", "properties": {"sku": TEXT, "count": {"type": "integer"}}}}
    value = {
        "id": 2**40, "amount": 2, "paid": True, "user": None, "state": "DONE", "day": "2026-01-31",
        "at": "2026-01-31T13:00:10.5+01:00", "lines": [{"sku": "a", "count": 1.0, "more": 5}],
        "tags": {"x": 5, "y": None}, "other": "left out",
    }  # fmt: skip
    found = decoded(registry, framed(registry, schema, value))
    assert found.reasons == [None]
    assert found.values.to_pylist() == [
        {
            "id": 2**40, "amount": 2.0, "paid": True, "user": None, "state": "DONE",
            "day": datetime.date(2026, 1, 31),
            "at": datetime.datetime(2026, 1, 31, 12, 0, 10, 500000, datetime.UTC),
            "lines": [{"sku": "a", "count": 1}], "tags": [("x", 5), ("y", None)], "first": None,
        }
    ]  # fmt: skip


def test_older_values_have_null_in_new_columns(registry: SchemaRegistry) -> None:
    old = framed(registry, objects(id={"type": "integer"}), {"id": 1})
    new = framed(registry, objects(id={"type": "integer"}, user=TEXT), {"id": 2, "user": "bob"})
    assert decoded(registry, old, new).values.to_pylist() == [{"id": 1, "user": None}, {"id": 2, "user": "bob"}]


def test_references_to_other_subjects(registry: SchemaRegistry) -> None:
    registry.add("user", json.dumps({"type": "object", "properties": {"name": TEXT}}), "JSON")
    schema = json.dumps(objects(by={"$ref": "user.json"}, to={"$ref": "user.json#/properties/name"}))
    number = registry.add(SUBJECT, schema, "JSON", [{"name": "user.json", "subject": "user", "version": 1}])
    assert decoded(registry, by_hand(number, b'{"by": {"name": "ann"}, "to": "bob"}')).values.to_pylist() == [
        {"by": {"name": "ann"}, "to": "bob"}
    ]


def test_what_does_not_fit_is_rejected_with_its_field(registry: SchemaRegistry) -> None:
    schema = objects(
        id={"type": "integer"},
        name=TEXT,
        ok={"type": "boolean"},
        amount={"type": "number"},
        at={"type": "string", "format": "date-time"},
        lines={"type": "array", "items": objects(sku=TEXT)},
        tags={"type": "object", "additionalProperties": TEXT},
    )
    number = registry.add(SUBJECT, json.dumps(schema), "JSON")
    broken = {
        b'{"id": 1.5}': "id",
        b'{"id": true}': "id",
        b'{"id": 9223372036854775808}': "id",
        b'{"id": "1"}': "id",
        b'{"name": 1}': "name",
        b'{"ok": 0}': "ok",
        b'{"amount": true}': "amount",
        b'{"at": "2026-01-31T12:00:00"}': "at",
        b'{"at": "0001-01-01T00:00:00+23:00"}': "at",
        b'{"at": 5}': "at",
        b'{"lines": {}}': "lines",
        b'{"lines": [{"sku": 1}]}': "lines[].sku",
        b'{"lines": [3]}': "lines[]",
        b'{"tags": []}': "tags",
        b'{"tags": {"a": 1}}': "tags[]",
    }
    found = decoded(registry, *(by_hand(number, text) for text in broken))
    assert found.reasons == [
        f"the field {name} does not have the type that the schema gives it" for name in broken.values()
    ]


def test_what_is_no_json_object_is_rejected(registry: SchemaRegistry) -> None:
    number = registry.add(SUBJECT, json.dumps(objects(id={"type": "integer"})), "JSON")
    texts = [b"", b"{", b"[1]", b"5", b"null", b'{"id": "\xff"}', b"[" * 200_000, b'{"id": 1} x', b'{"id": 1}']
    no_json, no_object = "the value is not JSON", "the value is not a JSON object"
    assert decoded(registry, *(by_hand(number, text) for text in texts)).reasons == [
        no_json, no_json, no_object, no_object, no_object, no_json, no_json, no_json, None
    ]  # fmt: skip


AGAIN = {"type": "object", "properties": {"a": {"$ref": "#"}}}


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        (objects(a={"type": ["integer", "string"]}), "a has no type, or several"),
        (objects(a={}), "a has no type, or several"),
        (objects(a=True), "a has no type, or several"),
        (objects(a={"anyOf": [TEXT, {"type": "integer"}]}), "a has no type, or several"),
        (objects(a={"type": "array"}), "the items of a have no type"),
        (objects(a={"type": "decimal"}), "a has the type 'decimal'"),
        (objects(a={"$ref": "#/nowhere"}), "refers to '#/nowhere', which is not there"),
        (objects(a={"$ref": "other.json"}), "refers to 'other.json'"),
        (objects(a=TEXT, A=TEXT), "fields a and A"),
        (objects(a={"type": "object"}), "a has no fields"),
        (AGAIN, "contains itself"),
        ({"$ref": "#"}, "contains itself"),
        ({"type": "string"}, "not one of an object"),
        ({"type": "object", "additionalProperties": TEXT}, "not one of an object"),
        ([], "no type, or several"),
    ],
)
def test_schemas_without_columns_are_refused(registry: SchemaRegistry, schema: Any, told: str) -> None:
    registry.add(SUBJECT, json.dumps(schema), "JSON")
    with pytest.raises(BadSchema, match=told):
        decoder_of(HttpRegistry(registry.url), SUBJECT)
