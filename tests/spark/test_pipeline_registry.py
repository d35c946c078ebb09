"""archive of values framed for a schema registry: columns by the newest schema, each record once, rejects by reason."""

import datetime
import json
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient, header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pipeline_topics import new_topic, put
from pyspark.errors import StreamingQueryException
from pyspark.sql.types import StructType
from queries import to_the_end
from schema_registry import SchemaRegistry, serving

from skidway.spark.pipelines.archive import Archive, ArchiveOptions
from skidway.spark.pipelines.options import ONCE, BadPipeline
from skidway.spark.registry import http
from skidway.spark.registry.decoding import decoder_of
from skidway.spark.registry.frame_columns import ddl_of, from_registry
from skidway.spark.registry.http import HttpRegistry

PRICE = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
AT = {"type": "long", "logicalType": "timestamp-millis"}
NOON = datetime.datetime(2026, 1, 31, 12, tzinfo=datetime.UTC)
FIRST = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "int"}, {"name": "user", "type": "string"}, {"name": "at", "type": AT}],
}
SECOND = {
    **FIRST,
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "user", "type": "string"},
        {"name": "at", "type": AT},
        {"name": "price", "type": ["null", PRICE], "default": None},
        {"name": "lines", "type": {"type": "array", "items": "string"}, "default": ["none"]},
    ],
}


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    with serving() as registry:
        yield registry


def framed(registry: SchemaRegistry, topic: str, schema: Any, value: Any, **settings: Any) -> bytes:
    client = SchemaRegistryClient({"url": registry.url})
    made = AvroSerializer(client, json.dumps(schema), conf=settings)(
        value, SerializationContext(topic, MessageField.VALUE, headers=[])
    )
    assert isinstance(made, bytes)
    return made


def run(spark: Any, archive: Archive) -> None:
    to_the_end(lambda: archive.start(spark, ONCE))


def table(path: str, kind: str) -> list[dict[str, Any]]:
    import pyarrow.dataset as ds
    from deltalake import DeltaTable

    found = DeltaTable(path).to_pyarrow_table() if kind == "delta" else None
    if found is None:
        import pyarrow.parquet as pq

        found = ds.dataset(path, schema=pq.read_schema(f"{path}/_common_metadata"), partitioning="hive").to_table()
    rows: list[dict[str, Any]] = found.to_pylist()
    return rows


@pytest.mark.parametrize("kind", ["parquet", "delta"])
def test_mixed_versions_are_archived_once_and_what_is_broken_is_set_aside(
    spark: Any, bootstrap: str, tmp_path: Path, registry: SchemaRegistry, kind: str
) -> None:
    topic = new_topic(bootstrap, "framed")
    old = [framed(registry, topic, FIRST, {"id": n, "user": f"u{n}", "at": NOON}) for n in range(50)]
    broken = [b"no frame", b"\0\0\0\0\x63rest", old[0][:-9], old[0] + b"x", None, b"\0\0"]
    options = ArchiveOptions(
        topic=[topic],
        bootstrap=bootstrap,
        path=str(tmp_path / "orders"),
        format=kind,
        registry=registry.url,
        require=["id"],
        expect=["id < 100"],
        event_time="at",
        hash=["user"],
        rejected_values="keep",
        salt_file=str(tmp_path / "salt"),
        partition_by=["date"],
        checkpoint=str(tmp_path / "checkpoint"),
    )
    (tmp_path / "salt").write_bytes(b"s" * 32)
    put(bootstrap, topic, [*old, *broken])
    before = Archive(options)
    run(spark, before)
    # Written and registered after that archive was made: its next batch has the new columns.
    new = [
        framed(registry, topic, SECOND, {"id": n, "user": "ann", "at": NOON, "price": Decimal("1.50"), "lines": []})
        for n in (60, 61, 2**40)
    ]
    put(bootstrap, topic, new + old[:1])
    run(spark, before)

    rows = table(options.path, kind)
    assert Counter(row["value"]["id"] for row in rows) == Counter([*range(50), 60, 61, 0])
    assert {row["value"]["price"] for row in rows} == {None, Decimal("1.50")}
    assert {str(row["date"]) for row in rows} == {"2026-01-31"}
    assert {row["value"]["at"] for row in rows} == {NOON}
    assert len({row["value"]["user"] for row in rows}) == 51
    assert {len(row["value"]["user"]) for row in rows} == {64}
    # Of old values that were read by the new schema, the default; of those that were there before, null.
    assert Counter(str(row["value"]["lines"]) for row in rows) == {"None": 50, "[]": 2, "['none']": 1}
    assert before.counts() == {
        "rejected": 7,
        "rejected (the value ends within its frame)": 1,
        "rejected (the value has no frame of a schema registry: its first byte is not 0)": 1,
        "rejected (the registry does not know the id of its schema)": 1,
        "rejected (the field user does not decode)": 1,
        "rejected (bytes are left over behind the value)": 1,
        "rejected (the value is null)": 1,
        "rejected (not true: id < 100)": 1,
    }
    rejected = table(f"{options.path}-rejected", kind)
    assert Counter(row["value"] for row in rejected) == Counter([*broken, new[2]])


def test_the_schema_may_be_named_in_a_header(
    spark: Any, bootstrap: str, tmp_path: Path, registry: SchemaRegistry
) -> None:
    topic = new_topic(bootstrap, "headers", 1)
    context = SerializationContext(topic, MessageField.VALUE, headers=[])
    serializer = AvroSerializer(
        SchemaRegistryClient({"url": registry.url}),
        json.dumps(FIRST),
        conf={"schema.id.serializer": header_schema_id_serializer},
    )
    value = serializer({"id": 7, "user": "ann", "at": NOON}, context)
    put(bootstrap, topic, [value], headers=tuple(context.headers or ()))
    put(bootstrap, topic, [framed(registry, topic, FIRST, {"id": 8, "user": "bob", "at": NOON})])
    frame = spark.read.format("skidway").options(
        **{"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "includeHeaders": "true"}
    )
    found = from_registry(frame.load(), registry.url, f"{topic}-value")
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        rows = found.selectExpr("value.id", "unix_millis(value.at)", "reason").orderBy("offset").collect()
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    millis = int(NOON.timestamp() * 1000)
    assert [tuple(row) for row in rows] == [(7, millis, None), (8, millis, None)]


FORMATS = {
    "avro": (".avsc", json.dumps(SECOND | {"fields": SECOND["fields"][:2]}), b"\x0e\x06ann"),
    "protobuf": (
        ".proto",
        'syntax = "proto3"; message Order { int64 id = 1; string user = 2; }',
        b"\0\x08\x07\x12\x03ann",
    ),
    "json": (
        ".json",
        '{"type": "object", "properties": {"id": {"type": "integer"}, "user": {"type": "string"}}}',
        b'{"id": 7, "user": "ann"}',
    ),
}


def test_every_format_is_decoded_by_tasks_of_any_frame(spark: Any, tmp_path: Path) -> None:
    for number, (name, (ending, schema, payload)) in enumerate(FORMATS.items(), start=1):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"1-{number}{ending}").write_text(schema)
        values = [(0, b"\0" + number.to_bytes(4, "big") + payload), (1, b"\0\0\0\0\x09"), (2, None)]
        found = from_registry(spark.createDataFrame(values, "n int, value binary"), str(tmp_path), name)
        assert [(row.n, row.value and row.value.asDict(), row.reason) for row in found.orderBy("n").collect()] == [
            (0, {"id": 7, "user": "ann"}, None),
            (1, None, "the registry does not know the id of its schema"),
            (2, None, "the value is null"),
        ]


def test_a_registry_that_is_gone_ends_the_run_and_rejects_nothing(
    spark: Any, bootstrap: str, tmp_path: Path, registry: SchemaRegistry
) -> None:
    topic = new_topic(bootstrap, "gone", 1)
    put(bootstrap, topic, [framed(registry, topic, FIRST, {"id": 1, "user": "ann", "at": NOON})])
    options = ArchiveOptions(
        topic=[topic],
        bootstrap=bootstrap,
        path=str(tmp_path / "orders"),
        registry=registry.url,
        checkpoint=str(tmp_path / "checkpoint"),
    )
    archive = Archive(options)
    registry.fail = [500] * http.ATTEMPTS
    with pytest.raises(StreamingQueryException, match="cannot be asked: it answers 500"):
        run(spark, archive)
    after = Archive(options)
    run(spark, after)
    assert [row["value"]["id"] for row in table(options.path, "parquet")] == [1]
    assert (archive.counts(), after.counts()) == ({}, {})


def test_columns_survive_the_way_through_text(spark: Any, registry: SchemaRegistry) -> None:
    from pyspark.sql.pandas.types import from_arrow_type

    odd = {
        "type": "object",
        "properties": {
            "two words": {"type": "string"},
            "back`tick": {"type": "array", "items": {"type": "object", "properties": {"a:b": {"type": "integer"}}}},
            "select": {"type": "object", "additionalProperties": {"type": "number"}},
        },
    }
    registry.add("odd-value", json.dumps(odd), "JSON")
    registry.add("orders-value", SECOND)
    for subject in ("odd-value", "orders-value"):
        decoder = decoder_of(HttpRegistry(registry.url), subject)
        assert StructType.fromDDL(ddl_of(decoder.type)) == from_arrow_type(decoder.type)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"schema": "id int"}, "leave out schema and parse"),
        ({"parse": "json"}, "leave out schema and parse"),
        ({"topic": ["a", "b"]}, "several topics have several subjects"),
        ({"registry": None, "subject": "s"}, "need a registry"),
        ({"registry": None, "message": "M"}, "need a registry"),
        ({"registry": "nowhere"}, "there is no folder 'nowhere'"),
        ({"registry": "http://u:p@host"}, "credentials do not go into"),
        ({"subject": "none"}, "has no subject none"),
        ({"subject": "union"}, "v is a union of 2 types"),
        ({"subject": "orders-value", "message": "M"}, "no Protobuf schema"),
        ({"subject": "orders-value", "hash": ["nothing"]}, "there is no field nothing to mask"),
    ],
)
def test_what_cannot_be_is_refused_before_spark_starts(
    registry: SchemaRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: dict[str, Any], told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SKIDWAY_MASK_SALT", "s" * 32)
    registry.add("orders-value", FIRST)
    registry.add("union", {**FIRST, "fields": [{"name": "v", "type": ["int", "string"]}]})
    with pytest.raises(BadPipeline, match=told):
        Archive(ArchiveOptions(**{"topic": ["orders"], "path": "x", "registry": registry.url, **given}))
    assert list(tmp_path.iterdir()) == []
