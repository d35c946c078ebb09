"""The part of a run that measures transactions: Skidway and Apache Kafka in turns, several rounds, medians.

Skidway runs with `--flush os`, so that internal topics wait for the disk as little as Kafka's do; once more with
`--flush sync`, its default, for what a commit that survives a power loss takes.
"""

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass

from bench import transactions
from bench.broker import Skidway
from bench.frames import BenchError
from bench.kafka import Kafka, jars
from bench.subject import Subject, Unavailable
from bench.suite import Outcome, Samples, Say
from bench.transactions import Figures
from bench.workloads import topic

SHAPES = [(1, 1), (10, 1), (100, 1), (1, 10), (10, 10), (100, 10)]
"""Records per transaction, partitions of the topic."""
SECONDS = 1.5
STREAM_SECONDS = 4.0
OS, SYNC = "os", "sync"


@dataclass(frozen=True, slots=True)
class Load:
    key: str
    title: str
    run: Callable[[Subject], Figures]
    flush: str = OS


def _shape(records: int, partitions: int, flush: str) -> Load:
    def run(subject: Subject) -> Figures:
        with topic(subject, "bench-transactions", partitions, flush) as name:
            found = transactions.rate(subject, name, records, partitions, SECONDS)
            return found | transactions.latencies(subject, name, records, partitions, SECONDS)

    title = f"{records} record{'s' if records > 1 else ''} over {partitions} partition{'s' if partitions > 1 else ''}"
    key = f"tx{records}x{partitions}"
    if flush == SYNC:
        return Load(f"{key}-sync", f"{title}, flush=sync", run, flush)
    return Load(key, title, run)


def _stream(subject: Subject) -> Figures:
    with topic(subject, "bench-streams", 2 * transactions.STREAMS, OS) as name:
        return transactions.streams(subject, name, STREAM_SECONDS)


STREAM = Load("txstream", "1 KB records, 16 KB batches, 100 ms per transaction", _stream)
IDS = Load("txids", f"{transactions.IDS:,} transactional ids", lambda subject: transactions.many_ids(subject, 0))
LOADS = [
    *(_shape(records, partitions, OS) for records, partitions in SHAPES),
    _shape(1, 1, SYNC),
    _shape(10, 10, SYNC),
    STREAM,
    IDS,  # last: they stay
]


def titles() -> dict[str, str]:
    return {load.key: f"transactions: {load.title}" for load in LOADS}


def run(chosen: set[str], *, kafka: bool, rounds: int, say: Say) -> Outcome:
    began = time.monotonic()
    outcome, samples = Outcome(), Samples()
    loads = [load for load in LOADS if not chosen or load.key in chosen]
    subjects: list[tuple[Subject, str]] = [(Skidway("--flush", flush), flush) for flush in (OS, SYNC)]
    if kafka:
        try:
            jars()
            subjects.insert(1, (Kafka(), OS))
        except Unavailable as reason:
            outcome.notes.append(str(reason))
    with contextlib.ExitStack() as stack:
        for subject, _ in subjects:
            stack.enter_context(subject)
            if subject.name == "kafka":
                say("kafka: warm-up")  # a JVM is slow until its hot code is compiled
                for load in loads:
                    if load.flush == OS and load is not IDS:
                        load.run(subject)
        for number in range(rounds):
            for place, load in enumerate(loads):
                turns = [subject for subject, flush in subjects if flush == load.flush]
                first = (place + number) % len(turns)
                for subject in turns[first:] + turns[:first]:
                    say(f"round {number + 1} of {rounds}: {subject.name}: transactions: {load.title}")
                    _measure(subject, load, samples, outcome, say)
            outcome.rounds += 1
    outcome.figures = samples.medians()
    outcome.seconds = time.monotonic() - began
    return outcome


def _measure(subject: Subject, load: Load, samples: Samples, outcome: Outcome, say: Say) -> None:
    try:
        samples.add(subject.name, load.key, load.run(subject))
    except (BenchError, OSError) as problem:
        outcome.notes.append(f"FAILED {subject.name}: transactions: {load.title}: {problem}")
        say(outcome.notes[-1])


def rows(outcome: Outcome) -> list[list[str]]:
    """Of the loads that end as many transactions as the broker takes, and one after the other."""
    found = []
    for load in LOADS:
        of = [outcome.figures.get(subject, {}).get(load.key) for subject in ("skidway", "kafka")]
        if load in (STREAM, IDS) or of == [None, None]:
            continue
        cells = [load.title]
        for figure, places in (("tx", 0), ("cpu_tx", 2)):
            cells += ["–" if each is None else f"{each[figure]:,.{places}f}" for each in of]
        cells += ["–" if each is None else f"{each['p50']:.2f} / {each['p99']:.2f}" for each in of]
        cells += ["–" if each is None else f"{each['commit']:.2f}" for each in of]
        found.append(cells)
    return found


def more_rows(outcome: Outcome) -> list[list[str]]:
    """Of the other loads."""
    found = []
    for load, describe in ((STREAM, _stream_text), (IDS, _ids_text)):
        of = [outcome.figures.get(subject, {}).get(load.key) for subject in ("skidway", "kafka")]
        if of != [None, None]:
            found.append([load.title, *("–" if each is None else describe(each) for each in of)])
    return found


def _stream_text(found: Figures) -> str:
    return (
        f"{found['mb']:,.0f} MB/s, plain {found['plain']:,.0f}: {found['ratio']:.2f}×;"
        f" {found['cpu_gb']:.2f} CPU s/GB, plain {found['cpu_plain']:.2f}: {found['cpu_ratio']:.2f}×"
    )


def _ids_text(found: Figures) -> str:
    return (
        f"{found['id_kb']:.2f} KB each, {found['cpu_id']:.2f} CPU ms to take one;"
        f" {found['idle']:.1f} CPU ms a second idle, {found['idle_before']:.1f} without them"
    )
