"""An Iceberg table, through pyiceberg: no jar and no Maven.

A batch is one snapshot that adds its files. The batch's number is written in the same commit twice: into the
snapshot's summary, for people and audits, and as a table property, which stays when snapshots expire. The catalog is
one of pyiceberg's configuration, or a SQLite file beside the data. Columns to partition by stay in the files: pyiceberg
takes the values from the files' statistics.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import CommitFailedException, NamespaceAlreadyExistsError, NoSuchTableError
from pyiceberg.table import Table as Iceberg
from sqlalchemy import URL

from skidway.spark.lake.staging import DataFile, move
from skidway.spark.lake.target import CATALOG_FILE, BadTable, Target

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NAMESPACE = "skidway"
COMMIT_ATTEMPTS = 5
PROPERTY = "skidway.batch."


class IcebergTable:
    keeps_partition_columns = True

    def __init__(self, target: Target) -> None:
        self.root = target.root()
        self.partition_by = target.partition_by
        self.name = target.table or _default_name(self.root)
        if target.catalog is None:
            self.root.mkdir(parents=True, exist_ok=True)
        self.catalog = _catalog(target)

    def last_batch(self, query: str) -> int:
        table = self._open()
        return -1 if table is None else int(table.properties.get(PROPERTY + query, -1))

    def commit(self, query: str, batch: int, files: Sequence[DataFile], frame: "DataFrame") -> None:
        schema = _without_nullability(pq.read_schema(files[0].staged))
        table = self._open() or self._create(schema)
        self._check(table, schema)
        move([(file.staged, file.final) for file in files])
        paths = [f"file://{file.final}" for file in files]
        summary = {"skidway.query-id": query, "skidway.batch-id": str(batch)}
        for attempt in range(COMMIT_ATTEMPTS):
            try:
                with table.transaction() as change:
                    change.add_files(paths, snapshot_properties=summary, check_duplicate_files=False)
                    change.set_properties({PROPERTY + query: str(batch)})
                return
            except CommitFailedException:
                # Another query committed in between: its snapshot first, then ours.
                if attempt == COMMIT_ATTEMPTS - 1:
                    raise
                table = self.catalog.load_table(self.name)

    def read(self) -> pa.Table | None:
        table = self._open()
        return None if table is None else table.scan().to_arrow()

    def _open(self) -> Iceberg | None:
        try:
            return self.catalog.load_table(self.name)
        except NoSuchTableError:
            return None

    def _create(self, schema: pa.Schema) -> Iceberg:
        try:
            self.catalog.create_namespace(self.name.rpartition(".")[0])
        except NamespaceAlreadyExistsError:
            pass
        location = f"file://{self.root}"
        creation = self.catalog.create_table_transaction(self.name, schema, location=location)
        with creation, creation.update_spec() as spec:
            for column in self.partition_by:
                spec.add_identity(column)
        return self.catalog.load_table(self.name)

    def _check(self, table: Iceberg, schema: pa.Schema) -> None:
        there = set(table.schema().as_arrow().names)
        changed = sorted(there.symmetric_difference(schema.names))
        if changed:
            raise BadTable(f"the columns {', '.join(changed)} are not those of the Iceberg table {self.name}")
        partitioned = [field.name for field in table.spec().fields]
        if partitioned != list(self.partition_by):
            raise BadTable(f"{self.name} is partitioned by {partitioned}, not by {list(self.partition_by)}")


def _catalog(target: Target) -> Catalog:
    if target.catalog is not None:
        return load_catalog(target.catalog)
    root = target.root()
    database = URL.create("sqlite", database=str(root / CATALOG_FILE))
    settings: dict[str, Any] = {"type": "sql", "uri": database.render_as_string(), "warehouse": f"file://{root}"}
    return load_catalog("skidway", **settings)


def _default_name(root: Path) -> str:
    """In a SQLite catalog a name has one dot."""
    return f"{NAMESPACE}.{Path(os.path.normpath(root)).name.replace('.', '_')}"


def _without_nullability(schema: pa.Schema) -> pa.Schema:
    """A column that has no null in the first batch may have one in the next."""
    return pa.schema([field.with_nullable(True).remove_metadata() for field in schema])
