"""What a table is asked for, whatever its format, and the one way a batch gets into it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from skidway.spark.lake.staging import DataFile, stage, sweep, sync
from skidway.spark.lake.target import BadTable, Target

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


class Table(Protocol):
    root: Path
    partition_by: list[str]
    keeps_partition_columns: bool

    def last_batch(self, query: str) -> int:
        """The newest batch of the query in the table; -1 if there is none. Completes a commit a crash cut short."""
        ...

    def commit(self, query: str, batch: int, files: Sequence[DataFile], frame: "DataFrame") -> None:
        """All files and the batch's number, or nothing."""
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


def write_batch(table: Table, frame: "DataFrame", query: str, batch: int) -> Written:
    """The rows of one batch into the table, unless they are there. Any crash inside leaves it to be called again."""
    if batch <= table.last_batch(query):
        sweep(table.root, query, batch)
        return Written(skipped=True)
    missing = [name for name in table.partition_by if name not in frame.columns]
    if missing:
        raise BadTable(f"no column {', '.join(missing)} to partition by; there are {', '.join(frame.columns)}")
    files = stage(frame, table.root, query, batch, table.partition_by, keep_columns=table.keeps_partition_columns)
    if files:
        sync(files)
        table.commit(query, batch, files, frame)
    sweep(table.root, query, batch)
    return Written(sum(file.rows for file in files), len(files), sum(file.bytes for file in files))
