"""Random histories of a cluster, with everything that must hold checked after every decision."""

from collections import Counter

import pytest
from controller_storm import storm

from skidway.metadata import brokers

SEEDS = 40


@pytest.mark.parametrize("seed", range(SEEDS))
def test_nothing_acknowledged_is_entrusted_to_the_wrong_broker(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if seed % 3 == 0:
        # As if there were thousands of partitions: fencing takes more than one decision.
        monkeypatch.setattr(brokers, "CHANGES_MAX", 2)
    storm(seed)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_nothing_acknowledged_is_entrusted_to_a_damaged_copy(seed: int) -> None:
    storm(seed, damage=True)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_nobody_elects_a_copy_that_its_broker_cannot_read(seed: int) -> None:
    storm(seed, losses=True)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_nothing_new_is_entrusted_to_a_drained_broker(seed: int) -> None:
    storm(seed, drains=True)


def test_the_storms_reach_what_they_are_about() -> None:
    """Storms in which nearly everything is refused, or nothing is, would find nothing."""
    seen: Counter[str] = Counter()
    for seed in range(10):
        seen.update(storm(seed).refusals)
    assert seen["NONE"] > 50
    assert set(seen) >= {
        "DUPLICATE_BROKER_REGISTRATION",
        "FENCED_LEADER_EPOCH",
        "INELIGIBLE_REPLICA",
        "INVALID_UPDATE_VERSION",
        "NEW_LEADER_ELECTED",
        "STALE_BROKER_EPOCH",
    }
    damaged: Counter[str] = Counter()
    for seed in range(10):
        damaged.update(storm(seed, damage=True).refusals)
    assert damaged["ELIGIBLE_LEADERS_NOT_AVAILABLE"] > 20
    assert damaged["NEW_LEADER_ELECTED"] > seen["NEW_LEADER_ELECTED"]
