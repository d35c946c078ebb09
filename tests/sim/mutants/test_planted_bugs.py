"""Each mistake of the past, planted, is found by a law: a simulator that finds nothing proves nothing.

A mutant is looked for with the seed that found it before, then with a few more, because any change of the product
moves what a seed does. The long search (`make chaos`) goes through up to a thousand.
"""

import pytest
from planted_bugs import FOUND_BY, NOT_FOUND_YET, Finding, mutants, run_with

FEW = 12
THOUSAND = 1_000
PLANTED = 25
"""So many at least must be found."""


def find(name: str, hint: Finding, others: range) -> Finding | None:
    for seed in [hint.seed, *(seed for seed in others if seed != hint.seed)]:
        verdict = run_with(name, seed, hint.nodes)
        if not verdict.ok:
            return Finding(seed, hint.nodes, verdict.checker)
    return None


@pytest.mark.parametrize("name", sorted(FOUND_BY))
def test_a_planted_bug_is_found(name: str) -> None:
    found = find(name, FOUND_BY[name], range(FEW))
    assert found is not None, f"{name} is not found: {mutants()[name].__doc__}"
    # An exception tells less than a law: it must not be the only thing that finds a mistake about data.
    assert found.checker != "bug" or FOUND_BY[name].checker == "bug"


def test_enough_is_planted() -> None:
    assert len(FOUND_BY) >= PLANTED
    assert sorted([*FOUND_BY, *NOT_FOUND_YET]) == sorted(mutants())


@pytest.mark.chaos
@pytest.mark.timeout(7_200)
@pytest.mark.parametrize("name", sorted(FOUND_BY))
def test_a_planted_bug_is_found_within_a_thousand_seeds(name: str) -> None:
    hint = FOUND_BY[name]
    for seed in range(THOUSAND):
        if not run_with(name, 10_000 + seed, hint.nodes).ok:
            print(f"{name}: found by the {seed + 1}. seed")
            return
    pytest.fail(f"{name} is not found by {THOUSAND} seeds")
