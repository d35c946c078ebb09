"""Plans with transactions: topics for them, producers of both generations, a job that copies, committed readers.

They are drawn beside an ordinary plan, from streams of their own, so that no other plan changes with them. Faults have
two more targets there: whoever coordinates transactions, and, by kind, the moment when an end has been decided.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from skidway.metadata.features import TRANSACTIONS_NEWEST
from skidway.sim.plan import COMPACTED, DELETED, FAULT_GAP_MS, Fault, Plan, TopicPlan, draw_plan

COORDINATOR = -3
"""As a fault's target."""
STATE_PARTITIONS = 2
TIMEOUT_CHECK_MS = 300
FAULTS = ["power", "kill", "kill", "stop", "pause", "cut", "cut one way", "cut pair", "cut clients", "reset", "elect",
          "reassign", "op", "decided", "decided", "asked", "late markers", "late markers", "slow answers",
          "slow answers", "to and fro", "delete"]  # fmt: skip
FAULTS_ALONE = ["power", "kill", "stop", "pause", "cut", "reset", "op", "decided", "asked", "delete"]
SECONDS = [2, 2, 3]
"""Short work and short plans: mistakes show early, and many seeds see more than long ones."""
MADE_MS = 700
"""By then the topics are made, and everybody begins."""
LAST_EPOCH = 32_766
SHARING = "sharing"
"""The group whose members share the work of copying."""
NEWEST = 2
"""How often kinds of plans were added: seeds that are kept may be older."""
LOWERED_SINCE = 2
RAISED, LOWERED = "raise level", "lower level"
LOWER_CHANCE = COMPACTED_CHANCE = 0.35
LOWERED_CHANCE = 0.3
NEVER_MS = 7 * 24 * 3_600_000


@dataclass(slots=True)
class TransactionalClientPlan:
    id: str
    bumps: bool
    """Of the generation whose epoch grows at every end."""
    topics: dict[str, int]
    """Where it writes, and how many partitions that has."""
    instances: int = 1
    """Producers that take the id from each other."""
    interval_ms: int = 60
    work_ms: int = 40
    """From the last write to the end."""
    records: int = 3
    timeout_ms: int = 3_000
    abort_chance: float = 0.2
    death_chance: float = 0.03
    late_chance: float = 0.0
    """That a request comes once more, seconds later."""
    produce_version: int = 11
    asks_level: bool = False
    """It is of the generation that bumps only while the cluster's `transaction.version` says so; between transactions
    it looks whether that has changed."""
    late_books: bool = False
    """Offsets of its transactions for the group without members may come late, too, if it keeps its epoch."""
    patience_ms: int = 0
    """After so long without an answer to a write it aborts, and does not hang up. 0: it waits, and sends it again."""
    pipelined: bool = False
    """It has two batches under way to a partition."""
    books_chance: float = 0.0
    """That a transaction also commits an offset, which somebody else moves meanwhile."""
    deleted: frozenset[str] = frozenset()
    """Of its topics those that come and go."""
    input: str = ""
    """The topic that a copying job reads; others make their values up."""
    input_partition: int = 0


@dataclass(slots=True)
class TransactionalPlan(Plan):
    transactional: list[TransactionalClientPlan] = field(default_factory=list)
    committed_readers: int = 1
    first_epoch: int = 0
    """Of every transactional id: near the end of epochs they get other producer ids soon."""
    expiration_ms: int = NEVER_MS
    """Ids that are not used for so long are forgotten."""
    sharing: list[TransactionalClientPlan] = field(default_factory=list)
    """Producers of the members of a group that shares the work of copying a topic."""
    asks_for_all: bool = True
    """For each topic that is refused at first, the administrator asks for all again: with many topics that is a lot."""
    level: int = TRANSACTIONS_NEWEST
    """The cluster's `transaction.version` when the clients begin."""
    compaction_ms: int = 10_000
    """How often compaction looks for work."""

    def describe(self) -> str:
        bumping = sum(client.bumps for client in self.transactional)
        jobs = sum(bool(client.input) for client in self.transactional)
        return (
            f"{Plan.describe(self)}, {len(self.transactional)} transactional ids ({bumping} bumping, {jobs} copying), "
            f"{self.committed_readers} readers of what is committed, transaction.version {self.level}"
        )


def draw_transactional_plan(
    seed: int,
    *,
    nodes: int | None = None,
    seconds: int | None = None,
    kinds: list[str] | None = None,
    later: int = NEWEST,
) -> TransactionalPlan:
    """`later`: as of so many times that something was added, each from a stream of its own."""
    random = Random(f"{seed}/transactions")
    count = nodes if nodes is not None else random.choice([1, 3, 3, 3, 3, 3])
    drawn = draw_plan(
        seed, nodes=count, seconds=seconds if seconds is not None else random.choice(SECONDS), kinds=["kill"]
    )
    plan = TransactionalPlan(**{name: getattr(drawn, name) for name in Plan.__dataclass_fields__})
    plan.groups, plan.readers = [], 1
    plan.stall_us = min(plan.stall_us, 300_000)
    plan.sync_us = min(plan.sync_us, 15_000)
    plan.producers = plan.producers[:1]
    for producer in plan.producers:
        producer.interval_ms, producer.records = max(producer.interval_ms, 80), min(producer.records, 4)
        producer.value_bytes = 24
    _draw_topics(plan, random)
    _draw_clients(plan, random)
    _draw_copiers(plan, random)
    plan.committed_readers = 1
    if random.random() < 0.3:
        plan.first_epoch = LAST_EPOCH - random.randrange(6)
    if random.random() < 0.2:
        plan.expiration_ms, plan.drift_ppm = random.choice([500, 1_200]), 0
    known = kinds if kinds is not None else FAULTS_ALONE if count == 1 else FAULTS
    chosen = known if kinds is not None else random.sample(known, random.randrange(3, len(known)))
    plan.faults = _draw_faults(plan, random, chosen)
    if later:
        plan.asks_for_all = False
        _draw_level(plan)
        compacted = Random(f"{plan.seed}/compacted")
        if compacted.random() < COMPACTED_CHANCE:
            add_compacted(plan, compacted)
    if later >= LOWERED_SINCE:
        for client in plan.transactional:
            client.late_books = True
        _draw_lowered(plan)
    return plan


def _draw_level(plan: TransactionalPlan) -> None:
    """In a third of the plans the cluster is not at the newest level; in some of them it is raised on the way."""
    random = Random(f"{plan.seed}/level")
    if random.random() >= LOWER_CHANCE:
        return
    plan.level = random.choice([0, 1])
    _have_all_ask(plan)
    if random.random() < 0.5:
        raised = Fault(random.randrange(1_500, plan.seconds * 1_000 + MADE_MS), RAISED, -1, 0)
        plan.faults = sorted([*plan.faults, raised], key=lambda fault: fault.at_ms)


def _have_all_ask(plan: TransactionalPlan) -> None:
    for client in [*plan.transactional, *plan.sharing]:
        client.asks_level, client.produce_version = client.bumps, min(client.produce_version, 11)
        client.topics.pop(DELETED, None)


def _draw_lowered(plan: TransactionalPlan) -> None:
    """In some plans the level is lowered while clients are at work, and in half of those raised again."""
    random = Random(f"{plan.seed}/lowered")
    if plan.level != TRANSACTIONS_NEWEST or random.random() >= LOWERED_CHANCE:
        return
    _have_all_ask(plan)
    end_ms = plan.seconds * 1_000 + MADE_MS
    lowered_ms = random.randrange(1_200, end_ms - 300)
    faults = [Fault(lowered_ms, LOWERED, -1, 0, random.randrange(1 << 30))]
    if random.random() < 0.5:
        faults.append(Fault(random.randrange(lowered_ms + 100, end_ms), RAISED, -1, 0))
    plan.faults = sorted([*plan.faults, *faults], key=lambda fault: fault.at_ms)


def add_compacted(plan: TransactionalPlan, random: Random) -> None:
    """A topic whose segments are closed soon and looked at often."""
    configs = {
        **plan.topics[0].configs,
        "cleanup.policy": "compact",
        "internal.segment.bytes": str(random.choice([256, 1_024])),
        "min.cleanable.dirty.ratio": "0.01",
        "delete.retention.ms": str(random.choice([0, 300])),
    }
    plan.compaction_ms = random.choice([100, 400])
    plan.topics.append(TopicPlan(COMPACTED, 1, plan.topics[0].replicas, configs))
    for client in plan.transactional:
        if not client.input:
            client.topics[COMPACTED] = 1


def _draw_topics(plan: TransactionalPlan, random: Random) -> None:
    first = plan.topics[0]
    for number in range(2):
        configs = {**first.configs, "internal.segment.bytes": str(random.choice([4_096, 16_384, 1 << 20]))}
        plan.topics.append(TopicPlan(f"x{number}", random.choice([1, 2]), first.replicas, configs))
    if random.random() < 0.4:
        plan.topics.append(TopicPlan(DELETED, 1, first.replicas, dict(first.configs)))


def _draw_clients(plan: TransactionalPlan, random: Random) -> None:
    topics = {topic.name: topic.partitions for topic in plan.topics if topic.name.startswith("x")}
    comes_and_goes = {topic.name: topic.partitions for topic in plan.topics if topic.name == DELETED}
    for number in range(2):
        bumps = random.random() < 0.5
        plan.transactional.append(
            TransactionalClientPlan(
                id=f"tx{number}",
                bumps=bumps,
                # A steady client's sequences go on: nobody could tell where they begin in a topic that is new.
                topics={**topics, **(comes_and_goes if bumps else {})},
                deleted=frozenset(comes_and_goes),
                instances=random.choice([1, 1, 2]),
                interval_ms=random.choice([10, 40, 150]),
                work_ms=random.choice([2, 20, 150]),
                records=random.choice([1, 4]),
                timeout_ms=random.choice([400, 1_000, 2_000]),
                abort_chance=random.choice([0.1, 0.4]),
                death_chance=random.choice([0.03, 0.1]),
                late_chance=random.choice([0.0, 0.0, 0.15]),
                patience_ms=random.choice([0, 0, 60, 300]),
                pipelined=random.random() < 0.3,
                books_chance=random.choice([0.0, 0.3]),
                produce_version=random.choice([12, 13]) if bumps else random.choice([9, 10, 11]),
            )
        )


def _draw_copiers(plan: TransactionalPlan, random: Random) -> None:
    """Of one partition, by one or two who take the work from each other. In some plans two of them copy each other's
    output, and in some a group shares the work."""
    echoes = random.random() < 0.25
    plan.transactional.append(_copier(plan, random, "copy", "x1" if echoes else plan.topics[0].name, "x0"))
    if echoes:
        plan.transactional.append(_copier(plan, random, "echo", "x0", "x1"))
    if random.random() < 0.25:
        plan.sharing = [_sharing(plan, random, number) for number in range(2)]


def _copier(plan: TransactionalPlan, random: Random, name: str, source: str, target: str) -> TransactionalClientPlan:
    bumps = random.random() < 0.5
    return TransactionalClientPlan(
        id=name,
        bumps=bumps,
        topics={target: next(topic.partitions for topic in plan.topics if topic.name == target)},
        instances=random.choice([1, 2]),
        interval_ms=random.choice([20, 80]),
        work_ms=random.choice([5, 50]),
        timeout_ms=random.choice([1_000, 2_000]),
        abort_chance=0.15,
        late_chance=random.choice([0.0, 0.1]),
        produce_version=random.choice([12, 13]) if bumps else random.choice([9, 10, 11]),
        input=source,
    )


def _sharing(plan: TransactionalPlan, random: Random, number: int) -> TransactionalClientPlan:
    bumps = random.random() < 0.5
    return TransactionalClientPlan(
        id=f"share{number}",
        bumps=bumps,
        topics={topic.name: topic.partitions for topic in plan.topics if topic.name == "x1"},
        interval_ms=5,
        work_ms=random.choice([2, 50, 200]),
        timeout_ms=1_000,
        abort_chance=0.1,
        produce_version=12 if bumps else 10,
    )


def _draw_faults(plan: Plan, random: Random, kinds: list[str]) -> list[Fault]:
    faults = []
    at_ms = 1_200
    gap_ms = random.choice([FAULT_GAP_MS // 5, FAULT_GAP_MS // 2])
    while at_ms < plan.seconds * 1_000 + MADE_MS:
        target = random.choice([-1, COORDINATOR, COORDINATOR, -2, *range(plan.nodes)])
        lasts = int(random.choice([50, 300, 800]) * (0.5 + random.random()))
        faults.append(Fault(at_ms, random.choice(kinds), target, lasts, random.randrange(1 << 30)))
        at_ms += 1 + int(random.expovariate(1 / gap_ms))
    return faults
