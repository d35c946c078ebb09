"""Readers that read from followers in simulated clusters: they do, and a law speaks of what is not committed."""

import pytest

from skidway.sim.laws.history import History
from skidway.sim.plan import draw_plan
from skidway.sim.run import Verdict, run_plan
from skidway.sim.world.events import Violation, World


def run(seed: int, *kinds: str) -> Verdict:
    plan = draw_plan(seed, nodes=3, seconds=6, kinds=list(kinds))
    plan.racks = plan.readers = 3
    return run_plan(plan)


def test_some_seeds_have_racks() -> None:
    drawn = [draw_plan(seed).racks for seed in range(40)]
    assert {0, 2, 3} <= set(drawn)
    assert not any(draw_plan(seed, later=1).racks for seed in range(40))


def test_readers_go_to_followers_and_come_back() -> None:
    verdict = run(1, "kill", "elect", "cut pair")
    assert verdict.ok, verdict.text
    assert verdict.marks["read from a follower"] > 50
    assert verdict.marks["sent to a nearer replica"] > 5


def test_a_follower_that_serves_too_much() -> None:
    history = History(World(1))
    history.committed = lambda topic_id, partition: 7
    history.served_by_follower("r0 by n2", bytes(16), 0, 7)
    with pytest.raises(Violation) as broken:
        history.served_by_follower("r0 by n2", bytes(16), 0, 8)
    assert broken.value.checker == "uncommitted-read"
