"""Each mistake of the past, planted, is found by a law that is about it: a simulator that finds nothing proves nothing.

A mutant is looked for with the seed that found it before, then with a few more, because any change of the product
moves what a seed does. The long search (`make chaos`) goes through up to a thousand, and runs what it finds without
the mistake too: then no law may be broken. A run that breaks another law first does not count.
"""

import pytest
from planted_bugs import HARMLESS, HUNTS, mutants, plan_for, run_with

from skidway.sim.run import run_plan

FEW = 24
THOUSAND = 1_000
PLANTED = 25
"""So many at least must be found."""


def find(name: str, seeds: list[int]) -> tuple[int, str]:
    """The seed that found it, and by which law; a story of what was found instead if none did."""
    others: dict[str, int] = {}
    for seed in seeds:
        checker = run_with(name, seed).checker
        if checker in HUNTS[name].laws:
            return seed, checker
        others[checker or "none"] = others.get(checker or "none", 0) + 1
    wanted = " or ".join(HUNTS[name].laws)
    pytest.fail(f"{name} ({mutants()[name].__doc__}) breaks {others} in {len(seeds)} seeds, it should break {wanted}")


@pytest.mark.parametrize("name", sorted(HUNTS))
def test_a_planted_bug_is_found_by_name(name: str) -> None:
    first = HUNTS[name].seed
    find(name, [first, *(seed for seed in range(FEW) if seed != first)])


def test_enough_is_planted() -> None:
    assert len(HUNTS) >= PLANTED
    assert sorted([*HUNTS, *HARMLESS]) == sorted(mutants())


def test_a_mistake_that_is_made_good_is_found_without_what_makes_it_good() -> None:
    assert {twin for _, twin in HARMLESS.values()} <= set(HUNTS)


@pytest.mark.chaos
@pytest.mark.timeout(7_200)
@pytest.mark.parametrize("name", sorted(HUNTS))
def test_a_planted_bug_is_found_within_a_thousand_seeds(name: str) -> None:
    seed, checker = find(name, list(range(10_000, 10_000 + THOUSAND)))
    print(f"{name}: {checker}, by the {seed - 9_999}. seed")
    without = run_plan(plan_for(name, seed))
    assert without.ok, f"{checker} is no proof: without {name} seed {seed} breaks {without.checker}: {without.text}"
