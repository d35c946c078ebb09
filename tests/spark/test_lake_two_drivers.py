"""Several drivers at one table, in thousands of orders: every batch is there once. And mistakes that this finds.

No Spark: a batch is a file or two, written as a task would. The tables, the lease and the store are the real ones.
"""

import os
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from drivers_in_turns import (
    BATCHES,
    TTL_MS,
    History,
    Lease,
    Lost,
    Turns,
    TurnStore,
    holder_named,
    planted,
)
from pyspark.sql.types import LongType, StructField, StructType

from skidway.spark.lake import Target, delta, iceberg, open_table, parquet, staging
from skidway.spark.lake.manifests import Manifests
from skidway.spark.lake.parquet import ParquetTable
from skidway.spark.lake.staging import Attempt, DataFile
from skidway.spark.lake.table import sweep_decided
from skidway.spark.lease.claims import Claims
from skidway.spark.lease.decisions import Contender, Refuse, Seen, Take, Watch, is_held
from skidway.spark.stores import FolderStore

QUERY = "11111111-aaaa"
FRAME: Any = SimpleNamespace(schema=StructType([StructField("id", LongType())]))
ROWS = 2
DRIVERS = 3
SEEDS = 120
LOG_SEEDS = 6


def staged(attempt: Attempt, turns: Turns, *, parquet: bool) -> list[DataFile]:
    """The rows of a batch are always the same; they are in one file or in two, as it happens."""
    attempt.folder.mkdir(parents=True, exist_ok=True)
    files = []
    numbers = [attempt.batch * ROWS + n for n in range(ROWS)]
    parts = [numbers] if turns.random.random() < 0.5 else [[number] for number in numbers]
    for n, part in enumerate(parts):
        turns.step()
        path = attempt.folder / f"{n}.parquet"
        if parquet:
            pq.write_table(pa.table({"id": pa.array(part, pa.int64())}), path)
        else:
            path.write_text("".join(f"{number}\n" for number in part))
        files.append(DataFile(attempt.name(n), {}, len(part), path.stat().st_size, path))
    return files


def drive(turns: Turns, table: Any, lease: Lease, history: History, done: list[int], *, parquet: bool) -> None:
    """What `foreachBatch` does, in every run of a driver: Spark's own log is `done`, written without any care."""
    try:
        lease.take()
        history.holders.setdefault(lease.epoch, set()).add(lease.holder.token)
        while (batch := max(done, default=-1) + 1) < BATCHES:
            last = table.last_batch(QUERY)
            sweep_decided(table.root, QUERY, last)
            if batch > last:
                attempt = Attempt(table.root, QUERY, batch, f"{lease.holder.token}{turns.steps:06d}")
                try:
                    files = staged(attempt, turns, parquet=parquet)
                except FileNotFoundError:
                    # Another driver has committed the batch, and swept away what others had of it.
                    raise Lost from None
                lease.check()
                turns.step()
                if table.commit(QUERY, batch, files, FRAME):
                    history.committed.append((batch, lease.epoch))
                turns.step()
                attempt.sweep()
            turns.step()
            done.append(batch)
        lease.release()
    except Lost:
        pass


def story(folder: Path, seed: int, *, leased: bool) -> tuple[Counter[int], History]:
    """Rows that a reader finds when everything is over and one more driver has looked."""
    turns, history = Turns(seed), History()
    done: list[int] = []
    real_move = staging.move

    def moving(pairs: Any) -> None:
        for pair in pairs:
            turns.step()
            real_move([pair])

    def one(name: str) -> Callable[[], None]:
        table = ParquetTable(Target(str(folder / "table")))
        table._store = TurnStore(table.store, turns)
        lease = lease_for(folder, name, turns, leased=leased)
        return lambda: drive(turns, table, lease, history, done, parquet=False)

    with planted(parquet, "move", moving):
        errors = turns.run({f"d{n}": one(f"d{n}") for n in range(DRIVERS)})
        assert not errors, errors[0]
        table = ParquetTable(Target(str(folder / "table")))
        alone = Alone()
        drive(alone, table, lease_for(folder, "last", alone, leased=leased), history, done, parquet=False)
        table.last_batch(QUERY)
    files = (folder / "table").glob("part-*.parquet")
    return Counter(int(line) for path in files for line in path.read_text().splitlines()), history


def lease_for(folder: Path, name: str, turns: Turns, *, leased: bool) -> Lease:
    store: Any = TurnStore(FolderStore(folder / "checkpoint"), turns)
    return (Lease if leased else NoLease)(turns, Claims(store), holder_named(name))


class NoLease(Lease):
    """Everybody may do everything: what is left is the commit itself."""

    def take(self) -> None:
        self.epoch = 0

    def check(self) -> None:
        self.turns.step()

    def release(self) -> None:
        self.turns.step()


class Alone(Turns):
    """For a driver that is alone: time passes whenever it looks."""

    def __init__(self) -> None:
        super().__init__(0)
        self.steps = 999_999

    def step(self) -> None:
        self.now_ms += TTL_MS


@pytest.fixture(autouse=True)
def no_power_loss_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


EXPECTED = Counter(range(BATCHES * ROWS))


@pytest.mark.parametrize("leased", [True, False], ids=["with a lease", "without"])
def test_drivers_at_once_write_every_batch_once(tmp_path: Path, leased: bool) -> None:
    for seed in range(SEEDS):
        found, history = story(tmp_path / str(seed), seed, leased=leased)
        assert found == EXPECTED, f"seed {seed}"
        assert Counter(batch for batch, _ in history.committed).most_common(1)[0][1] == 1, f"seed {seed}"
        assert not leased or all(len(names) == 1 for names in history.holders.values()), f"seed {seed}: two hold one"


# Planted mistakes.


def overwriting_create(store: FolderStore, name: str, content: bytes) -> bool:
    store.replace(name, content)
    return True


def deciding_without_a_second_look(manifests: Manifests, manifest: Any) -> bool:
    return manifests._store.create(manifests._name(manifest.number), manifest.content())


def the_same_names_for_every_attempt(attempt: Attempt, number: int) -> str:
    return f"part-{attempt.batch}-{number}.parquet"


def sweeping_every_attempt(root: Path, query: str, last_batch: int) -> None:
    import shutil

    for path in (root / "_skidway" / query).glob("staging-*"):
        shutil.rmtree(path, ignore_errors=True)


MISTAKES: dict[str, tuple[bool, Any, str, Any]] = {
    "a create that overwrites": (True, FolderStore, "create", overwriting_create),
    "a manifest that was removed is created again": (False, Manifests, "decide", deciding_without_a_second_look),
    "other attempts are swept away": (False, sys.modules[__name__], "sweep_decided", sweeping_every_attempt),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_planted_mistake_is_found(tmp_path: Path, mistake: str) -> None:
    """In one order of many: rows are missing, twice, a driver fails, or two drivers hold one lease."""
    leased, owner, name, wrong = MISTAKES[mistake]
    for seed in range(SEEDS):
        with planted(owner, name, wrong):
            try:
                found, history = story(tmp_path / str(seed), seed, leased=leased)
            except AssertionError:
                return
        twice = Counter(batch for batch, _ in history.committed).most_common(1)[0][1] > 1
        if found != EXPECTED or twice or (leased and any(len(names) > 1 for names in history.holders.values())):
            return
    raise AssertionError(f"nobody noticed: {mistake}")


# The machine itself.

HOLDER, OTHER = holder_named("a"), holder_named("b")


def test_a_lease_that_nobody_ever_had_or_that_was_given_back_is_taken_at_once() -> None:
    assert Contender(100, 0, 0).look(None, 0, is_gone=False) == Take(1)
    assert Contender(100, 0, 0).look(Seen(7, HOLDER, 3, True), 0, is_gone=False) == Take(8)
    assert Contender(100, 0, 0).look(Seen(7, HOLDER, 3, False), 0, is_gone=True) == Take(8)


def test_a_holder_is_watched_and_replaced_when_its_beat_stands_still() -> None:
    contender = Contender(100, 0, 0)
    seen = Seen(7, HOLDER, 3, False)
    assert contender.look(seen, 0, is_gone=False) == Watch()
    assert contender.look(seen, 99, is_gone=False) == Watch()
    assert contender.look(seen, 100, is_gone=False) == Take(8)


def test_a_holder_that_beats_is_alive_and_who_does_not_wait_is_refused() -> None:
    contender = Contender(100, 0, 0)
    assert contender.look(Seen(7, HOLDER, 3, False), 0, is_gone=False) == Watch()
    assert contender.look(Seen(7, HOLDER, 4, False), 99, is_gone=False) == Refuse(HOLDER)


def test_who_waits_is_refused_when_the_time_is_over_and_not_before() -> None:
    contender = Contender(100, 150, 0)
    looks = [contender.look(Seen(7, HOLDER, n, False), n * 50, is_gone=False) for n in range(4)]
    assert looks == [Watch(), Watch(), Watch(), Refuse(HOLDER)]


def test_a_new_holder_is_watched_anew() -> None:
    contender = Contender(100, 1_000, 0)
    contender.look(Seen(7, HOLDER, 3, False), 0, is_gone=False)
    assert contender.look(Seen(8, OTHER, 3, False), 90, is_gone=False) == Watch()
    assert contender.look(Seen(8, OTHER, 3, False), 180, is_gone=False) == Watch()
    assert contender.look(Seen(8, OTHER, 3, False), 190, is_gone=False) == Take(9)


def test_who_holds_a_lease() -> None:
    assert is_held(7, HOLDER, Seen(7, HOLDER, 1, False))
    for newest in (None, Seen(8, OTHER, 1, False), Seen(7, OTHER, 1, False), Seen(7, HOLDER, 1, True)):
        assert not is_held(7, HOLDER, newest)


def test_a_claim_that_was_taken_and_removed_is_not_taken_again(tmp_path: Path) -> None:
    """A contender decides to take claim 2, stands still, and others have taken 2 and 3 when it does."""
    claims = Claims(FolderStore(tmp_path))
    assert claims.take(1, HOLDER)
    assert claims.take(2, OTHER)
    assert claims.take(3, OTHER)
    assert not claims.take(2, HOLDER)
    assert claims.newest() == Seen(3, OTHER, -1, False)


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_drivers_at_once_at_a_table_with_a_log(tmp_path: Path, kind: str) -> None:
    """Without a lease, with the libraries' own commits: others come between the look at the table and the commit."""
    for seed in range(LOG_SEEDS):
        assert rows_of(tmp_path / str(seed), kind, seed) == EXPECTED, f"seed {seed}"


def rows_of(folder: Path, kind: str, seed: int) -> Counter[int]:
    turns, history = Turns(seed), History()
    done: list[int] = []

    def one(name: str) -> Callable[[], None]:
        table = stepping(open_table(Target(str(folder / "table"), kind)), turns)
        lease = lease_for(folder, name, turns, leased=False)
        return lambda: drive(turns, table, lease, history, done, parquet=True)

    errors = turns.run({name: one(name) for name in ("d0", "d1")})
    assert not errors, errors[0]
    table, alone = open_table(Target(str(folder / "table"), kind)), Alone()
    drive(alone, table, lease_for(folder, "last", alone, leased=False), history, done, parquet=True)
    rows = table.read()
    assert rows is not None
    return Counter(rows.column("id").to_pylist())


LOG_MISTAKES: dict[str, tuple[str, Any, str, Any]] = {
    "delta: the number is not looked at again": ("delta", delta, "_last_batch", lambda table, query: -1),
    "delta: names that repeat": ("delta", Attempt, "name", the_same_names_for_every_attempt),
    "iceberg: pyiceberg repeats what was refused": ("iceberg", iceberg, "PROPERTIES", {}),
}


@pytest.mark.parametrize("mistake", LOG_MISTAKES)
def test_a_planted_mistake_is_found_at_a_table_with_a_log(tmp_path: Path, mistake: str) -> None:
    kind, owner, name, wrong = LOG_MISTAKES[mistake]
    for seed in range(5 * LOG_SEEDS):
        with planted(owner, name, wrong):
            try:
                found = rows_of(tmp_path / str(seed), kind, seed)
            except (AssertionError, OSError, pa.ArrowException):
                return
        if found != EXPECTED:
            return
    raise AssertionError(f"nobody noticed: {mistake}")


def stepping(table: Any, turns: Turns) -> Any:
    """Others may come between the look and the commit."""
    opened = table._open

    def opening() -> Any:
        found = opened()
        turns.step()
        return found

    table._open = opening
    return table
