"""All mutants by name, where to look for each, and the seed that finds it."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import log_mutants
import quorum_mutants_in_clusters
import replica_mutants

from skidway.sim.plan import draw_plan
from skidway.sim.run import Verdict, run_plan

SECONDS = 6
"""Of faults in a run: mistakes show early or not at all, and many short runs see more than few long ones."""
CRASHES = ["power", "power", "kill", "stop", "op", "bad sync", "full"]
KINDS = {
    True: [*CRASHES, "cut", "reset", "pause"],
    False: [
        *CRASHES,
        "power",
        "kill",
        "two",
        "all",
        "pause",
        "cut",
        "cut",
        "cut one way",
        "cut pair",
        "elect",
        "reassign",
    ],
}
"""Faults, by whether one machine is all there is."""
FOCUS = {
    "unclean_restart_trusted": ["power"],
    "failed_sync_taken_for_done": ["bad sync", "bad sync", "power"],
    "failed_disk_acknowledges": ["bad sync", "bad sync", "power"],
    "snapshot_before_its_data": ["power", "op"],
    "believes_torn_tail": ["power", "op"],
    "tail_not_cut": ["power", "op"],
    "index_not_cut": ["power", "kill"],
    "answers_before_commit": ["power", "op", "two"],
    "moves_end_early": ["reassign", "reassign", "power", "cut"],
    "moves_trust_newcomers": ["reassign", "reassign", "power", "cut"],
    "joins_below_epoch_start": ["pause", "cut", "cut pair", "elect", "power"],
    "joins_at_any_offset": ["power", "cut", "pause"],
    "old_epochs_served": ["pause", "cut", "cut one way", "elect"],
    "late_answers_taken": ["pause", "cut one way", "elect", "slow", "kill"],
    "watermark_on_committed_set": ["pause", "cut one way", "cut pair", "power", "slow"],
    "watermark_before_removal": ["pause", "cut one way", "cut", "power"],
    "votes_twice": ["power", "kill", "cut one way", "pause"],
    "leads_on_after_restart": ["power", "kill", "kill"],
    "commits_older_epochs": ["power", "two", "all", "cut"],
    "commits_lost_at_load": ["power", "kill", "elect"],
    "coordinator_never_unloaded": ["elect", "pause", "cut", "stop"],
    "old_members_commit": ["pause", "cut clients", "reset"],
    "partitions_given_twice": ["cut clients", "reset"],
}
"""Faults that a mistake needs, where the usual mixture seldom brings them together."""
Mutant = Callable[[], AbstractContextManager[Any]]


@dataclass(frozen=True)
class Finding:
    seed: int
    nodes: int | None
    checker: str


def mutants() -> dict[str, Mutant]:
    found: dict[str, Mutant] = {}
    for module in (log_mutants, replica_mutants, quorum_mutants_in_clusters):
        for name, value in vars(module).items():
            if getattr(value, "__wrapped__", None) is not None and value.__module__ == module.__name__:
                assert name not in found, f"two mutants are called {name}"
                found[name] = value
    return found


def run_with(name: str, seed: int, nodes: int | None) -> Verdict:
    kinds = FOCUS.get(name, KINDS[nodes == 1])
    with mutants()[name]():
        return run_plan(draw_plan(seed, nodes=nodes, seconds=SECONDS, kinds=kinds))
