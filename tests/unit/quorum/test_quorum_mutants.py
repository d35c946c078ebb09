"""A storm that finds nothing means little unless it finds planted mistakes."""

from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest
from quorum_disks import MemoryStore, RealStore, Store
from quorum_mutants import FOUND_BY, FOUND_ON_DISK_BY
from quorum_world import storm

from skidway.errors import StorageError

Mutant = Callable[[], AbstractContextManager[None]]
SEEDS = 40


def finds(mutant: Mutant, seed: int, store: Callable[[], Store] = MemoryStore) -> bool:
    """A law is broken, or a node cannot be started again."""
    try:
        with mutant():
            storm(seed, store=store)
    except (AssertionError, StorageError):
        return True
    return False


@pytest.mark.parametrize(("mutant", "seed"), FOUND_BY.items(), ids=[mutant.__name__ for mutant in FOUND_BY])
def test_a_planted_mistake_is_found(mutant: Mutant, seed: int) -> None:
    """By the seed that is known to, or soon by another: every change of the machine changes what a seed means."""
    assert any(finds(mutant, number) for number in [seed, *range(SEEDS)])


@pytest.mark.parametrize(
    ("mutant", "seed"), FOUND_ON_DISK_BY.items(), ids=[mutant.__name__ for mutant in FOUND_ON_DISK_BY]
)
def test_a_planted_mistake_with_files_is_found(mutant: Mutant, seed: int) -> None:
    assert any(finds(mutant, number, RealStore) for number in [seed, *range(SEEDS)])
