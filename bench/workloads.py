"""The loads: what is sent, how long, and what is counted. Each runs against any Subject and returns its figures.

Figures are named once here and mean the same everywhere: `msgs` messages per second, `mb` megabytes (10^6) of record
batches per second (of message values through librdkafka), `requests` per second, `cpu_gb` broker CPU seconds per
gigabyte, `cpu_m` broker CPU seconds per million messages, `cores` the broker used, `client` cores the generator used,
`p50` `p99` `p999` milliseconds, `ms` milliseconds of one rebalance, `lag` the generator's own lateness at p99 in
milliseconds.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from bench import groups, rdkafka
from bench.frames import (
    Batch,
    BenchError,
    Peer,
    batch,
    check_batch,
    fetch,
    fetch_error_at,
    fetch_records_at,
    produce,
    produce_error_at,
)
from bench.load import Acked, FetchPlan, fetch_load, latency_load, nearest_rank, produce_load
from bench.subject import Subject, cpu_seconds, resident_mb

Figures = dict[str, float]
CONNECTIONS = 8
LATENCY_CONNECTIONS = 4
LATENCY_RATE = 5_000
COMPACTED_KEYS = 200_000
READ_TOPIC = "bench-read"
READ_BYTES = 1_000_000_000
KB, MB = 1024, 1024 * 1024
READ_BATCH = batch(1000, bytes_max=128 * KB)


@dataclass(slots=True)
class Workload:
    key: str
    title: str
    run: Callable[[Subject, float], Figures]  # seconds of load
    flush: str = "os"
    seconds: float = 1.0
    kafka: bool = True  # whether the same load makes sense against Apache Kafka
    writes: bool = True  # a lot, that is: at the speed the broker takes it
    figure: str = ""  # of the loads in the table of groups: the one figure that is told


class _Meter:
    """Broker and generator CPU over a stretch of work."""

    def __init__(self, subject: Subject) -> None:
        self.pid = subject.pid
        self.start()

    def start(self) -> None:
        self.broker, self.client = cpu_seconds(self.pid), self._own()

    def _own(self) -> float:
        used = os.times()
        return used.user + used.system

    def figures(self, elapsed_s: float, messages: int, size: int) -> Figures:
        broker, client = cpu_seconds(self.pid) - self.broker, self._own() - self.client
        return {
            "msgs": messages / elapsed_s,
            "mb": size / 1e6 / elapsed_s,
            "cpu_gb": broker / (size / 1e9),
            "cpu_m": broker / (messages / 1e6),
            "cores": broker / elapsed_s,
            "client": client / elapsed_s,
        }


@contextmanager
def topic(subject: Subject, name: str, partitions: int, flush: str) -> Iterator[str]:
    """A topic for one load, deleted afterwards so that one load's bytes do not burden the next."""
    configs = {**subject.topic_configs(flush), "file.delete.delay.ms": "1000"}
    name = f"{name}-{time.monotonic_ns()}"
    with Peer(subject.bootstrap) as peer:
        peer.create_topic(name, partitions, configs)
    try:
        yield name
    finally:
        with Peer(subject.bootstrap) as peer:
            peer.delete_topic(name)


def blast(subject: Subject, name: str, one: Batch, depth: int, acks: int, seconds: float) -> Acked:
    frames = [produce(name, partition, one.data, acks=acks) for partition in range(CONNECTIONS)]
    return produce_load(subject.bootstrap, frames, error_at=produce_error_at(name), depth=depth, seconds=seconds)


def produce_prepared(
    one: Batch, *, depth: int, acks: int = 1, flush: str = "os"
) -> Callable[[Subject, float], Figures]:
    def run(subject: Subject, seconds: float) -> Figures:
        with topic(subject, "bench-produce", CONNECTIONS, flush) as name:
            warm = blast(subject, name, one, depth, acks, seconds / 5)
            meter = _Meter(subject)
            acked = blast(subject, name, one, depth, acks, seconds)
            figures = meter.figures(acked.elapsed_s, acked.requests * one.records, acked.requests * len(one.data))
            _verify_ends(subject, name, (warm.requests + acked.requests) * one.records)
        return figures | {"requests": acked.requests / acked.elapsed_s}

    return run


def _verify_ends(subject: Subject, name: str, expected: int) -> None:
    with Peer(subject.bootstrap) as peer:
        present = sum(peer.end_offset(name, partition) for partition in range(CONNECTIONS))
    if present != expected:
        raise BenchError(f"{subject.name}: {expected} messages were acknowledged, {present} are there")


def fill_read_topic(subject: Subject) -> None:
    """READ_BYTES spread over the partitions that the fetch loads read, checked once byte for byte."""
    configs = subject.topic_configs("os")
    with Peer(subject.bootstrap) as peer:
        peer.create_topic(READ_TOPIC, CONNECTIONS, configs)
        written = 0
        while written < READ_BYTES:
            written += blast(subject, READ_TOPIC, READ_BATCH, 4, 1, 0.25).requests * len(READ_BATCH.data)
        reply = peer.exchange(bytes(fetch(READ_TOPIC, 0, max_bytes=MB).data))
        at = reply.index(READ_BATCH.data[61:200]) - 61
        sent, got = READ_BATCH.data, reply[at : at + len(READ_BATCH.data)]
        if check_batch(got) != READ_BATCH.records or got[16:] != sent[16:]:
            raise BenchError(f"{subject.name} gives back other bytes than it took")


def fetch_prepared(max_bytes: int) -> Callable[[Subject, float], Figures]:
    def run(subject: Subject, seconds: float) -> Figures:
        prepared = [fetch(READ_TOPIC, partition, max_bytes=max_bytes) for partition in range(CONNECTIONS)]
        with Peer(subject.bootstrap) as peer:
            ends = [peer.end_offset(READ_TOPIC, partition) for partition in range(CONNECTIONS)]
        plan = FetchPlan(
            frames=[one.data for one in prepared],
            end_offsets=ends,
            offset_at=prepared[0].offset_at,
            error_at=fetch_error_at(READ_TOPIC),
            records_at=fetch_records_at(READ_TOPIC),
            batch_bytes=len(READ_BATCH.data),
            batch_records=READ_BATCH.records,
        )
        fetch_load(subject.bootstrap, plan, seconds=seconds / 5)
        meter = _Meter(subject)
        got = fetch_load(subject.bootstrap, plan, seconds=seconds)
        return meter.figures(got.elapsed_s, got.records, got.bytes) | {"requests": got.replies / got.elapsed_s}

    return run


def latency(acks: int, flush: str, partitions: int = 1) -> Callable[[Subject, float], Figures]:
    one = batch(100, records=1)

    def run(subject: Subject, seconds: float) -> Figures:
        # What earlier loads left in memory goes to the disk first: a latency beside that says nothing of the broker.
        os.sync()
        with topic(subject, "bench-latency", partitions, flush) as name:
            frames = [produce(name, index % partitions, one.data, acks=acks) for index in range(LATENCY_CONNECTIONS)]
            error_at = produce_error_at(name)
            latency_load(subject.bootstrap, frames, error_at=error_at, rate=LATENCY_RATE, count=LATENCY_RATE // 2)
            before = cpu_seconds(subject.pid)
            count = int(LATENCY_RATE * seconds)
            taken = latency_load(subject.bootstrap, frames, error_at=error_at, rate=LATENCY_RATE, count=count)
            cores = (cpu_seconds(subject.pid) - before) / seconds
        return {
            "p50": taken.percentile(50),
            "p99": taken.percentile(99),
            "p999": taken.percentile(99.9),
            "lag": nearest_rank(taken.lag_ms, 99),
            "cores": cores,
        }

    return run


def rdkafka_produce(value_bytes: int, batch_bytes: int) -> Callable[[Subject, float], Figures]:
    def run(subject: Subject, seconds: float) -> Figures:
        with topic(subject, "bench-rdkafka", rdkafka.PARTITIONS, "os") as name:
            meter = _Meter(subject)
            got = rdkafka.produce(subject.bootstrap, name, value_bytes, batch_bytes, seconds, meter.start)
            return meter.figures(got.elapsed_s, got.messages, got.bytes)

    return run


def rdkafka_consume(subject: Subject, seconds: float) -> Figures:
    """No CPU figures: librdkafka reads ahead, so the bytes counted are not the bytes the broker sent meanwhile."""
    got = rdkafka.consume(subject.bootstrap, READ_TOPIC, 1000, seconds)
    return {"msgs": got.messages / got.elapsed_s, "mb": got.bytes / 1e6 / got.elapsed_s}


def resident_after_a_gigabyte(subject: Subject) -> float:
    """READ_BYTES produced and READ_BYTES fetched, then what the process keeps in memory, in MB."""
    fill_read_topic(subject)
    run = fetch_prepared(MB)
    fetched = 0.0
    while fetched < READ_BYTES:
        fetched += run(subject, 0.25)["mb"] * 1e6 * 0.25
    return resident_mb(subject.pid)


def group_workloads() -> list[Workload]:
    """The coordinator's loads and compaction; the rebalances and the compaction take as long as they take."""
    commits = f"commits of one partition, {groups.COMMIT_GROUPS} groups, pipelined: requests/s"
    found = [Workload("commits", commits, groups.commits(READ_TOPIC), writes=False, figure="requests")]
    for count in (12, 100, 500):
        title = f"rebalance of {count} members, last join to last assignment: ms"
        load = groups.rebalance(count, READ_TOPIC)
        found.append(Workload(f"rebal{count}", title, load, seconds=0, writes=False, figure="ms"))
    # When Kafka's cleaner begins and ends cannot be seen from outside closely enough to time it.
    title = f"compaction, {COMPACTED_KEYS:,} keys, half of them twice: MB/s"
    load = groups.compaction(COMPACTED_KEYS)
    found.append(Workload("compact", title, load, seconds=0, kafka=False, writes=False, figure="mb"))
    return found


def workloads() -> list[Workload]:
    small, large = 16 * KB, 128 * KB
    hundred_small, hundred_large = batch(100, bytes_max=small), batch(100, bytes_max=large)
    thousand_small, thousand_large = batch(1000, bytes_max=small), batch(1000, bytes_max=large)
    at = f"{LATENCY_RATE:,} single messages/s"
    return [
        # Latencies first, while nothing from a heavy load is still being cleaned up.
        Workload("lat1", f"{at}, acks=1", latency(1, "os"), seconds=2.0, writes=False),
        Workload("latall", f"{at}, acks=all, flush=os", latency(-1, "os"), seconds=2.0, writes=False),
        # Kafka with a flush per message cannot keep this rate, and then its latency is the length of the run.
        Workload("latsync", f"{at}, acks=all, flush=sync", latency(-1, "sync"), "sync", 2.0, False, False),
        Workload("tiny", "tiny requests, pipelined", produce_prepared(batch(10, records=1), depth=64)),
        Workload("p100l", "produce 100 B, 128 KB batches", produce_prepared(hundred_large, depth=4)),
        Workload("p100s", "produce 100 B, 16 KB batches", produce_prepared(hundred_small, depth=8)),
        Workload("p1kl", "produce 1 KB, 128 KB batches", produce_prepared(thousand_large, depth=4)),
        Workload("p1ks", "produce 1 KB, 16 KB batches", produce_prepared(thousand_small, depth=8)),
        Workload(
            "p100lsync",
            "produce 100 B, 128 KB, acks=all, flush=sync",
            produce_prepared(hundred_large, depth=4, acks=-1, flush="sync"),
            "sync",
        ),
        Workload(
            "p1kssync",
            "produce 1 KB, 16 KB, acks=all, flush=sync",
            produce_prepared(thousand_small, depth=8, acks=-1, flush="sync"),
            "sync",
        ),
        Workload("f1", "fetch 1 KB messages, 1 MB a reply", fetch_prepared(MB), writes=False),
        Workload("f50", "fetch 1 KB messages, 50 MB a reply", fetch_prepared(50 * MB), writes=False),
        Workload("rd100", "librdkafka produce 100 B, 128 KB", rdkafka_produce(100, large), seconds=1.5),
        Workload("rd1k", "librdkafka produce 1 KB, 16 KB", rdkafka_produce(1000, small), seconds=1.5),
        Workload("rdconsume", "confluent-kafka consume 1 KB", rdkafka_consume, seconds=1.5, writes=False),
        *group_workloads(),
    ]
