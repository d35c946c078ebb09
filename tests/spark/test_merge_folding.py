"""Changes folded onto what a table knows, against a model that has all of them at once. Without Spark."""

from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skidway.spark.lake.changes import (
    Change,
    MixedPositions,
    Position,
    State,
    fold,
    state_of,
    upserts,
)

KINDS = st.sampled_from(["c", "u", "d", "r"])
KEYS = st.sampled_from(["a", "b", "c"])


def at(lsn: int) -> Position:
    return Position((("lsn", lsn),))


def change(key: str, kind: str, lsn: int, offset: int) -> Change:
    return Change(key, kind, ("t", 0, offset), at(lsn), offset)


def tombstone(key: str, offset: int) -> Change:
    return Change(key, "t", ("t", 0, offset), None, offset)


class Rows:
    """A table: what it knows of each key, and the row as the number of the change that made it."""

    def __init__(self) -> None:
        self.states: dict[str, State] = {}
        self.rows: dict[str, int] = {}

    def take(self, changes: list[Change]) -> "Rows":
        for one in fold(changes, self.states).outcomes:
            self.states[one.key] = state_of(one.state.text(), deleted=one.state.deleted)
            if one.state.deleted:
                self.rows.pop(one.key, None)
            elif one.row is not None:
                self.rows[one.key] = one.row
        return self


def cut(changes: list[Change], places: list[int]) -> list[list[Change]]:
    ends = sorted({0, len(changes), *(place % (len(changes) + 1) for place in places)})
    return [changes[begin:end] for begin, end in pairwise(ends)]


def alive_by_position(changes: list[Change]) -> dict[str, int]:
    """The model, of changes with positions of their own: the last one in the source counts."""
    last: dict[str, Change] = {}
    for one in sorted(changes, key=lambda one: one.position.fields[0][1] if one.position else 0):  # type: ignore[arg-type,return-value]
        last[one.key] = one
    return {key: one.row for key, one in last.items() if one.kind != "d"}


@given(st.lists(st.tuples(KEYS, KINDS), max_size=20), st.randoms(use_true_random=False), st.lists(st.integers(0, 99)))
def test_in_whatever_order_and_batches_changes_come_the_last_of_the_source_counts(
    told: list[tuple[str, str]], chance: object, cuts: list[int]
) -> None:
    lsns = list(range(len(told)))
    chance.shuffle(lsns)  # type: ignore[attr-defined]
    changes = [change(key, kind, lsn, offset) for offset, ((key, kind), lsn) in enumerate(zip(told, lsns, strict=True))]
    table = Rows()
    for part in cut(changes, cuts):
        table.take(part)
    assert table.rows == alive_by_position(changes)
    # A batch that comes once more changes no row.
    before = dict(table.rows)
    replayed = [Change(one.key, one.kind, one.place, one.position, one.row) for one in changes]
    for part in cut(replayed, cuts):
        table.take(part)
    assert table.rows == before


@given(
    st.lists(st.one_of(st.tuples(KEYS, KINDS, st.integers(0, 4)), st.tuples(KEYS, st.just("t"), st.just(0)))),
    st.lists(st.integers(0, 99)),
)
def test_how_records_are_cut_into_batches_changes_nothing(told: list[tuple[str, str, int]], cuts: list[int]) -> None:
    """Also where positions are the same, and with tombstones anywhere."""
    changes = [
        tombstone(key, offset) if kind == "t" else change(key, kind, lsn, offset)
        for offset, (key, kind, lsn) in enumerate(told)
    ]
    table = Rows()
    for part in cut(changes, cuts):
        table.take(part)
    whole = Rows().take(changes)
    assert (table.rows, table.states) == (whole.rows, whole.states)


@given(st.lists(st.tuples(KEYS, KINDS), max_size=20), st.randoms(use_true_random=False), st.lists(st.integers(0, 99)))
def test_a_tombstone_behind_each_deletion_changes_nothing(
    told: list[tuple[str, str]], chance: object, cuts: list[int]
) -> None:
    lsns = list(range(len(told)))
    chance.shuffle(lsns)  # type: ignore[attr-defined]
    changes: list[Change] = []
    for (key, kind), lsn in zip(told, lsns, strict=True):
        changes.append(change(key, kind, lsn, len(changes)))
        if kind == "d":
            changes.append(tombstone(key, len(changes)))
    table = Rows()
    for part in cut(changes, cuts):
        table.take(part)
    assert table.rows == alive_by_position([one for one in changes if one.kind != "t"])


def test_a_late_update_does_not_bring_a_deleted_row_back() -> None:
    table = Rows().take([change("a", "c", 10, 0), change("a", "d", 30, 1), tombstone("a", 2)])
    table.take([change("a", "u", 20, 3)])
    assert table.rows == {}
    assert table.states["a"].deleted
    assert table.take([change("a", "c", 40, 4)]).rows == {"a": 4}


def test_a_deletion_of_an_unknown_key_is_remembered() -> None:
    table = Rows().take([change("a", "d", 30, 0)])
    assert table.take([change("a", "u", 20, 1)]).rows == {}


def test_a_tombstone_alone_deletes_the_row() -> None:
    """Its deletion was compacted away."""
    table = Rows().take([change("a", "c", 10, 0)]).take([tombstone("a", 2)])
    assert table.rows == {}
    assert table.take([change("a", "c", 5, 3)]).rows == {}
    assert Rows().take([tombstone("b", 0)]).states == {}


def test_a_tombstone_behind_a_deletion_that_came_too_late_leaves_the_row() -> None:
    table = Rows().take([change("a", "c", 40, 0)]).take([change("a", "d", 30, 1)])
    assert table.states["a"].late_delete
    assert table.take([tombstone("a", 2)]).rows == {"a": 0}


def test_of_changes_at_one_position_the_later_one_counts_but_never_a_snapshot() -> None:
    assert Rows().take([change("a", "c", 5, 0), change("a", "u", 5, 1)]).rows == {"a": 1}
    assert Rows().take([change("a", "u", 5, 0)]).take([change("a", "u", 5, 1)]).rows == {"a": 1}
    assert Rows().take([change("a", "u", 5, 0)]).take([change("a", "r", 5, 1)]).rows == {"a": 0}
    assert Rows().take([change("a", "r", 5, 0)]).take([change("a", "u", 5, 1)]).rows == {"a": 1}


def test_what_was_done_is_counted() -> None:
    states = {"a": State(at(10)), "b": State(at(10)), "c": State(at(10), deleted=True), "d": State(at(10))}
    folded = fold(
        [
            change("a", "u", 11, 0),
            change("b", "d", 11, 1),
            change("c", "c", 11, 2),
            change("d", "u", 9, 3),
            change("e", "c", 1, 4),
            change("f", "d", 1, 5),
        ],
        states,
    )
    assert folded.counts() == {"inserted": 2, "updated": 1, "deleted": 1, "older": 1}
    assert [one.key for one in folded.outcomes] == ["a", "b", "c", "e", "f"]


def is_rising(positions: list[Position]) -> bool:
    return all(earlier.rank() < later.rank() for earlier, later in pairwise(positions))


def test_positions_are_in_the_order_of_the_source() -> None:
    def binlog(file: str, pos: int, row: int | None = None) -> Position:
        return Position((("file", file), ("pos", pos), ("row", row)))

    ordered = [
        binlog("mysql-bin.000009", 900),
        binlog("mysql-bin.000010", 4),
        binlog("mysql-bin.000010", 4, 1),
        binlog("mysql-bin.999999", 4),
        binlog("mysql-bin.1000000", 4),
    ]
    assert is_rising(ordered)
    numbers = [Position((("scn", text),)) for text in ("9", "10", "2000", "18446744073709551616")]
    assert is_rising(numbers)
    server = [Position((("commit_lsn", text),)) for text in ("00000027:00000758:0005", "0000002a:00000001:0001")]
    assert is_rising(server)


def test_positions_of_different_kinds_are_not_compared() -> None:
    other = Change("a", "u", ("t", 3, 17), Position((("ts_ms", 5),)))
    with pytest.raises(MixedPositions, match="t partition 3 offset 17 has its source position by ts_ms"):
        fold([other], {"a": State(at(10))})


def test_the_rows_of_a_table() -> None:
    schema = pa.schema(
        [
            ("__key", pa.string()),
            ("__deleted", pa.bool_()),
            ("__position", pa.string()),
            ("n", pa.int64()),
            ("old", pa.string()),
        ]
    )
    there = pa.table({"__key": ["k"], "__deleted": [False], "__position": ["?"], "n": [7], "old": ["x"]})
    folded = fold(
        [change("a", "c", 1, 0), change("b", "d", 1, 1), change("k", "d", 1, 2)],
        {"k": State(at(9)), "b": State(at(0))},
    )
    rows = pa.table({"n": pa.array([1, None, None], pa.int32())})
    asked: list[list[str]] = []

    def found(keys: list[str]) -> pa.Table:
        asked.append(keys)
        return there

    assert upserts(folded.outcomes, rows, found, schema).to_pylist() == [
        {"__key": "a", "__deleted": False, "__position": '{"lsn":1}', "n": 1, "old": None},
        {"__key": "b", "__deleted": True, "__position": '{"lsn":1}', "n": None, "old": None},
        {"__key": "k", "__deleted": False, "__position": '{"lsn":9,"$late_delete":true}', "n": 7, "old": "x"},
    ]
    assert asked == [["k"]]
