"""Leaders in storms: whatever happens, everybody who could be elected has what is committed; and mistakes are found."""

from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest
from leader_mutants import MUTANTS
from replication_world import storm

SEEDS = 200
SEEDS_MAX = 5_000


def test_what_is_committed_is_held_by_everybody_who_could_be_elected() -> None:
    committed = elections = 0
    for seed in range(SEEDS):
        world = storm(seed)
        committed += len(world.committed)
        elections += world.controller.now.leader_epoch
    # The storms are worth nothing if little happens in them.
    assert committed > 10 * SEEDS
    assert elections > 2 * SEEDS


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_mistake_is_found(mutant: Callable[[], AbstractContextManager[None]]) -> None:
    with mutant():
        for seed in range(SEEDS_MAX):
            try:
                storm(seed)
            except AssertionError:
                return
    raise AssertionError(f"no storm of {SEEDS_MAX} found that the leader {mutant.__name__}")
