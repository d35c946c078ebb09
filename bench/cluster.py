"""Three brokers on this machine: `python -m bench.cluster [--kafka] [--only KEY …] [--partitions 1000 10000]`.

Every topic has three replicas of which two must be in sync; everything is written with acks=all, to leaders on all
three nodes. Loads: `c-…` throughput (figures as in `bench.workloads`; CPU is that of all nodes together), `c-lat…`
latency at a fixed rate in milliseconds, `c-catchup` what a node that was down fetches when it returns, in MB/s, and
`c-<n>` the cost of so many partitions: `create` s, `rss` MB of the largest node, `moved` s until every partition that
the killed node led has another leader, `ready` s until the killed node answers again and `return` s until it is in
sync everywhere.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

from rich.console import Console
from rich.table import Table

from bench.frames import Batch, BenchError, batch, produce, produce_error_at
from bench.load import latency_load, nearest_rank, produce_load
from bench.nodes import KafkaNodes, Nodes, SkidwayNodes, await_true, end_nodes_when_terminated
from bench.subject import Unavailable
from bench.suite import Outcome, Say
from bench.workloads import KB, Figures
from skidway.blocking_client.errors import ClientError

PARTITIONS = 6
LATENCY_RATE = 1_000
ACKS_ALL = -1
CATCH_UP_BYTES = 1_000_000_000
CATCH_UP_TIMEOUT_S = 300.0
MANY = (1_000, 10_000)
PER_TOPIC = 1_000
MANY_TIMEOUT_S = 300.0
KAFKA_PARTITIONS_MAX = 1_000
"""More take three JVMs on one machine too long."""


@dataclass(slots=True)
class ClusterLoad:
    key: str
    title: str
    run: Callable[[Nodes], Figures]
    kafka: bool = True


class _Meter:
    """CPU of all nodes over a stretch of work."""

    def __init__(self, nodes: Nodes) -> None:
        self.nodes = nodes
        self.began, self.cpu = time.monotonic(), nodes.cpu_s()

    def figures(self, elapsed_s: float, messages: int, size: int) -> Figures:
        cpu = self.nodes.cpu_s() - self.cpu
        return {
            "msgs": messages / elapsed_s,
            "mb": size / 1e6 / elapsed_s,
            "cpu_gb": cpu / (size / 1e9),
            "cores": cpu / (time.monotonic() - self.began),
        }


def fresh(load: str) -> str:
    """A name that no deleted topic had: some nodes may remember that one for a moment."""
    return f"bench-{load}-{next(_numbers)}"


_numbers = count(1)


def frames_of(topic: str, one: Batch) -> list[bytes]:
    return [produce(topic, partition, one.data, acks=ACKS_ALL) for partition in range(PARTITIONS)]


def throughput(one: Batch, depth: int, flush: str, seconds: float = 3.0) -> Callable[[Nodes], Figures]:
    def run(nodes: Nodes) -> Figures:
        topic = fresh("produce")
        nodes.create_topic(topic, PARTITIONS, flush)
        try:
            addresses, error_at = nodes.leader_addresses(topic), produce_error_at(topic)
            frames = frames_of(topic, one)
            produce_load(addresses, frames, error_at=error_at, depth=depth, seconds=seconds / 3)
            meter = _Meter(nodes)
            acked = produce_load(addresses, frames, error_at=error_at, depth=depth, seconds=seconds)
            return meter.figures(acked.elapsed_s, acked.requests * one.records, acked.requests * len(one.data))
        finally:
            nodes.delete_topic(topic)

    return run


def latency(flush: str, seconds: float = 4.0) -> Callable[[Nodes], Figures]:
    one = batch(100, records=1)

    def run(nodes: Nodes) -> Figures:
        os.sync()
        topic = fresh("latency")
        nodes.create_topic(topic, PARTITIONS, flush)
        try:
            addresses, error_at = nodes.leader_addresses(topic), produce_error_at(topic)
            frames = frames_of(topic, one)
            latency_load(addresses, frames, error_at=error_at, rate=LATENCY_RATE, count=LATENCY_RATE)
            before = nodes.cpu_s()
            count = int(LATENCY_RATE * seconds)
            taken = latency_load(addresses, frames, error_at=error_at, rate=LATENCY_RATE, count=count)
            cores = (nodes.cpu_s() - before) / seconds
        finally:
            nodes.delete_topic(topic)
        found = {name: taken.percentile(at) for name, at in (("p50", 50), ("p99", 99), ("p999", 99.9))}
        return found | {"lag": nearest_rank(taken.lag_ms, 99), "cores": cores}

    return run


def catch_up(size: int) -> Callable[[Nodes], Figures]:
    """A node is down while so much is written, and returns; what counts is the time from its answer to in sync."""
    one = batch(1000, bytes_max=128 * KB)

    def run(nodes: Nodes) -> Figures:
        topic = fresh("catch-up")
        nodes.create_topic(topic, PARTITIONS)
        away = nodes.leader(topic)
        nodes.stop(away)
        error_at, written = produce_error_at(topic), 0
        await_true(lambda: away not in [found.leader for found in nodes.partitions(topic).values()], "other leaders")
        while written < size:
            acked = produce_load(
                nodes.leader_addresses(topic), frames_of(topic, one), error_at=error_at, depth=2, seconds=0.5
            )
            written += acked.requests * len(one.data)
        ready = nodes.start(away)
        before = nodes.cpu_s()
        taken = nodes.await_in_sync(topic, timeout_s=CATCH_UP_TIMEOUT_S)
        cpu = nodes.cpu_s() - before
        nodes.delete_topic(topic)
        return {"mb": written / 1e6 / (taken or 1e-3), "s": taken, "ready": ready, "cpu_gb": cpu / (written / 1e9)}

    return run


def many_partitions(nodes: Nodes, partitions: int, say: Say) -> Figures:
    """On a cluster of their own: what is left of them would weigh on the next load."""
    topics = [f"bench-many-{number}" for number in range(-(-partitions // PER_TOPIC))]
    with nodes:
        empty = nodes.resident_mb()
        began = time.monotonic()
        for topic in topics:
            nodes.create_topic(topic, min(partitions, PER_TOPIC))
        create = time.monotonic() - began
        full, idle = nodes.resident_mb(), _idle_cores(nodes)
        say(f"{nodes.name}: {partitions:,} partitions created in {create:.1f} s, {full:.0f} MB, {idle:.2f} cores idle")
        victim = nodes.leader(topics[0])
        nodes.kill(victim)
        moved = await_true(lambda: _led_elsewhere(nodes, topics, victim), "other leaders", MANY_TIMEOUT_S)
        ready = nodes.start(victim)
        began = time.monotonic()
        for topic in topics:
            nodes.await_in_sync(topic, timeout_s=MANY_TIMEOUT_S)
        returned = time.monotonic() - began
    found = {"create": create, "rss": full, "rss_each": (full - empty) * 1024 / partitions, "idle": idle}
    return found | {"moved": moved, "ready": ready, "return": returned}


def _idle_cores(nodes: Nodes, seconds: float = 4.0) -> float:
    before = nodes.cpu_s()
    time.sleep(seconds)
    return (nodes.cpu_s() - before) / seconds


def _led_elsewhere(nodes: Nodes, topics: list[str], gone: int) -> bool:
    try:
        with nodes.client(nodes.up()[0]) as client:
            found = client.refresh(topics).topics
    except ClientError:
        return False
    partitions = [partition for topic in found.values() for partition in topic.partitions.values()]
    return len(found) == len(topics) and all(partition.leader not in (-1, gone) for partition in partitions)


def loads() -> list[ClusterLoad]:
    large, small = batch(100, bytes_max=128 * KB), batch(1000, bytes_max=16 * KB)
    at = f"{LATENCY_RATE:,} single messages/s, 3 replicas, acks=all"
    found = [ClusterLoad(f"c-lat{flush}", f"{at}, flush={flush}", latency(flush), flush == "os") for flush in FLUSHES]
    for flush in FLUSHES:
        title = f"3 replicas, acks=all, flush={flush}"
        found.append(ClusterLoad(f"c-p100l{flush}", f"100 B × 128 KB, {title}", throughput(large, 4, flush)))
        found.append(ClusterLoad(f"c-p1ks{flush}", f"1 KB × 16 KB, {title}", throughput(small, 8, flush)))
    return [*found, ClusterLoad("c-catchup", "catch-up of a node that was down", catch_up(CATCH_UP_BYTES))]


FLUSHES = ("os", "sync")
WARM_UPS = ("c-p1ksos", "c-latos")
WARM_ROUNDS_MAX = 12
STEADY = 1.1
"""A round that is not faster than the best before it by this factor ends a warm-up."""


def titles() -> dict[str, str]:
    return {load.key: load.title for load in loads()}


def run(chosen: set[str], *, kafka: bool, partitions: tuple[int, ...] = MANY, say: Say) -> Outcome:
    began = time.monotonic()
    outcome = Outcome()
    subjects: list[type[Nodes]] = [SkidwayNodes, *([KafkaNodes] if kafka else [])]
    for kind in subjects:
        found = outcome.figures.setdefault(kind.name, {})
        wanted = [load for load in loads() if not chosen or load.key in chosen]
        _attempt(outcome, kind, say, lambda kind=kind, wanted=wanted, found=found: _measure(kind(), wanted, found, say))
        for each in partitions:
            if kind is KafkaNodes and each > KAFKA_PARTITIONS_MAX:
                continue
            if not chosen or f"c-{each}" in chosen:
                _attempt(
                    outcome,
                    kind,
                    say,
                    lambda kind=kind, each=each, found=found: found.update(
                        {f"c-{each}": many_partitions(kind(), each, say)}
                    ),
                )
    outcome.seconds = time.monotonic() - began
    return outcome


def _attempt(outcome: Outcome, kind: type[Nodes], say: Say, work: Callable[[], None]) -> None:
    try:
        work()
    except Unavailable as reason:
        outcome.notes.append(str(reason))
    except (BenchError, ClientError, OSError) as problem:
        outcome.notes.append(f"FAILED three nodes of {kind.name}: {problem}")
        say(outcome.notes[-1])


def _measure(nodes: Nodes, wanted: list[ClusterLoad], found: dict[str, Figures], say: Say) -> None:
    if not wanted:
        return
    with nodes:
        found["c-start"] = {"s": nodes.startup_s, "rss": nodes.resident_mb()}
        if nodes.name == "kafka":
            warm_up(nodes, say)
        for load in wanted:
            if load.kafka or nodes.name != "kafka":
                say(f"three nodes of {nodes.name}: {load.title}")
                found[load.key] = load.run(nodes)
        found["c-end"] = {"rss": nodes.resident_mb()}


def warm_up(nodes: Nodes, say: Say) -> None:
    """A JVM is slow until its hot code is compiled, and three of them share the cores to do so."""
    best, steady = 0.0, 0
    known = {load.key: load for load in loads()}
    for number in range(WARM_ROUNDS_MAX):
        rate = known[WARM_UPS[0]].run(nodes)["msgs"]
        late = known[WARM_UPS[1]].run(nodes)["p50"]
        say(f"three nodes of {nodes.name}: warm-up {number + 1}: {rate:,.0f} msg/s, p50 {late:.1f} ms")
        steady = steady + 1 if rate < best * STEADY else 0
        best = max(best, rate)
        if steady == 2:
            return


def rows(outcome: Outcome) -> list[list[str]]:
    found = []
    many = [key for key in outcome.figures.get("skidway", {}) if key.removeprefix("c-").isdigit()]
    named = titles() | {key: f"{int(key[2:]):,} partitions, 3 replicas" for key in many}
    for key, title in {**named, "c-start": "start of three nodes, one of them resident"}.items():
        row = [title]
        for subject in ("skidway", "kafka"):
            figures = outcome.figures.get(subject, {}).get(key)
            row.append("–" if figures is None else described(key, figures))
        if row[1:] != ["–", "–"]:
            found.append(row)
    return found


def described(key: str, figures: Figures) -> str:
    if key.startswith("c-lat"):
        return f"p50 {figures['p50']:.2f}, p99 {figures['p99']:.2f}, p99.9 {figures['p999']:.1f} ms"
    if key == "c-catchup":
        return f"{figures['mb']:,.0f} MB/s, {figures['cpu_gb']:.2f} CPU s/GB"
    if key == "c-start":
        return f"{figures['s']:.1f} s, {figures['rss']:.0f} MB"
    if "create" in figures:
        return (
            f"{figures['rss']:.0f} MB a node, {figures['idle']:.2f} cores idle; created in {figures['create']:.1f} s; "
            f"killed node's partitions led again after {figures['moved']:.1f} s; it answers after"
            f" {figures['ready']:.1f} s, in sync {figures['return']:.1f} s later"
        )
    return f"{figures['msgs'] / 1e6:.3g} M msg/s, {figures['mb']:,.0f} MB/s, {figures['cpu_gb']:.2f} CPU s/GB"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.cluster", description=__doc__)
    parser.add_argument("--kafka", action="store_true", help="measure three nodes of Apache Kafka as well")
    parser.add_argument("--only", nargs="*", default=[], metavar="KEY", help="only these loads: c-latos, c-1000, …")
    parser.add_argument("--partitions", nargs="*", type=int, default=list(MANY))
    options = parser.parse_args()
    end_nodes_when_terminated()
    console = Console(width=None if sys.stdout.isatty() else 170)
    outcome = run(
        set(options.only), kafka=options.kafka, partitions=tuple(options.partitions), say=lambda t: console.print(t)
    )
    table = Table("load", "Skidway", "Kafka", title="Three nodes on this machine")
    for row in rows(outcome):
        table.add_row(*row)
    console.print(table)
    for note in outcome.notes:
        console.print(note)
    return 1 if any(note.startswith("FAILED") for note in outcome.notes) else 0


if __name__ == "__main__":
    sys.exit(main())
