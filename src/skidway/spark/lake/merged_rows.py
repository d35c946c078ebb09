"""The rows of a merged table as they are looked at: a batch of changes beside what the table knows of their keys."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from skidway.spark.lake.changes import DELETED, KEY, POSITION, Change, Folded, State, fold, state_of
from skidway.spark.lake.target import BadTable


@dataclass(slots=True)
class Changes:
    """Of a batch. `rows` has the columns of the rows; a change names one by its number."""

    changes: list[Change]
    rows: pa.Table

    def keys(self) -> pa.Array:
        return pa.array({one.key for one in self.changes}, pa.string())

    def above(self, below: dict[tuple[str, int], int]) -> "Changes":
        """Without those that the table has."""
        if not below:
            return self
        return Changes([one for one in self.changes if one.place[2] >= below.get(one.place[:2], 0)], self.rows)

    def onto(self, states: dict[str, State]) -> Folded:
        return fold(self.changes, states)


@dataclass(slots=True)
class Merged:
    """What became of a batch; `skipped`: it was in the table already."""

    folded: Folded = field(default_factory=Folded)
    files: int = 0
    bytes: int = 0
    skipped: bool = False


def check_merged(columns: Sequence[str], table: str) -> None:
    """BadTable if the rows of the table are not those of a merge."""
    if KEY not in columns or POSITION not in columns or DELETED not in columns:
        raise BadTable(
            f"{table} has no columns {KEY}, {DELETED} and {POSITION}, so no merge wrote it; name a path with no table"
        )


def states_in(batches: Iterable[pa.RecordBatch], keys: pa.Array) -> dict[str, State]:
    """What a table knows about these keys. The batches have what it keeps of each row."""
    states: dict[str, State] = {}
    for batch in batches:
        of_keys = of(batch, keys)
        columns = (of_keys.column(name).to_pylist() for name in (KEY, DELETED, POSITION))
        for key, deleted, position in zip(*columns, strict=True):
            if key in states:
                raise BadTable(f"the table has two rows of the key {key}: something else than a merge wrote to it")
            states[key] = state_of(position, deleted=deleted)
    return states


def of(rows: pa.RecordBatch, keys: pa.Array, *, others: bool = False) -> pa.RecordBatch:
    """Those with one of these keys, or all others."""
    found = pc.is_in(rows.column(KEY).cast(pa.string()), value_set=keys)
    return rows.filter(pc.invert(found) if others else found)
