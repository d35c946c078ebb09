"""What a table is asked for, whatever its format, and the one way a batch gets into it."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from skidway.spark.lake.positions import Advance, Gap, Known, Place, Positions, Span, Whole, advance, judge
from skidway.spark.lake.slices import Slice
from skidway.spark.lake.staging import Attempt, DataFile, stage, sweep_decided, sync
from skidway.spark.lake.target import BadTable, Target
from skidway.spark.objects import Bucket

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


@dataclass(slots=True)
class Written:
    """What became of a batch; `skipped`: it was in the table already."""

    rows: int = 0
    files: int = 0
    bytes: int = 0
    skipped: bool = False
    counts: dict[str, int] = field(default_factory=dict)
    """Rows by the values of a column, where that was asked for."""

    def add(self, other: "Written") -> None:
        self.rows, self.files, self.bytes = self.rows + other.rows, self.files + other.files, self.bytes + other.bytes


class BadCommit(RuntimeError):
    """A commit was refused for no reason that is known. The batch is not in the table, and will be written again."""


class BatchesMissing(RuntimeError):
    """The table does not have what came before the batch."""


LOOKS_MAX = 5
"""At a table that others commit to at the same time."""


class Table(Protocol):
    root: Path | Bucket
    partition_by: list[str]
    keeps_partition_columns: bool

    def exists(self) -> bool:
        """Whether something was ever committed to it."""
        ...

    def last_batch(self, query: str) -> int:
        """The newest batch of the query in the table; -1 if there is none. Completes a commit a crash cut short."""
        ...

    def accept(self, frame: "DataFrame") -> None:
        """BadTable, before anything is written, if it cannot take rows with these columns."""
        ...

    def positions(self, places: Iterable[Place]) -> Positions:
        """How far it has come in those of these partitions that it knows."""
        ...

    def topic_ids(self, name: str) -> list[str]:
        """The ids, or their beginnings, of the topics of this name that it has rows of."""
        ...

    def commit(
        self, query: str, batch: int, files: Sequence[DataFile], frame: "DataFrame", advance: Advance | None = None
    ) -> bool:
        """All files, the batch's number and the positions behind it, or nothing. False: another driver was quicker.

        Number and positions are looked at in the state of the table that the commit is laid over, and a table that has
        changed since refuses the commit: whatever two drivers do at once, a row is there once.
        """
        ...

    def scan(self, columns: Sequence[str] = (), within: Slice | None = None) -> "Iterator[pa.RecordBatch]":
        """These columns of the rows, all without a choice; nothing if there is no table."""
        ...

    def replace(self, within: Slice, rows: "pa.Table") -> bool:
        """Of the rows in the slice only these stay, with all their columns. May be done again after a crash.

        False: another driver has changed the table meanwhile; look again.
        """
        ...

    def read(self) -> "pa.Table | None":
        """All rows, for small tables and tests; None if no batch was committed yet."""
        ...


def open_table(target: Target) -> Table:
    """BadTable, before anything is written, if there can be no such table."""
    target.check()
    if target.format == "parquet":
        from skidway.spark.lake.parquet import ParquetTable

        return ParquetTable(target)
    if target.format == "delta":
        from skidway.spark.lake.delta import DeltaLakeTable

        return DeltaLakeTable(target)
    from skidway.spark.lake.iceberg import IcebergTable

    return IcebergTable(target)


@dataclass(slots=True)
class Plan:
    """What is to be written of a batch: all of it, or what is not below these offsets (by topic and partition).

    `number` is that of the batch, unless the table has a greater one of the query: an older copy of a checkpoint counts
    from where it was, and positions tell what is new. Numbers in a table grow, so no attempt at an old one counts.
    """

    number: int
    advance: Advance | None = None
    below: dict[tuple[str, int], int] = field(default_factory=dict)


def plan(table: Table, query: str, batch: int, span: Span | None, *, follows: bool = True) -> Plan | None:
    """None if the table has the batch. `follows`: each batch begins where the one before it ended."""
    last = table.last_batch(query)
    sweep_decided(table.root, query, last)
    has = {} if span is None else table.positions(span.ends)
    if span is None or not has:
        # By numbers: of a table that an older version has written too.
        return None if batch <= last else Plan(batch, None if span is None else advance(has, span))
    verdict = judge(has, span)
    if isinstance(verdict, Known):
        return None
    if isinstance(verdict, Gap) and follows and last != batch - 1:
        raise BatchesMissing(
            f"the table has {verdict.topic} partition {verdict.partition} to offset {verdict.has}, and the checkpoint"
            f" goes on at {verdict.begins}: what lies between would be in no batch. Was the table restored to an older"
            " state? Start the pipeline with a new checkpoint: it goes on where the table ends"
        )
    return Plan(max(batch, last + 1), advance(has, span), {} if isinstance(verdict, Whole) else verdict.below)


def write_batch(
    table: Table,
    frame: "DataFrame",
    query: str,
    batch: int,
    *,
    permit: Callable[[], None] = lambda: None,
    span: Span | None = None,
) -> Written:
    """The rows of one batch into the table, unless they are there. Any crash inside leaves it to be called again.

    `permit` raises where this driver may not commit any more; it is called right before the commit. `span`: the offsets
    of the batch, whose rows then have columns topic, partition and offset; the table keeps them as its positions.
    """
    check_columns(table, frame)
    for _ in range(LOOKS_MAX):
        planned = plan(table, query, batch, span)
        if planned is None:
            return Written(skipped=True)
        attempt = Attempt(table.root, query, planned.number)
        files = _files(table, above(frame, planned.below), attempt)
        if not files and planned.advance is None:
            attempt.sweep()
            return Written()
        permit()
        committed = table.commit(query, planned.number, files, frame, planned.advance)
        attempt.sweep()
        if committed:
            return Written(sum(file.rows for file in files), len(files), sum(file.bytes for file in files))
    raise BadCommit(f"the table refused batch {batch} and does not have it; start the pipeline again")


def above(frame: "DataFrame", below: Mapping[tuple[str, int], int]) -> "DataFrame":
    """Without the rows that the table has."""
    return frame.where(is_above(below)) if below else frame


def is_above(below: Mapping[tuple[str, int], int]) -> str:
    """The same in SQL."""
    if not below:
        return "true"
    cases = [
        f"WHEN topic = {literal(topic)} AND partition = {partition} THEN {offset}"
        for (topic, partition), offset in sorted(below.items())
    ]
    return f"offset >= CASE {' '.join(cases)} ELSE 0 END"


def literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def check_columns(table: Table, frame: "DataFrame") -> None:
    """BadTable if the table cannot take these rows."""
    missing = [name for name in table.partition_by if name not in frame.columns]
    if missing:
        raise BadTable(f"no column {', '.join(missing)} to partition by; there are {', '.join(frame.columns)}")
    table.accept(frame)


def _files(table: Table, frame: "DataFrame", attempt: Attempt) -> list[DataFile]:
    if isinstance(table.root, Bucket):
        from skidway.spark.lake.uploading import Part, fill

        return fill(frame, [Part(attempt, list(table.partition_by), table.keeps_partition_columns)])[0].files
    files = stage(frame, attempt, table.partition_by, keep_columns=table.keeps_partition_columns)
    sync(files)
    return files
