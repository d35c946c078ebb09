"""What a seed stands for: a cluster, its machines, its clients, and the faults that will befall it.

Everything is drawn at once and beforehand, so that a plan can be printed, made smaller and run again. Each seed draws
its own mixture (a "swarm"): some know no full disks, some nothing but crashes, some have slow disks or one client.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from skidway.sim.clients.producers import ProducerPlan
from skidway.sim.world.events import MS

FAULT_GAP_MS = 1_500
DELETED = "y0"
"""A topic that an administrator deletes and makes again, where a plan has it. Nobody reads it."""
COMPACTED = "z0"
"""A topic that is compacted, where a plan has it. Only transactions write to it, and only who reads what is committed
reads it: of what was aborted nothing stays."""
TRIMMED = "w0"
"""A topic whose beginning an administrator deletes, where a plan has it. Only share groups read it."""
KEYS = 7


def key_of(value: bytes) -> bytes:
    """Under which a value stands in a compacted topic: some have a key of their own, others replace each other."""
    number = int(value.partition(b"/")[2].partition(b"=")[0])
    return value if number % 3 == 0 else b"%d" % (number % KEYS)


@dataclass(slots=True)
class Fault:
    at_ms: int
    kind: str
    target: int
    """Which machine, counted from 0; -1: whoever leads the first partition, -2: whoever leads the metadata."""
    lasts_ms: int
    amount: int = 0

    def __str__(self) -> str:
        return f"{self.at_ms} {self.kind} {self.target} {self.lasts_ms} {self.amount}"


@dataclass(slots=True)
class TopicPlan:
    name: str
    partitions: int
    replicas: int
    configs: dict[str, str]


@dataclass(slots=True)
class GroupPlan:
    name: str
    members: int
    topic: str
    classic: int = 0
    """So many of them speak the classic protocol."""
    restarts: int = 3
    """How often each of those is started anew."""


@dataclass(slots=True)
class Plan:
    seed: int
    nodes: int
    seconds: int
    latency_us: int = 500
    sync_us: int = 1_500
    stall_chance: float = 0.0
    stall_us: int = 0
    drift_ppm: int = 0
    checkpoint_ms: int = 5_000
    replica_lag_ms: int = 10_000
    scrub_ms: int = 0
    """Where bits flip that nobody meets by chance, everything is looked at so often."""
    lossy: bool = True
    """Machines lose power; otherwise only processes are killed, and the page cache stays."""
    one_by_one: bool = False
    """Though nothing is synced, a machine loses its power when all the others hold everything: replication must do."""
    reset_on_heal: bool = False
    topics: list[TopicPlan] = field(default_factory=list)
    producers: list[ProducerPlan] = field(default_factory=list)
    readers: int = 1
    racks: int = 0
    """So many that the machines stand in by turns; readers then read from a replica in theirs."""
    groups: list[GroupPlan] = field(default_factory=list)
    versions: dict[int, int] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)

    def describe(self) -> str:
        topics = ", ".join(f"{t.name}({t.partitions}x{t.replicas} {t.configs['flush']})" for t in self.topics)
        return (
            f"{self.nodes} node(s), {self.seconds} s, {topics}, {len(self.producers)} producers, "
            f"{self.readers} readers{f' in {self.racks} racks' if self.racks else ''}, "
            f"{sum(g.members for g in self.groups)} members ({sum(g.classic for g in self.groups)} classic), "
            f"{len(self.faults)} faults"
        )


def lasting_topics(plan: Plan) -> dict[str, int]:
    """Those that keep all that is written, and how many partitions they have."""
    return {topic.name: topic.partitions for topic in plan.topics if topic.name not in (DELETED, COMPACTED, TRIMMED)}


ONE_NODE = ["power", "power", "kill", "stop", "pause", "cut", "cut one way", "reset", "clock", "full", "bad sync",
            "op", "op", "slow", "topics"]  # fmt: skip
MANY_NODES = ["power", "power", "power", "kill", "stop", "pause", "pause", "cut", "cut", "cut one way", "cut pair",
              "cut clients", "reset", "clock", "full", "bad sync", "op", "slow", "all", "two", "elect", "reassign",
              "topics"]  # fmt: skip
LOSSES = ("tail", "lost files", "bad metadata", "lost directory", "old backup", "lost disk")
"""See `losses`. The last one comes by itself, later."""
MORE_LOSSES = ("lost disk", "lost beginning", "lost vote")
LATER = (("voters", "flip"), ("join", "drain"), ("rot",), LOSSES, MORE_LOSSES, ("lost disk",))
"""Kinds that came later, for several nodes (losses for one as well), each time from a stream of its own: what a seed
drew before, it still draws."""
NEWEST = len(LATER)
CLIENTS_SINCE = 2
"""Classic members and racks came with the second kinds."""
ROT_SINCE = 3
LOSSES_SINCE = 4
LOSSES_CHANCE = 0.35
LOSSES_MAX = 3
"""In a run."""
MORE_LOSSES_SINCE = 5
MORE_LOSSES_CHANCE = 0.25
MORE_LOSSES_MAX = 2
LOST_DISK_SINCE = 6
LOST_DISK_CHANCE = 0.15
LEFT_OUT = (0.3, 0.7)
"""How many seeds do without them: with more machines a run is slower."""
SCRUB_MS = [700, 2_000]


def draw_plan(
    seed: int,
    *,
    nodes: int | None = None,
    seconds: int | None = None,
    kinds: list[str] | None = None,
    later: int = NEWEST,
) -> Plan:
    """`kinds` of faults: as drawn, unless given; then also fewer clients, for a quick look at one thing. `later`: also
    the kinds that seeds did not know at first, as of so many times that some were added."""
    random = Random(f"{seed}/plan")
    count = nodes if nodes is not None else random.choice([1, 3, 3, 3, 3, 5])
    flush = random.choice(["sync", "sync", "os"])
    plan = Plan(
        seed=seed,
        nodes=count,
        seconds=seconds if seconds is not None else random.choice([8, 12, 18]),
        latency_us=random.choice([100, 500, 2_000, 10_000]),
        sync_us=random.choice([300, 2_000, 15_000, 60_000]),
        stall_chance=random.choice([0.0, 0.0, 0.01]),
        stall_us=random.choice([300, 3_000]) * MS,
        drift_ppm=random.choice([0, 0, 200, 50_000]),
        checkpoint_ms=random.choice([1_000, 3_000, 8_000]),
        lossy=flush == "sync",
        one_by_one=flush == "os" and count > 1 and random.random() < 0.6,
        reset_on_heal=random.random() < 0.3,
        readers=random.choice([1, 2]),
        versions={0: random.choice([9, 11, 13]), 1: random.choice([12, 13, 16, 17])},
    )
    _draw_clients(plan, random, flush)
    known = sorted(set(ONE_NODE if count == 1 else MANY_NODES))
    chosen = random.sample(known, random.randrange(2, len(known)))
    weighted = [kind for kind in (ONE_NODE if count == 1 else MANY_NODES) if kind in chosen]
    if kinds is not None:
        weighted = kinds
        _lighten(plan)
    gap_ms = random.choice([FAULT_GAP_MS // 3, FAULT_GAP_MS, FAULT_GAP_MS * 3])
    plan.faults = _draw_faults(plan, random, weighted, gap_ms if kinds is None else FAULT_GAP_MS // 3)
    if kinds is not None and "rot" in kinds:
        plan.scrub_ms = SCRUB_MS[seed % len(SCRUB_MS)]
    if kinds is None:
        _draw_what_came_later(plan, later)
    return plan


def _draw_what_came_later(plan: Plan, later: int) -> None:
    several = plan.nodes > 1
    for number in range(min(later, len(LEFT_OUT)) if several else 0):
        _add_later_kinds(plan, number)
    if later >= CLIENTS_SINCE:
        _draw_classic_members(plan)
        racks = Random(f"{plan.seed}/racks")
        plan.racks = racks.choice([2, 3]) if several and racks.random() < 0.4 else 0
    if later >= ROT_SINCE:
        _add_rot(plan)
    if later >= LOSSES_SINCE:
        _add_losses(plan)
    if later >= MORE_LOSSES_SINCE:
        _add_more_losses(plan)
    if later >= LOST_DISK_SINCE and plan.nodes > 1:
        _add_lost_disk(plan)


def _draw_classic_members(plan: Plan) -> None:
    """In half of the groups: some, or all."""
    random = Random(f"{plan.seed}/classic")
    for group in plan.groups:
        if random.random() < 0.5:
            group.classic = random.randrange(1, group.members + 1)


def _add_later_kinds(plan: Plan, number: int) -> None:
    """To some seeds, among the other faults."""
    random = Random(f"{plan.seed}/{'more' * (number + 1)}")
    chosen = [kind for kind in LATER[number] if random.random() < 0.7]
    if random.random() < LEFT_OUT[number] or not chosen:
        return
    gap_ms = random.choice([FAULT_GAP_MS // 2, FAULT_GAP_MS, FAULT_GAP_MS * 2])
    plan.faults = sorted([*plan.faults, *_draw_faults(plan, random, chosen, gap_ms)], key=lambda fault: fault.at_ms)


def _add_rot(plan: Plan) -> None:
    """Half of the seeds look at what they have stored, and then there is also something to find."""
    random = Random(f"{plan.seed}/rot")
    if random.random() < 0.5:
        return
    plan.scrub_ms = random.choice(SCRUB_MS)
    if plan.nodes > 1:
        gap_ms = random.choice([FAULT_GAP_MS, FAULT_GAP_MS * 2])
        plan.faults = sorted([*plan.faults, *_draw_faults(plan, random, ["rot"], gap_ms)], key=lambda f: f.at_ms)


def _add_losses(plan: Plan) -> None:
    """A few, in some of the seeds."""
    random = Random(f"{plan.seed}/losses")
    if random.random() >= LOSSES_CHANCE:
        return
    kinds = list(LOSSES if plan.nodes > 1 else LOSSES[:-1])
    drawn = _draw_faults(plan, random, kinds, FAULT_GAP_MS)
    chosen = random.sample(drawn, min(len(drawn), random.randrange(1, LOSSES_MAX + 1)))
    kept = [fault for fault in chosen if fault.kind != "lost disk"]
    plan.faults = sorted([*plan.faults, *kept], key=lambda fault: fault.at_ms)


def _add_more_losses(plan: Plan) -> None:
    random = Random(f"{plan.seed}/more losses")
    if random.random() >= MORE_LOSSES_CHANCE:
        return
    drawn = _draw_faults(plan, random, list(MORE_LOSSES[1:]), FAULT_GAP_MS)
    chosen = random.sample(drawn, min(len(drawn), random.randrange(1, MORE_LOSSES_MAX + 1)))
    plan.faults = sorted([*plan.faults, *chosen], key=lambda fault: fault.at_ms)


def _add_lost_disk(plan: Plan) -> None:
    """One, in some of the seeds with several nodes."""
    random = Random(f"{plan.seed}/lost disk")
    drawn = _draw_faults(plan, random, ["lost disk"], FAULT_GAP_MS)
    if random.random() < LOST_DISK_CHANCE and drawn:
        plan.faults = sorted([*plan.faults, random.choice(drawn)], key=lambda fault: fault.at_ms)


def _lighten(plan: Plan) -> None:
    plan.readers = 1
    plan.topics = plan.topics[:1]
    topic = plan.topics[0]
    topic.partitions = min(topic.partitions, 2)
    plan.producers = plan.producers[:2]
    for producer in plan.producers:
        producer.topic, producer.partitions = topic.name, topic.partitions
        producer.interval_ms = max(producer.interval_ms, 40)
    for group in plan.groups:
        group.topic = topic.name


def _draw_clients(plan: Plan, random: Random, flush: str) -> None:
    replicas = min(3, plan.nodes)
    indexed = Random(f"{plan.seed}/index")
    for number in range(random.choice([1, 1, 2])):
        configs = {
            "flush": flush,
            "min.insync.replicas": str(2 if plan.one_by_one else random.choice([1, 2, 2]) if replicas > 1 else 1),
            "index.interval.bytes": str(indexed.choice([64, 1_024, 4_096])),
            "message.timestamp.after.max.ms": str(1 << 60),
            "internal.segment.bytes": str(random.choice([4_096, 16_384, 1 << 20])),
        }
        plan.topics.append(TopicPlan(f"t{number}", random.choice([1, 2, 4]), replicas, configs))
    for _ in range(random.choice([2, 3, 4])):
        topic = random.choice(plan.topics)
        idempotent = random.random() < 0.75
        plan.producers.append(
            ProducerPlan(
                topic=topic.name,
                partitions=topic.partitions,
                interval_ms=random.choice([15, 40, 120]),
                records=random.choice([1, 4, 10]),
                acks=-1 if idempotent or random.random() < 0.6 else 1,
                idempotent=idempotent,
                in_flight=random.choice([1, 3, 5]) if idempotent else 1,
                retries=idempotent or random.random() < 0.5,
                timeout_ms=random.choice([300, 1_500, 4_000]),
                delivery_timeout_ms=random.choice([3_000, 120_000, 120_000]),
                value_bytes=random.choice([24, 200]),
            )
        )
    if random.random() < 0.6:
        topic = random.choice(plan.topics)
        plan.groups.append(GroupPlan("g0", random.choice([1, 2, 3]), topic.name))


def _draw_faults(plan: Plan, random: Random, kinds: list[str], gap_ms: int) -> list[Fault]:
    faults = []
    at_ms = 1_500
    while at_ms < plan.seconds * 1_000 - 500:
        target = random.choice([-1, -1, -2, *range(plan.nodes)])
        lasts = int(random.choice([50, 300, 1_500, 5_000]) * (0.5 + random.random()))
        faults.append(Fault(at_ms, random.choice(kinds), target, lasts, random.randrange(1 << 30)))
        at_ms += 1 + int(random.expovariate(1 / gap_ms))
    return faults
