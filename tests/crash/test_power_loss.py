"""Power is lost in the middle of anything; what was promised is there afterwards. See `power_loss`."""

import os
import traceback
from collections import Counter
from functools import partial

import power_loss_bugs
import pytest
from power_loss import History
from power_loss_bugs import OFTEN, SELDOM, Plant

from skidway.broker.partitions import partition
from skidway.log.settings import LogSettings

SEEDS = 120
CHAOS_SEEDS = int(os.environ.get("SKIDWAY_CHAOS_SEEDS", "4000"))
GROUPS = 4


@pytest.fixture(autouse=True)
def frequent_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a log of a few kilobytes, 64 MB between two checkpoints would mean none at all."""
    monkeypatch.setattr(partition, "LogSettings", partial(LogSettings, checkpoint_bytes=2_000))


def run(seeds: range) -> Counter[str]:
    marks: Counter[str] = Counter()
    for seed in seeds:
        try:
            marks.update(History(seed).run())
        except BaseException as error:
            error.add_note(f"seed {seed}: History({seed}).run() shows it again")
            raise
    return marks


@pytest.mark.parametrize("group", range(GROUPS))
def test_nothing_promised_is_lost(group: int) -> None:
    size = SEEDS // GROUPS
    marks = run(range(group * size, (group + 1) * size))
    # A history in which nothing happens keeps every promise.
    for needed in (
        "acknowledged",
        "closed cleanly",
        "crashed in an operation",
        "created",
        "deleted",
        "duplicate known after restart",
        "grown",
        "power lost",
        "process died",
        "read",
        "records deleted",
        "refused as gone",
        "refused as too early",
        "repeated a batch",
        "settled",
    ):
        assert marks[needed] > 0, f"no seed has {needed!r}: {marks}"


def test_an_answered_deletion_stays_when_power_is_lost_in_the_next_one() -> None:
    """Where power was lost between the save of a second deletion and the sync of the records that it was about, the
    first one was undone."""
    assert run(range(123, 124))["records deleted"] > 0


@pytest.mark.chaos
def test_nothing_promised_is_lost_in_many_histories() -> None:
    print(run(range(1_000_000, 1_000_000 + CHAOS_SEEDS)))


def first_seed_that_finds(plant: Plant, patch: pytest.MonkeyPatch, seeds: int) -> int | None:
    plant(patch)
    for seed in range(seeds):
        try:
            History(seed).run()
        except Exception as error:
            # A plant that no longer fits the product fails by itself, and would seem to be found.
            if traceback.extract_tb(error.__traceback__)[-1].filename == power_loss_bugs.__file__:
                raise
            return seed
    return None


@pytest.mark.parametrize("plant", OFTEN, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    assert first_seed_that_finds(plant, monkeypatch, 100) is not None


@pytest.mark.chaos
@pytest.mark.parametrize("plant", SELDOM, ids=lambda plant: plant.__name__)
def test_a_planted_bug_that_shows_seldom_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    assert first_seed_that_finds(plant, monkeypatch, 2_000) is not None
