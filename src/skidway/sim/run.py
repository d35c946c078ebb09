"""One seed: draw the plan, run it with its faults, heal everything, and hold the outcome against the laws."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass, field
from time import process_time

from skidway.sim.clients.base import Client
from skidway.sim.clients.members import Member
from skidway.sim.clients.near_readers import NearReader
from skidway.sim.clients.producers import Producer
from skidway.sim.clients.readers import Reader
from skidway.sim.faults.growth import Growth
from skidway.sim.faults.levels import Levels
from skidway.sim.faults.nemesis import Nemesis
from skidway.sim.faults.share_topics import ShareTopics
from skidway.sim.faults.state_topics import StateTopics
from skidway.sim.laws.history import History
from skidway.sim.laws.invariants import Invariants
from skidway.sim.plan import DELETED, NEWEST, Plan, draw_plan, lasting_topics
from skidway.sim.share_plan import SharePlan
from skidway.sim.shares import Shares, lanes_of
from skidway.sim.trace import Trace
from skidway.sim.transactional_plan import LOWERED, RAISED, TransactionalPlan
from skidway.sim.transactions import Transactions
from skidway.sim.workload import Admin, make_clients
from skidway.sim.world import guard
from skidway.sim.world.cluster import Cluster
from skidway.sim.world.events import SECOND, Violation, World
from skidway.sim.world.network import Network

CONVERGE_S = 90
READ_S = 60
SETTLE_US = 3 * SECOND
"""So long everybody goes on after the last fault; transactions are many."""


@dataclass(slots=True)
class Verdict:
    seed: int
    checker: str = ""
    """The law that was broken; empty when none was."""
    text: str = ""
    trace_hash: str = ""
    virtual_s: float = 0.0
    cpu_s: float = 0.0
    acknowledged: int = 0
    reads: int = 0
    events: int = 0
    faults: int = 0
    marks: dict[str, int] = field(default_factory=dict)
    last_lines: list[str] = field(default_factory=list)
    plan: str = ""

    @property
    def ok(self) -> bool:
        return not self.checker


class Run:
    def __init__(self, plan: Plan, on_line: Callable[[str], None] | None = None) -> None:
        self.plan = plan
        self.world = World(plan.seed, Trace(on_line))
        self.network = Network(self.world, self.world.stream("network"), plan.latency_us)
        self.network.reset_on_heal = plan.reset_on_heal
        self.cluster = Cluster(self.world, self.network, plan)
        self.history = History(self.world)
        self.invariants = Invariants(self.world, self.cluster, self.history)
        self.admin = Admin(self.world, self.network, "adm", self.cluster.addresses, plan, self.history)
        self.clients: list[Client] = []
        self.nemesis = Nemesis(self.world, self.cluster, plan, lambda: [client.place for client in self.clients])
        growth = Growth(self.admin, self.cluster, self.admin.voting)
        self.nemesis.operations.update(self.admin.operations)
        self.nemesis.elect_uncleanly = self.admin.elect_uncleanly
        self.admin.voting.halted = lambda: self.nemesis.losses.was_disk_lost
        self.nemesis.losses.are_voters_unsure = lambda: self.admin.voting.is_unsure
        self.history.rotten = self.nemesis.damage.rotten
        self.invariants.is_rotten = self.nemesis.damage.is_rotten
        self.invariants.is_lost = self.nemesis.damage.is_lost
        self.nemesis.damage.on_wiped = self.invariants.on_wiped
        self.nemesis.operations.update({"join": growth.join, "drain": growth.drain})
        self.transactions: Transactions | None = None
        self.levels: Levels | None = None
        if isinstance(plan, TransactionalPlan):
            self.transactions = Transactions(
                self.world, self.network, self.cluster, plan, self.history, self.invariants
            )
            self.transactions.logs.on_decided = self.nemesis.decisions.on_decided
            self.transactions.laws.on_asked = self.nemesis.decisions.on_asked
            state_topics = StateTopics(self.admin, plan.nodes, [each for each in plan.topics if each.name == DELETED])
            self.nemesis.operations.update(state_topics.operations)
            self.levels = Levels(self.admin)
            self.nemesis.operations.update({RAISED: self.levels.raise_level, LOWERED: self.levels.lower_level})

        self.shares: Shares | None = None
        if isinstance(plan, SharePlan):
            self.shares = Shares(
                self.world, self.network, self.cluster, plan, self.history, self.invariants, self.admin
            )
            self.nemesis.operations.update(ShareTopics(self.admin, self.cluster, plan).operations)

    def run(self) -> None:
        world = self.world
        self.cluster.start()
        self.admin.start()
        if not world.run_until(lambda: self.admin.is_ready, CONVERGE_S * SECOND):
            raise Violation("liveness", f"the topics were not created within {CONVERGE_S} s")
        self._set_level()
        if isinstance(self.plan, SharePlan) and self.shares is not None:
            self.shares.configure()
            lanes_of(self.plan)
        self.clients = make_clients(world, self.network, self.cluster, self.plan, self.history, self.invariants.groups)
        if self.transactions is not None:
            self.clients += self.transactions.make_clients()
        if self.shares is not None:
            self.shares.watch_growth(self.clients)
            self.clients += self.shares.make_clients()
        for client in self.clients:
            client.start()
        self.nemesis.begin()
        self.invariants.begin()
        world.run(world.now_us + self.plan.seconds * SECOND)
        world.say("!", "no more faults")
        self.nemesis.end()
        self._converge()
        self._read_all()
        self.invariants.check_end()
        self.history.check_complete()
        if self.transactions is not None:
            self.transactions.check_end()
        if self.shares is not None:
            self.shares.check_end()

    def _set_level(self) -> None:
        plan, levels = self.plan, self.levels
        if isinstance(plan, TransactionalPlan) and levels is not None and plan.level != levels.level:
            levels.ask_for(plan.level)
            if not self.world.run_until(lambda: levels.level == plan.level, CONVERGE_S * SECOND):
                raise Violation("liveness", f"transaction.version was not set within {CONVERGE_S} s")

    def _converge(self) -> None:
        """After the faults nobody may stay stuck."""
        world = self.world
        settle_us = SETTLE_US if self.transactions is None and self.shares is None else SETTLE_US // 6
        world.run(world.now_us + settle_us)
        producers = [client for client in self.clients if isinstance(client, Producer)]
        for producer in producers:
            producer.producing = False
        if not world.run_until(lambda: all(producer.is_idle for producer in producers), CONVERGE_S * SECOND):
            stuck = [producer.place for producer in producers if not producer.is_idle]
            raise Violation("liveness", f"{CONVERGE_S} s after the last fault {stuck} still wait for an answer")
        if self.transactions is not None:
            self.transactions.converge()
        if self.shares is not None:
            self.shares.converge()
        members = [client for client in self.clients if isinstance(client, Member)]
        if members and not world.run_until(lambda: self._groups_are_done(members), CONVERGE_S * SECOND):
            state = {member.place: {str(key): p.offset for key, p in member.positions.items()} for member in members}
            raise Violation(
                "group-progress", f"{CONVERGE_S} s after the last fault the groups have not read everything: {state}"
            )
        near = [client for client in self.clients if isinstance(client, NearReader)]
        if not world.run_until(lambda: self._have_read_all(near), CONVERGE_S * SECOND):
            state = {reader.place: {str(key): p.offset for key, p in reader.positions.items()} for reader in near}
            raise Violation(
                "liveness",
                f"{CONVERGE_S} s after the last fault readers of followers have not read everything: {state}",
            )
        damage = self.nemesis.damage
        if not world.run_until(damage.all_whole, CONVERGE_S * SECOND):
            raise Violation("whole", f"{CONVERGE_S} s after the last fault {list(damage.damaged)} are still damaged")
        self.invariants.check_converged(CONVERGE_S)

    def _have_read_all(self, readers: list[NearReader]) -> bool:
        """What a follower never serves, its readers never get."""
        for key in {key for reader in readers for key in reader.positions}:
            leader = self.cluster.leader_host(*key)
            if leader is None or leader.node is None:
                return False
            end_offset = leader.node.partitions.find(*key).log.high_watermark
            if any(reader.positions[key].offset < end_offset for reader in readers):
                return False
        return True

    def _groups_are_done(self, members: list[Member]) -> bool:
        """Every partition is with one member of each group, which has read all of it."""
        for group in self.plan.groups:
            mine = [member for member in members if member.group == group.name]
            count = next(topic.partitions for topic in self.plan.topics if topic.name == group.topic)
            for index in range(count):
                key = (group.topic, index)
                owners = [member for member in mine if key in member.owned]
                leader = self.cluster.leader_host(*key)
                if len(owners) != 1 or leader is None or leader.node is None:
                    return False
                end_offset = leader.node.partitions.find(*key).log.high_watermark
                if owners[0].positions[key].offset < end_offset:
                    return False
        return True

    def _read_all(self) -> None:
        counts = lasting_topics(self.plan)
        last = Reader(self.world, self.network, "last", self.cluster.addresses, counts, self.history)
        last.start()

        def read_up(topic: str, index: int) -> bool:
            position = last.positions[topic, index]
            known = last.known.get(topic)
            if known is None:
                return False
            if self.invariants.is_empty(topic, index):
                return True
            return position.offset >= max(
                self.history.of(topic, known.topic_id, index).end_offset, position.end_offset, 1
            )

        self.world.run_until(lambda: all(read_up(*key) for key in last.positions), READ_S * SECOND)
        last.stop()


def _collect() -> None:
    """Free the run before. What was there before the first one is set aside: it need not be looked at again."""
    gc.collect()
    if not gc.get_freeze_count():
        gc.freeze()


def run_plan(plan: Plan, on_line: Callable[[str], None] | None = None) -> Verdict:
    run = Run(plan, on_line)
    verdict = Verdict(plan.seed, plan=plan.describe(), faults=len(plan.faults))
    began = process_time()
    _collect()
    gc.disable()
    try:
        with guard.forbidden():
            run.run()
    except Violation as violation:
        verdict.checker, verdict.text = violation.checker, violation.text
    except Exception as bug:
        import traceback

        verdict.checker = "bug"
        verdict.text = "".join(traceback.format_exception(bug, limit=-8))
    finally:
        gc.enable()
    verdict.cpu_s = process_time() - began
    world = run.world
    verdict.trace_hash = world.trace.hash
    verdict.virtual_s = world.now_us / SECOND
    verdict.acknowledged = run.history.acknowledged
    verdict.reads = run.history.reads
    verdict.events = world.events
    verdict.marks = dict(sorted(world.marks.items()))
    verdict.last_lines = list(world.trace.last)
    return verdict


def run_seed(
    seed: int, on_line: Callable[[str], None] | None = None, *, nodes: int | None = None, later: int = NEWEST
) -> Verdict:
    return run_plan(draw_plan(seed, nodes=nodes, later=later), on_line)
