"""Members of the classic protocol in simulated clusters: they are drawn, they come far, and their laws speak."""

from types import SimpleNamespace

import pytest

from skidway.sim.laws.groups import GroupLaws
from skidway.sim.plan import GroupPlan, draw_plan
from skidway.sim.run import Verdict, run_plan
from skidway.sim.world.events import Violation, World

KEY, OTHER = ("t", 0), ("t", 1)


def run(seed: int, members: int, classic: int) -> Verdict:
    plan = draw_plan(seed, nodes=3, seconds=6, kinds=["kill", "elect", "cut clients"])
    plan.groups = [GroupPlan("g0", members, plan.topics[0].name, classic)]
    return run_plan(plan)


def test_some_seeds_have_classic_members_alone_and_beside_others() -> None:
    groups = [group for seed in range(40) for group in draw_plan(seed).groups]
    assert any(group.classic == 0 for group in groups)
    assert any(0 < group.classic < group.members for group in groups)
    assert any(group.classic == group.members for group in groups)


def test_a_classic_group_goes_through_generations() -> None:
    verdict = run(1, 3, 3)
    assert verdict.ok, verdict.text
    assert verdict.marks["classic generation"] >= 6


def test_both_protocols_in_one_group() -> None:
    verdict = run(1, 3, 2)
    assert verdict.ok, verdict.text
    assert verdict.marks["classic member of a consumer group"] >= 4


@pytest.fixture
def laws() -> GroupLaws:
    return GroupLaws(World(1), SimpleNamespace(running=[]))  # type: ignore[arg-type]


def test_a_generation_that_is_begun_again_may_be_shared_otherwise(laws: GroupLaws) -> None:
    laws.saying("g", 1, {"a": [KEY, OTHER]})
    laws.saying("g", 1, {"a": [KEY], "b": [OTHER]})
    laws.synced("b", "g", 1, [OTHER], 0, led=True)
    laws.synced("a", "g", 1, [KEY], 0, led=True)


def test_two_owners_in_one_generation(laws: GroupLaws) -> None:
    laws.saying("g", 1, {"a": [KEY, OTHER]})
    laws.saying("g", 1, {"a": [KEY], "b": [OTHER]})
    laws.synced("b", "g", 1, [OTHER], 0, led=True)
    with pytest.raises(Violation) as broken:
        laws.synced("a", "g", 1, [KEY, OTHER], 0, led=True)
    assert broken.value.checker == "one-owner"


def test_an_assignment_that_no_leader_made(laws: GroupLaws) -> None:
    laws.saying("g", 1, {"a": [KEY]})
    laws.saying("g", 2, {"a": [OTHER]})
    with pytest.raises(Violation) as broken:
        laws.synced("a", "g", 2, [KEY], 0, led=True)
    assert broken.value.checker == "assignments"


def test_an_old_generation_after_a_new_one(laws: GroupLaws) -> None:
    laws.saying("g", 1, {"a": [KEY]})
    laws.saying("g", 2, {"b": [KEY]})
    laws.world.now_us = 10
    laws.synced("b", "g", 2, [KEY], 5, led=True)
    # Asked before the new one was known to anybody: the answer may have been under way.
    laws.synced("a", "g", 1, [KEY], 9, led=True)
    with pytest.raises(Violation) as broken:
        laws.synced("a", "g", 1, [KEY], 11, led=True)
    assert broken.value.checker == "assignments"
