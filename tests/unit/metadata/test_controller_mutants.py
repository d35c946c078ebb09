"""A storm that finds nothing means little unless it finds planted mistakes."""

import pytest
from controller_mutants import FOUND_BY, FOUND_BY_DAMAGE, FOUND_BY_DRAINS, FOUND_BY_LOSSES, Mutant
from controller_storm import storm


@pytest.mark.parametrize(("mutant", "found"), FOUND_BY.items(), ids=[mutant.__name__ for mutant in FOUND_BY])
def test_a_planted_mistake_is_found(mutant: Mutant, found: tuple[int, str]) -> None:
    seed, law = found
    with mutant(), pytest.raises(AssertionError, match=law):
        storm(seed)


@pytest.mark.parametrize(
    ("mutant", "found"), FOUND_BY_DAMAGE.items(), ids=[mutant.__name__ for mutant in FOUND_BY_DAMAGE]
)
def test_a_planted_mistake_about_damaged_copies_is_found(mutant: Mutant, found: tuple[int, str]) -> None:
    seed, law = found
    with mutant(), pytest.raises(AssertionError, match=law):
        storm(seed, damage=True)


@pytest.mark.parametrize(
    ("mutant", "found"), FOUND_BY_LOSSES.items(), ids=[mutant.__name__ for mutant in FOUND_BY_LOSSES]
)
def test_a_planted_mistake_about_lost_copies_is_found(mutant: Mutant, found: tuple[int, str]) -> None:
    seed, law = found
    with mutant(), pytest.raises(AssertionError, match=law):
        storm(seed, losses=True)


@pytest.mark.parametrize(
    ("mutant", "found"), FOUND_BY_DRAINS.items(), ids=[mutant.__name__ for mutant in FOUND_BY_DRAINS]
)
def test_a_planted_mistake_about_drained_brokers_is_found(mutant: Mutant, found: tuple[int, str]) -> None:
    seed, law = found
    with mutant(), pytest.raises(AssertionError, match=law):
        storm(seed, drains=True)
