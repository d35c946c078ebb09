"""All mutants by name: where to look for each, the seed that finds it, and the laws that have to.

A hunt draws short plans, one for each seed, with faults that the mistake needs and, where the usual draw seldom has
them, machines and clients that it needs. A mistake is found when a law that is about it is the one that is broken.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import classic_mutants
import compaction_mutants
import growth_mutants
import log_mutants
import loss_mutants
import more_transaction_mutants
import near_mutants
import quorum_mutants_in_clusters
import replica_mutants
import transaction_mutants

from skidway.sim.plan import COMPACTED, DELETED, Fault, GroupPlan, Plan, TopicPlan, draw_plan
from skidway.sim.run import Verdict, run_plan
from skidway.sim.transactional_plan import LAST_EPOCH, TransactionalPlan, add_compacted, draw_transactional_plan

SECONDS = 6
"""Of faults in a run: mistakes show early or not at all, and many short runs see more than few long ones."""
CRASHES = ["power", "power", "kill", "stop", "op", "bad sync", "full"]
ALONE = [*CRASHES, "cut", "reset", "pause"]
"""Faults where one machine is all there is."""
TOGETHER = [*CRASHES, "power", "kill", "two", "all", "pause", "cut", "cut", "cut one way", "cut pair", "elect",
            "reassign"]  # fmt: skip
MOVING = ["reassign", "reassign", "power", "cut"]
GROWING = ["join", "drain", "drain", "power", "cut"]
TRANSACTIONS_SECONDS = 2
STRIKING = ["decided", "decided", "elect", "cut pair"]
SESSION_OVER_MS = 5_500
"""Members of groups are given up after four seconds."""
Mutant = Callable[[], AbstractContextManager[Any]]


def small_segments(plan: Plan) -> None:
    saved_often(plan)
    for topic in plan.topics:
        topic.configs["internal.segment.bytes"] = "4096"


def slow_disks(plan: Plan) -> None:
    """Machines lose power, and much is not synced yet when they do."""
    plan.lossy, plan.one_by_one = True, False
    plan.sync_us, plan.checkpoint_ms = 60_000, 1_000
    for topic in plan.topics:
        topic.configs["flush"] = "sync"


def nothing_promised(plan: Plan) -> None:
    """Only checkpoints sync, nobody relies on more, and machines lose power: what is left must be true."""
    plan.lossy, plan.one_by_one, plan.checkpoint_ms = True, False, 1_000
    plan.readers, plan.groups = 0, []
    for topic in plan.topics:
        topic.configs.update({"flush": "os", "internal.segment.bytes": "4096"})
    for producer in plan.producers:
        producer.acks, producer.idempotent, producer.in_flight, producer.retries = 1, False, 1, False
        producer.interval_ms = 40


def long_ways(plan: Plan) -> None:
    """What one node knows, the others learn late."""
    plan.latency_us = 30_000


def grouped(plan: Plan) -> None:
    """Two members share what is read."""
    topic = plan.topics[0]
    topic.partitions = 2
    for producer in plan.producers:
        producer.partitions = 2
    plan.groups = [GroupPlan("g0", 2, topic.name)]


def classic(plan: Plan) -> None:
    """Three members of the classic protocol."""
    topic = plan.topics[0]
    topic.partitions = 4
    for producer in plan.producers:
        producer.partitions = 4
    plan.groups = [GroupPlan("g0", 3, topic.name, classic=3)]


def classic_cut_in_turn(plan: Plan) -> None:
    """Nodes are cut off from the others, not from members, some of which are started anew meanwhile."""
    cut_in_turn(plan)
    classic(plan)


def former_classic_members(plan: Plan) -> None:
    """The same with those of the classic protocol."""
    former_members(plan)
    classic(plan)
    plan.groups[0].restarts = 0


def cut_in_turn(plan: Plan) -> None:
    """Each node is cut off from the others for a while, so the coordinator too; members go on talking to it."""
    grouped(plan)
    plan.seconds = 9
    plan.faults = [Fault(2_000 + 2_500 * node, "cut", node, 2_200, 0) for node in range(plan.nodes)]


def former_members(plan: Plan) -> None:
    """Some members are cut off from all brokers for longer than their session lasts, then heard again."""
    grouped(plan)
    plan.reset_on_heal = False
    plan.seconds = 10
    plan.faults = [Fault(2_500 + 7 * node, "cut clients", node, SESSION_OVER_MS, 1) for node in range(plan.nodes)]


def near(plan: Plan) -> None:
    """Every node in a rack of its own, and a reader in each."""
    plan.racks = plan.readers = 3
    for producer in plan.producers:
        producer.interval_ms = 15


def parted(plan: Plan) -> None:
    """Leaders are cut off from the others, and clients go on writing to them until they know better: logs part."""
    plan.latency_us = max(plan.latency_us, 2_000)
    plan.faults = plan.faults[::3]
    for fault in plan.faults:
        fault.kind, fault.target, fault.lasts_ms = "cut", -1, 1_500 + fault.lasts_ms % 1_500
        fault.amount -= fault.amount % 2
    for producer in plan.producers:
        producer.interval_ms = 40


def parted_quorum(plan: Plan) -> None:
    """The same for who leads the metadata: cut off, it gives up the others, and nobody hears it."""
    plan.faults = plan.faults[::4]
    for fault in plan.faults:
        fault.kind, fault.target, fault.lasts_ms = "cut", -2, 2_000 + fault.lasts_ms % 1_000


def late_voters(plan: Plan) -> None:
    """A voter was cut off, and is there again at the moment when the leader of the metadata is not."""
    chance = plan.faults[0].amount
    plan.faults = [Fault(2_000 + 300 * number, "elect", 0, 1, chance + number) for number in range(10)]
    plan.faults += [Fault(2_300 + 300 * number, "topics", 0, 1, chance + number) for number in range(10)]
    plan.faults += [Fault(2_100, "cut", chance % 3, 2_000, 0), Fault(4_050, "power", -2, 2_500, 0)]


def one_by_one(plan: Plan) -> None:
    """Nothing is synced; machines lose power when all the others hold everything."""
    plan.lossy, plan.one_by_one = False, True
    for topic in plan.topics:
        topic.configs.update({"flush": "os", "min.insync.replicas": "2"})


def overtaken(plan: Plan) -> None:
    """A replica is about to catch up when the leader it learns from is gone."""
    long_ways(plan)
    plan.one_by_one = False
    chance = plan.faults[0].amount
    for topic in plan.topics:
        topic.configs["min.insync.replicas"] = "2"
    for producer in plan.producers:
        producer.interval_ms = 40
    plan.faults = [
        Fault(2_000, "power", chance % 3, 400, chance),
        Fault(2_500 + chance % 1_000, "power", -1, 3_000, chance),
    ]


def impatient(plan: Plan) -> None:
    """Leaders do without replicas that lag for a second."""
    long_ways(plan)
    plan.replica_lag_ms = 1_000


def saved_often(plan: Plan) -> None:
    """Much is saved before something is lost, and who starts first is alone for a while."""
    plan.checkpoint_ms = 1_000
    plan.faults = plan.faults[2::3]
    for fault in plan.faults:
        fault.lasts_ms = 1_500 + fault.lasts_ms % 1_500
    for producer in plan.producers:
        producer.interval_ms = 40


def all_must_have_it(plan: Plan) -> None:
    """Nothing is committed that a replica lacks, so every replica that goes down may be elected when it comes back."""
    saved_often(plan)
    for topic in plan.topics:
        topic.configs["min.insync.replicas"] = str(topic.replicas)


def late_requests(plan: Plan) -> None:
    """Requests come once more, past the next transaction."""
    assert isinstance(plan, TransactionalPlan)
    for client in plan.transactional:
        client.bumps, client.produce_version, client.late_chance = True, 12, 0.4
        client.instances, client.interval_ms, client.work_ms, client.timeout_ms = 1, 10, 300, 5_000


def slow_work(plan: Plan) -> None:
    """It takes about as long as it may."""
    assert isinstance(plan, TransactionalPlan)
    for client in plan.transactional:
        client.instances, client.work_ms, client.timeout_ms = 1, 500, 600


def short_segments(plan: Plan) -> None:
    """Much is aborted, in segments of a few batches that are saved often."""
    assert isinstance(plan, TransactionalPlan)
    plan.checkpoint_ms = 1_000
    for client in plan.transactional:
        client.abort_chance, client.work_ms, client.interval_ms = 0.5, 5, 20
    for topic in plan.topics:
        topic.configs["internal.segment.bytes"] = "4096"


def ends_struck(plan: Plan) -> None:
    """Coordinators and leaders go while transactions end, at short intervals."""
    assert isinstance(plan, TransactionalPlan)
    chance = plan.faults[0].amount
    kinds = [fault.kind for fault in plan.faults]
    plan.faults = [
        Fault(1_200 + 130 * number, kinds[number % len(kinds)], number % plan.nodes, 200 + 50 * number, chance + number)
        for number in range(12)
    ]
    for client in plan.transactional:
        client.work_ms, client.interval_ms = 5, 10


def bumping_struck(plan: Plan) -> None:
    """The same, and every end has an epoch of its own."""
    assert isinstance(plan, TransactionalPlan)
    ends_struck(plan)
    for client in plan.transactional:
        client.bumps, client.produce_version, client.instances = True, 12, 1


def asked_and_struck(plan: Plan) -> None:
    """Coordinators are gone when they have heard that a commit is asked for, and before others have."""
    assert isinstance(plan, TransactionalPlan)
    bumping_struck(plan)
    plan.latency_us = 10_000
    for fault in plan.faults:
        fault.lasts_ms = 400


def tired_of_waiting(plan: Plan) -> None:
    """Steady clients abort when a write is not answered soon, and leave their connections as they are."""
    assert isinstance(plan, TransactionalPlan)
    for client in plan.transactional[:2]:
        client.bumps, client.produce_version, client.instances, client.patience_ms = False, 10, 1, 60
        client.work_ms, client.interval_ms, client.death_chance, client.timeout_ms = 2, 10, 0.0, 2_000
        client.topics = {name: count for name, count in client.topics.items() if name != DELETED}
    plan.faults = _slow_questions(plan, 1)


def _slow_questions(plan: Plan, amount: int) -> list[Fault]:
    """Whoever asks a coordinator is answered late; who sends markers is not."""
    return [Fault(1_200 + 5 * node, "slow answers", node, 3_000, amount) for node in range(plan.nodes)]


def late_markers(plan: Plan) -> None:
    """Markers come late, past the transaction that comes next."""
    assert isinstance(plan, TransactionalPlan)
    for client in plan.transactional[:2]:
        client.instances, client.work_ms, client.interval_ms, client.timeout_ms = 1, 100, 5, 2_000
        client.abort_chance, client.death_chance, client.patience_ms = 0.1, 0.0, 0


def late_markers_bumping(plan: Plan) -> None:
    assert isinstance(plan, TransactionalPlan)
    late_markers(plan)
    plan.faults = [Fault(1_200 + 130 * number, "late markers", 0, 300, number) for number in range(12)]
    for client in plan.transactional:
        client.bumps, client.produce_version, client.work_ms = True, 12, 250


def late_markers_steady(plan: Plan) -> None:
    assert isinstance(plan, TransactionalPlan)
    late_markers(plan)
    for client in plan.transactional:
        client.bumps, client.produce_version = False, 10
        client.topics = {name: count for name, count in client.topics.items() if name != DELETED}
    for fault in plan.faults:
        fault.lasts_ms = 300


def late_markers_often_steady(plan: Plan) -> None:
    assert isinstance(plan, TransactionalPlan)
    late_markers_steady(plan)
    plan.faults = [Fault(1_200 + 130 * number, "late markers", 0, 300, 0) for number in range(12)]


def near_the_last_epoch(plan: Plan) -> None:
    assert isinstance(plan, TransactionalPlan)
    plan.first_epoch = LAST_EPOCH - plan.seed % 4
    bumping_struck(plan)


def books_kept(plan: Plan) -> None:
    """Offsets are committed in transactions, and outside of them meanwhile."""
    assert isinstance(plan, TransactionalPlan)
    for client in plan.transactional[:2]:
        client.books_chance, client.interval_ms = 1.0, 20


def shared_work(plan: Plan) -> None:
    """Members of a group copy, and take partitions from each other."""
    assert isinstance(plan, TransactionalPlan)
    plan.transactional = plan.transactional[:1]
    plan.producers[0].interval_ms = 40
    plan.sharing = [
        replace(plan.transactional[0], id=f"share{number}", topics={"x1": 1}, work_ms=200, timeout_ms=2_000)
        for number in range(2)
    ]
    for client in plan.sharing:
        client.instances, client.abort_chance, client.death_chance, client.patience_ms = 1, 0.0, 0.0, 0
        client.bumps, client.produce_version, client.books_chance, client.interval_ms = True, 12, 0.0, 5


def shared_work_asked_late(plan: Plan) -> None:
    """The same, and coordinators of groups are answered late about transactions."""
    shared_work(plan)
    plan.faults = _slow_questions(plan, 1)


def topics_deleted(plan: Plan) -> None:
    """A topic is deleted and made again while bumping clients write there."""
    assert isinstance(plan, TransactionalPlan)
    if not any(topic.name == DELETED for topic in plan.topics):
        first = plan.topics[0]
        plan.topics.append(TopicPlan(DELETED, 1, first.replicas, dict(first.configs)))
    for client in plan.transactional[:2]:
        client.bumps, client.produce_version, client.instances = True, 12, 1
        client.topics, client.deleted = {DELETED: 1}, frozenset({DELETED})
        client.work_ms, client.timeout_ms, client.patience_ms, client.pipelined = 100, 2_000, 0, False
    for number, fault in enumerate(plan.faults):
        fault.at_ms = 1_300 + 400 * number


def old_ids(plan: Plan) -> None:
    """They are forgotten when they are not used for a moment."""
    assert isinstance(plan, TransactionalPlan)
    plan.expiration_ms, plan.drift_ppm = 300, 0
    for client in plan.transactional[:2]:
        client.interval_ms, client.instances = 500, 2


def compacted(plan: Plan) -> None:
    """Two producers that abort often write into a topic that is compacted all the time."""
    assert isinstance(plan, TransactionalPlan)
    add_compacted(plan, Random(plan.seed))
    plan.compaction_ms, plan.checkpoint_ms = 100, 1_000
    plan.topics[-1].configs["internal.segment.bytes"] = "256"
    for client in plan.transactional[:2]:
        client.interval_ms, client.work_ms, client.instances, client.abort_chance = 10, 10, 1, 0.5
        client.death_chance, client.topics = 0.0, {COMPACTED: 1}
    plan.transactional[0].work_ms = 200


@dataclass(frozen=True)
class Hunt:
    seed: int
    """That found it."""
    laws: tuple[str, ...]
    """One of these must be broken; another one would say something else about the mistake than it is."""
    nodes: int = 3
    kinds: list[str] | None = None
    shape: Callable[[Plan], None] | None = field(default=None, repr=False)


@dataclass(frozen=True)
class TransactionHunt(Hunt):
    """In a plan with transactions. `kinds`: as drawn there, unless given."""

    later: int = 0
    """Of what was added to such plans since."""


def mutants() -> dict[str, Mutant]:
    found: dict[str, Mutant] = {}
    modules = (
        compaction_mutants,
        log_mutants,
        replica_mutants,
        quorum_mutants_in_clusters,
        growth_mutants,
        classic_mutants,
        near_mutants,
        loss_mutants,
        transaction_mutants,
        more_transaction_mutants,
    )
    for module in modules:
        for name, value in vars(module).items():
            if getattr(value, "__wrapped__", None) is not None and value.__module__ == module.__name__:
                assert name not in found, f"two mutants are called {name}"
                found[name] = value
    return found


def plan_for(name: str, seed: int) -> Plan:
    hunt = HUNTS[name]
    if isinstance(hunt, TransactionHunt):
        return _plan_with_transactions(hunt, seed)
    kinds = hunt.kinds or (ALONE if hunt.nodes == 1 else TOGETHER)
    plan = draw_plan(seed, nodes=hunt.nodes, seconds=SECONDS, kinds=kinds)
    if hunt.shape is not None:
        hunt.shape(plan)
    return plan


def _plan_with_transactions(hunt: TransactionHunt, seed: int) -> Plan:
    """Few others beside those who make and read them."""
    plan = draw_transactional_plan(
        seed, nodes=hunt.nodes, seconds=TRANSACTIONS_SECONDS, kinds=hunt.kinds, later=hunt.later
    )
    plan.committed_readers = 1
    plan.producers = plan.producers[:1]
    producer, topic = plan.producers[0], plan.topics[0]
    producer.topic, producer.partitions, producer.interval_ms, producer.records = topic.name, topic.partitions, 100, 4
    if hunt.shape is not None:
        hunt.shape(plan)
    return plan


def run_with(name: str, seed: int) -> Verdict:
    with mutants()[name]():
        return run_plan(plan_for(name, seed))


LOSSES = ("candidates", "leader-completeness", "lost", "unseen")
"""Something was promised that not all who should have it have."""
SHORT = (*LOSSES, "durability", "vanished")
"""A copy that is not whole is counted on, or served."""
UNTRUE = ("torn", "unseen-commit", "aborted-read", "copied-once", "stable-reads")
"""A transaction is not what its producer was told, or is in parts."""
HUNTS: dict[str, Hunt] = {
    "acknowledges_before_sync": Hunt(2, LOSSES, 1),
    "directories_not_synced": Hunt(9, ("durability",), 1),
    "believes_torn_tail": Hunt(3, ("log-checksum",), 1, ["power", "op"], slow_disks),
    "forgets_producers_at_restart": Hunt(2, ("producer-state",), 1),
    "producers_not_replayed": Hunt(0, ("producer-state",), 1),
    "snapshot_before_its_data": Hunt(
        2, ("durability", "quarantine", "log-checksum", "log-order"), 1, ["power"], nothing_promised
    ),
    "remembers_one_batch": Hunt(0, ("idempotence",)),
    "duplicates_appended": Hunt(2, ("duplicate",)),
    "epochs_survive_truncation": Hunt(1, ("epoch-cache",), 3, ["cut"], parted),
    "epochs_not_replayed": Hunt(0, ("epoch-cache",), 1),
    "failed_sync_taken_for_done": Hunt(7, ("durability", *LOSSES), 1, ["bad sync", "bad sync", "power"]),
    "failed_sync_tail_believed": Hunt(3, ("log-checksum", "durability"), 1, ["bad sync", "bad sync", "stop"]),
    "producer_ids_given_twice": Hunt(0, ("producer-ids",)),
    "index_not_cut": Hunt(2, ("lookup",), 3, ["power", "kill"]),
    "answers_before_commit": Hunt(2, (*LOSSES, "committed-offsets"), 3, ["cut"], cut_in_turn),
    "failed_disk_acknowledges": Hunt(2, (*LOSSES, "inconsistent-offset"), 1, ["bad sync", "bad sync", "power"]),
    "tail_not_cut": Hunt(1, ("log-order", "log-checksum", "durability"), 1, ["power", "op"], slow_disks),
    "cuts_to_high_watermark": Hunt(0, (*LOSSES, "durability")),
    "divergence_ignored": Hunt(1, ("inconsistent-offset", "copies"), 3, ["cut"], parted),
    "old_epochs_served": Hunt(1, ("fencing",), 5, MOVING, long_ways),
    "old_leaders_heard": Hunt(2, ("epochs", "log-order", "copies", "candidates"), 3, ["cut"], parted),
    "joins_below_epoch_start": Hunt(13, LOSSES, 3, ["power"], overtaken),
    "joins_at_any_offset": Hunt(6, LOSSES, 3, ["power", "cut", "pause"]),
    "watermark_on_committed_set": Hunt(1, ("in-sync", "candidates"), 3, ["power", "kill", "slow"], long_ways),
    "watermark_before_removal": Hunt(0, ("in-sync", "candidates"), 3, ["cut pair", "slow"], impatient),
    "watermark_below_minimum": Hunt(5, LOSSES),
    "watermark_without_followers": Hunt(0, LOSSES),
    "restarted_replicas_counted": Hunt(0, ("membership", "fencing", *LOSSES)),
    "fenced_brokers_join": Hunt(0, ("membership",)),
    "unclean_restart_trusted": Hunt(0, LOSSES, 3, ["power"], one_by_one),
    "fetches_promise_unsynced": Hunt(2, LOSSES),
    "anybody_elected": Hunt(1, ("membership", *LOSSES)),
    "eligible_not_forgotten": Hunt(0, LOSSES),
    "moves_end_early": Hunt(0, ("moves",), 5, MOVING),
    "moves_trust_newcomers": Hunt(0, (*LOSSES, "vanished"), 5, MOVING),
    "epoch_not_begun": Hunt(0, ("epochs",)),
    "lost_leaders_acknowledge": Hunt(1, (*LOSSES, "inconsistent-offset"), 3, ["cut"], parted),
    "diverging_fetch_counted": Hunt(4, LOSSES, 3, ["cut"], parted),
    "vote_not_persisted": Hunt(0, ("quorum-memory", "quorum-votes")),
    "epoch_not_persisted": Hunt(0, ("quorum-memory",)),
    "metadata_not_flushed": Hunt(0, ("quorum-majority",)),
    "minority_commits": Hunt(0, ("quorum-majority",)),
    "minority_elects": Hunt(0, ("quorum-leaders",)),
    "grants_any_log": Hunt(9, ("quorum-log", "quorum-watermark"), 3, ["cut"], late_voters),
    "votes_twice": Hunt(1, ("quorum-votes", "quorum-leaders"), 3, ["kill", "power", "slow"], long_ways),
    "leads_on_after_restart": Hunt(0, ("quorum-leaders",), 3, ["power", "kill", "kill"]),
    "commits_older_epochs": Hunt(0, ("quorum-epochs",), 3, ["power", "two", "all", "cut"]),
    "metadata_divergence_ignored": Hunt(3, ("quorum-log",), 3, ["cut"], parted_quorum),
    "commits_lost_at_load": Hunt(1, ("committed-offsets",), 3, ["power", "kill", "elect"], grouped),
    "coordinator_never_unloaded": Hunt(2, ("coordinators", "committed-offsets"), 3, ["cut"], cut_in_turn),
    "old_members_commit": Hunt(3, ("committed-offsets",), 3, ["cut clients"], former_members),
    "partitions_given_twice": Hunt(0, ("one-owner",), 3, ["cut clients", "reset"], grouped),
    "drained_by_number": Hunt(0, ("moves",), 3, GROWING),
    "newcomers_in_sync": Hunt(0, ("candidates",), 3, GROWING),
    "epochs_of_forgotten_brokers": Hunt(3, ("broker-epochs",), 3, GROWING),
    "moved_copies_kept": Hunt(1, ("holdings",), 3, GROWING),
    "fenced_never_named": Hunt(0, ("brokers-named",), 3, ["all"]),
    "old_assignments_synced": Hunt(4, ("assignments",), 3, ["power", "reset"], classic),
    "syncs_answered_early": Hunt(2, ("assignments", "one-owner"), 3, ["cut"], classic_cut_in_turn),
    "former_classic_members_commit": Hunt(0, ("committed-offsets",), 3, ["cut clients"], former_classic_members),
    "saved_watermark_ignored": Hunt(16, SHORT, 1, ["old backup"], saved_often),
    "damage_taken_for_torn": Hunt(0, SHORT, 1, ["tail"]),
    "watermarks_of_unopened_dropped": Hunt(2, SHORT, 3, ["lost directory"], saved_often),
    "missing_directories_begin_empty": Hunt(0, SHORT, 3, ["lost directory"], saved_often),
    "broken_metadata_begins_empty": Hunt(1, SHORT, 3, ["bad metadata"], saved_often),
    "damaged_copies_stay_in_sync": Hunt(
        1, ("liveness", "whole", "group-progress"), 3, ["lost directory"], all_must_have_it
    ),
    "missing_beginnings_not_missed": Hunt(0, SHORT, 1, ["lost beginning"], small_segments),
    "cuts_not_told": Hunt(0, ("silent-cut",), 1, ["power", "op"], slow_disks),
    "empty_disks_trusted": Hunt(1, SHORT, 3, ["lost disk"], saved_often),
    "followers_serve_everything": Hunt(0, ("uncommitted-read",), 3, ["cut pair", "slow"], near),
    "followers_commit_themselves": Hunt(0, ("uncommitted-read",), 3, ["cut pair", "slow"], near),
    "markers_before_commit": TransactionHunt(0, ("early-end",)),
    "ends_answered_before_commit": TransactionHunt(1, UNTRUE, 3, ["asked"], asked_and_struck),
    "ends_do_not_bump": TransactionHunt(2, ("early-end", *UNTRUE), 3, None, late_requests),
    "repeated_markers_refused": TransactionHunt(0, ("stuck-transaction",), 3, ["decided"], bumping_struck),
    "loads_send_no_markers": TransactionHunt(3, ("stuck-transaction",)),
    "errors_taken_for_markers": TransactionHunt(
        0, ("unfinished-end", "early-end", "stuck-transaction", *UNTRUE), 3, STRIKING, ends_struck
    ),
    "stable_before_marker_commits": TransactionHunt(0, ("transaction-index", "stable-reads")),
    "aborted_lost_at_start": TransactionHunt(
        1, ("aborted", "transaction-index", "aborted-read"), 3, ["stop", "kill"], short_segments
    ),
    "aborted_of_first_segment": TransactionHunt(2, ("transaction-index", "aborted-read"), 3, None, short_segments),
    "offsets_count_at_once": TransactionHunt(0, ("pending-offsets", "copied-once")),
    "offsets_never_told": TransactionHunt(0, ("pending-offsets", "copied-once", "stuck-transaction")),
    "ends_bump_twice": TransactionHunt(0, ("transaction-states",)),
    "time_outs_do_not_bump": TransactionHunt(0, ("false-fencing", "fenced-producers", *UNTRUE), 3, None, slow_work),
    "newcomers_do_not_bump": TransactionHunt(1, ("fenced-producers",)),
    "transactions_begin_in_memory": TransactionHunt(0, ("unknown-writes",)),
    "no_guard": TransactionHunt(0, ("unknown-writes", "stuck-transaction"), 3, ["slow answers"], tired_of_waiting),
    "markers_end_their_own_epoch": TransactionHunt(0, ("early-end",), 3, ["late markers"], late_markers_bumping),
    "late_markers_written": TransactionHunt(0, ("early-end",), 3, ["late markers"], late_markers_often_steady),
    "former_coordinators_end": TransactionHunt(1, ("early-end",), 3, ["late markers"], late_markers_steady),
    "ended_by_the_first_answer": TransactionHunt(0, ("unfinished-end",)),
    "pending_offsets_win": TransactionHunt(0, ("pending-offsets",), 3, ["elect"], books_kept),
    "unstable_offsets_told": TransactionHunt(0, ("copied-once",), 3, ["elect"], shared_work),
    "members_checked_before_questions": TransactionHunt(
        0, ("copied-once",), 3, ["slow answers"], shared_work_asked_late
    ),
    "next_producers_not_stored": TransactionHunt(
        0, ("transaction-states", "stuck-transaction"), 3, ["decided"], near_the_last_epoch
    ),
    "epochs_overflow": TransactionHunt(
        0, ("transaction-states", "stuck-transaction", "producer-epochs"), 3, ["elect"], near_the_last_epoch
    ),
    "producers_begin_anywhere": TransactionHunt(0, ("sequences",), 3, ["delete"], topics_deleted),
    "repeated_commits_refused": TransactionHunt(0, ("false-fencing", *UNTRUE), 3, ["decided"], bumping_struck),
    "forgotten_a_tick_later": TransactionHunt(0, ("transaction-states",), 3, ["elect"], old_ids),
    "waiting_never_refused": TransactionHunt(0, ("unanswered",), 3, ["slow answers"], bumping_struck),
    "waiting_without_a_bound": TransactionHunt(0, ("unanswered",), 3, ["slow answers"], bumping_struck),
    "compacted_above_stable": TransactionHunt(0, ("unseen-commit", *UNTRUE), 3, ["elect"], compacted),
    "committed_taken_for_aborted": TransactionHunt(0, UNTRUE, 3, ["elect"], compacted),
    "committed_readers_get_everything": TransactionHunt(0, ("stable-reads", "aborted-read")),
}
HARMLESS = {
    "late_answers_taken": (
        "a replica that follows another leader has left the one before and does not hear it any more",
        "old_leaders_heard",
    ),
}
"""Mistakes that something else in the product makes harmless: what does, and the mutant that lacks both."""
