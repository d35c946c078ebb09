"""A Delta table, through deltalake: no jar and no Maven.

A batch is one commit that adds its files and sets the version of the query's app transaction to the batch's number;
the Delta protocol makes both one atomic step. Files of an attempt that died before its commit are in no commit, so no
reader sees them; the next attempt writes over them.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import TableNotFoundError
from deltalake.transaction import AddAction

from skidway.spark.lake.staging import DataFile, move
from skidway.spark.lake.target import BadTable, Target

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class DeltaLakeTable:
    keeps_partition_columns = False

    def __init__(self, target: Target) -> None:
        self.root = target.root()
        self.partition_by = target.partition_by

    def last_batch(self, query: str) -> int:
        table = self._open()
        version = table.transaction_version(query) if table is not None else None
        return -1 if version is None else int(version)

    def commit(self, query: str, batch: int, files: Sequence[DataFile], frame: "DataFrame") -> None:
        schema = Schema.from_json(frame.schema.json())
        table = self._open()
        if table is None:
            self.root.mkdir(parents=True, exist_ok=True)
            # `ignore`: a second query may make the table at the same time.
            table = DeltaTable.create(str(self.root), schema, mode="ignore", partition_by=list(self.partition_by))
        self._check(table, schema)
        move([(file.staged, file.final) for file in files])
        table.create_write_transaction(
            [self._add(file) for file in files],
            mode="append",
            schema=schema,
            partition_by=list(self.partition_by),
            commit_properties=CommitProperties(app_transactions=[Transaction(query, batch)]),
        )

    def read(self) -> pa.Table | None:
        table = self._open()
        return None if table is None else table.to_pyarrow_table()

    def _open(self) -> DeltaTable | None:
        try:
            return DeltaTable(str(self.root)) if self.root.exists() else None
        except TableNotFoundError:
            return None

    def _add(self, file: DataFile) -> AddAction:
        return AddAction(
            path=str(file.final.relative_to(self.root)),
            size=file.bytes,
            partition_values=file.partition,
            modification_time=int(file.final.stat().st_mtime * 1000),
            data_change=True,
            stats=f'{{"numRecords":{file.rows}}}',
        )

    def _check(self, table: DeltaTable, schema: Schema) -> None:
        there = {field.name: str(field.type) for field in table.schema().fields}
        given = {field.name: str(field.type) for field in schema.fields}
        if there != given:
            changed = sorted(name for name in there.keys() | given.keys() if there.get(name) != given.get(name))
            raise BadTable(f"the columns {', '.join(changed)} are not those of the Delta table at {self.root}")
        partitioned = list(table.metadata().partition_columns)
        if partitioned != list(self.partition_by):
            raise BadTable(f"{self.root} is partitioned by {partitioned}, not by {list(self.partition_by)}")
