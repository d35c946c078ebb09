"""What becomes of the rows of a table when changes of them come, in whatever order. Pure: no Spark and no files.

A change says where it was in the source (`Position`). One that is older than what the table has for its key is
ignored; of two at one position the one that was read later counts, but a row that a snapshot read never replaces a
change. A row that is deleted leaves its key and its position behind, so that a change from before the deletion cannot
bring it back. The outcome does not depend on how records are cut into batches.

A tombstone has no position. It belongs to the record of its key that was read before it: behind a deletion it says
nothing new; else the deletion itself is gone, by compaction, and the row is deleted where it is. So of a deletion that
was ignored as too old a mark stays at the row until the next record of its key is read.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pyarrow as pa

from skidway.spark.lake.target import BadTable

KEY, DELETED, POSITION = "__key", "__deleted", "__position"
KEPT = (KEY, DELETED, POSITION)
"""Columns of a merged table beside those of the rows."""
SNAPSHOT, LATE_DELETE = "$snapshot", "$late_delete"
CREATE, UPDATE, DELETE, READ, TOMBSTONE = "c", "u", "d", "r", "t"

Value = int | str | None
Place = tuple[str, int, int]
"""Of a record: topic, partition, offset."""


class Position(msgspec.Struct, frozen=True):
    """Where a change was in its source: fields by name, the first one counts most."""

    fields: tuple[tuple[str, Value], ...]

    @property
    def names(self) -> str:
        return ", ".join(name for name, _ in self.fields)

    def rank(self) -> tuple[tuple[int, int, str], ...]:
        """Nothing is before numbers, numbers are before texts, shorter texts before longer ones: so `binlog.999` is
        before `binlog.1000`, and hexadecimal numbers of one length are in order."""
        return tuple(_rank(value) for _, value in self.fields)


def _rank(value: Value) -> tuple[int, int, str]:
    if value is None:
        return (0, 0, "")
    if isinstance(value, int):
        return (1, value, "")
    return (1, int(value), "") if value.isdecimal() else (2, len(value), value)


class State(msgspec.Struct, frozen=True):
    """What a table knows about a key beside its row."""

    position: Position
    deleted: bool = False
    snapshot: bool = False
    """A snapshot read the row: a change at the same position is newer."""
    late_delete: bool = False
    """The record of the key that was read last is a deletion that came too late."""

    def text(self) -> str:
        """For the column `__position`."""
        told: dict[str, Any] = dict(self.position.fields)
        told |= {SNAPSHOT: True} if self.snapshot else {}
        told |= {LATE_DELETE: True} if self.late_delete else {}
        return msgspec.json.encode(told).decode()


def state_of(text: str, *, deleted: bool) -> State:
    """BadTable if the column was not written by a merge."""
    try:
        told = msgspec.json.decode(text, type=dict[str, Value | bool])
    except (msgspec.DecodeError, TypeError):
        raise BadTable(f"the table has {text!r} as {POSITION}, which no merge wrote") from None
    marks = {name: bool(told.pop(name, False)) for name in (SNAPSHOT, LATE_DELETE)}
    return State(Position(tuple(told.items())), deleted, marks[SNAPSHOT], marks[LATE_DELETE])


class Change(msgspec.Struct, frozen=True):
    """One record: what it does to the row of a key. A tombstone has no position."""

    key: str
    kind: str
    place: Place
    position: Position | None = None
    row: int = -1
    """Its number among the rows of the batch."""


class MixedPositions(RuntimeError):
    """Two changes of a key cannot be put in order."""


def follow(state: State | None, change: Change) -> tuple[State | None, bool]:
    """What is known about the key behind the change, and whether the row is another one now."""
    if change.position is None:
        if state is None or state.deleted or state.late_delete:
            return state, False
        return msgspec.structs.replace(state, deleted=True, snapshot=False), True
    new = State(change.position, deleted=change.kind == DELETE, snapshot=change.kind == READ)
    if state is None or not is_older(new, state, change):
        return new, True
    if state.deleted:
        return state, False
    return msgspec.structs.replace(state, late_delete=new.deleted), False


def is_older(new: State, state: State, change: Change) -> bool:
    if new.position.names != state.position.names:
        topic, partition, offset = change.place
        raise MixedPositions(
            f"the record {topic} partition {partition} offset {offset} has its source position by"
            f" {new.position.names}, and its key has one by {state.position.names}: they cannot be put in order."
            " Say which fields every record has with --order-by; a table keeps to what it began with"
        )
    return (new.position.rank(), not new.snapshot) < (state.position.rank(), not state.snapshot)


class Outcome(msgspec.Struct, frozen=True):
    """For one key. `row`: of the batch; None: the row stays as it is, or is deleted."""

    key: str
    state: State
    row: int | None


@dataclass(slots=True)
class Folded:
    """A batch as one outcome for each key that changes, and what that does."""

    outcomes: list[Outcome] = field(default_factory=list)
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    older: int = 0
    """Records that were ignored, because the table or the batch has a newer change of their key."""

    def counts(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in ("inserted", "updated", "deleted", "older")}


def fold(changes: Iterable[Change], states: Mapping[str, State]) -> Folded:
    """`states`: of the keys that the table knows."""
    folded = Folded()
    by_key: dict[str, list[Change]] = {}
    for change in changes:
        by_key.setdefault(change.key, []).append(change)
    for key, mine in by_key.items():
        before = states.get(key)
        state, row = before, None
        for change in sorted(mine, key=lambda one: one.place):
            state, is_other = follow(state, change)
            if is_other:
                row = None if state is None or state.deleted else change.row
            elif change.position is not None:
                folded.older += 1
        if state is not None and (state != before or row is not None):
            folded.outcomes.append(Outcome(key, state, row))
            _count(folded, before, state, row)
    return folded


def _count(folded: Folded, before: State | None, after: State, row: int | None) -> None:
    was = before is not None and not before.deleted
    folded.inserted += not was and not after.deleted
    folded.updated += was and row is not None
    folded.deleted += was and after.deleted


def upserts(
    outcomes: Sequence[Outcome], rows: pa.Table, there: Callable[[list[str]], pa.Table], schema: pa.Schema
) -> pa.Table:
    """The rows of the table that the outcomes make, by this schema. `there`: rows of these keys as the table has them.

    Of a deleted row all is null but for what is kept of it.
    """
    made = [one for one in outcomes if one.row is not None or one.state.deleted]
    stay = [one for one in outcomes if one.row is None and not one.state.deleted]
    chosen = pa.array([one.row for one in made], pa.int64())
    taken = {name: rows.column(name).combine_chunks().take(chosen) for name in rows.column_names}
    parts = [_fitted(pa.table(_kept(made) | taken), schema)]
    if stay:
        marked = {one.key: one for one in stay}
        found = there(list(marked))
        kept = _kept([marked[key] for key in found.column(KEY).to_pylist()])
        others = {name: found.column(name) for name in found.column_names if name not in KEPT}
        parts.append(_fitted(pa.table(kept | others), schema))
    return pa.concat_tables(parts)


def _kept(outcomes: Sequence[Outcome]) -> dict[str, pa.Array]:
    return {
        KEY: pa.array([one.key for one in outcomes], pa.string()),
        DELETED: pa.array([one.state.deleted for one in outcomes], pa.bool_()),
        POSITION: pa.array([one.state.text() for one in outcomes], pa.string()),
    }


def _fitted(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Columns that the table has and the rows do not are null."""
    columns = [
        table.column(one.name).cast(one.type) if one.name in table.column_names else pa.nulls(table.num_rows, one.type)
        for one in schema
    ]
    return pa.table(columns, schema=schema)
