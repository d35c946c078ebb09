"""A storm that finds nothing means little unless it finds planted mistakes."""

import re
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest
from quorum_disks import MemoryStore, RealStore, Store
from quorum_mutants import FOUND_BY, FOUND_ON_DISK_BY
from quorum_world import storm

from skidway.errors import StorageError

Mutant = Callable[[], AbstractContextManager[None]]
SEEDS = 40


def finds(mutant: Mutant, law: str, seed: int, store: Callable[[], Store] = MemoryStore) -> bool:
    """The law that is about it is broken, or a node cannot be started again because of it."""
    try:
        with mutant():
            storm(seed, store=store)
    except (AssertionError, StorageError) as broken:
        return re.search(law, str(broken)) is not None
    return False


@pytest.mark.parametrize(("mutant", "found"), FOUND_BY.items(), ids=[mutant.__name__ for mutant in FOUND_BY])
def test_a_planted_mistake_is_found(mutant: Mutant, found: tuple[int, str]) -> None:
    """By the seed that is known to, or soon by another: every change of the machine changes what a seed means."""
    seed, law = found
    assert any(finds(mutant, law, number) for number in [seed, *range(SEEDS)])


@pytest.mark.parametrize(
    ("mutant", "found"), FOUND_ON_DISK_BY.items(), ids=[mutant.__name__ for mutant in FOUND_ON_DISK_BY]
)
def test_a_planted_mistake_with_files_is_found(mutant: Mutant, found: tuple[int, str]) -> None:
    seed, law = found
    assert any(finds(mutant, law, number, RealStore) for number in [seed, *range(SEEDS)])
