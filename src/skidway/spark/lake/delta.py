"""A Delta table, through deltalake: no jar and no Maven.

A batch is one commit that adds its files and sets the version of the query's app transaction to the batch's number;
the Delta protocol makes both one atomic step. The position in each partition that moved is an app transaction too
(`skidway/<topic id>/<partition>`, its version the next offset), and so is the topic's id by its name, as a number.
All are looked at in the very state of the table that the commit is laid over: if another driver has set one of them
since, the commit is refused, and the table is opened and looked at again. Files of an attempt that was not committed
are in no commit, so no reader sees them.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, TableNotFoundError
from deltalake.transaction import AddAction

from skidway.spark.lake.evolution import Change, arrow_of, compare, loosened
from skidway.spark.lake.positions import NAMED, Advance, Place, Positions, is_next
from skidway.spark.lake.rewriting import check_size, rewritten
from skidway.spark.lake.slices import Slice
from skidway.spark.lake.staging import Attempt, DataFile, move, moves
from skidway.spark.lake.target import BadTable, Target
from skidway.spark.objects import Bucket

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

COMMIT_ATTEMPTS = 5
POSITION = "skidway/"
TOPIC = "skidway-topic/"
SHORT_DIGITS = 15


@dataclass(slots=True)
class _Seen:
    """Positions as a version of the table has them; None: it has none for this partition."""

    version: int
    positions: Mapping[Place, int | None]


class DeltaLakeTable:
    keeps_partition_columns = False

    def __init__(self, target: Target) -> None:
        self.root = target.root()
        self.partition_by = target.partition_by
        self._url = self.root.url if isinstance(self.root, Bucket) else str(self.root)
        self._options = self.root.storage_options() if isinstance(self.root, Bucket) else None
        self._seen: _Seen | None = None
        self._accepted: StructType | None = None

    def exists(self) -> bool:
        return self._open() is not None

    def last_batch(self, query: str) -> int:
        table = self._open()
        return -1 if table is None else _last_batch(table, query)

    def accept(self, frame: "DataFrame") -> None:
        table = None if frame.schema == self._accepted else self._open()
        if table is None:
            return
        change = self._change(table, frame)
        if change.widened:
            check_size(table, change.widened, self._url)
        self._accepted = frame.schema

    def positions(self, places: Iterable[Place]) -> Positions:
        table = self._open()
        return {} if table is None else self._positions(table, places)

    def topic_ids(self, name: str) -> list[str]:
        table = self._open()
        found = None if table is None else table.transaction_version(TOPIC + name)
        return [] if found is None else [f"{int(found):0{SHORT_DIGITS}x}"]

    def commit(
        self, query: str, batch: int, files: Sequence[DataFile], frame: "DataFrame", advance: Advance | None = None
    ) -> bool:
        staged = moves(self.root, files)

        def lay_over(table: DeltaTable) -> None:
            move(staged)
            self._lay_over(table, files, frame, query, batch, advance)

        return self._decide(query, batch, frame, advance, lay_over)

    def _decide(
        self,
        query: str,
        batch: int,
        frame: "DataFrame",
        advance: Advance | None,
        lay_over: Callable[[DeltaTable], None],
    ) -> bool:
        """Lay one commit over the state of the table that was looked at; again if another driver was quicker."""
        for attempt in range(COMMIT_ATTEMPTS):
            try:
                table = self._ready(frame)
                has = self._positions(table, advance.after) if advance is not None else {}
                if not is_next(batch, _last_batch(table, query), advance, has):
                    return False
                seen = table.version()
                lay_over(table)
                self._seen = _Seen(seen + 1, has | (advance.after if advance is not None else {}))
                return True
            except CommitFailedError:
                # Another driver was quicker, perhaps with this very batch: look again.
                if attempt == COMMIT_ATTEMPTS - 1:
                    raise
        raise AssertionError("the last attempt returns or raises")

    def _ready(self, frame: "DataFrame") -> DeltaTable:
        """The table as it is now, with all columns that the rows have."""
        table = self._open() or self._create(Schema.from_json(frame.schema.json()))
        change = self._change(table, frame)
        if change.widened or not change.added:
            return table
        write_deltalake(table, arrow_of(change.merged).empty_table(), mode="append", schema_mode="merge")
        # Others may have come before that commit: what is looked at has to be what the next one is laid over.
        return self._open() or table

    def _lay_over(
        self,
        table: DeltaTable,
        files: Sequence[DataFile],
        frame: "DataFrame",
        query: str,
        batch: int,
        advance: Advance | None,
    ) -> None:
        """One commit. Where types get wider it replaces all files."""
        change = self._change(table, frame)
        attempt = Attempt(self.root, query, batch)
        old: list[DataFile] = []
        if change.widened:
            old = rewritten(table, arrow_of(change.merged), attempt, self.partition_by)
            move(moves(self.root, old))
        table.create_write_transaction(
            [self._add(file) for file in [*old, *files]],
            mode="overwrite" if change.widened else "append",
            schema=Schema.from_json(change.merged.json()) if change.widened else table.schema(),
            partition_by=list(self.partition_by),
            commit_properties=CommitProperties(app_transactions=app_transactions(query, batch, advance)),
        )
        attempt.sweep()

    def scan(self, columns: Sequence[str] = (), within: Slice | None = None) -> Iterator[pa.RecordBatch]:
        table = self._open()
        if table is not None:
            chosen = within.filter() if within is not None else None
            scanner = table.to_pyarrow_dataset().scanner(columns=list(columns) or None, filter=chosen)
            yield from (batch for batch in scanner.to_batches() if batch.num_rows)

    def replace(self, within: Slice, rows: pa.Table) -> bool:
        table = self._open()
        if table is None:
            return False
        place = f'topic = {_sql_text(within.topic)} AND "partition" = {within.partition}'
        predicate = f'{place} AND "offset" >= {within.begin} AND "offset" < {within.end}'
        try:
            if rows.num_rows:
                write_deltalake(table, rows, mode="overwrite", predicate=predicate)
            else:
                table.delete(predicate)
        except CommitFailedError:
            return False
        return True

    def read(self) -> pa.Table | None:
        table = self._open()
        return None if table is None else table.to_pyarrow_table()

    def _positions(self, table: DeltaTable, places: Iterable[Place]) -> Positions:
        """Each costs a look through the log: after our own commit, and no other, they are known."""
        wanted = list(places)
        seen = self._seen
        if seen is not None and seen.version == table.version() and all(place in seen.positions for place in wanted):
            return {place: offset for place in wanted if (offset := seen.positions[place]) is not None}
        asked = {place: table.transaction_version(f"{POSITION}{place[0]}/{place[1]}") for place in wanted}
        found = {place: None if version is None else int(version) for place, version in asked.items()}
        self._seen = _Seen(table.version(), found)
        return {place: offset for place, offset in found.items() if offset is not None}

    def _open(self) -> DeltaTable | None:
        if isinstance(self.root, Path) and not self.root.exists():
            return None
        try:
            return DeltaTable(self._url, storage_options=self._options)
        except TableNotFoundError:
            return None

    def _create(self, schema: Schema) -> DeltaTable:
        if isinstance(self.root, Path):
            self.root.mkdir(parents=True, exist_ok=True)
        # `ignore`: a second query may make the table at the same time.
        DeltaTable.create(
            self._url, schema, mode="ignore", partition_by=list(self.partition_by), storage_options=self._options
        )
        return DeltaTable(self._url, storage_options=self._options)

    def _add(self, file: DataFile) -> AddAction:
        return AddAction(
            path=file.path,
            size=file.bytes,
            partition_values=file.partition,
            modification_time=file.modified_ms,
            data_change=True,
            stats=file.statistics or f'{{"numRecords":{file.rows}}}',
        )

    def _change(self, table: DeltaTable, frame: "DataFrame") -> Change:
        from pyspark.sql.types import StructType

        partitioned = list(table.metadata().partition_columns)
        if partitioned != list(self.partition_by):
            raise BadTable(f"{self._url} is partitioned by {partitioned}, not by {list(self.partition_by)}")
        there = StructType.fromJson(json.loads(table.schema().to_json()))
        return compare(there, loosened(frame.schema)).check(f"the Delta table at {self._url}")


def _sql_text(text: str) -> str:
    """As deltalake's SQL reads it."""
    return "'" + text.replace("'", "''") + "'"


def _last_batch(table: DeltaTable, query: str) -> int:
    version = table.transaction_version(query)
    return -1 if version is None else int(version)


def app_transactions(query: str, batch: int, advance: Advance | None) -> list[Transaction]:
    chosen = [Transaction(query, batch)]
    if advance is not None:
        moved = {place: offset for place, offset in advance.after.items() if advance.before.get(place) != offset}
        chosen += [
            Transaction(f"{POSITION}{topic}/{partition}", offset) for (topic, partition), offset in moved.items()
        ]
        # A topic's id changes when it is made anew; then all of its partitions are new to the table.
        new = {topic for topic, partition in moved if (topic, partition) not in advance.before}
        chosen += [Transaction(TOPIC + name, _number(topic)) for topic, name in advance.names.items() if topic in new]
    return chosen


def _number(topic: str) -> int:
    """Of an id as much as a version of an app transaction holds."""
    return 0 if topic.startswith(NAMED) else int(topic[:SHORT_DIGITS], 16)
