"""What Skidway has set itself to reach, each bar judged from the figures of one run."""

from collections.abc import Callable
from dataclasses import dataclass

from bench.suite import Outcome

LIMIT_OF = {
    "p100l": "receive128",
    "p1kl": "receive128",
    "p100s": "receive16",
    "p1ks": "receive16",
    "f1": "serve1",
    "f50": "serve50",
    "latsync": "sync",
}

PEERS = {
    "kafka": "Kafka",
    "machine": "the machine's limit",
    "memory": "rows from memory",
    "connector": 'format("kafka")',
    "skidway": "at least once",
}


@dataclass(slots=True)
class Judged:
    bar: str
    wanted: str
    found: str
    verdict: str  # "pass", "MISS" or "not measured"


@dataclass(slots=True)
class Bar:
    bar: str
    load: str
    figure: str
    at_least: float | None = None
    at_most: float | None = None
    against: tuple[str, str] | None = None  # subject and load of the denominator; None for an absolute bar
    unit: str = ""
    scale: float = 1.0
    beside: str = ""
    """What is beside it, where the name of the peer does not say so."""

    def judge(self, outcome: Outcome) -> Judged:
        bound = self.at_least if self.at_least is not None else self.at_most
        assert bound is not None
        sign = "≥" if self.at_least is not None else "≤"
        value = outcome.get("skidway", self.load, self.figure)
        other = outcome.get(*self.against, self.figure) if self.against else 1.0
        wanted = f"{sign} {bound:g}{self.unit}" if not self.against else f"{sign} {bound:g}× {self.peer()}"
        if value is None or not other:
            return Judged(self.bar, wanted, "", "not measured")
        ratio = value / self.scale if not self.against else value / other
        good = ratio >= bound if self.at_least is not None else ratio <= bound
        found = f"{ratio:.3g}{self.unit}" if not self.against else f"{ratio:.2f}×  ({value:.4g} to {other:.4g})"
        cores = outcome.get("skidway", self.load, "cores")
        if not good and self.at_least is not None and cores is not None and cores < 0.9:
            found += f", on {cores:.2f} cores"  # the broker was not the limit: a client or a neighbour was
        return Judged(self.bar, wanted, found, "pass" if good else "MISS")

    def peer(self) -> str:
        assert self.against is not None
        return self.beside or PEERS[self.against[0]]


def bars() -> list[Bar]:
    cpu_loads = {"p100l": "100 B × 128 KB", "p1kl": "1 KB × 128 KB", "p100s": "100 B × 16 KB", "p1ks": "1 KB × 16 KB"}
    limit: Callable[[str], tuple[str, str]] = lambda load: ("machine", LIMIT_OF[load])  # noqa: E731
    kafka: Callable[[str], tuple[str, str]] = lambda load: ("kafka", load)  # noqa: E731
    found = [
        Bar("librdkafka, 100 B × 128 KB, acks=1", "rd100", "msgs", at_least=1, unit=" M msg/s", scale=1e6),
        Bar("librdkafka, 100 B × 128 KB, acks=1", "rd100", "msgs", at_least=1.5, against=kafka("rd100")),
        Bar("prepared frames, 100 B × 128 KB", "p100l", "msgs", at_least=5, unit=" M msg/s", scale=1e6),
        Bar("prepared frames, 1 KB × 16 KB", "p1ks", "mb", at_least=2, against=kafka("p1ks")),
        Bar("librdkafka, 1 KB × 16 KB", "rd1k", "mb", at_least=2, against=kafka("rd1k")),
    ]
    for load, title in cpu_loads.items():
        found.append(Bar(f"CPU per GB produced, {title}", load, "cpu_gb", at_most=2, against=limit(load)))
        found.append(Bar(f"CPU per GB produced, {title}", load, "cpu_gb", at_most=0.5, against=kafka(load)))
    for load, title, stream in (("f1", "1 MB", "send1"), ("f50", "50 MB", "send50")):
        cpu = f"CPU per GB fetched, {title} a reply"
        found.append(Bar(f"fetch, {title} a reply", load, "mb", at_least=1, against=kafka(load)))
        found.append(Bar(f"{cpu}: same requests", load, "cpu_gb", at_most=1.5, against=limit(load)))
        found.append(Bar(f"{cpu}: one endless stream", load, "cpu_gb", at_most=1.5, against=("machine", stream)))
    found += [
        Bar("p99 at 5,000 msg/s, acks=all, flush=os", "latall", "p99", at_most=1, against=kafka("latall")),
        Bar("p99 at 5,000 msg/s, acks=all, flush=sync", "latsync", "p99", at_most=2, against=limit("latsync")),
        Bar("tiny pipelined requests", "tiny", "requests", at_least=60, unit=" k/s", scale=1e3),
        Bar("start-up", "startup", "s", at_most=0.5, unit=" s"),
        Bar("start-up", "startup", "s", at_most=0.1, against=kafka("startup")),
        Bar("resident after 1 GB in and out", "memory", "rss", at_most=60, unit=" MB"),
    ]
    return found + transaction_bars() + share_bars() + failover_bars() + spark_bars()


def transaction_bars() -> list[Bar]:
    """With flush=os, as Kafka's."""
    plain = "plain idempotent produce"
    found = [
        Bar(f"transactional produce, 100 ms each, to {plain}", "txstream", "ratio", at_least=0.9, unit="×"),
        Bar(f"CPU per GB in transactions of 100 ms, to {plain}", "txstream", "cpu_ratio", at_most=1.1, unit="×"),
    ]
    for load, title in (("tx1x1", "1 record, 1 partition"), ("tx10x10", "10 records, 10 partitions")):
        against = ("kafka", load)
        found.append(Bar(f"commit p50, {title}", load, "commit", at_most=1, against=against))
        found.append(Bar(f"begin to visible p50, {title}", load, "p50", at_most=1, against=against))
    return found


def share_bars() -> list[Bar]:
    """With flush=sync; Kafka leaves syncs to the system."""
    stream, single = "share group, 500 by 500", "share group, a request for each record"
    ranges = "share group, an acknowledgement for each record, 500 in a request"
    return [
        Bar(stream, "shares-500", "records", at_least=300, unit=" k records/s", scale=1e3),
        Bar(stream, "shares-500", "records", at_least=1.5, against=("kafka", "shares-500")),
        Bar(ranges, "shares-ranges", "records", at_least=50, unit=" k records/s", scale=1e3),
        Bar(ranges, "shares-ranges", "records", at_least=1.5, against=("kafka", "shares-ranges")),
        Bar(single, "shares-one", "records", at_least=50, unit=" k records/s", scale=1e3),
        Bar(single, "shares-one", "records", at_least=1.5, against=("kafka", "shares-one")),
        Bar("share group, p99 of an acknowledgement", "shares-lat", "p99", at_most=10, unit=" ms"),
        Bar("share group, first record after joining", "shares-join", "join_max", at_most=1_000, unit=" ms"),
        _flat("CPU per record, 1,000 share groups", "shares-g1000", "shares-g1", "one group"),
        _flat("CPU per record, share group with 10 M to go", "shares-deep", "shares-500", "less than a million"),
    ]


def _flat(title: str, load: str, other: str, beside: str) -> Bar:
    return Bar(title, load, "cpu_record", at_most=1.5, against=("skidway", other), beside=beside)


def failover_bars() -> list[Bar]:
    """Gaps between acknowledgements, three nodes: what the cluster takes, and what librdkafka makes of it."""
    found = []
    for suffix, client in (("", "raw client"), ("-rd", "librdkafka as it comes")):
        for load, event in (("fo-leader", "the leader"), ("fo-both", "a leader that is the controller too")):
            title = f"gap in writes, kill -9 of {event}, {client}"
            found.append(Bar(f"{title}, p50", load + suffix, "p50", at_most=1.5, unit=" s"))
            found.append(Bar(f"{title}, p99", load + suffix, "p99", at_most=3, unit=" s"))
        title = f"gap in writes, clean stop, {client}"
        found.append(Bar(f"{title}, p99", f"fo-stop{suffix}", "p99", at_most=0.2, unit=" s"))
        found.append(Bar(f"{title}: errors", f"fo-stop{suffix}", "errors", at_most=0))
    title = "gap in metadata changes, kill -9 of the controller, p99"
    return [*found, Bar(title, "fo-controller", "p99", at_most=2, unit=" s")]


def spark_bars() -> list[Bar]:
    """In rows per CPU-second of all but the broker."""
    found = []
    for load, title in (("spark-source", "Spark source, 6 columns"), ("spark-pair", "Spark source, key and value")):
        found.append(Bar(title, load, "rows", at_least=0.8, against=("memory", load)))
        found.append(Bar(title, load, "rows", at_least=1, against=("connector", load)))
    kernel = "decode kernel, 100 B values, 7 columns"
    return [
        *found,
        Bar("Spark sink", "spark-sink", "rows", at_least=0.5, against=("memory", "spark-sink")),
        Bar("Spark sink, exactly once", "spark-once", "rows", at_least=0.8, against=("skidway", "spark-sink")),
        Bar(
            "Spark stream, exactly once", "spark-stream-once", "rows", at_least=0.8, against=("skidway", "spark-stream")
        ),
        Bar(kernel, "spark-decode", "rows", at_least=10, unit=" M rows per CPU-second", scale=1e6),
    ]


def judge(outcome: Outcome) -> list[Judged]:
    return [bar.judge(outcome) for bar in bars()]
