"""Plans with share groups: topics for them, members that crash, dawdle, renew, release and reject, and settings.

They are drawn beside an ordinary plan, from streams of their own, so that no other plan changes with them. Faults have
two more targets there: whoever keeps what is stored of share-partitions, and whoever coordinates groups.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from skidway.sim.clients.producers import ProducerPlan
from skidway.sim.plan import FAULT_GAP_MS, TRIMMED, Fault, Plan, TopicPlan, draw_plan

SHARE_COORDINATOR, GROUP_COORDINATOR = -4, -5
"""As a fault's target."""
STATE_PARTITIONS = 2
FAULTS = ["power", "kill", "kill", "stop", "pause", "cut", "cut one way", "cut pair", "cut clients", "reset", "elect",
          "reassign", "op", "late states", "slow states", "slow states", "states to and fro", "leaders to and fro",
          "deaf", "trim", "grow"]  # fmt: skip
FAULTS_ALONE = ["power", "kill", "stop", "pause", "cut", "reset", "op", "trim", "grow"]
SECONDS = [3, 3, 4]
MADE_MS = 700
"""By then the topics are made, and everybody begins."""
GROWN_MAX = 2
"""So many partitions an administrator adds to the topic that is trimmed."""


@dataclass(slots=True)
class ShareGroupPlan:
    name: str
    topics: list[str]
    members: int = 2
    configs: dict[str, str] = field(default_factory=dict)
    """Of the group."""
    records: int = 20
    """That a member asks for."""
    wait_ms: int = 300
    work_ms: int = 60
    """From a delivery to the word about it."""
    strict: bool = False
    """Never more records than asked for."""
    release_chance: float = 0.1
    reject_chance: float = 0.05
    renew_chance: float = 0.1
    forget_chance: float = 0.08
    """That a member says nothing of what it has, until its lock is over."""
    dawdle_chance: float = 0.05
    """That it speaks when its lock is over."""
    crash_chance: float = 0.03
    leave_chance: float = 0.03
    wrong_chance: float = 0.06
    """That it says something of what it does not have, or twice the same."""
    reconnect_chance: float = 0.02
    """That it begins a session by another connection, and closes the first one later."""
    poison_chance: float = 0.0
    """That a record kills whoever gets it."""
    keys: int = 0
    """How many keys its records have, if it gets them in the order of keys; 0: it does not."""


@dataclass(slots=True)
class SharePlan(Plan):
    share_groups: list[ShareGroupPlan] = field(default_factory=list)
    lock_ms: int = 1_000
    deliveries: int = 5
    locks: int = 100
    updates_per_snapshot: int = 500
    prune_ms: int = 300_000
    write_timeout_ms: int = 2_000

    def describe(self) -> str:
        members = sum(group.members for group in self.share_groups)
        return (
            f"{Plan.describe(self)}, {len(self.share_groups)} share groups with {members} members, locks of "
            f"{self.lock_ms} ms, {self.deliveries} deliveries"
        )


def draw_share_plan(
    seed: int, *, nodes: int | None = None, seconds: int | None = None, kinds: list[str] | None = None
) -> SharePlan:
    random = Random(f"{seed}/shares")
    count = nodes if nodes is not None else random.choice([1, 3, 3, 3, 3, 3])
    drawn = draw_plan(
        seed, nodes=count, seconds=seconds if seconds is not None else random.choice(SECONDS), kinds=["kill"]
    )
    plan = SharePlan(**{name: getattr(drawn, name) for name in Plan.__dataclass_fields__})
    plan.groups, plan.readers = [], 0
    plan.stall_us = min(plan.stall_us, 300_000)
    plan.sync_us = min(plan.sync_us, 15_000)
    plan.lock_ms = random.choice([1_000, 1_000, 1_500])
    plan.deliveries = random.choice([2, 3, 5, 5, 8])
    plan.updates_per_snapshot = random.choice([0, 3, 10, 500])
    plan.prune_ms = random.choice([500, 1_500, 300_000])
    _draw_topics(plan, random)
    _draw_groups(plan, random)
    known = kinds if kinds is not None else FAULTS_ALONE if count == 1 else FAULTS
    chosen = known if kinds is not None else random.sample(known, random.randrange(3, len(known)))
    plan.faults = _draw_faults(plan, random, chosen)
    _draw_order(plan, Random(f"{seed}/share order"))
    return plan


def _draw_topics(plan: SharePlan, random: Random) -> None:
    """One that keeps all, with several partitions, and in some plans one that is cut at its beginning, and grows."""
    first = plan.topics[0]
    first.partitions = random.choice([1, 2, 3])
    plan.topics = [first]
    if random.random() < 0.5:
        plan.topics.append(TopicPlan(TRIMMED, 1, first.replicas, dict(first.configs)))
    plan.producers = [
        ProducerPlan(
            topic=topic.name,
            partitions=topic.partitions,
            interval_ms=random.choice([30, 60, 120]),
            records=random.choice([1, 4, 15]),
            in_flight=random.choice([1, 3]),
            timeout_ms=1_500,
            value_bytes=random.choice([24, 24, 200]),
        )
        for topic in plan.topics
    ]


def _draw_groups(plan: SharePlan, random: Random) -> None:
    for number in range(random.choice([1, 1, 2])):
        plan.share_groups.append(
            ShareGroupPlan(
                # A colon in a name must not part it.
                name=f"s:{number}",
                topics=[topic.name for topic in plan.topics],
                members=random.choice([1, 2, 3, 4]),
                configs={"share.auto.offset.reset": "earliest"},
                records=random.choice([1, 5, 20, 200]),
                wait_ms=random.choice([100, 300, 700]),
                work_ms=random.choice([5, 60, 300]),
                strict=random.random() < 0.4,
                release_chance=random.choice([0.0, 0.1, 0.3]),
                reject_chance=random.choice([0.0, 0.05, 0.2]),
                renew_chance=random.choice([0.0, 0.1, 0.3]),
                forget_chance=random.choice([0.02, 0.1]),
                dawdle_chance=random.choice([0.0, 0.05, 0.15]),
                crash_chance=random.choice([0.0, 0.03, 0.1]),
                leave_chance=random.choice([0.0, 0.03]),
                wrong_chance=random.choice([0.0, 0.06, 0.15]),
                poison_chance=random.choice([0.0, 0.0, 0.02]),
            )
        )


def _draw_order(plan: SharePlan, random: Random) -> None:
    """In a third of the plans, a stream of its own."""
    if random.random() < 0.33:
        order_keys(plan, random.choice([2, 5, 20]))
        # While its keys are with members a fetch waits for nothing, and what they say waits for the fetch.
        plan.share_groups[0].wait_ms = 100
        plan.share_groups[0].records = max(plan.share_groups[0].records, 20)


def order_keys(plan: SharePlan, count: int) -> None:
    """Records have so many keys, and the first group gets them in the order of keys."""
    group = plan.share_groups[0]
    group.keys, group.configs = count, {**group.configs, "share.key.order": "key"}
    for producer in plan.producers:
        producer.keys = count


def unordered(plan: SharePlan) -> None:
    for group in plan.share_groups:
        group.keys = 0
        group.configs.pop("share.key.order", None)
    for producer in plan.producers:
        producer.keys = 0


def _draw_faults(plan: Plan, random: Random, kinds: list[str]) -> list[Fault]:
    faults = []
    at_ms = 1_200
    gap_ms = random.choice([FAULT_GAP_MS // 5, FAULT_GAP_MS // 2])
    while at_ms < plan.seconds * 1_000 + MADE_MS:
        target = random.choice([-1, -1, SHARE_COORDINATOR, SHARE_COORDINATOR, GROUP_COORDINATOR, *range(plan.nodes)])
        lasts = int(random.choice([50, 300, 800]) * (0.5 + random.random()))
        faults.append(Fault(at_ms, random.choice(kinds), target, lasts, random.randrange(1 << 30)))
        at_ms += 1 + int(random.expovariate(1 / gap_ms))
    return faults
