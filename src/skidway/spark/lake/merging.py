"""Tables with one row for each key, which take the changes of a batch once, whatever crashes: Delta and Iceberg.

A batch of changes comes to the driver, is folded onto what the table knows about its keys (`changes`), and what that
makes of the rows gets into the table in one commit, together with the batch's number and positions, as `table` does it
with rows that are added. The keys are looked at in the very state of the table that the commit is laid over; a table
that has changed since refuses the commit, and all is looked at again.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from skidway.spark.lake.merged_rows import Changes, Merged
from skidway.spark.lake.positions import Advance, Span
from skidway.spark.lake.table import LOOKS_MAX, BadCommit, Table, check_columns, plan
from skidway.spark.lake.target import BadTable, Target

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MERGED = ("delta", "iceberg")


class MergedTable(Table, Protocol):
    def merge(
        self, query: str, batch: int, changes: Changes, frame: "DataFrame", advance: Advance | None = None
    ) -> Merged | None:
        """The changes, the batch's number and the positions behind it, or nothing. None: another driver was quicker."""
        ...


def open_merged(target: Target) -> MergedTable:
    """BadTable, before anything is written, if there can be no such table."""
    target.check()
    if target.format == "delta":
        from skidway.spark.lake.delta_merging import MergedDeltaTable

        return MergedDeltaTable(target)
    if target.format == "iceberg":
        from skidway.spark.lake.iceberg_merging import MergedIcebergTable

        return MergedIcebergTable(target)
    raise BadTable(
        f"changes are merged into {' and '.join(MERGED)} tables; a {target.format} table cannot replace rows"
    )


def merge_batch(
    table: MergedTable,
    changes: Changes,
    frame: "DataFrame",
    query: str,
    batch: int,
    *,
    permit: Callable[[], None] = lambda: None,
    span: Span | None = None,
) -> Merged:
    """The changes of one batch into the table, unless they are there. Any crash inside leaves it to be called again.

    `frame` has the columns of the table, for its schema: it is not run. `permit` and `span` as `write_batch` has them.
    """
    check_columns(table, frame)
    for _ in range(LOOKS_MAX):
        planned = plan(table, query, batch, span)
        if planned is None:
            return Merged(skipped=True)
        permit()
        merged = table.merge(query, planned.number, changes.above(planned.below), frame, planned.advance)
        if merged is not None:
            return merged
    raise BadCommit(f"the table refused batch {batch} and does not have it; start the pipeline again")
