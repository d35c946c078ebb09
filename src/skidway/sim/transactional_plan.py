"""Plans with transactions: topics for them, producers of both generations, a job that copies, committed readers.

They are drawn beside an ordinary plan, from streams of their own, so that no other plan changes with them. Faults have
two more targets there: whoever coordinates transactions, and, by kind, the moment when an end has been decided.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from skidway.sim.plan import FAULT_GAP_MS, Fault, Plan, TopicPlan, draw_plan

COORDINATOR = -3
"""As a fault's target."""
STATE_PARTITIONS = 2
TIMEOUT_CHECK_MS = 300
FAULTS = ["power", "kill", "kill", "stop", "pause", "cut", "cut one way", "cut pair", "cut clients", "reset", "elect",
          "reassign", "op", "decided", "decided", "decided"]  # fmt: skip
FAULTS_ALONE = ["power", "kill", "stop", "pause", "cut", "reset", "op", "decided"]


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
    input: str = ""
    """The topic that a copying job reads; others make their values up."""
    input_partition: int = 0


@dataclass(slots=True)
class TransactionalPlan(Plan):
    transactional: list[TransactionalClientPlan] = field(default_factory=list)
    committed_readers: int = 1

    def describe(self) -> str:
        bumping = sum(client.bumps for client in self.transactional)
        jobs = sum(bool(client.input) for client in self.transactional)
        return (
            f"{Plan.describe(self)}, {len(self.transactional)} transactional ids ({bumping} bumping, {jobs} copying), "
            f"{self.committed_readers} readers of what is committed"
        )


def draw_transactional_plan(
    seed: int, *, nodes: int | None = None, seconds: int | None = None, kinds: list[str] | None = None
) -> TransactionalPlan:
    random = Random(f"{seed}/transactions")
    count = nodes if nodes is not None else random.choice([1, 3, 3, 3])
    drawn = draw_plan(
        seed, nodes=count, seconds=seconds if seconds is not None else random.choice([6, 9]), kinds=["kill"]
    )
    plan = TransactionalPlan(**{name: getattr(drawn, name) for name in Plan.__dataclass_fields__})
    plan.groups, plan.readers = [], 1
    plan.stall_us = min(plan.stall_us, 300_000)
    _draw_topics(plan, random)
    _draw_clients(plan, random)
    _draw_copier(plan, random)
    plan.committed_readers = random.choice([1, 2])
    known = kinds if kinds is not None else FAULTS_ALONE if count == 1 else FAULTS
    plan.faults = _draw_faults(plan, random, known)
    return plan


def _draw_topics(plan: TransactionalPlan, random: Random) -> None:
    first = plan.topics[0]
    for number in range(2):
        configs = {**first.configs, "internal.segment.bytes": str(random.choice([4_096, 16_384, 1 << 20]))}
        plan.topics.append(TopicPlan(f"x{number}", random.choice([1, 2]), first.replicas, configs))


def _draw_clients(plan: TransactionalPlan, random: Random) -> None:
    topics = {topic.name: topic.partitions for topic in plan.topics if topic.name.startswith("x")}
    for number in range(random.choice([2, 3])):
        bumps = random.random() < 0.5
        plan.transactional.append(
            TransactionalClientPlan(
                id=f"tx{number}",
                bumps=bumps,
                topics=topics,
                instances=random.choice([1, 1, 2]),
                interval_ms=random.choice([20, 80, 250]),
                work_ms=random.choice([5, 50, 400]),
                records=random.choice([1, 4]),
                timeout_ms=random.choice([600, 1_500, 5_000]),
                abort_chance=random.choice([0.1, 0.4]),
                late_chance=random.choice([0.0, 0.0, 0.15]),
                produce_version=random.choice([12, 13]) if bumps else random.choice([9, 10, 11]),
            )
        )


def _draw_copier(plan: TransactionalPlan, random: Random) -> None:
    """Of one partition, by one or two who take the work from each other."""
    bumps = random.random() < 0.5
    plan.transactional.append(
        TransactionalClientPlan(
            id="copy",
            bumps=bumps,
            topics={"x0": next(topic.partitions for topic in plan.topics if topic.name == "x0")},
            instances=random.choice([1, 2]),
            interval_ms=random.choice([20, 80]),
            work_ms=random.choice([5, 50]),
            timeout_ms=random.choice([1_500, 5_000]),
            abort_chance=0.15,
            late_chance=random.choice([0.0, 0.1]),
            produce_version=random.choice([12, 13]) if bumps else random.choice([9, 10, 11]),
            input=plan.topics[0].name,
        )
    )


def _draw_faults(plan: Plan, random: Random, kinds: list[str]) -> list[Fault]:
    faults = []
    at_ms = 1_500
    gap_ms = random.choice([FAULT_GAP_MS // 3, FAULT_GAP_MS])
    while at_ms < plan.seconds * 1_000 - 500:
        target = random.choice([-1, COORDINATOR, COORDINATOR, -2, *range(plan.nodes)])
        lasts = int(random.choice([50, 300, 1_000, 2_500]) * (0.5 + random.random()))
        faults.append(Fault(at_ms, random.choice(kinds), target, lasts, random.randrange(1 << 30)))
        at_ms += 1 + int(random.expovariate(1 / gap_ms))
    return faults
