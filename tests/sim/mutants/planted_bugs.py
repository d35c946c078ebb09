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
    "failed_sync_tail_believed": ["bad sync", "bad sync", "stop"],
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


FOUND_BY = {
    "acknowledges_before_sync": Finding(2, 1, "candidates"),
    "directories_not_synced": Finding(2, 1, "durability"),
    "forgets_producers_at_restart": Finding(2, 1, "producer-state"),
    "producers_not_replayed": Finding(0, 1, "producer-state"),
    "remembers_one_batch": Finding(0, 3, "idempotence"),
    "duplicates_appended": Finding(0, 3, "duplicate"),
    "epochs_not_replayed": Finding(0, 1, "epoch-cache"),
    "failed_sync_taken_for_done": Finding(2, 1, "durability"),
    "failed_sync_tail_believed": Finding(3, 1, "log-checksum"),
    "producer_ids_given_twice": Finding(0, 3, "producer-ids"),
    "answers_before_commit": Finding(6, 3, "candidates"),
    "failed_disk_acknowledges": Finding(2, 1, "inconsistent-offset"),
    "tail_not_cut": Finding(5, 1, "leader-completeness"),
    "cuts_to_high_watermark": Finding(0, 3, "candidates"),
    "divergence_ignored": Finding(6, 3, "inconsistent-offset"),
    "joins_at_any_offset": Finding(10, 3, "candidates"),
    "watermark_below_minimum": Finding(5, 3, "candidates"),
    "watermark_without_followers": Finding(0, 3, "candidates"),
    "restarted_replicas_counted": Finding(0, 3, "membership"),
    "fenced_brokers_join": Finding(0, 3, "membership"),
    "unclean_restart_trusted": Finding(6, 3, "candidates"),
    "fetches_promise_unsynced": Finding(3, 3, "candidates"),
    "anybody_elected": Finding(4, 3, "membership"),
    "eligible_not_forgotten": Finding(0, 3, "candidates"),
    "moves_trust_newcomers": Finding(0, 5, "vanished"),
    "lost_leaders_acknowledge": Finding(7, 3, "leader-completeness"),
    "epoch_not_persisted": Finding(0, 3, "quorum-memory"),
    "metadata_not_flushed": Finding(0, 3, "quorum-majority"),
    "grants_any_log": Finding(7, 3, "quorum-log"),
    "metadata_divergence_ignored": Finding(17, 3, "quorum-log"),
}
"""A seed that finds it, how many nodes it runs, and the law that was broken."""
NOT_FOUND_YET = [
    "believes_torn_tail",
    "snapshot_before_its_data",
    "epochs_survive_truncation",
    "index_not_cut",
    "old_epochs_served",
    "late_answers_taken",
    "joins_below_epoch_start",
    "watermark_on_committed_set",
    "watermark_before_removal",
    "moves_end_early",
    "epoch_not_begun",
    "diverging_fetch_counted",
    "vote_not_persisted",
    "minority_commits",
    "votes_twice",
    "leads_on_after_restart",
    "commits_older_epochs",
    "commits_lost_at_load",
    "coordinator_never_unloaded",
    "old_members_commit",
    "partitions_given_twice",
]
"""Not within two dozen seeds: the faults, or the laws, have to become better at these."""
