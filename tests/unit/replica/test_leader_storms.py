"""Leaders in storms: whatever happens, everybody who could be elected has what is committed; and mistakes are found."""

import re
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest
from leader_mutants import FOUND_BY
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


@pytest.mark.parametrize(("mutant", "found"), FOUND_BY.items(), ids=[mutant.__name__ for mutant in FOUND_BY])
def test_a_mistake_is_found(mutant: Callable[[], AbstractContextManager[None]], found: tuple[int, str]) -> None:
    """By the seed that is known to, or soon by another: every change of the leader changes what a seed means."""
    first, law = found
    with mutant():
        for seed in [first, *range(SEEDS_MAX)]:
            try:
                storm(seed)
            except AssertionError as broken:
                if re.search(law, str(broken)):
                    return
    raise AssertionError(f"no storm of {SEEDS_MAX} found that the leader {mutant.__name__}")
