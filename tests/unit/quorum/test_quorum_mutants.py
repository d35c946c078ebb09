"""A storm that finds nothing means little unless it finds planted mistakes."""

from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest
from quorum_mutants import FOUND_BY
from quorum_world import storm

Mutant = Callable[[], AbstractContextManager[None]]
SEEDS = 40


def finds(mutant: Mutant, seed: int) -> bool:
    try:
        with mutant():
            storm(seed)
    except AssertionError:
        return True
    return False


@pytest.mark.parametrize(("mutant", "seed"), FOUND_BY.items(), ids=[mutant.__name__ for mutant in FOUND_BY])
def test_a_planted_mistake_is_found(mutant: Mutant, seed: int) -> None:
    """By the seed that is known to, or soon by another: every change of the machine changes what a seed means."""
    assert any(finds(mutant, number) for number in [seed, *range(SEEDS)])
