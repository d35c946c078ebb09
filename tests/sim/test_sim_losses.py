"""Files, directories and disks that are lost: another replica has them, or nobody is served what is left."""

from random import Random
from unittest.mock import patch

import pytest

from skidway.quorum import membership
from skidway.sim import run as run_module
from skidway.sim.plan import LATER, LOSSES, LOSSES_SINCE, MORE_LOSSES, NEWEST, Fault, Plan, draw_plan
from skidway.sim.run import Run, Verdict, run_plan
from skidway.sim.world.disk import SimDisk
from skidway.sim.world.events import Violation

REACHED = {
    "tail": {"tail damaged"},
    "lost files": {"files lost", "checkpoint lost"},
    "bad metadata": {"partition.metadata damaged", "partition.metadata lost"},
    "lost directory": {"directory lost"},
    "old backup": {"old backup put back"},
    "lost disk": {"disk lost"},
    "lost beginning": {"beginning lost"},
    "lost vote": {"vote lost"},
}
SEEDS = 12


def run(seed: int, nodes: int, kind: str) -> Verdict:
    plan = draw_plan(seed, nodes=nodes, seconds=6, kinds=[kind])
    plan.checkpoint_ms = 1_000
    plan.faults = plan.faults[2::3]
    return run_plan(plan)


# Of a disk that was all there was, nothing is left that could tell.
ALL = list(dict.fromkeys((*LOSSES, *MORE_LOSSES)))


@pytest.mark.parametrize(
    ("kind", "nodes"), [(kind, 3) for kind in ALL] + [(kind, 1) for kind in ALL if "disk" not in kind]
)
def test_a_loss_is_noticed_and_made_good(kind: str, nodes: int) -> None:
    for seed in range(SEEDS):
        verdict = run(seed, nodes, kind)
        assert verdict.ok, f"seed {seed}: {verdict.checker}: {verdict.text}"
        if REACHED[kind] & set(verdict.marks):
            return
    pytest.fail(f"{kind} never happened")


def test_seeds_from_before_draw_what_they_drew() -> None:
    older = [fault for seed in range(40) for fault in draw_plan(seed, later=NEWEST - 2).faults]
    newer = [fault for seed in range(40) for fault in draw_plan(seed).faults]
    assert LATER[-2:] == (MORE_LOSSES, ("lost disk",))
    assert [fault for fault in newer if fault.kind not in MORE_LOSSES] == older
    assert {fault.kind for fault in newer} >= {*LOSSES, *MORE_LOSSES}


def a_voter_loses_its_disk() -> Plan:
    """And later an administrator removes another of the three."""
    plan = draw_plan(30001087, later=LOSSES_SINCE)
    lost = [Fault(1_500, "lost disk", 2, 59, 775175255), Fault(9_384, "lost disk", 4, 337, 559686993)]
    plan.faults = sorted([*plan.faults, *lost], key=lambda fault: fault.at_ms)
    return plan


def broken_with_a_careless_administrator() -> str:
    run = Run(a_voter_loses_its_disk())
    run.admin.voting.halted = lambda: False
    try:
        run.run()
    except Violation as violation:
        return violation.checker
    assert run.world.marks["disk lost"]
    return ""


def test_no_voter_is_removed_whom_the_others_need() -> None:
    assert broken_with_a_careless_administrator() == ""


def test_a_voter_that_is_removed_without_a_look_at_the_others_is_found() -> None:
    # It shows within seconds; a minute and a half without a controller would be dear.
    with (
        patch.object(membership, "_check_majority", lambda *arguments: None),
        patch.object(run_module, "CONVERGE_S", 8),
    ):
        assert broken_with_a_careless_administrator() == "liveness"


def test_one_node_never_loses_its_disk() -> None:
    kinds = {fault.kind for seed in range(300) for fault in draw_plan(seed, nodes=1).faults}
    assert kinds & set(LOSSES) == set(LOSSES) - {"lost disk"}


# What the disk does.


@pytest.fixture
def disk() -> SimDisk:
    disk = SimDisk()
    disk.make_directory("t-0")
    disk.write_atomic("t-0/log", b"first")
    return disk


def test_what_is_lost_stays_lost_after_a_crash(disk: SimDisk) -> None:
    disk.write_atomic("t-0/other", b"kept")
    disk.open("t-0/new", create=True)
    disk.lose("t-0/log")
    disk.lose("t-0/new")
    assert disk.list("t-0") == ["other"]
    disk.sync_directory("")
    for seed in range(8):
        disk.crash(Random(seed))
        assert disk.list("t-0") == ["other"]


def test_a_backup_is_as_it_was_taken(disk: SimDisk) -> None:
    backup = disk.copy_of("t-0")
    disk.open("t-0/log").append(b", second")
    disk.open("t-0/later", create=True)
    disk.put("t-0", backup)
    disk.crash(Random(1))
    assert (disk.list("t-0"), disk.read("t-0/log")) == (["log"], b"first")


def test_another_disk_is_empty(disk: SimDisk) -> None:
    disk.wipe()
    assert disk.list("") == []
