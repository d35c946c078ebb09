"""A storm that finds nothing means little unless it finds planted mistakes."""

from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest
from quorum_mutants import FOUND_BY
from quorum_world import storm

Mutant = Callable[[], AbstractContextManager[None]]


@pytest.mark.parametrize(("mutant", "seed"), FOUND_BY.items(), ids=[mutant.__name__ for mutant in FOUND_BY])
def test_a_planted_mistake_is_found(mutant: Mutant, seed: int) -> None:
    with mutant(), pytest.raises(AssertionError):
        storm(seed)
