"""Voters that change, bits that flip or rot in simulated clusters: all are reached, and their laws find mistakes."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

import pytest

from skidway.broker.partitions.partition import Partition
from skidway.broker.replication.fetchers import Fetchers
from skidway.broker.upkeep.scrubbing import Scrubbing
from skidway.log.recovery.tail import Tail
from skidway.log.scrubbing import CheckTicket
from skidway.quorum.machine import Quorum
from skidway.quorum.role import Role
from skidway.replica.news import BadBatchFetched
from skidway.sim.plan import LATER, NEWEST, draw_plan
from skidway.sim.run import Verdict, run_plan
from skidway.sim.world.cluster import node_settings
from skidway.sim.world.events import Violation, World
from skidway.sim.world.host import Host
from skidway.sim.world.network import Network

SECONDS = 6


def run(seed: int, nodes: int, *kinds: str) -> Verdict:
    return run_plan(draw_plan(seed, nodes=nodes, seconds=SECONDS, kinds=list(kinds)))


def test_what_a_seed_drew_before_it_still_draws() -> None:
    for seed in range(20):
        plans = [draw_plan(seed, nodes=3, later=later) for later in range(NEWEST + 1)]
        for before, now, added in zip(plans, plans[1:], LATER, strict=False):
            assert [fault for fault in now.faults if fault.kind not in added] == before.faults
            assert (now.topics, now.producers) == (before.topics, before.producers)
            members = [[(group.name, group.members, group.topic) for group in plan.groups] for plan in (before, now)]
            assert members[0] == members[1]
    drawn = {fault.kind for seed in range(60) for fault in draw_plan(seed, nodes=3).faults}
    assert {kind for added in LATER for kind in added} <= drawn


def test_voters_leave_and_return() -> None:
    verdict = run(0, 3, "voters", "voters", "two", "kill")
    assert verdict.ok, verdict.text
    assert verdict.marks["voter removed"] >= 2
    assert verdict.marks["voter added"] >= 2


def test_a_copy_with_a_flipped_bit_is_whole_again_in_the_end() -> None:
    verdict = run(15, 3, "flip", "stop")
    assert verdict.ok, verdict.text
    assert verdict.marks["bit flipped"] == 2


def test_a_bit_that_rots_unseen_is_found_and_the_copy_is_whole_again_in_the_end() -> None:
    verdict = run(2, 3, "rot", "stop")
    assert verdict.ok, verdict.text
    assert verdict.marks["bit rotted"] >= 2


# Each law finds its mistake.


def changes_do_not_wait() -> AbstractContextManager[Any]:
    """A change of the voters is begun while another is under way."""
    may = property(lambda self: None if self.role is Role.LEADER else "this node does not lead the quorum")
    return patch.object(Quorum, "may_change_voters", may)


def removed_leaders_do_not_stand() -> AbstractContextManager[Any]:
    """A leader whose removal nobody has heard of takes itself for removed."""
    return patch.object(Quorum, "may_stand", property(lambda self: self.is_voter))


@contextmanager
def damaged_copies_left_alone() -> Iterator[None]:
    """Never served, and never fetched anew either."""
    original = Fetchers.on_role_changed

    def on_role_changed(self: Fetchers, partition: Partition) -> None:
        if not partition.log.quarantined:
            original(self, partition)

    with patch.object(Fetchers, "on_role_changed", on_role_changed):
        yield


@contextmanager
def damage_cut_off() -> Iterator[None]:
    """A damaged batch is taken for a torn tail."""
    original = Tail._cut

    def cut(self: Tail, *arguments: Any) -> None:
        self._proof.proven = 0
        original(self, *arguments)

    with patch.object(Tail, "_cut", cut):
        yield


def nobody_looks() -> AbstractContextManager[Any]:
    """What is stored is believed until somebody reads it."""
    return patch.object(Scrubbing, "start", lambda self, now_ms: None)


@contextmanager
def checksums_not_looked_at() -> Iterator[None]:
    """Everything is read, and only whether it can be."""

    def check(self: CheckTicket, data: memoryview, start: int) -> None:
        self._progress.position = start + len(data)

    with patch.object(CheckTicket, "_check", check):
        yield


@contextmanager
def sound_copies_given_up() -> Iterator[None]:
    """Where the last batch ends is taken for where the file should end."""
    original = CheckTicket.run

    def run(self: CheckTicket) -> None:
        original(self)
        self.damage = self.damage or "the file is shorter than it might be"

    with patch.object(CheckTicket, "run", run):
        yield


@pytest.mark.parametrize(
    ("mistake", "seed", "nodes", "kinds", "laws"),
    [
        (changes_do_not_wait, 1, 5, ["voters", "voters", "cut one way", "kill"], {"quorum-voters"}),
        (removed_leaders_do_not_stand, 101, 3, ["voters", "voters", "two", "kill"], {"liveness"}),
        (damaged_copies_left_alone, 15, 3, ["flip", "stop"], {"whole"}),
        (damage_cut_off, 13, 3, ["flip", "stop"], {"durability", "log-order"}),
        (nobody_looks, 6, 3, ["rot", "stop"], {"whole"}),
        (checksums_not_looked_at, 6, 3, ["rot", "stop"], {"whole"}),
        (sound_copies_given_up, 0, 3, ["rot", "stop"], {"false-alarm"}),
    ],
)
def test_a_mistake_is_found(mistake: Any, seed: int, nodes: int, kinds: list[str], laws: set[str]) -> None:
    with mistake():
        # Whatever changes the timing of the product may move it to another seed.
        assert any(run(each, nodes, *kinds).checker in laws for each in [seed, *range(24)])


def test_a_follower_that_is_sent_a_damaged_batch_ends_the_run() -> None:
    world = World(1)
    plan = draw_plan(1, nodes=3)
    host = Host(world, Network(world, world.stream("network"), 100), node_settings(plan, 1))
    host._on_event(BadBatchFetched("t0-0", 2, "the checksum is wrong"))
    with pytest.raises(Violation) as broken:
        world.run(1)
    assert broken.value.checker == "corrupt-read"
