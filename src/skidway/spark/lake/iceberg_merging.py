"""An Iceberg table with one row for each key, through pyiceberg.

Files that have rows of the keys are replaced, in one snapshot, by files with their other rows and what the changes
make. pyiceberg's own upsert compares the rows by expressions with a term for each key, which takes seconds for some
thousand keys; here the keys of each file are looked up in a set.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan, parquet_files_to_data_files
from pyiceberg.table import Table as Iceberg
from pyiceberg.table import TableProperties

from skidway.spark.lake.changes import KEPT, State, upserts
from skidway.spark.lake.evolution import Change, arrow_of
from skidway.spark.lake.iceberg import IcebergTable, properties_of
from skidway.spark.lake.merged_rows import Changes, Merged, check_merged, of, states_in
from skidway.spark.lake.positions import Advance
from skidway.spark.lake.rewriting import widened
from skidway.spark.lake.staging import Attempt, DataFile, move, moves
from skidway.spark.lake.target import BadTable
from skidway.spark.lake.uploading import Part, PartWriter, data_file

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FILE_BYTES = 256 * 1024 * 1024
"""Of rows in memory, after which another file begins."""


@dataclass(slots=True)
class _Rewrite:
    """Files that go, and those that come for them."""

    gone: list[Any]
    files: list[DataFile]


class MergedIcebergTable(IcebergTable):
    def merge(
        self, query: str, batch: int, changes: Changes, frame: "DataFrame", advance: Advance | None = None
    ) -> Merged | None:
        merged = Merged()
        attempt = Attempt(self.root, query, batch)

        def lay_over(table: Iceberg, summary: dict[str, str]) -> None:
            rewrite = self._rewrite(table, changes, frame, attempt, merged)
            move(moves(self.root, rewrite.files))
            merged.files, merged.bytes = len(rewrite.files), sum(file.bytes for file in rewrite.files)
            if rewrite.gone:
                self._replace_files(table, rewrite, frame, summary, advance)
            else:
                self._lay_over(table, rewrite.files, frame, summary, advance)

        try:
            return merged if self._decide(query, batch, frame, advance, attempt.token, lay_over) else None
        finally:
            attempt.sweep()

    def _rewrite(
        self, table: Iceberg, changes: Changes, frame: "DataFrame", attempt: Attempt, merged: Merged
    ) -> _Rewrite:
        """The changes folded onto the table as it is, and the files that this makes."""
        keys = changes.keys()
        tasks = list(table.scan().plan_files())
        states = [states_in(_scanned(table, task, KEPT), keys) for task in tasks]
        merged.folded = changes.onto(_joined(states))
        outcomes = merged.folded.outcomes
        if not outcomes:
            return _Rewrite([], [])
        names = {one.key for one in outcomes}
        changed = pa.array(names, pa.string())
        touched = [task for task, there in zip(tasks, states, strict=True) if not names.isdisjoint(there)]
        schema = arrow_of(self._change(table, frame).merged)

        def there(wanted: list[str]) -> pa.Table:
            chosen = pa.array(wanted, pa.string())
            return pa.Table.from_batches([of(rows, chosen) for task in touched for rows in _scanned(table, task)])

        rows = upserts(outcomes, changes.rows, there, schema)
        others = (of(one, changed, others=True) for task in touched for one in _scanned(table, task))
        return _Rewrite([task.file for task in touched], _written(attempt, others, rows, schema))

    def _replace_files(
        self,
        table: Iceberg,
        rewrite: _Rewrite,
        frame: "DataFrame",
        summary: dict[str, str],
        advance: Advance | None,
    ) -> None:
        with table.transaction() as step:
            self._evolve(step, table, frame)
            if step.table_metadata.name_mapping() is None:
                mapping = step.table_metadata.schema().name_mapping.model_dump_json()
                step.set_properties({TableProperties.DEFAULT_NAME_MAPPING: mapping})
            paths = iter([self._uri(file.path) for file in rewrite.files])
            with step.update_snapshot(snapshot_properties=summary).overwrite() as snapshot:
                # Which manifests may have the files: all of them, for the table has no partitions.
                snapshot.delete_by_predicate(AlwaysTrue())
                for file in rewrite.gone:
                    snapshot.delete_data_file(file)
                for file in parquet_files_to_data_files(table.io, step.table_metadata, paths):
                    snapshot.append_data_file(file)
            step.set_properties(properties_of(table, summary, advance))

    def _change(self, table: Iceberg, frame: "DataFrame") -> Change:
        check_merged(list(table.schema().column_names), f"the Iceberg table {self.name}")
        return super()._change(table, frame)


def _joined(states: list[dict[str, State]]) -> dict[str, State]:
    joined = {key: state for one in states for key, state in one.items()}
    if len(joined) < sum(map(len, states)):
        raise BadTable("the table has two rows of a key: something else than a merge wrote to it")
    return joined


def _scanned(table: Iceberg, task: Any, columns: tuple[str, ...] = ()) -> Iterator[pa.RecordBatch]:
    """The rows of one file, with the columns that the table has now."""
    schema = table.schema().select(*columns) if columns else table.schema()
    return iter(ArrowScan(table.metadata, table.io, schema, AlwaysTrue()).to_record_batches([task]))


def _written(attempt: Attempt, others: Iterator[pa.RecordBatch], rows: pa.Table, schema: pa.Schema) -> list[DataFile]:
    """Both in files of the attempt."""
    attempt.sweep()
    attempt.make()
    answers: list[dict[str, Any]] = []
    part, size = PartWriter.of(Part(attempt, [], keep_columns=False)), 0
    for batch in chain(_each(others, schema), rows.to_batches()):
        part.write(batch)
        size += batch.nbytes
        if size >= FILE_BYTES:
            answers += part.finish()
            part, size = PartWriter.of(Part(attempt, [], keep_columns=False)), 0
    answers += part.finish()
    return [data_file({name: value for name, value in one.items() if name != "counts"}) for one in answers]


def _each(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if batch.num_rows:
            yield widened(batch, schema)
