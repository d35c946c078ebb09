"""`skidway bench`: how fast a broker takes, gives and answers, from this machine."""

import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skidway.cli.commands.produce import ACKS, CODECS, Acks, AcksName, BatchSize, Codec, CodecName
from skidway.cli.output import (
    DEFAULT_BOOTSTRAP,
    DEFAULT_TIMEOUT_S,
    AsJson,
    Bootstrap,
    Timeout,
    count_of,
    fail,
    friendly,
    group,
    misused,
    parse_size,
    print_json,
    progress,
    quantity,
    run,
)

if TYPE_CHECKING:
    from skidway.cli.load import Load, Tally

app = group("Measure throughput and latency of a running broker.")

PERCENTILES = ((50, "p50"), (95, "p95"), (99, "p99"), (99.9, "p99.9"), (100, "max"))

TopicName = Annotated[
    str | None,
    typer.Option("--topic", "-t", metavar="TOPIC", help="Use this topic. Default: a new one, deleted afterwards."),
]
Messages = Annotated[int, typer.Option("--count", "-n", metavar="N", help="Stop after N messages.", min=1)]
MessageSize = Annotated[str, typer.Option("--size", "-s", metavar="SIZE", help="Bytes of a message.")]
Connections = Annotated[int, typer.Option("--connections", metavar="N", help="Connections at once.", min=1, max=256)]
PartitionCount = Annotated[
    int, typer.Option("--partitions", "-p", metavar="N", help="Partitions of the new topic.", min=1)
]
Pipeline = Annotated[
    int, typer.Option("--pipeline", metavar="N", help="Requests to send before their replies arrive.", min=1, max=256)
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--config", "-c", metavar="NAME=VALUE", help="A setting of the new topic; repeatable."),
]
Rate = Annotated[
    float, typer.Option("--rate", metavar="N", help="Messages a second, all connections together.", min=0.1)
]
Seconds = Annotated[float, typer.Option("--seconds", metavar="SECONDS", help="How long to measure.", min=0.1)]
EndToEnd = Annotated[bool, typer.Option("--end-to-end", "-e", help="Also measure until a consumer has each message.")]


@dataclass(slots=True)
class Bench:
    """Where a run happens."""

    bootstrap: str
    timeout_ms: int
    topic: str
    partitions: list[int]

    def run(self, loads: "list[Load]", label: str, total: int) -> "tuple[list[Tally], float]":
        from skidway.cli.load import run_all

        began = time.perf_counter()
        with progress(label, total) as meter:

            def watch(tallies: "list[Tally]") -> None:
                done = sum(tally.messages for tally in tallies)
                rate = done / max(1e-9, time.perf_counter() - began)
                meter.set(done, f"{quantity(rate)} msg/s")

            tallies = run_all(loads, self.bootstrap, self.timeout_ms, watch)
        return tallies, time.perf_counter() - began


@app.command(epilog="Example: skidway bench produce -n 5000000 -s 100 --acks 1 --connections 2")
@friendly
def produce(
    messages: Messages = 1_000_000,
    message_size: MessageSize = "100",
    batch: BatchSize = "128k",
    acks: AcksName = Acks.ALL,
    codec: CodecName = Codec.NONE,
    connections: Connections = 2,
    pipeline: Pipeline = 5,
    partitions: PartitionCount = 2,
    topic: TopicName = None,
    config: Settings = None,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Measure the throughput of producing prepared batches."""
    with _bench(bootstrap, timeout, topic, partitions, config) as bench:
        loads = _produce_loads(bench, messages, message_size, batch, acks, codec, connections, pipeline)
        tallies, seconds = bench.run(loads, "producing", messages)
    _report("produce", tallies, seconds, as_json, latency="batch acknowledged" if acks != Acks.NONE else "")


@app.command(epilog="Example: skidway bench consume --topic orders --connections 4")
@friendly
def consume(
    messages: Annotated[
        int, typer.Option("--count", "-n", metavar="N", help="Fill the new topic with N messages.", min=1)
    ] = 1_000_000,
    message_size: MessageSize = "100",
    batch: BatchSize = "128k",
    codec: CodecName = Codec.NONE,
    connections: Connections = 2,
    partitions: PartitionCount = 2,
    topic: TopicName = None,
    config: Settings = None,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Measure the throughput of fetching a topic from its beginning to its end. A new topic is filled first."""
    from skidway.blocking_client.cluster import Cluster
    from skidway.blocking_client.offsets import EARLIEST, LATEST, offsets_at
    from skidway.cli.load import FetchLoad

    with _bench(bootstrap, timeout, topic, partitions, config) as bench:
        if topic is None:
            # acks=all: every message counts as readable when this is done.
            filling = _produce_loads(bench, messages, message_size, batch, Acks.ALL, codec, connections, 5)
            bench.run(filling, "filling the topic", messages)
        with Cluster(bootstrap, timeout_ms=bench.timeout_ms) as cluster:
            starts = offsets_at(cluster, bench.topic, bench.partitions, EARLIEST)
            ends = offsets_at(cluster, bench.topic, bench.partitions, LATEST)
        total = sum(ends.values()) - sum(starts.values())
        if total == 0:
            fail(f"topic {bench.topic} is empty")
        loads: list[Load] = [
            FetchLoad(bench.topic, {partition: starts[partition] for partition in share}, ends)
            for share in _shares(bench.partitions, connections)
        ]
        tallies, seconds = bench.run(loads, "consuming", total)
    _report("consume", tallies, seconds, as_json, latency="fetch answered")


@app.command(epilog="Example: skidway bench latency --rate 5000 --seconds 10 --acks all -e")
@friendly
def latency(
    rate: Rate = 1000,
    seconds: Seconds = 5,
    message_size: MessageSize = "100",
    acks: AcksName = Acks.ALL,
    connections: Connections = 1,
    end_to_end: EndToEnd = False,
    topic: TopicName = None,
    config: Settings = None,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Measure the latency of single messages at a fixed rate, counted from when each was due."""
    from skidway.blocking_client.cluster import Cluster
    from skidway.blocking_client.offsets import LATEST, offsets_at
    from skidway.cli.load import ListenLoad, TickLoad

    if acks is Acks.NONE:
        misused("with --acks 0 the broker sends no answer, so there is no latency to measure")
    with _bench(bootstrap, timeout, topic, connections, config) as bench:
        each = rate / connections
        places = [bench.partitions[number % len(bench.partitions)] for number in range(connections)]
        loads: list[Load] = [
            TickLoad(bench.topic, place, parse_size(message_size), ACKS[acks], each, seconds) for place in places
        ]
        if end_to_end:
            with Cluster(bootstrap, timeout_ms=bench.timeout_ms) as cluster:
                ends = offsets_at(cluster, bench.topic, bench.partitions, LATEST)
            count = max(1, int(each * seconds))
            loads += [
                ListenLoad(bench.topic, place, ends[place], count * places.count(place), seconds)
                for place in sorted(set(places))
            ]
        total = int(rate * seconds) * (2 if end_to_end else 1)
        tallies, elapsed = bench.run(loads, "ticking", total)
    heard = tallies[connections:] if end_to_end else []
    _report("latency", tallies[:connections], elapsed, as_json, latency="acknowledged", heard=heard)


@contextmanager
def _bench(
    bootstrap: str, timeout_s: float, topic: str | None, partitions: int, config: list[str] | None
) -> Iterator[Bench]:
    """A topic of its own for the run, unless one is named; that one is never deleted."""
    from skidway.blocking_client.admin import Admin
    from skidway.blocking_client.cluster import Cluster
    from skidway.cli.config_names import assignment, topic_names

    timeout_ms = int(timeout_s * 1000)
    configs = dict(assignment(text) for text in config or [])
    if topic is not None and configs:
        misused("--config is for the topic that the benchmark creates; it does not change the topic of --topic")
    name = topic or f"skidway-bench-{secrets.token_hex(4)}"
    with Cluster(bootstrap, client_id="skidway-bench", timeout_ms=timeout_ms) as cluster:
        admin = Admin(cluster)
        if topic is None:
            with topic_names(configs):
                admin.create_topic(name, partitions=partitions, configs=configs)
        try:
            yield Bench(bootstrap, timeout_ms, name, list(cluster.topic(name).partitions))
        finally:
            if topic is None:
                admin.delete_topic(name)


def _produce_loads(
    bench: Bench,
    messages: int,
    message_size: str,
    batch: str,
    acks: Acks,
    codec: Codec,
    connections: int,
    pipeline: int,
) -> "list[Load]":
    from skidway.cli.load import Batches, ProduceLoad

    batches = Batches(parse_size(message_size), parse_size(batch), CODECS[codec])
    shares = [share or bench.partitions for share in _shares(bench.partitions, connections, keep_empty=True)]
    # The first connections send one more each where it does not divide evenly: together exactly as many as asked for.
    counts = [messages // connections + (number < messages % connections) for number in range(connections)]
    return [
        ProduceLoad(bench.topic, share, batches, ACKS[acks], pipeline, count)
        for share, count in zip(shares, counts, strict=True)
        if count
    ]


def _shares(partitions: list[int], connections: int, *, keep_empty: bool = False) -> list[list[int]]:
    shares = [partitions[number::connections] for number in range(connections)]
    return shares if keep_empty else [share for share in shares if share]


def _report(
    what: str,
    tallies: "list[Tally]",
    seconds: float,
    as_json: bool,
    *,
    latency: str,
    heard: "list[Tally] | None" = None,
) -> None:
    messages = sum(tally.messages for tally in tallies)
    stored = sum(tally.bytes for tally in tallies)
    document: dict[str, Any] = {
        "bench": what,
        "connections": len(tallies),
        "seconds": round(seconds, 4),
        "messages": messages,
        "messages_per_second": round(messages / seconds, 1),
        "mb_per_second": round(stored / seconds / 1e6, 3),
        "latency_ms": _percentiles(tallies) if latency else {},
    }
    if heard:
        document["end_to_end_ms"] = _percentiles(heard)
    if as_json:
        print_json(document)
        return
    typer.echo(f"{count_of(messages, 'message')} in {seconds:.2f} s over {count_of(len(tallies), 'connection')}")
    typer.echo(f"{quantity(messages / seconds)} msg/s   {stored / seconds / 1e6:,.1f} MB/s")
    for label, key in ((latency, "latency_ms"), ("end to end", "end_to_end_ms")):
        if document.get(key):
            columns = "   ".join(f"{name} {value:.3f} ms" for name, value in document[key].items())
            typer.echo(f"{label}: {columns}")


def _percentiles(tallies: "list[Tally]") -> dict[str, float]:
    ordered = sorted(latency for tally in tallies for latency in tally.latencies_ns)
    if not ordered:
        return {}
    last = len(ordered) - 1
    return {name: round(ordered[min(last, int(len(ordered) * share / 100))] / 1e6, 4) for share, name in PERCENTILES}


def main(arguments: list[str]) -> int:
    return run(app, "skidway bench", arguments)
