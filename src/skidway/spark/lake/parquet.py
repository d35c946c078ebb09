"""A folder of Parquet files that any tool reads as it is: no duplicate and no torn batch in it, once a run has ended.

Spark's own file sink keeps a log of its files, which only Spark honours: another reader also sees what failed
attempts left behind. Here the files of a batch are named in a manifest first (`_skidway/<query>/batch.json`, replaced
atomically: the decision), then renamed into the table. A crash before the manifest leaves nothing visible; one after
it is completed by the next `last_batch`. While the renames run, and only then, a reader may see part of a batch.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow.dataset import dataset

from skidway.spark.lake.staging import PRIVATE, DataFile, move, sweep, write_whole
from skidway.spark.lake.target import BadTable, Target

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MANIFEST_BYTES_MAX = 256 * 1024 * 1024


class ParquetTable:
    keeps_partition_columns = False

    def __init__(self, target: Target) -> None:
        self.root = target.root()
        self.partition_by = target.partition_by

    def last_batch(self, query: str) -> int:
        manifest = self._manifest(query)
        if not manifest.exists():
            return -1
        if manifest.stat().st_size > MANIFEST_BYTES_MAX:
            raise BadTable(f"{manifest} is larger than any manifest; the table is not one of this pipeline")
        told = json.loads(manifest.read_text())
        move([(self.root / staged, self.root / final) for staged, final in told["files"]])
        sweep(self.root, query, told["batch"])
        return int(told["batch"])

    def commit(self, query: str, batch: int, files: Sequence[DataFile], frame: "DataFrame") -> None:
        pairs = [(str(file.staged.relative_to(self.root)), str(file.final.relative_to(self.root))) for file in files]
        write_whole(self._manifest(query), json.dumps({"batch": batch, "files": pairs}))
        move([(file.staged, file.final) for file in files])

    def read(self) -> pa.Table | None:
        if not any(self.root.glob("[!_.]*")):
            return None
        return dataset(self.root, format="parquet", partitioning="hive").to_table()

    def _manifest(self, query: str) -> Path:
        return self.root / PRIVATE / query / "batch.json"
