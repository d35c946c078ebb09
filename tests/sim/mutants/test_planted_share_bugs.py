"""Each mistake about share groups, planted, is found by a law that is about it.

As in `test_planted_bugs`: first with the seed that found it before, then with a few more; the long search goes through
up to a thousand, and runs what it finds without the mistake too.
"""

import pytest
from share_hunts import HUNTS, mutants, plan_for, run_with

from skidway.sim.run import run_plan

FEW = 24
THOUSAND = 1_000
PLANTED = 30
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
def test_a_planted_mistake_about_shares_is_found_by_name(name: str) -> None:
    first = HUNTS[name].seed
    find(name, [first, *(seed for seed in range(FEW) if seed != first)])


def test_enough_is_planted() -> None:
    assert len(HUNTS) >= PLANTED
    assert sorted(HUNTS) == sorted(mutants())


@pytest.mark.parametrize("name", sorted({hunt.shape.__name__: name for name, hunt in HUNTS.items()}.values()))
def test_without_a_mistake_no_law_is_broken(name: str) -> None:
    """One plan of each shape."""
    verdict = run_plan(plan_for(name, HUNTS[name].seed))
    assert verdict.ok, f"{verdict.checker}: {verdict.text}"


@pytest.mark.chaos
@pytest.mark.timeout(7_200)
@pytest.mark.parametrize("name", sorted(HUNTS))
def test_a_planted_mistake_about_shares_is_found_within_a_thousand_seeds(name: str) -> None:
    seed, checker = find(name, list(range(10_000, 10_000 + THOUSAND)))
    print(f"{name}: {checker}, by the {seed - 9_999}. seed")
    without = run_plan(plan_for(name, seed))
    assert without.ok, f"{checker} is no proof: without {name} seed {seed} breaks {without.checker}: {without.text}"
