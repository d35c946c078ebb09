"""The quorum under crashes, cuts, lost messages, snapshots and changing voters: the laws of Raft hold at every step."""

import pytest
from quorum_world import storm


@pytest.mark.parametrize("seed", range(12))
def test_laws_hold_in_a_storm(seed: int) -> None:
    world = storm(seed)
    assert len(world.acknowledged) > 20
    assert len(world.leaders) > 1


@pytest.mark.chaos
@pytest.mark.parametrize("seed", range(12, 300))
def test_laws_hold_in_many_storms(seed: int) -> None:
    storm(seed)


def test_the_same_seed_tells_the_same_story() -> None:
    first, second = storm(3), storm(3)
    assert first.acknowledged == second.acknowledged
    assert (first.counter, first.leaders) == (second.counter, second.leaders)
