"""A batch into several tables in one pass over its rows.

The tables are committed one after the other, in the order given. What says how far the batch has come has to be the
last: whoever goes on from there finds the others at least as far, and leaves out what they have.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from skidway.spark.lake.positions import Span
from skidway.spark.lake.staging import Attempt
from skidway.spark.lake.table import LOOKS_MAX, BadCommit, Plan, Table, Written, check_columns, is_above, plan
from skidway.spark.lake.uploading import Filled, Part, fill

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(slots=True)
class Share:
    """Of a batch for one table."""

    table: Table
    rows: "DataFrame"
    """What the table gets, for its schema: it is not run."""
    column: str
    """Of structs in the frame of the batch, which are those rows; null where a row is not for this table."""
    always: bool = True
    """Whether a batch without rows is committed too, for its positions."""
    count_by: str | None = None


def write_together(
    frame: "DataFrame",
    shares: Sequence[Share],
    query: str,
    batch: int,
    *,
    permit: Callable[[], None] = lambda: None,
    span: Span | None = None,
) -> list[Written]:
    """The frame has the columns of the shares, and topic, partition and offset. As `write_batch` for each of them."""
    for share in shares:
        check_columns(share.table, share.rows)
    written = [Written(skipped=True) for _ in shares]
    for _ in range(LOOKS_MAX):
        planned = [plan(share.table, query, batch, span, follows=share.always) for share in shares]
        due = [(n, shares[n], one) for n, one in enumerate(planned) if one is not None]
        attempts = [Attempt(share.table.root, query, one.number) for _, share, one in due]
        committed = _commit(frame, due, attempts, query, permit, written)
        # Not after an error: what a table has decided on and not moved yet may be among it.
        for attempt in attempts:
            attempt.sweep()
        if committed:
            return written
    raise BadCommit(f"a table refused batch {batch} and does not have it; start the pipeline again")


def _commit(
    frame: "DataFrame",
    due: Sequence[tuple[int, Share, Plan]],
    attempts: Sequence[Attempt],
    query: str,
    permit: Callable[[], None],
    written: list[Written],
) -> bool:
    """False: a table has changed since it was looked at."""
    if not due:
        return True
    for (n, share, planned), filled in zip(due, _fill(frame, due, attempts), strict=True):
        files = filled.files
        if files or (share.always and planned.advance is not None):
            permit()
            if not share.table.commit(query, planned.number, files, share.rows, planned.advance):
                return False
        rows, size = sum(file.rows for file in files), sum(file.bytes for file in files)
        written[n] = Written(rows, len(files), size, counts=filled.counts)
    return True


def _fill(frame: "DataFrame", due: Sequence[tuple[int, Share, Plan]], attempts: Sequence[Attempt]) -> list[Filled]:
    from pyspark.sql import functions as sf

    columns = [
        sf.when(sf.expr(is_above(planned.below)), frame[share.column]).alias(share.column) for _, share, planned in due
    ]
    parts = [
        Part(attempt, list(share.table.partition_by), share.table.keeps_partition_columns, share.column, share.count_by)
        for (_, share, _), attempt in zip(due, attempts, strict=True)
    ]
    return fill(frame.select(*columns), parts)
