"""Mistakes about share groups by name: where to look for each, the seed that finds it, and the laws that have to.

As in `planted_bugs`: a mistake is found when a law that is about it is the one that is broken.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import share_lease_mutants
import share_mutants
import share_store_mutants

from skidway.sim.plan import TRIMMED, Fault, TopicPlan
from skidway.sim.run import Verdict, run_plan
from skidway.sim.share_plan import (
    GROUP_COORDINATOR,
    SHARE_COORDINATOR,
    SharePlan,
    draw_share_plan,
    order_keys,
    unordered,
)

SECONDS = 2
Mutant = Callable[[], AbstractContextManager[Any]]


def plain(plan: SharePlan) -> None:
    """One group with three members that do nothing wrong, one partition, whole batches."""
    unordered(plan)
    plan.sync_us, plan.latency_us, plan.stall_chance, plan.drift_ppm = 2_000, 500, 0.0, 0
    plan.topics, plan.producers, plan.share_groups = plan.topics[:1], plan.producers[:1], plan.share_groups[:1]
    plan.topics[0].partitions = plan.producers[0].partitions = 1
    plan.lock_ms, plan.deliveries, plan.updates_per_snapshot, plan.prune_ms = 1_000, 5, 500, 300_000
    producer, group = plan.producers[0], plan.share_groups[0]
    producer.interval_ms, producer.records, producer.value_bytes = 40, 4, 24
    group.topics, group.members, group.records, group.work_ms, group.wait_ms = [plan.topics[0].name], 3, 5, 40, 700
    group.release_chance = group.reject_chance = group.renew_chance = group.forget_chance = 0.0
    group.dawdle_chance = group.crash_chance = group.leave_chance = group.wrong_chance = group.poison_chance = 0.0
    group.reconnect_chance, group.strict = 0.0, False


def forgetful(plan: SharePlan) -> None:
    """Locks end by time."""
    plain(plan)
    plan.share_groups[0].forget_chance = 0.3


def few_deliveries(plan: SharePlan) -> None:
    """Whatever is not settled at once dies soon."""
    forgetful(plan)
    plan.deliveries = 2


def dawdling(plan: SharePlan) -> None:
    """Members speak when their locks are over."""
    plain(plan)
    plan.share_groups[0].dawdle_chance = 0.4


def slow_workers(plan: SharePlan) -> None:
    """They have much at a time, nearly as long as they may."""
    plain(plan)
    plan.share_groups[0].work_ms, plan.share_groups[0].records = 700, 20


def renewing(plan: SharePlan) -> None:
    plain(plan)
    plan.share_groups[0].renew_chance = 0.6


def releasing(plan: SharePlan) -> None:
    plain(plan)
    plan.share_groups[0].release_chance, plan.deliveries = 0.4, 8


def wrong(plan: SharePlan) -> None:
    """Members speak of what is another's, and name the same twice."""
    slow_workers(plan)
    plan.share_groups[0].work_ms, plan.share_groups[0].wrong_chance = 150, 0.5


def coming_and_going(plan: SharePlan) -> None:
    """Members crash and leave while others work."""
    slow_workers(plan)
    plan.share_groups[0].crash_chance = plan.share_groups[0].leave_chance = 0.3


def reconnecting(plan: SharePlan) -> None:
    plain(plan)
    plan.share_groups[0].reconnect_chance = 0.3


def greedy(plan: SharePlan) -> None:
    """More is there than may be locked, and members take all they can."""
    plain(plan)
    plan.producers[0].interval_ms, plan.producers[0].records = 15, 30
    plan.share_groups[0].records, plan.share_groups[0].work_ms = 500, 500


def slow_disks(plan: SharePlan) -> None:
    """What is said of records is on its way to the store for long."""
    plain(plan)
    plan.sync_us, plan.producers[0].interval_ms, plan.share_groups[0].work_ms = 60_000, 15, 10


def large(plan: SharePlan) -> None:
    """Batches are larger than some fetches may take."""
    plain(plan)
    plan.producers[0].records, plan.producers[0].value_bytes = 10, 200


def trimmed(plan: SharePlan) -> None:
    """The beginning of the log is deleted while members have something of it; it grows, too."""
    slow_workers(plan)
    first, group = plan.topics[0], plan.share_groups[0]
    plan.topics = [first, TopicPlan(TRIMMED, 1, first.replicas, dict(first.configs))]
    plan.producers = [*plan.producers, *plan.producers]
    plan.producers[1] = type(plan.producers[0])(TRIMMED, 1, 40, 4)
    group.topics, group.work_ms = [first.name, TRIMMED], 300


def trimmed_at_rest(plan: SharePlan) -> None:
    """The same, while no record comes for long, and fetches wait."""
    trimmed(plan)
    plan.producers[1].interval_ms, plan.producers[1].records = 600, 30


def moving(plan: SharePlan) -> None:
    """Leaders and coordinators change while much is under way."""
    slow_workers(plan)
    plan.share_groups[0].work_ms, plan.share_groups[0].release_chance, plan.deliveries = 150, 0.2, 8


def snapshots(plan: SharePlan) -> None:
    releasing(plan)
    plan.updates_per_snapshot = 3


def pruned(plan: SharePlan) -> None:
    moving(plan)
    plan.updates_per_snapshot, plan.prune_ms = 3, 300


def long_ways(plan: SharePlan) -> None:
    """What one node knows, the others learn late."""
    moving(plan)
    plan.latency_us = 20_000


def deaf_leaders(plan: SharePlan) -> None:
    """Leaders are replaced and do not hear of it; members go on talking to them."""
    moving(plan)
    plan.share_groups[0].work_ms, plan.seconds = 300, 3
    plan.faults = []
    for number in range(3):
        at_ms = 1_000 + 900 * number
        plan.faults += [Fault(at_ms, "deaf", -1, 800, number), Fault(at_ms + 30, "leaders to and fro", 0, 1, number)]


def late(plan: SharePlan) -> None:
    """What nodes write about share-partitions comes late, past what they wrote since."""
    moving(plan)
    plan.share_groups[0].work_ms = 20
    plan.faults = [Fault(500 + 200 * number, "late states", 0, 300, number) for number in range(14)]


def struck(plan: SharePlan) -> None:
    """Whoever keeps what is stored goes, again and again, soon after an answer."""
    moving(plan)
    plan.sync_us, plan.share_groups[0].work_ms = 15_000, 20


def silent_store(plan: SharePlan) -> None:
    """Leaders are answered so late about what they write that they give up."""
    moving(plan)
    plan.write_timeout_ms = 400
    plan.faults = [Fault(900 + 5 * node, "slow states", node, 3_000, 1) for node in range(plan.nodes)]


def ordered(plan: SharePlan) -> None:
    """Records have four keys, each with one member at a time, while leaders change."""
    slow_workers(plan)
    order_keys(plan, 4)
    plan.share_groups[0].work_ms, plan.share_groups[0].records, plan.seconds = 500, 3, 3


def ordered_with_a_slow_store(plan: SharePlan) -> None:
    """Leaders change all the time, and much waits for the write before it."""
    ordered(plan)
    plan.sync_us, group = 60_000, plan.share_groups[0]
    order_keys(plan, 8)
    group.records, group.members, group.work_ms, group.strict = 1, 4, 300, True
    plan.producers[0].interval_ms = 150
    plan.faults = [Fault(1_000 + 130 * number, "leaders to and fro", 0, 1, number) for number in range(14)]


@dataclass(frozen=True)
class ShareHunt:
    seed: int
    """That found it."""
    laws: tuple[str, ...]
    """One of these must be broken; another one would say something else about the mistake than it is."""
    shape: Callable[[SharePlan], None] = field(default=plain, repr=False)
    nodes: int = 1
    kinds: tuple[str, ...] = ()


def mutants() -> dict[str, Mutant]:
    return {
        name: value
        for module in (share_lease_mutants, share_mutants, share_store_mutants)
        for name, value in vars(module).items()
        if getattr(value, "__wrapped__", None) is not None and value.__module__ == module.__name__
    }


def plan_for(name: str, seed: int) -> SharePlan:
    hunt = HUNTS[name]
    plan = draw_share_plan(seed, nodes=hunt.nodes, seconds=SECONDS, kinds=list(hunt.kinds) or ["reset"])
    if not hunt.kinds:
        plan.faults = []
    for fault in plan.faults:
        if fault.target not in (SHARE_COORDINATOR, GROUP_COORDINATOR):
            fault.target = -1
    hunt.shape(plan)
    return plan


def run_with(name: str, seed: int) -> Verdict:
    with mutants()[name]():
        return run_plan(plan_for(name, seed))


MOVES = ("elect", "kill", "states to and fro", "reassign")
LEADERS = ("leaders to and fro", "elect", "kill")
HUNTS: dict[str, ShareHunt] = {
    "acquires_what_is_settling": ShareHunt(0, ("two-holders", "settled-again"), slow_disks),
    "one_delivery_too_many": ShareHunt(0, ("delivery-counts",), few_deliveries),
    "beginning_not_given_up": ShareHunt(0, ("share-start", "sleeping-fetch", "never-settled"), trimmed, 1, ("trim",)),
    "beginning_heard_by_who_asks": ShareHunt(0, ("share-start",), trimmed_at_rest, 1, ("trim",)),
    "replies_before_the_store": ShareHunt(0, ("answered-acks",)),
    "locks_end_late": ShareHunt(0, ("lock-times",), dawdling),
    "locks_end_early": ShareHunt(0, ("lock-times", "two-holders"), slow_workers),
    "strangers_settle": ShareHunt(0, ("two-holders",), wrong),
    "part_of_an_ack_applied": ShareHunt(0, ("torn-acks", "unexplained-end", "share-start"), wrong),
    "named_twice_passes": ShareHunt(0, ("torn-acks",), wrong),
    "failed_writes_answered": ShareHunt(6, ("answered-acks",), silent_store, 3, ("slow states",)),
    "expired_deliveries_not_counted": ShareHunt(0, ("delivery-counts",), forgetful),
    "locks_without_a_bound": ShareHunt(0, ("share-bounds",), greedy),
    "one_leaves_all_leave": ShareHunt(0, ("two-holders", "lock-times"), coming_and_going),
    "start_passes_what_is_released": ShareHunt(0, ("share-start",), releasing),
    "renewals_forgotten": ShareHunt(0, ("lock-times", "two-holders"), renewing),
    "nobody_woken_by_the_store": ShareHunt(0, ("sleeping-fetch",), releasing),
    "nobody_woken_by_growth": ShareHunt(0, ("sleeping-fetch",)),
    "kept_past_the_leader_epoch": ShareHunt(1, ("old-epochs",), moving, 3, MOVES),
    "sessions_outlive_connections": ShareHunt(0, ("share-sessions",), coming_and_going),
    "new_sessions_die_with_old_connections": ShareHunt(0, ("share-sessions",), reconnecting),
    "any_session_epoch_taken": ShareHunt(0, ("share-sessions",), wrong),
    "sessions_end_and_leases_stay": ShareHunt(0, ("share-sessions",), coming_and_going),
    "large_batches_never_delivered": ShareHunt(0, ("sleeping-fetch", "never-settled"), large),
    "stored_after_the_answer": ShareHunt(0, ("answered-acks", "share-state", "settled-again"), struck, 3, MOVES),
    "late_writes_move_the_start_back": ShareHunt(6, ("share-start",), late, 3, ("late states",)),
    "done_counts_never_fall": ShareHunt(0, ("share-lag",), slow_workers),
    "initialised_again": ShareHunt(6, ("share-state", "share-start"), late, 3, ("late states",)),
    "older_leaders_write": ShareHunt(5, ("old-epochs",), deaf_leaders, 3, ("deaf",)),
    "reads_fence_nobody": ShareHunt(0, ("old-epochs", "settled-again", "share-state"), deaf_leaders, 3, ("deaf",)),
    "snapshots_forget_the_last_update": ShareHunt(0, ("answered-acks", "share-state", "share-lag"), snapshots),
    "needed_snapshots_pruned": ShareHunt(3, ("share-state", "answered-acks"), pruned, 3, MOVES),
    "late_words_win": ShareHunt(6, ("share-state", "settled-again"), late, 3, ("late states",)),
    "stored_leases_forgotten": ShareHunt(0, ("key-holders",), ordered, 3, LEADERS),
    "leases_heard_before_the_store": ShareHunt(1, ("key-holders",), ordered_with_a_slow_store, 3, LEADERS),
    "keys_of_stored_leases_not_looked_at": ShareHunt(0, ("key-holders",), ordered, 3, LEADERS),
    "new_partitions_skip_records": ShareHunt(0, ("share-start",), trimmed, 1, ("grow",)),
}
