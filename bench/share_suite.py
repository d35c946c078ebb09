"""The part of a run that measures share groups: Skidway and Apache Kafka in turns, several rounds, medians.

Skidway runs with `--flush sync`, its default: an answered acknowledgement survives a power loss. Kafka leaves that to
the system, as it does by itself.
"""

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass

from bench import machine, shares
from bench.broker import Skidway
from bench.frames import BenchError
from bench.kafka import Kafka, jars
from bench.load import nearest_rank
from bench.shares import Figures
from bench.subject import Subject, Unavailable
from bench.suite import Outcome, Samples, Say

SECONDS = 2.0
MEMBERS = 8
RECORDS = 900_000
SINGLE_RECORDS = 150_000
GROUPS = (1, 10, 100, 1_000)
GROUP_RECORDS, GROUP_RECORDS_MIN = 500_000, 2_000
"""Of all groups together; of each at least."""
GROUP_SECONDS = 4.0
BACKLOG = 10_000_000
JOINS = 3


@dataclass(frozen=True, slots=True)
class Load:
    key: str
    title: str
    run: Callable[[Subject], Figures]
    rate: bool = True
    """Whether it ends as many records as the broker gives."""
    kafka: bool = True
    once: bool = False
    """Long: in the first round alone."""


def _rate(kind: type[shares.Member], records: int) -> Callable[[Subject], Figures]:
    return lambda subject: shares.rate(subject, kind, MEMBERS, records, SECONDS)


def _groups(count: int) -> Load:
    records = max(GROUP_RECORDS, count * GROUP_RECORDS_MIN)
    title = f"{count:,} group{'s' if count > 1 else ''} of one member, {records:,} records together"

    def run(subject: Subject) -> Figures:
        return shares.many_groups(subject, count, records, GROUP_SECONDS)

    # A thousand groups take Kafka minutes to begin: its members come back every five seconds.
    return Load(f"shares-g{count}", title, run, kafka=count < 1_000, once=count >= 1_000)


LATENCY = Load(
    "shares-lat",
    f"{shares.LATENCY_RATE:,} single acknowledgements a second",
    lambda subject: shares.latencies(subject, SECONDS),
    False,
)
JOIN = Load("shares-join", "first record after joining", lambda subject: shares.first_delivery(subject, JOINS), False)
FLIGHT = Load("shares-flight", f"{shares.IN_FLIGHT:,} records in flight", shares.in_flight, False, once=True)
DEEP = Load(
    "shares-deep",
    f"500 by 500, with {BACKLOG:,} to go",
    lambda subject: shares.backlog(subject, BACKLOG, SECONDS),
    once=True,
)
LOADS = [
    LATENCY,
    JOIN,
    Load("shares-500", "500 by 500, in batches of 100", _rate(shares.Streaming, RECORDS)),
    Load("shares-ranges", "500 by 500, a range for each record", _rate(shares.Ranges, 2 * SINGLE_RECORDS)),
    Load("shares-one", "a request for each record", _rate(shares.OneByOne, SINGLE_RECORDS)),
    *(_groups(count) for count in GROUPS),
    DEEP,
    FLIGHT,  # last: memory is that of a process that has worked
]


def titles() -> dict[str, str]:
    return {load.key: f"share groups: {load.title}" for load in LOADS}


def run(chosen: set[str], *, kafka: bool, rounds: int, say: Say) -> Outcome:
    began = time.monotonic()
    outcome, samples = Outcome(), Samples()
    loads = [load for load in LOADS if not chosen or load.key in chosen]
    subjects: list[Subject] = [Skidway("--flush", "sync")]
    if kafka:
        try:
            jars()
            subjects.append(Kafka())
        except Unavailable as reason:
            outcome.notes.append(str(reason))
    with contextlib.ExitStack() as stack:
        for subject in subjects:
            stack.enter_context(subject)
            if subject.name == "kafka":
                say("kafka: warm-up")  # a JVM is slow until its hot code is compiled
                for load in loads:
                    if load.rate and load.kafka and not load.once:
                        load.run(subject)
        for number in range(rounds):
            taken = sorted(machine.sync_latencies(0.5))
            samples.add("machine", "shares-sync", {"p50": nearest_rank(taken, 50), "p99": nearest_rank(taken, 99)})
            for place, load in enumerate(loads):
                turns = [subject for subject in subjects if load.kafka or subject.name != "kafka"]
                first = (place + number) % len(turns)
                for subject in turns[first:] + turns[:first] if not load.once or not number else []:
                    say(f"round {number + 1} of {rounds}: {subject.name}: share groups: {load.title}")
                    _measure(subject, load, samples, outcome, say)
            outcome.rounds += 1
    outcome.figures = samples.medians()
    outcome.seconds = time.monotonic() - began
    return outcome


def _measure(subject: Subject, load: Load, samples: Samples, outcome: Outcome, say: Say) -> None:
    try:
        samples.add(subject.name, load.key, load.run(subject))
    except (BenchError, OSError) as problem:
        outcome.notes.append(f"FAILED {subject.name}: share groups: {load.title}: {problem}")
        say(outcome.notes[-1])


HEADS = ["load", "Skidway records/s", "Kafka records/s", "ratio", "Skidway CPU µs", "Kafka CPU µs", "Skidway cores"]


def rows(outcome: Outcome) -> list[list[str]]:
    """Of the loads that end as many records as the broker gives."""
    found = []
    for load in LOADS:
        ours, theirs = (outcome.figures.get(subject, {}).get(load.key) for subject in ("skidway", "kafka"))
        if not load.rate or (ours is None and theirs is None):
            continue
        cells = [load.title]
        cells += ["–" if each is None else f"{each['records']:,.0f}" for each in (ours, theirs)]
        cells.append(f"{ours['records'] / theirs['records']:.2f}×" if ours and theirs else "–")
        cells += ["–" if each is None else f"{each['cpu_record']:.2f}" for each in (ours, theirs)]
        found.append([*cells, "–" if ours is None else f"{ours['cores']:.2f}"])
    return found


def more_rows(outcome: Outcome) -> list[list[str]]:
    """Of the other loads."""
    found = []
    for title, key, describe in (
        (LATENCY.title, LATENCY.key, _latency_text),
        ("the disk: 4 KB append + fdatasync", "shares-sync", _latency_text),
        (JOIN.title, JOIN.key, lambda one: f"{one['join']:,.0f} ms, at most {one['join_max']:,.0f}"),
        (f"memory for {FLIGHT.title}", FLIGHT.key, lambda one: f"{one['mb']:.1f} MB"),
        (f"memory after work with {BACKLOG:,} to go", DEEP.key, lambda one: f"{one['mb']:.1f} MB"),
    ):
        of = [outcome.figures.get(subject, {}).get(key) for subject in ("skidway", "kafka", "machine")]
        if of != [None, None, None]:
            found.append([title, *("–" if each is None else describe(each) for each in of)])
    return found


def _latency_text(one: Figures) -> str:
    return f"{one['p50']:.2f} / {one['p99']:.2f} ms"
