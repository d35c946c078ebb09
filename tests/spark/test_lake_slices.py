"""Rows of a table by the places of their records: cut into slices, read by them, replaced by others. Without Spark."""

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)
from s3_server import BUCKET, s3_server, use

from skidway.spark.lake import Target, open_table
from skidway.spark.lake.slices import IDENTITY, Slice, identities, slices_of
from skidway.spark.lake.staging import Attempt
from skidway.spark.lake.uploading import Part, PartWriter, data_file

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
COLUMNS = pa.schema(
    [
        ("value", pa.binary()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("topic", pa.string()),
        ("reason", pa.string()),
    ]
)
KINDS = [BinaryType(), IntegerType(), LongType(), TimestampType(), StringType(), StringType()]
FRAME: Any = SimpleNamespace(
    schema=StructType([StructField(one.name, kind) for one, kind in zip(COLUMNS, KINDS, strict=True)])
)


def record(topic: str, partition: int, offset: int, size: int = 1) -> dict[str, Any]:
    return {
        "value": b"x" * size,
        "partition": partition,
        "offset": offset,
        "timestamp": NOON + timedelta(seconds=offset),
        "topic": topic,
        "reason": f"reason {offset}",
    }


def table_of(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, COLUMNS)


def test_slices_are_in_order_and_hold_every_record_once() -> None:
    chance = random.Random(7)
    rows = [record(f"t{chance.randrange(2)}", chance.randrange(3), n * 3, chance.randrange(1, 50)) for n in range(400)]
    chance.shuffle(rows)
    rows.append({**rows[0], "timestamp": NOON})  # Of another topic of this name.
    everything = table_of(rows)
    found = list(slices_of(everything.to_batches(max_chunksize=37), rows_max=20, bytes_max=300))
    assert [(one.topic, one.partition, one.begin) for one in found] == sorted(
        (one.topic, one.partition, one.begin) for one in found
    )
    parts = [everything.filter(one.mask(everything)) for one in found]
    assert sorted(identities(pa.concat_tables(parts))) == sorted(identities(everything))
    for part in parts:
        assert part.num_rows <= 21
        assert part.num_rows == 1 or sum(len(one) for one in part["value"].to_pylist()) <= 350
    assert list(slices_of([])) == []


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with s3_server() as address:
        yield address


@pytest.mark.parametrize("kind", ["parquet", "delta"])
def test_a_slice_in_an_object_store_is_replaced(server: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, server)
    check_replacing(Target(f"s3://{BUCKET}/{kind}/table", kind, ["topic"]))


@pytest.mark.parametrize("kind", ["parquet", "delta", "iceberg"])
def test_a_slice_is_replaced_and_nothing_else(tmp_path: Path, kind: str) -> None:
    check_replacing(Target(str(tmp_path / "lake"), kind, ["topic"]))


def check_replacing(target: Target) -> None:
    lake = open_table(target)
    assert list(lake.scan(IDENTITY)) == []
    rows = [record(topic, n % 2, n) for topic in ("it's 100%", "7") for n in range(20)]
    for batch in range(4):
        fill(lake, batch, [row for row in rows if row["offset"] // 5 == batch])
    assert told(lake.scan()) == told([table_of(rows)])
    within = Slice("it's 100%", 1, 3, 12)
    inside = [row for row in rows if row["topic"] == "it's 100%" and row["partition"] == 1 and 3 <= row["offset"] < 12]
    assert told(lake.scan(within=within)) == told([table_of(inside)])
    columns = ["offset", "topic"]
    assert {tuple(batch.schema.names) for batch in lake.scan(columns, within)} == {tuple(columns)}

    read = pa.Table.from_batches(list(lake.scan(within=within)))
    chosen = read.filter(pa.array([offset in (5, 9) for offset in read["offset"].to_pylist()]))
    at = chosen.schema.get_field_index("reason")
    chosen = chosen.set_column(at, chosen.schema.field(at), pa.array(["new"] * 2, chosen.schema.field(at).type))
    outside = [row for row in rows if row not in inside]
    left = [*outside, *({**row, "reason": "new"} for row in inside if row["offset"] in (5, 9))]
    for _ in range(2):  # As a run does that was cut short behind it.
        assert lake.replace(within, chosen)
        assert told(lake.scan()) == told([table_of(left)])
    assert lake.replace(within, chosen.slice(0, 0))
    assert told(open_table(target).scan()) == told([table_of(outside)])
    assert lake.last_batch("query") == 3


def fill(lake: Any, batch: int, rows: list[dict[str, Any]]) -> None:
    """As tasks do it."""
    attempt = Attempt(lake.root, "query", batch)
    attempt.make()
    writer = PartWriter.of(Part(attempt, ["topic"], lake.keeps_partition_columns))
    writer.write(table_of(sorted(rows, key=lambda row: str(row["topic"]))).combine_chunks().to_batches()[0])
    answers = [{name: told for name, told in answer.items() if name != "counts"} for answer in writer.finish()]
    files = [data_file(answer) for answer in answers]
    assert lake.commit("query", batch, files, FRAME)


def told(batches: Any) -> list[dict[str, Any]]:
    rows = [row for batch in batches for row in batch.to_pylist()]
    return sorted(({name: row[name] for name in COLUMNS.names} for row in rows), key=lambda row: identity(row))


def identity(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["topic"], row["partition"], row["offset"], row["timestamp"]
