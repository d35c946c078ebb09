"""An Iceberg table, through pyiceberg: no jar and no Maven.

A batch is one snapshot that adds its files. The batch's number is written in the same commit twice: into the
snapshot's summary, for people and audits, and as a table property, which stays when snapshots expire. So are the
positions in the partitions of each topic (`skidway.positions.<topic id>`). The properties are looked at in the very
state of the table that the commit is laid over; a batch without rows makes an empty snapshot, because a change of
properties alone would not be refused where the table has changed. pyiceberg would by itself lay a refused commit
over the state that another driver made, without that look; so its retries are off in the table's properties, and a
commit that was refused, or whose fate is unknown, is followed by a look at the table as it is then. The catalog is one
of pyiceberg's configuration, or a SQLite file beside the data. Columns to partition by stay in the files: pyiceberg
takes the values from the files' statistics.
"""

import json
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyiceberg import expressions
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    NamespaceAlreadyExistsError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression
from pyiceberg.table import Table as Iceberg
from pyiceberg.table import Transaction
from sqlalchemy import URL

from skidway.spark.lake.evolution import Change, arrow_of, compare, loosened, small_as_int
from skidway.spark.lake.positions import Advance, Place, Positions, from_json, is_next, to_json
from skidway.spark.lake.slices import Slice
from skidway.spark.lake.staging import DataFile, move, moves
from skidway.spark.lake.target import CATALOG_FILE, BadTable, Target
from skidway.spark.objects import Bucket

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

NAMESPACE = "skidway"
COMMIT_ATTEMPTS = 5
PROPERTY = "skidway.batch."
POSITIONS = "skidway.positions."
QUERY_ID, BATCH_ID, ATTEMPT = "skidway.query-id", "skidway.batch-id", "skidway.first-file"
PROPERTIES = {"commit.retry.num-retries": "0"}
SMALL_METADATA = {
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "10",
    "commit.manifest-merge.enabled": "true",
    "commit.manifest.min-count-to-merge": "20",
}
"""Without them metadata grow with the square of the commits. For new tables; the owner of one may set others."""


class IcebergTable:
    keeps_partition_columns = True

    def __init__(self, target: Target) -> None:
        self.root = target.root()
        self.partition_by = target.partition_by
        self.name = target.table or _default_name(target)
        if isinstance(self.root, Path) and target.catalog is None:
            self.root.mkdir(parents=True, exist_ok=True)
        self.catalog = _catalog(target)
        self._accepted: StructType | None = None

    def exists(self) -> bool:
        return self._open() is not None

    def last_batch(self, query: str) -> int:
        table = self._open()
        return -1 if table is None else _last_batch(table, query)

    def accept(self, frame: "DataFrame") -> None:
        table = None if frame.schema == self._accepted else self._open()
        if table is not None:
            self._change(table, frame)
            self._accepted = frame.schema

    def positions(self, places: Iterable[Place]) -> Positions:
        table = self._open()
        has = {} if table is None else _positions(table)[0]
        return {place: has[place] for place in places if place in has}

    def topic_ids(self, name: str) -> list[str]:
        table = self._open()
        known = {} if table is None else _positions(table)[1]
        return [topic for topic, called in known.items() if called == name]

    def commit(
        self, query: str, batch: int, files: Sequence[DataFile], frame: "DataFrame", advance: Advance | None = None
    ) -> bool:
        token = files[0].path if files else secrets.token_hex(6)
        staged = moves(self.root, files)

        def lay_over(table: Iceberg, summary: dict[str, str]) -> None:
            move(staged)
            self._lay_over(table, files, frame, summary, advance)

        return self._decide(query, batch, frame, advance, token, lay_over)

    def _decide(
        self,
        query: str,
        batch: int,
        frame: "DataFrame",
        advance: Advance | None,
        token: str,
        lay_over: Callable[[Iceberg, dict[str, str]], None],
    ) -> bool:
        """Lay one commit over the state of the table that was looked at; again if another driver was quicker."""
        found = self._open()
        if found is not None and not is_next(batch, _last_batch(found, query), advance, _positions(found)[0]):
            return False
        schema = _without_nullability(arrow_of(frame.schema))
        summary = {QUERY_ID: query, BATCH_ID: str(batch), ATTEMPT: token}
        for attempt in range(COMMIT_ATTEMPTS):
            table = self._ready(schema)
            if not is_next(batch, _last_batch(table, query), advance, _positions(table)[0]):
                return _is_by(table, summary)
            try:
                lay_over(table, summary)
                return True
            except (CommitFailedException, CommitStateUnknownException):
                # Another driver was quicker, perhaps with this very batch, or ours came through after all: look again.
                if attempt == COMMIT_ATTEMPTS - 1:
                    raise
        raise AssertionError("the last attempt returns or raises")

    def _lay_over(
        self,
        table: Iceberg,
        files: Sequence[DataFile],
        frame: "DataFrame",
        summary: dict[str, str],
        advance: Advance | None,
    ) -> None:
        with table.transaction() as step:
            self._evolve(step, table, frame)
            if files:
                paths = [self._uri(file.path) for file in files]
                step.add_files(paths, snapshot_properties=summary, check_duplicate_files=False)
            else:
                with step.update_snapshot(snapshot_properties=summary).fast_append():
                    pass
            step.set_properties(properties_of(table, summary, advance))

    def _evolve(self, step: Transaction, table: Iceberg, frame: "DataFrame") -> None:
        change = self._change(table, frame)
        if not change.is_none:
            with step.update_schema() as columns:
                columns.union_by_name(_without_nullability(arrow_of(change.merged)))

    def scan(self, columns: Sequence[str] = (), within: Slice | None = None) -> Iterator[pa.RecordBatch]:
        table = self._open()
        if table is not None:
            chosen = AlwaysTrue() if within is None else _filter(within)
            scan = table.scan(row_filter=chosen, selected_fields=tuple(columns) or ("*",))
            yield from (batch for batch in scan.to_arrow_batch_reader() if batch.num_rows)

    def replace(self, within: Slice, rows: pa.Table) -> bool:
        table = self._open()
        if table is None:
            return False
        try:
            if rows.num_rows:
                table.overwrite(rows, overwrite_filter=_filter(within))
            else:
                table.delete(_filter(within))
        except (CommitFailedException, CommitStateUnknownException):
            return False
        return True

    def read(self) -> pa.Table | None:
        table = self._open()
        return None if table is None else table.scan().to_arrow()

    def _open(self) -> Iceberg | None:
        try:
            return self.catalog.load_table(self.name)
        except NoSuchTableError:
            return None

    def _ready(self, schema: pa.Schema) -> Iceberg:
        """The table as it is now, and one that does not repeat commits by itself."""
        table = self._open()
        if table is None:
            self._create(schema)
            table = self.catalog.load_table(self.name)
        if any(table.properties.get(name) != value for name, value in PROPERTIES.items()):
            with table.transaction() as change:
                change.set_properties(PROPERTIES)
            table = self.catalog.load_table(self.name)
        return table

    def _create(self, schema: pa.Schema) -> None:
        with suppress(NamespaceAlreadyExistsError):
            self.catalog.create_namespace(self.name.rpartition(".")[0])
        location = self._uri("").rstrip("/")
        # Another driver may make the table at the same time.
        with suppress(TableAlreadyExistsError, CommitFailedException):
            creation = self.catalog.create_table_transaction(
                self.name, schema, location=location, properties=SMALL_METADATA | PROPERTIES
            )
            with creation, creation.update_spec() as spec:
                for column in self.partition_by:
                    spec.add_identity(column)

    def _uri(self, path: str) -> str:
        return self.root.uri(path) if isinstance(self.root, Bucket) else f"file://{self.root / path}"

    def _change(self, table: Iceberg, frame: "DataFrame") -> Change:
        from pyspark.sql.pandas.types import from_arrow_schema

        partitioned = [field.name for field in table.spec().fields]
        if partitioned != list(self.partition_by):
            raise BadTable(f"{self.name} is partitioned by {partitioned}, not by {list(self.partition_by)}")
        there = from_arrow_schema(table.schema().as_arrow())
        return compare(there, small_as_int(loosened(frame.schema))).check(f"the Iceberg table {self.name}")


def _catalog(target: Target) -> Catalog:
    root = target.root()
    if target.catalog is not None:
        return load_catalog(target.catalog, **(root.iceberg_properties() if isinstance(root, Bucket) else {}))
    assert isinstance(root, Path)
    database = URL.create("sqlite", database=str(root / CATALOG_FILE))
    settings: dict[str, Any] = {"type": "sql", "uri": database.render_as_string(), "warehouse": f"file://{root}"}
    return load_catalog("skidway", **settings)


def _filter(within: Slice) -> BooleanExpression:
    make: Any = expressions  # Whose types know terms, and not the names and values that it takes.
    place = And(make.EqualTo("topic", within.topic), make.EqualTo("partition", within.partition))
    return And(place, make.GreaterThanOrEqual("offset", within.begin), make.LessThan("offset", within.end))


def _last_batch(table: Iceberg, query: str) -> int:
    return int(table.properties.get(PROPERTY + query, -1))


def _is_by(table: Iceberg, summary: dict[str, str]) -> bool:
    """Whether the batch came by this very attempt: its commit went through, and only the answer was lost."""
    for snapshot in reversed(table.metadata.snapshots):
        told = snapshot.summary.additional_properties if snapshot.summary is not None else {}
        if (told.get(QUERY_ID), told.get(BATCH_ID)) == (summary[QUERY_ID], summary[BATCH_ID]):
            return told.get(ATTEMPT) == summary[ATTEMPT]
    return False


def _positions(table: Iceberg) -> tuple[Positions, dict[str, str]]:
    """And the names of the topics, by their ids."""
    told = {name: value for name, value in table.properties.items() if name.startswith(POSITIONS)}
    return from_json({name.removeprefix(POSITIONS): json.loads(value) for name, value in told.items()})


def properties_of(table: Iceberg, summary: dict[str, str], advance: Advance | None) -> dict[str, str]:
    """Of a commit: the number of the batch, and the positions behind it."""
    return {PROPERTY + summary[QUERY_ID]: summary[BATCH_ID]} | _moved(table, advance)


def _moved(table: Iceberg, advance: Advance | None) -> dict[str, str]:
    """The properties of the topics that are read on."""
    if advance is None:
        return {}
    has, names = _positions(table)
    moved = {place[0] for place in advance.after}
    kept = {place: offset for place, offset in has.items() if place[0] in moved}
    document = to_json(kept | advance.after, names | advance.names)
    return {POSITIONS + topic: json.dumps(told) for topic, told in document.items()}


def _default_name(target: Target) -> str:
    """In a SQLite catalog a name has one dot."""
    root = target.root()
    last = root.url.rpartition("/")[2] if isinstance(root, Bucket) else Path(os.path.normpath(root)).name
    return f"{NAMESPACE}.{last.replace('.', '_')}"


def _without_nullability(schema: pa.Schema) -> pa.Schema:
    """A column that has no null in the first batch may have one in the next."""
    return pa.schema([field.with_nullable(True).remove_metadata() for field in schema])
