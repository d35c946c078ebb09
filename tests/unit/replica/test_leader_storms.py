"""Leaders in storms: whatever happens, everybody who could be elected has what is committed; and mistakes are found."""

from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest
from leader_mutants import MUTANTS, trusts_rebooted_followers, trusts_unregistered_followers
from replication_world import storm

SEEDS = 200
SEEDS_MAX = 5_000
FOUND_BY = {trusts_rebooted_followers: 1_138, trusts_unregistered_followers: 2_505}
"""Those that few storms find; every change of the leader changes which."""


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
        for seed in [FOUND_BY.get(mutant, 0), *range(SEEDS_MAX)]:
            try:
                storm(seed)
            except AssertionError:
                return
    raise AssertionError(f"no storm of {SEEDS_MAX} found that the leader {mutant.__name__}")
