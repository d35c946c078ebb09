"""A Delta table with one row for each key, through deltalake's merge.

The merge replaces the files that have rows of the keys, in one commit that also sets the app transactions of the batch
and its positions. Which commits can be laid over each other deltalake judges by files and predicates; here a commit is
good for the state of the table that was looked at and for no other, so its retries are off. Types are widened in a
commit of their own, before.
"""

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Schema

from skidway.spark.lake.changes import KEPT, KEY, upserts
from skidway.spark.lake.delta import DeltaLakeTable, app_transactions
from skidway.spark.lake.evolution import Change, arrow_of
from skidway.spark.lake.merged_rows import Changes, Merged, check_merged, states_in
from skidway.spark.lake.positions import Advance
from skidway.spark.lake.rewriting import rewritten
from skidway.spark.lake.staging import Attempt, move, moves

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

WIDENING = "widening"
"""As which the files of a widened table are named."""


class MergedDeltaTable(DeltaLakeTable):
    def merge(
        self, query: str, batch: int, changes: Changes, frame: "DataFrame", advance: Advance | None = None
    ) -> Merged | None:
        merged = Merged()

        def lay_over(table: DeltaTable) -> None:
            keys = changes.keys()
            states = states_in(table.to_pyarrow_dataset().scanner(list(KEPT), filter=_is_of(keys)).to_batches(), keys)
            merged.folded = changes.onto(states)
            properties = CommitProperties(
                max_commit_retries=0, app_transactions=app_transactions(query, batch, advance)
            )
            if not merged.folded.outcomes:
                table.create_write_transaction([], "append", table.schema(), [], commit_properties=properties)
                return

            def there(of: list[str]) -> pa.Table:
                return table.to_pyarrow_dataset().to_table(filter=_is_of(pa.array(of, pa.string())))

            rows = upserts(merged.folded.outcomes, changes.rows, there, arrow_of(self._change(table, frame).merged))
            before = set(_sizes(table))
            merger = table.merge(
                rows, f"t.{KEY} = s.{KEY}", source_alias="s", target_alias="t", commit_properties=properties
            )
            merger.when_matched_update_all().when_not_matched_insert_all().execute()
            added = [size for path, size in _sizes(table).items() if path not in before]
            merged.files, merged.bytes = len(added), sum(added)

        return merged if self._decide(query, batch, frame, advance, lay_over) else None

    def _ready(self, frame: "DataFrame") -> DeltaTable:
        table = super()._ready(frame)
        change = self._change(table, frame)
        if not change.widened:
            return table
        schema = Schema.from_json(change.merged.json())
        attempt = Attempt(self.root, WIDENING, table.version())
        files = rewritten(table, arrow_of(change.merged), attempt, [])
        move(moves(self.root, files))
        attempt.sweep()
        table.create_write_transaction(
            [self._add(file) for file in files],
            "overwrite",
            schema,
            [],
            commit_properties=CommitProperties(max_commit_retries=0),
        )
        return self._open() or table

    def _change(self, table: DeltaTable, frame: "DataFrame") -> Change:
        check_merged([one.name for one in table.schema().fields], f"the Delta table at {self._url}")
        return super()._change(table, frame)


def _is_of(keys: pa.Array) -> pc.Expression:
    return pc.is_in(pc.field(KEY).cast(pa.string()), options=pc.SetLookupOptions(keys))


def _sizes(table: DeltaTable) -> dict[str, int]:
    """Of all data files."""
    found = pa.table(table.get_add_actions())
    return dict(zip(found.column("path").to_pylist(), found.column("size_bytes").to_pylist(), strict=True))
