"""The table as the checkpoint: a record is in it once, whoever reads from wherever. Without Spark."""

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from drivers_in_turns import Turns, TurnStore, planted
from pyspark.sql.types import LongType, StructField, StructType

from skidway.spark.lake import Span, Target, open_table, parquet, staging, table
from skidway.spark.lake.positions import Gap, Known, Rest, Whole, advance, from_json, is_next, judge, to_json
from skidway.spark.lake.staging import Attempt, DataFile
from skidway.spark.lake.table import BatchesMissing, plan
from skidway.spark.pipelines.resuming import resume
from skidway.spark.pipelines.spans import span_of
from skidway.spark.source.offsets import Found
from skidway.spark.source.streaming import Mark

FRAME: Any = SimpleNamespace(schema=StructType([StructField("id", LongType())]))
FORMATS = ("parquet", "delta", "iceberg")
OLD, NEW = b"\x01" * 16, b"\xfe" * 16
ID = OLD.hex()
RECORDS = 12
SEEDS = 40
LOG_SEEDS = 3


def span(begin: int | None, end: int, key: str = ID, partition: int = 0) -> Span:
    place = (key, partition)
    return Span({place: end}, {} if begin is None else {place: begin}, {key: "shop"})


def test_a_batch_beside_the_positions_of_the_table() -> None:
    has = {(ID, 0): 10}
    assert judge({}, span(0, 5)) == Whole()
    assert judge(has, span(10, 15)) == Whole()
    assert judge(has, span(5, 10)) == Known()
    assert judge(has, span(5, 15)) == Rest({("shop", 0): 10})
    assert judge(has, span(None, 15)) == Rest({("shop", 0): 10})
    assert judge(has, span(11, 15)) == Gap("shop", 0, has=10, begins=11)
    assert judge(has, span(0, 5, NEW.hex())) == Whole()


def test_a_partition_that_is_new_is_taken_beside_one_that_is_known() -> None:
    both = Span({(ID, 0): 10, (ID, 1): 3}, {(ID, 0): 10}, {ID: "shop"})
    assert judge({(ID, 0): 10}, both) == Whole()
    assert judge({(ID, 0): 10, (ID, 1): 3}, both) == Known()
    # A table of rejects lags in one partition and is ahead in the other.
    apart = Span({(ID, 0): 30, (ID, 1): 30}, {(ID, 0): 20, (ID, 1): 20}, {ID: "shop"})
    assert judge({(ID, 0): 10, (ID, 1): 25}, apart) == Gap("shop", 0, 10, 20, {("shop", 1): 25})


def test_positions_never_go_back_and_commits_look_at_them() -> None:
    has = {(ID, 0): 10, (ID, 7): 1}
    step = advance(has, span(5, 8))
    assert (step.before, step.after) == ({(ID, 0): 10}, {(ID, 0): 10})
    assert is_next(3, 2, step, has)
    assert not is_next(2, 2, step, has)
    assert not is_next(3, 2, step, {(ID, 0): 11})
    assert not is_next(3, 2, advance({}, span(0, 8)), has)
    assert is_next(3, 2, None, has)


def test_positions_as_json() -> None:
    positions, names = {(ID, 0): 10, (ID, 12): 0}, {ID: "shop"}
    assert from_json(to_json(positions, names)) == (positions, names)


def test_the_span_of_a_batch_is_between_two_marks() -> None:
    first = Mark({("shop", 0): 5}, {"shop": OLD}, {("shop", 0): 2})
    assert span_of(None, first) == span(2, 5)
    second = Mark({("shop", 0): 9, ("shop", 1): 4}, {"shop": OLD})
    assert span_of(first, second) == Span({(ID, 0): 9, (ID, 1): 4}, {(ID, 0): 5}, {ID: "shop"})
    anew = Mark({("shop", 0): 3}, {"shop": NEW})
    assert span_of(second, anew) == span(None, 3, NEW.hex())
    nameless = Mark({("shop", 0): 3}, {"shop": bytes(16)})
    assert span_of(None, nameless) == Span({("name:shop", 0): 3}, {}, {"name:shop": "shop"})


def test_an_archive_without_a_checkpoint_begins_where_its_table_ends() -> None:
    found = Found([("shop", 0), ("shop", 1), ("other", 0)], {"shop": OLD, "other": NEW})
    went_on = resume(found, {(ID, 0): 7}, {"shop": [ID]}, -1)
    assert went_on.offsets == {("shop", 0): 7, ("shop", 1): -2, ("other", 0): -1}
    assert (went_on.known, went_on.made_anew) == ([("shop", 0)], [])
    assert resume(found, {}, {}, -1).offsets == {}


def test_a_topic_that_was_made_anew_begins_at_its_beginning() -> None:
    found = Found([("shop", 0), ("other", 0)], {"shop": NEW, "other": OLD})
    known = {"shop": [ID[:15]], "other": [ID[:15]]}
    alone = resume(Found([("shop", 0)], {"shop": NEW}), {}, known, -1)
    assert (alone.offsets, alone.made_anew) == ({}, ["shop"])
    beside = resume(found, {(ID, 0): 5}, known, -1)
    assert beside.offsets == {("shop", 0): -2, ("other", 0): 5}
    assert beside.made_anew == ["shop"]


# Tables.


def files_of(attempt: Attempt, numbers: range, turns: Turns | None = None) -> list[DataFile]:
    attempt.folder.mkdir(parents=True, exist_ok=True)
    if not numbers:
        return []
    if turns is not None:
        turns.step()
    path = attempt.folder / "0.parquet"
    pq.write_table(pa.table({"id": pa.array(numbers, pa.int64())}), path)
    return [DataFile(attempt.name(0), {}, len(numbers), path.stat().st_size, path)]


def write(lake: Any, query: str, batch: int, begin: int, end: int, turns: Turns | None = None) -> bool:
    """As `write_batch`, with rows that are their offsets."""
    for _ in range(20):
        planned = plan(lake, query, batch, span(begin, end))
        if planned is None:
            return False
        attempt = Attempt(lake.root, query, planned.number)
        files = files_of(attempt, range(max(begin, planned.below.get(("shop", 0), 0)), end), turns)
        committed = lake.commit(query, planned.number, files, FRAME, planned.advance)
        attempt.sweep()
        if committed:
            return True
    raise AssertionError("refused for ever")


def ids(where: Target) -> Counter[int]:
    found = open_table(where).read()
    return Counter() if found is None else Counter(found.column("id").to_pylist())


@pytest.fixture(autouse=True)
def no_power_loss_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.mark.parametrize("kind", FORMATS)
def test_overlaps_are_cut_and_what_is_there_is_skipped(tmp_path: Path, kind: str) -> None:
    where = Target(str(tmp_path / "table"), kind)
    assert write(open_table(where), "a", 0, 0, 5)
    assert not write(open_table(where), "b", 0, 0, 5)
    assert write(open_table(where), "b", 0, 3, 8)
    # An older copy of the first checkpoint, whose next batch is longer than the one that is in the table.
    assert write(open_table(where), "b", 0, 0, 10)
    assert write(open_table(where), "b", 1, 10, 10 + 1)
    assert ids(where) == Counter(range(11))
    lake = open_table(where)
    assert lake.positions([(ID, 0), (ID, 1)]) == {(ID, 0): 11}
    (known,) = lake.topic_ids("shop")
    assert ID.startswith(known)
    assert not NEW.hex().startswith(known)
    assert (lake.topic_ids("other"), lake.exists()) == ([], True)


@pytest.mark.parametrize("kind", FORMATS)
def test_a_batch_without_rows_moves_the_positions(tmp_path: Path, kind: str) -> None:
    where = Target(str(tmp_path / "table"), kind)
    lake = open_table(where)
    for batch, (begin, end) in enumerate([(0, 4), (4, 6)]):
        planned = plan(lake, "a", batch, span(begin, end))
        assert planned is not None
        assert lake.commit("a", batch, [], FRAME, planned.advance)
    assert open_table(where).positions([(ID, 0)]) == {(ID, 0): 6}
    # A driver that looked before, and comes now.
    assert not open_table(where).commit("b", 0, [], FRAME, advance({(ID, 0): 4}, span(4, 9)))
    assert open_table(where).positions([(ID, 0)]) == {(ID, 0): 6}


@pytest.mark.parametrize("kind", FORMATS)
def test_a_table_that_lost_commits_refuses_what_comes_behind_them(tmp_path: Path, kind: str) -> None:
    where = Target(str(tmp_path / "table"), kind)
    write(open_table(where), "a", 0, 0, 5)
    with pytest.raises(BatchesMissing, match=r"to offset 5, and the checkpoint goes on at 8.* new checkpoint"):
        plan(open_table(where), "a", 2, span(8, 9))
    # By its number it follows: a version without positions has written in between.
    assert plan(open_table(where), "a", 1, span(8, 9)) is not None


@pytest.mark.parametrize("kind", FORMATS)
def test_a_table_of_the_version_before_goes_on_by_numbers(tmp_path: Path, kind: str) -> None:
    where = Target(str(tmp_path / "table"), kind)
    lake = open_table(where)
    assert lake.commit("a", 4, files_of(Attempt(lake.root, "a", 4), range(5)), FRAME)
    assert not write(open_table(where), "a", 4, 0, 5)
    assert write(open_table(where), "a", 5, 5, 9)
    assert open_table(where).positions([(ID, 0)]) == {(ID, 0): 9}
    assert not write(open_table(where), "b", 0, 0, 9)
    assert ids(where) == Counter(range(9))


def test_manifests_of_the_version_before_are_gone_on_with(tmp_path: Path) -> None:
    """Its driver was killed between the decision and the renames."""
    root = tmp_path / "table"
    folder = root / "_skidway" / "a" / "staging-3"
    folder.mkdir(parents=True)
    pq.write_table(pa.table({"id": pa.array(range(5), pa.int64())}), folder / "x.parquet")
    batches = root / "_skidway" / "a" / "batches"
    batches.mkdir()
    (batches / "000000000003.json").write_text(
        '{"batch": 3, "files": [["_skidway/a/staging-3/x.parquet", "part-x.parquet"]]}'
    )
    where = Target(str(root))
    assert not write(open_table(where), "a", 3, 0, 5)
    assert write(open_table(where), "a", 4, 5, 8)
    assert write(open_table(where), "b", 0, 8, 9)
    assert ids(where) == Counter(range(9))


# Drivers at once, each with a checkpoint of its own: as after a lost folder whose driver lives on.


def drive(turns: Turns, lake: Any, query: str) -> None:
    at = lake.positions([(ID, 0)]).get((ID, 0), 0)
    batch = 0
    while at < RECORDS:
        end = min(RECORDS, at + turns.random.randint(1, 5))
        turns.step()
        write(lake, query, batch, at, end, turns)
        turns.step()
        if turns.random.random() < 0.8:  # Else it died here, before Spark noted the batch, and runs it again.
            at, batch = end, batch + 1


def story(folder: Path, kind: str, seed: int) -> Counter[int]:
    turns, real_move = Turns(seed), staging.move
    where = Target(str(folder / "table"), kind)

    def moving(pairs: Any) -> None:
        for pair in pairs:
            turns.step()
            real_move([pair])

    def one(query: str) -> Callable[[], None]:
        lake: Any = open_table(where)
        if kind == "parquet":
            lake._store = TurnStore(lake.store, turns)
        else:
            lake._open = stepping(lake._open, turns)
        return lambda: drive(turns, lake, query)

    with planted(parquet, "move", moving):
        errors = turns.run({name: one(name) for name in ("a", "b", "c")[: 3 if kind == "parquet" else 2]})
    assert not errors, errors[0]
    last = open_table(where)
    last.last_batch("a")
    at = last.positions([(ID, 0)]).get((ID, 0), 0)
    if at < RECORDS:
        write(last, "last", 0, at, RECORDS)
    return ids(where)


def stepping(opened: Callable[[], Any], turns: Turns) -> Callable[[], Any]:
    def opening() -> Any:
        found = opened()
        turns.step()
        return found

    return opening


@pytest.mark.parametrize("kind", FORMATS)
def test_drivers_with_checkpoints_of_their_own_write_every_record_once(tmp_path: Path, kind: str) -> None:
    for seed in range(SEEDS if kind == "parquet" else LOG_SEEDS):
        assert story(tmp_path / str(seed), kind, seed) == Counter(range(RECORDS)), f"seed {seed}"


MISTAKES: dict[str, tuple[str, Any, str, Any]] = {
    "positions are not looked at again": (
        "parquet",
        parquet,
        "is_next",
        lambda batch, last, advance, has: batch > last,
    ),
    "overlaps are not cut": (
        "parquet",
        table,
        "judge",
        lambda has, span: verdict if not isinstance(verdict := judge(has, span), Rest) else replace(Whole()),
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_planted_mistake_is_found(tmp_path: Path, mistake: str) -> None:
    kind, owner, name, wrong = MISTAKES[mistake]
    for seed in range(SEEDS):
        with planted(owner, name, wrong):
            try:
                found = story(tmp_path / str(seed), kind, seed)
            except (AssertionError, BatchesMissing):
                return
        if found != Counter(range(RECORDS)):
            return
    raise AssertionError(f"nobody noticed: {mistake}")
