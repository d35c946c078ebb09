"""Rows of a batch as Parquet files, written by the tasks themselves, into an object store or an attempt's folder.

In an object store a task writes each file to a temporary one of its own and uploads it whole, under the name that it
keeps: an object is there or it is not. Elsewhere it is staged in the attempt's folder. Names are those of no other
attempt and no other task, so nothing is ever replaced. A task answers what it wrote; only what tasks answered is
committed. A task that runs again leaves files that are in no commit.

Several tables can be filled in one pass over the rows: each has a column of structs, which are its rows, and null where
a row is not for it.
"""

import json
import os
import re
import secrets
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from skidway.spark.lake.staging import NO_VALUE, Attempt, DataFile
from skidway.spark.lake.statistics import delta_statistics
from skidway.spark.objects import Bucket

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ANSWER = (
    "part int, path string, partition string, rows long, bytes long, staged string, modified_ms long,"
    " statistics string, counts string"
)
UNSAFE = re.compile(r"[\x00-\x1f\"#%'*/:=?\\\x7f{}\[\]^]")
"""As Hive and Spark escape them in the names of folders."""


@dataclass(slots=True)
class Part:
    """The rows of one table among those of a frame."""

    attempt: Attempt
    partition_by: list[str]
    keep_columns: bool
    column: str | None = None
    """Of structs, which are the rows; None: all of the frame is."""
    count_by: str | None = None
    """A column whose values are counted."""


@dataclass(slots=True)
class Filled:
    files: list[DataFile] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)


def fill(frame: "DataFrame", parts: Sequence[Part]) -> list[Filled]:
    """Every row of the frame in files of its part's attempt."""
    order = [f"{part.column}.{name}" if part.column else name for part in parts for name in part.partition_by]
    for part in parts:
        part.attempt.make()
    rows = frame.sortWithinPartitions(*order) if order else frame
    filled = [Filled() for _ in parts]
    for answer in rows.mapInArrow(Filler([PartWriter.of(part) for part in parts]), ANSWER).collect():
        told = answer.asDict()
        one, counts = filled[told.pop("part")], json.loads(told.pop("counts"))
        one.files.append(data_file(told))
        for value, count in counts.items():
            one.counts[value] = one.counts.get(value, 0) + count
    return filled


def data_file(answer: dict[str, Any]) -> DataFile:
    staged = Path(answer["staged"]) if answer["staged"] else None
    return DataFile(**{**answer, "partition": json.loads(answer["partition"]), "staged": staged})


@dataclass(slots=True)
class Filler:
    """What a task does with its rows, which come sorted by the columns to partition by."""

    writers: "list[PartWriter]"

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for writer in self.writers:
                writer.write(batch)
        answers = [{"part": n, **answer} for n, writer in enumerate(self.writers) for answer in writer.finish()]
        if answers:
            yield pa.RecordBatch.from_pylist(answers, schema=ANSWER_SCHEMA)


@dataclass(slots=True)
class PartWriter:
    """Can be pickled until it has written something."""

    place: Path | Bucket
    prefix: str
    partition_by: list[str]
    keep_columns: bool
    column: str | None = None
    count_by: str | None = None
    _answers: list[dict[str, Any]] = field(default_factory=list)
    _writing: "_File | None" = None
    _store: Any = None

    @classmethod
    def of(cls, part: Part) -> "PartWriter":
        attempt = part.attempt
        place = attempt.folder if isinstance(attempt.root, Path) else attempt.root
        return cls(place, attempt.name_prefix, part.partition_by, part.keep_columns, part.column, part.count_by)

    def write(self, batch: pa.RecordBatch) -> None:
        if self.column is not None:
            rows = batch.column(self.column)
            batch = pa.RecordBatch.from_struct_array(rows.filter(rows.is_valid()))
        for values, run in runs(batch, self.partition_by):
            if self._writing is not None and self._writing.values != values:
                self._end_file()
            kept = run if self.keep_columns else run.drop_columns(self.partition_by)
            if self._writing is None:
                self._writing = self._begin_file(values, kept.schema)
            self._writing.write(kept, run.column(self.count_by) if self.count_by else None)

    def finish(self) -> list[dict[str, Any]]:
        self._end_file()
        return self._answers

    def _begin_file(self, values: tuple[str | None, ...], schema: pa.Schema) -> "_File":
        folders = [f"{name}={escaped(value)}/" for name, value in zip(self.partition_by, values, strict=True)]
        name = f"{self.prefix}-{secrets.token_hex(6)}.parquet"
        staged = self.place / name if isinstance(self.place, Path) else None
        partition = dict(zip(self.partition_by, values, strict=True))
        return _File("".join(folders) + name, partition, schema, staged)

    def _end_file(self) -> None:
        if self._writing is None:
            return
        if isinstance(self.place, Bucket) and self._store is None:
            self._store = self.place.connect()
        self._answers.append(self._writing.finish(self._store))
        self._writing = None


class _File:
    def __init__(self, path: str, partition: dict[str, str | None], schema: pa.Schema, staged: Path | None) -> None:
        self.path = path
        self.partition = partition
        self._staged = staged
        # Closed by finish, or with the task.
        self._file: Any = tempfile.TemporaryFile() if staged is None else staged.open("w+b")  # noqa: SIM115
        # Without Arrow's own schema: readers then see times in UTC, whatever the session's time zone was.
        self._writer = pq.ParquetWriter(self._file, schema, store_schema=False)
        self._rows = 0
        self._counts: Counter[str] = Counter()

    @property
    def values(self) -> tuple[str | None, ...]:
        return tuple(self.partition.values())

    def write(self, rows: pa.RecordBatch, counted: pa.Array | None) -> None:
        self._writer.write_batch(rows)
        self._rows += rows.num_rows
        if counted is not None:
            self._counts.update({one["values"]: one["counts"] for one in pc.value_counts(counted).to_pylist()})

    def finish(self, store: Any) -> dict[str, Any]:
        self._writer.close()
        size = self._file.tell()
        self._file.seek(0)
        statistics = delta_statistics(pq.read_metadata(self._file))
        if self._staged is None:
            import obstore

            self._file.seek(0)
            obstore.put(store, self.path, self._file)
        else:
            self._file.flush()
            os.fsync(self._file.fileno())
        self._file.close()
        return {
            "path": self.path,
            "partition": json.dumps(self.partition),
            "rows": self._rows,
            "bytes": size,
            "staged": "" if self._staged is None else str(self._staged),
            "modified_ms": time.time_ns() // 1_000_000,
            "statistics": statistics,
            "counts": json.dumps(self._counts),
        }


def runs(batch: pa.RecordBatch, columns: Sequence[str]) -> Iterator[tuple[tuple[str | None, ...], pa.RecordBatch]]:
    """Slices of rows that have the same values in these columns, with the values as text."""
    if not batch.num_rows:
        return
    ends = {batch.num_rows}
    for name in columns:
        encoded = pc.run_end_encode(batch.column(name))
        ends.update(encoded.run_ends.to_pylist())
    begin = 0
    for end in sorted(ends):
        yield tuple(text_of(batch.column(name)[begin].as_py()) for name in columns), batch.slice(begin, end - begin)
        begin = end


def text_of(value: Any) -> str | None:
    """As Delta and Hive write a partition's value. A text that is empty is none, as Spark has it."""
    if value is None or value == "":
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return value.decode("latin-1")
    return str(value)


def escaped(value: str | None) -> str:
    return NO_VALUE if value is None else UNSAFE.sub(lambda found: quote(found[0], safe=""), value)


ANSWER_SCHEMA = pa.schema(
    [
        ("part", pa.int32()),
        ("path", pa.string()),
        ("partition", pa.string()),
        ("rows", pa.int64()),
        ("bytes", pa.int64()),
        ("staged", pa.string()),
        ("modified_ms", pa.int64()),
        ("statistics", pa.string()),
        ("counts", pa.string()),
    ]
)
