"""Columns that change while rows come in: added, widened, left out, refused. In each format, without Spark."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import StructType, _parse_datatype_json_string

from skidway.spark.lake import BadTable, Target, open_table, rewriting
from skidway.spark.lake.evolution import arrow_of, compare, loosened
from skidway.spark.lake.staging import Attempt
from skidway.spark.lake.uploading import Part, PartWriter, data_file

FORMATS = ("parquet", "delta", "iceberg")
QUERY = "11111111-aaaa"
KINDS = {"int": "integer", "bigint": "long"}


def struct(**fields: Any) -> StructType:
    """int, long, string, or a dict for a struct."""
    import json

    def of(kind: Any) -> Any:
        if isinstance(kind, dict):
            told = [{"name": n, "type": of(k), "nullable": True, "metadata": {}} for n, k in kind.items()]
            return {"type": "struct", "fields": told}
        if isinstance(kind, list):
            return {"type": "array", "elementType": of(kind[0]), "containsNull": True}
        return KINDS.get(kind, kind)

    parsed = _parse_datatype_json_string(json.dumps(of(fields)))
    assert isinstance(parsed, StructType)
    return parsed


FIRST = struct(id="int", colour="string", v={"a": "int"})
ADDED = struct(id="int", colour="string", v={"a": "int", "b": "string", "deep": {"x": "double"}}, note="string")
WIDE = struct(id="bigint", colour="string", v={"a": "bigint", "b": "string"})


def write(where: Target, batch: int, schema: StructType, rows: list[dict[str, Any]]) -> None:
    lake = open_table(where)
    frame: Any = SimpleNamespace(schema=schema, columns=schema.fieldNames())
    lake.accept(frame)
    attempt = Attempt(lake.root, QUERY, batch)
    attempt.make()
    writer = PartWriter.of(Part(attempt, lake.partition_by, lake.keeps_partition_columns))
    writer.write(pa.RecordBatch.from_pylist(rows, schema=arrow_of(schema)))
    files = [data_file({name: value for name, value in one.items() if name != "counts"}) for one in writer.finish()]
    assert lake.commit(QUERY, batch, files, frame)
    attempt.sweep()


def rows_of(where: Target) -> list[dict[str, Any]]:
    """By a reader that is not the writer."""
    if where.format == "parquet":
        schema = pq.read_schema(Path(where.path, "_common_metadata"))
        found = ds.dataset(where.path, schema=schema, partitioning="hive").to_table()
    elif where.format == "delta":
        from deltalake import DeltaTable

        found = DeltaTable(where.path).to_pyarrow_table()
    else:
        table = open_table(where).read()
        assert table is not None
        found = table
    return sorted(found.to_pylist(), key=lambda row: int(row["id"]))


@pytest.fixture(autouse=True)
def no_power_loss_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.mark.parametrize("partition_by", [[], ["colour"]], ids=["flat", "partitioned"])
@pytest.mark.parametrize("kind", FORMATS)
def test_fields_are_added_and_types_widened_in_mid_stream(tmp_path: Path, kind: str, partition_by: list[str]) -> None:
    where = Target(str(tmp_path / "table"), kind, partition_by)
    write(where, 0, FIRST, [{"id": 1, "colour": "red: 1/2", "v": {"a": 1}}, {"id": 2, "colour": None, "v": None}])
    write(where, 1, ADDED, [{"id": 3, "colour": "x", "v": {"a": 3, "b": "c", "deep": {"x": 0.5}}, "note": "n"}])
    write(where, 2, WIDE, [{"id": 2**40, "colour": "x", "v": {"a": 2**41, "b": "d"}}])
    none = {"b": None, "deep": None}
    assert rows_of(where) == [
        {"id": 1, "colour": "red: 1/2", "v": {"a": 1, **none}, "note": None},
        {"id": 2, "colour": None, "v": None, "note": None},
        {"id": 3, "colour": "x", "v": {"a": 3, "b": "c", "deep": {"x": 0.5}}, "note": "n"},
        {"id": 2**40, "colour": "x", "v": {"a": 2**41, "b": "d", "deep": None}, "note": None},
    ]


@pytest.mark.parametrize("kind", FORMATS)
def test_what_cannot_be_is_refused_before_anything_is_written(tmp_path: Path, kind: str) -> None:
    where = Target(str(tmp_path / "table"), kind)
    write(where, 0, WIDE, [{"id": 1, "colour": "x", "v": {"a": 1, "b": "c"}}])
    before = sorted(str(path) for path in tmp_path.rglob("*"))
    for given, told in (
        (struct(id="int"), "id is bigint in the table and int in the rows, which is narrower"),
        (struct(v={"a": "string"}), "v.a is bigint in the table and string in the rows"),
        (struct(v="string"), "v is struct<a:bigint,b:string> in the table and string in the rows"),
        (struct(colour=["string"]), r"colour is string in the table and array<string> in the rows"),
    ):
        with pytest.raises(BadTable, match="another path; nothing was written") as refusal:
            open_table(where).accept(SimpleNamespace(schema=given))  # type: ignore[arg-type]
        assert told in str(refusal.value)
    assert sorted(str(path) for path in tmp_path.rglob("*")) == before


def test_a_large_delta_table_is_not_written_anew_in_passing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where = Target(str(tmp_path / "table"), "delta")
    write(where, 0, FIRST, [{"id": 1, "colour": "x", "v": {"a": 1}}])
    monkeypatch.setattr(rewriting, "REWRITE_BYTES_MAX", 10)
    with pytest.raises(BadTable, match=r"id, v\.a of the Delta table at .* cannot be widened in passing"):
        open_table(where).accept(SimpleNamespace(schema=WIDE))  # type: ignore[arg-type]


def test_the_difference_of_two_sets_of_columns() -> None:
    there = struct(id="int", price="float", tags=[{"k": "int"}], d="decimal(5,2)")
    change = compare(
        there, struct(id="bigint", tags=[{"k": "bigint", "n": "string"}], price="double", d="decimal(9,2)")
    )
    assert change.added == ["tags[].n"]
    assert change.widened == ["id", "price", "tags[].k", "d"]
    assert not change.refused
    assert compare(change.merged, loosened(there)).refused == [
        "id is bigint in the table and int in the rows, which is narrower",
        "price is double in the table and float in the rows, which is narrower",
        "tags[].k is bigint in the table and int in the rows, which is narrower",
        "d is decimal(9,2) in the table and decimal(5,2) in the rows, which is narrower",
    ]
    assert compare(there, struct(d="decimal(9,3)", id="double")).refused == [
        "id is int in the table and double in the rows",
        "d is decimal(5,2) in the table and decimal(9,3) in the rows",
    ]
