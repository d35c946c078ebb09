"""Placement: replicas on different brokers, racks before neighbours, and an even load."""

import random
from collections import Counter

import pytest

from skidway.errors import InvalidReplicationFactor
from skidway.metadata.placement import Site, place


class Seeded:
    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def randbytes(self, size: int) -> bytes:
        return self._random.randbytes(size)

    def randrange(self, stop: int) -> int:
        return self._random.randrange(stop)


def test_one_broker_gets_everything() -> None:
    assert place([Site(7)], 3, 1, Seeded(0)) == [[7], [7], [7]]


def test_the_stripes_over_three_brokers() -> None:
    placed = place([Site(1), Site(2), Site(3)], 4, 3, Seeded(0))
    # Once around the ring, 1's followers come in the other order.
    assert placed == [[2, 3, 1], [3, 1, 2], [1, 3, 2], [2, 1, 3]]


@pytest.mark.parametrize("seed", range(50))
def test_leaders_and_replicas_are_spread_evenly(seed: int) -> None:
    rng = random.Random(seed)
    brokers = rng.randrange(1, 9)
    factor = rng.randrange(1, brokers + 1)
    placed = place([Site(broker) for broker in range(brokers)], brokers * 6, factor, Seeded(seed))
    assert all(len(set(replicas)) == factor for replicas in placed)
    assert set(Counter(replicas[0] for replicas in placed).values()) == {6}
    held = Counter(broker for replicas in placed for broker in replicas)
    assert max(held.values()) - min(held.values()) <= 6


@pytest.mark.parametrize("seed", range(20))
def test_racks_come_before_neighbours(seed: int) -> None:
    racks = {broker: f"rack-{broker % 3}" for broker in range(9)}
    placed = place([Site(broker, rack) for broker, rack in racks.items()], 30, 3, Seeded(seed))
    assert all(len({racks[broker] for broker in replicas}) == 3 for replicas in placed)


def test_with_fewer_racks_than_replicas_all_racks_are_used() -> None:
    sites = [Site(0, "a"), Site(1, "a"), Site(2, "a"), Site(3, "b")]
    for replicas in place(sites, 20, 3, Seeded(1)):
        assert 3 in replicas
        assert len(set(replicas)) == 3


def test_fenced_brokers_are_the_last_resort_and_never_lead() -> None:
    sites = [Site(0), Site(1), Site(2, fenced=True)]
    assert all(2 not in replicas for replicas in place(sites, 10, 2, Seeded(1)))
    assert all(replicas[2] == 2 for replicas in place(sites, 10, 3, Seeded(1)))


@pytest.mark.parametrize("seed", range(20))
def test_drained_brokers_get_nothing_and_the_others_share_evenly(seed: int) -> None:
    sites = [Site(broker, drained=broker in (1, 4)) for broker in range(6)]
    placed = place(sites, 24, 3, Seeded(seed))
    assert all(len(set(replicas)) == 3 for replicas in placed)
    assert Counter(broker for replicas in placed for broker in replicas) == dict.fromkeys((0, 2, 3, 5), 18)
    assert Counter(replicas[0] for replicas in placed) == dict.fromkeys((0, 2, 3, 5), 6)


def test_a_fenced_broker_is_taken_before_a_drained_one() -> None:
    sites = [Site(0), Site(1, fenced=True), Site(2, drained=True)]
    assert place(sites, 2, 2, Seeded(0)) == [[0, 1], [0, 1]]


@pytest.mark.parametrize(
    ("sites", "factor", "reason"),
    [
        ([Site(1), Site(2), Site(3, drained=True)], 3, "only 2 other broker(s) are registered; broker 3 is drained"),
        (
            [Site(1, drained=True), Site(2, drained=True)],
            1,
            "There is no broker to place replicas on; brokers 1, 2 are drained and take no new replicas.",
        ),
        (
            [Site(1, drained=True), Site(2, fenced=True)],
            1,
            "All other brokers are currently fenced; broker 1 is drained",
        ),
        ([Site(1)], 0, "must be positive"),
        ([Site(1)], 2, "only 1 broker(s) are registered"),
        ([], 1, "All brokers are currently fenced"),
        ([Site(1, fenced=True)], 1, "All brokers are currently fenced"),
    ],
)
def test_what_cannot_be_placed(sites: list[Site], factor: int, reason: str) -> None:
    with pytest.raises(InvalidReplicationFactor) as refusal:
        place(sites, 1, factor, Seeded(0))
    assert reason in str(refusal.value)
