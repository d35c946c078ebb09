"""The quorum under crashes, cuts, lost messages, snapshots and changing voters: the laws of Raft hold at every step."""

import pytest
from quorum_disks import RealStore
from quorum_world import storm


@pytest.mark.parametrize("seed", range(12))
def test_laws_hold_in_a_storm(seed: int) -> None:
    world = storm(seed)
    assert len(world.acknowledged) > 20
    assert len(world.leaders) > 1


@pytest.mark.parametrize("seed", range(9))
def test_laws_hold_over_real_files(seed: int) -> None:
    """The product's log, snapshots and vote on disks that forget, stopped in the middle of their operations too."""
    world = storm(seed, store=RealStore)
    assert len(world.acknowledged) > 20


@pytest.mark.chaos
@pytest.mark.parametrize("seed", range(9, 300))
def test_laws_hold_over_real_files_in_many_storms(seed: int) -> None:
    storm(seed, store=RealStore)


@pytest.mark.chaos
@pytest.mark.parametrize("seed", range(12, 300))
def test_laws_hold_in_many_storms(seed: int) -> None:
    storm(seed)


def test_the_same_seed_tells_the_same_story() -> None:
    first, second = storm(3), storm(3)
    assert first.acknowledged == second.acknowledged
    assert (first.counter, first.leaders) == (second.counter, second.leaders)
