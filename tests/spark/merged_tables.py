"""Changes of keys that are numbers, for tests of merged tables. Without Spark."""

from types import SimpleNamespace
from typing import Any

import pyarrow as pa
from pyspark.sql.types import BooleanType, LongType, StringType, StructField, StructType

from skidway.spark.lake import Span, Target
from skidway.spark.lake.changes import Change, Position
from skidway.spark.lake.merged_rows import Changes, Merged
from skidway.spark.lake.merging import merge_batch, open_merged

FORMATS = ("delta", "iceberg")
COLUMNS = {"__key": StringType(), "__deleted": BooleanType(), "__position": StringType(), "n": LongType()}
FRAME: Any = SimpleNamespace(
    schema=StructType([StructField(name, kind) for name, kind in COLUMNS.items()]), columns=list(COLUMNS)
)
ID = "ab" * 16


def changes(begin: int, end: int, *, kind: str = "c", lsn: int = 0, at: int | None = None) -> Changes:
    """Of keys that are numbers, as are their rows, and their offsets unless these begin elsewhere."""
    shift = 0 if at is None else at - begin
    found = [
        Change(str(n), kind, ("shop", 0, n + shift), Position((("lsn", lsn + n),)), n - begin)
        for n in range(begin, end)
    ]
    return Changes(found, pa.table({"n": pa.array(range(begin, end), pa.int64())}))


def span(begin: int, end: int) -> Span:
    return Span({(ID, 0): end}, {(ID, 0): begin}, {ID: "shop"})


def merge(table: Any, query: str, batch: int, begin: int, end: int, made: Changes | None = None) -> Merged:
    return merge_batch(table, made or changes(begin, end), FRAME, query, batch, span=span(begin, end))


def rows(where: Target) -> list[int]:
    found = open_merged(where).read()
    assert found is not None
    assert len(set(found.column("__key").to_pylist())) == found.num_rows
    return sorted(row["n"] for row in found.to_pylist() if not row["__deleted"])
