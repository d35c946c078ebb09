"""Spark's own ceiling: a data source whose rows are ready in memory, and a sink that only counts.

`format("memory-rows")` hands over Arrow tables that were prepared in files (option `files`), mapped into each Python
worker once and kept; nothing is fetched, decoded or sent. What it reaches, no source and no sink in Python can pass:
it also spares the workers what Skidway's connector spares them (`skidway.spark.workers`).
"""

from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from skidway.spark.workers import settle, settled

NAME = "memory-rows"


@cache
def prepared(path: str, columns: tuple[str, ...]) -> list[pa.RecordBatch]:
    with pa.ipc.open_file(pa.memory_map(path)) as file:
        return [file.get_batch(number).select(columns) for number in range(file.num_record_batches)]


class MemoryRows(DataSource):
    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        return NAME

    def reader(self, schema: StructType) -> "MemoryReader":
        return MemoryReader(self.options["files"], schema)

    def streamReader(self, schema: StructType) -> "MemoryStreamReader":  # noqa: N802
        return MemoryStreamReader(self.options["files"], schema)

    def writer(self, schema: StructType, overwrite: bool) -> "CountingWriter":
        return CountingWriter(int(self.options["rows"]))

    def streamWriter(self, schema: StructType, overwrite: bool) -> "CountingStreamWriter":  # noqa: N802
        return CountingStreamWriter(int(self.options["rows"]))


class _Reading:
    def __init__(self, folder: str, schema: StructType) -> None:
        self.folder = folder
        self.columns = tuple(schema.fieldNames())

    def files(self) -> list[InputPartition]:
        """A task for each; none if there is no such folder."""
        return [InputPartition(str(path)) for path in sorted(Path(self.folder).glob("*.arrow"))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return settled(iter(prepared(partition.value, self.columns)))


class MemoryReader(_Reading, DataSourceReader):
    def partitions(self) -> list[InputPartition]:
        return self.files()


class MemoryStreamReader(_Reading, DataSourceStreamReader):
    """All rows in the first micro-batch."""

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return {"at": 0}

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:  # noqa: N802
        return {"at": 1}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return self.files() if start != end else []


@dataclass(slots=True)
class Counted(WriterCommitMessage):
    rows: int


class _Counting:
    def __init__(self, rows: int) -> None:
        self.rows = rows

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Counted:
        counted = Counted(sum(batch.num_rows for batch in iterator))
        settle()
        return counted

    def check(self, messages: list[WriterCommitMessage | None]) -> None:
        counted = sum(message.rows for message in messages if isinstance(message, Counted))
        assert counted == self.rows, f"{counted} rows arrived, not {self.rows}"


class CountingWriter(_Counting, DataSourceArrowWriter):
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self.check(messages)


class CountingStreamWriter(_Counting, DataSourceStreamArrowWriter):
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        self.check(messages)
