"""What a run found, as tables on the terminal and as a section of bench/RESULTS.md, newest first."""

import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench import cluster, failover, share_suite, shares, spark, transaction_suite, transactions
from bench.bars import LIMIT_OF, judge
from bench.load import engine
from bench.subject import ROOT
from bench.suite import Outcome
from bench.workloads import workloads

RESULTS = ROOT / "bench" / "RESULTS.md"
HEADING = """# Results

Written by `make bench` and `make bench-kafka`, newest first. Ratios within one section can be trusted: the subjects
took turns on the same machine. Absolute figures depend on the machine and its neighbours. The newest run beside Apache
Kafka as a picture: [results.png](results.png); `bench/picture.py` draws the one of the README. What each load does:
`bench/workloads.py`, `bench/transactions.py`, `bench/shares.py`, `bench/cluster.py`, `bench/failover.py`,
`bench/spark.py`; the bars: `bench/bars.py`.
"""
Rows = list[list[str]]


def number(value: float | None, places: int | None = None) -> str:
    if value is None:
        return "–"
    if places is not None:
        return f"{value:,.{places}f}"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def ratio(value: float | None, other: float | None) -> str:
    return f"{value / other:.2f}×" if value is not None and other else "–"


def bar_rows(outcome: Outcome) -> Rows:
    return [[one.bar, one.wanted, one.found or "–", one.verdict] for one in judge(outcome)]


def throughput_rows(outcome: Outcome) -> Rows:
    """One row per load: Skidway, Kafka, their ratio, the machine's limit."""
    rows: Rows = []
    for load in workloads():
        if load.key.startswith("lat") or load.figure:
            continue
        row = [load.title]
        ours, theirs = outcome.get("skidway", load.key, "mb"), outcome.get("kafka", load.key, "mb")
        unit, figure = ("k req/s", "requests") if load.key == "tiny" else ("M msg/s", "msgs")
        scale = 1e3 if load.key == "tiny" else 1e6
        for subject in ("skidway", "kafka"):
            rate = outcome.get(subject, load.key, figure)
            megabytes = number(outcome.get(subject, load.key, "mb"))
            row.append("–" if rate is None else f"{number(rate / scale)} {unit}, {megabytes} MB/s")
        row.append(ratio(ours, theirs))
        row.append(number(outcome.get("machine", LIMIT_OF.get(load.key, ""), "mb")))
        rows.append(row)
    return rows


def cpu_rows(outcome: Outcome) -> Rows:
    rows: Rows = []
    for load in workloads():
        found = [outcome.get(subject, load.key, "cpu_gb") for subject in ("skidway", "kafka")]
        if load.key.startswith("lat") or found == [None, None]:
            continue
        limit = outcome.get("machine", LIMIT_OF.get(load.key, ""), "cpu_gb")
        row = [load.title]
        for subject, value in zip(("skidway", "kafka"), found, strict=True):
            million, cores = outcome.get(subject, load.key, "cpu_m"), outcome.get(subject, load.key, "cores")
            row.append("–" if value is None else f"{number(value)} / {number(million)} ({number(cores, 2)})")
        row += [ratio(*found), number(limit), ratio(found[0], limit), ratio(found[1], limit)]
        rows.append(row)
    return rows


def limit_rows(outcome: Outcome) -> Rows:
    return [
        [title, number(outcome.get("machine", load, "mb")), number(outcome.get("machine", load, "cpu_gb"))]
        for title, load in (
            ("receive, CRC, append: 128 KB batches", "receive128"),
            ("receive, CRC, append: 16 KB batches", "receive16"),
            ("sendfile, one endless stream, 1 MB a call", "send1"),
            ("sendfile, one endless stream, 50 MB a call", "send50"),
            ("sendfile, the fetch load's own requests, 1 MB a reply", "serve1"),
            ("sendfile, the fetch load's own requests, 50 MB a reply", "serve50"),
        )
    ]


def latency_rows(outcome: Outcome) -> Rows:
    rows: Rows = []
    measured = [(load.title, load.key) for load in workloads() if load.key.startswith("lat")]
    for title, key in [*measured, ("the disk: 4 KB append + fdatasync", "sync")]:
        for subject in ("skidway", "kafka", "machine"):
            if outcome.get(subject, key, "p50") is None:
                continue
            figures = [number(outcome.get(subject, key, name), 3) for name in ("p50", "p99", "p999", "lag")]
            rows.append([title, subject, *figures])
    return rows


def group_rows(outcome: Outcome) -> Rows:
    rows: Rows = []
    for load in workloads():
        if load.figure:
            ours, theirs = (outcome.get(subject, load.key, load.figure) for subject in ("skidway", "kafka"))
            rows.append([load.title, number(ours), number(theirs), ratio(ours, theirs)])
    return rows


def footprint_rows(outcome: Outcome) -> Rows:
    return [
        [title, *(number(outcome.get(subject, load, figure)) for subject in ("skidway", "kafka"))]
        for title, load, figure in (
            ("start-up, s", "startup", "s"),
            ("resident at start, MB", "memory_start", "rss"),
            ("resident after 1 GB in and out, MB", "memory", "rss"),
            ("resident at the end of the run, MB", "memory_end", "rss"),
        )
    ]


def spark_rows(outcome: Outcome) -> Rows:
    rows: Rows = []
    for load in spark.LOADS:
        key = spark.PREFIX + load.key
        figure, scale = ("cpu_s", 1.0) if key == spark.START else ("rows", 1e6)
        found = [outcome.get(subject, key, figure) for subject in ("skidway", "memory", "connector")]
        if found != [None, None, None]:
            rates = [number(None if value is None else value / scale) for value in found]
            broker = [number(outcome.get(subject, key, "broker")) for subject in ("skidway", "connector")]
            rows.append([load.title, *rates, ratio(found[0], found[1]), ratio(found[0], found[2]), *broker])
    return rows


def kernel_rows(outcome: Outcome) -> Rows:
    rows: Rows = []
    for key, title in spark.kernel_titles().items():
        compiled, plain = (outcome.get(subject, spark.PREFIX + key, "rows") for subject in ("skidway", "python"))
        if compiled is not None and plain is not None:
            rows.append([title, number(compiled / 1e6), number(plain / 1e6), ratio(compiled, plain)])
    return rows


def warnings(outcome: Outcome) -> list[str]:
    """Where a figure says less than it seems to."""
    found = list(outcome.notes)
    for subject, loads in outcome.figures.items():
        for load, figures in loads.items():
            if figures.get("client", 0.0) > 0.9 and not load.startswith("rd"):
                found.append(f"{subject} {load}: the generator used a whole core, so it may have been the limit")
    return found


def tables(outcome: Outcome) -> list[tuple[str, list[str], Rows]]:
    """Those that have anything to tell."""
    return [
        table for table in _all_tables(outcome) if any(cell not in ("", "–") for row in table[2] for cell in row[1:])
    ]


def _all_tables(outcome: Outcome) -> list[tuple[str, list[str], Rows]]:
    return [
        ("Bars", ["bar", "wanted", "found", "verdict"], bar_rows(outcome)),
        ("Throughput", ["load", "Skidway", "Kafka", "ratio", "limit MB/s"], throughput_rows(outcome)),
        (
            "Broker CPU seconds per GB / per million messages (cores used)",
            ["load", "Skidway", "Kafka", "ratio", "limit per GB", "Skidway/limit", "Kafka/limit"],
            cpu_rows(outcome),
        ),
        ("The machine's own limits, one process", ["work", "MB/s", "CPU seconds per GB"], limit_rows(outcome)),
        (
            "Latency, ms, from the moment each message was due",
            ["load", "subject", "p50", "p99", "p99.9", "generator late p99"],
            latency_rows(outcome),
        ),
        ("Groups (ms: less is better)", ["load", "Skidway", "Kafka", "ratio"], group_rows(outcome)),
        ("Footprint", ["", "Skidway", "Kafka"], footprint_rows(outcome)),
        (
            f"Transactions: {transactions.PRODUCERS} producers as fast as they can; one, until a reader sees it",
            [
                "per transaction",
                "Skidway tx/s",
                "Kafka tx/s",
                "Skidway CPU ms/tx",
                "Kafka CPU ms/tx",
                "Skidway visible p50 / p99 ms",
                "Kafka visible p50 / p99 ms",
                "Skidway commit p50 ms",
                "Kafka commit p50 ms",
            ],
            transaction_suite.rows(outcome),
        ),
        (
            "Transactions beside plain produce, and at rest",
            ["load", "Skidway", "Kafka"],
            transaction_suite.more_rows(outcome),
        ),
        (
            f"Share groups: {share_suite.MEMBERS} members, {shares.PARTITIONS} partitions, {shares.VALUE_BYTES} B",
            share_suite.HEADS,
            share_suite.rows(outcome),
        ),
        (
            "Share groups: p50 / p99 until an acknowledgement is answered, joining, memory",
            ["load", "Skidway", "Kafka", "the machine"],
            share_suite.more_rows(outcome),
        ),
        ("Three nodes on this machine", ["load", "Skidway", "Kafka"], cluster.rows(outcome)),
        (
            "Longest gap between acknowledgements when a node of three goes: p50 / p99 / max",
            ["event", "client", "Skidway", "Kafka"],
            failover.rows(outcome),
        ),
        (
            "Spark: million rows per CPU-second of Spark and its Python workers, best of the rounds",
            [
                "load",
                "Skidway",
                "from memory",
                "format(kafka)",
                "/ memory",
                "/ kafka",
                "broker s/M",
                "kafka's broker s/M",
            ],
            spark_rows(outcome),
        ),
        (
            "Spark's record batches ⇄ Arrow: million rows per CPU-second",
            ["work", "kernel", "plain Python", "ratio"],
            kernel_rows(outcome),
        ),
    ]


def show(outcome: Outcome, console: Console) -> None:
    styles = {"pass": "green", "MISS": "bold red", "not measured": "dim"}
    for title, heads, rows in tables(outcome):
        table = Table(*heads, title=title, title_justify="left", header_style="bold")
        for row in rows:
            table.add_row(*row, style=styles.get(row[-1], ""))
        console.print(table)
    for warning in warnings(outcome):
        console.print(f"[yellow]{warning}[/yellow]")


def described() -> str:
    """When, which code, on which machine."""
    git = ["git", "-C", str(ROOT)]
    commit = subprocess.run([*git, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True).stdout.strip()
    changed = subprocess.run([*git, "status", "--porcelain", "--", "src"], capture_output=True, text=True).stdout
    cpu = next(
        (line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")), "?"
    )
    memory = next((int(line.split()[1]) for line in _lines("/proc/meminfo") if line.startswith("MemTotal")), 0)
    when = datetime.now(UTC).strftime("%Y-%m-%d")
    return (
        f"{when}, commit {commit or '?'}{' with changes' if changed else ''}; {os.cpu_count()} cores ({cpu}), "
        f"{memory / 2**20:.0f} GB, Linux {platform.release().split('-')[0]}, Python {platform.python_version()}; "
        f"generator in {engine()}"
    )


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines()


def section(outcome: Outcome) -> str:
    beside = " beside Apache Kafka" if "kafka" in outcome.figures else ""
    when = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    lines = [
        f"## {when}{beside}",
        "",
        f"{described()}; medians of {outcome.rounds} rounds, {outcome.seconds:.0f} s.",
        "",
    ]
    for title, heads, rows in tables(outcome):
        lines += [f"**{title}**", "", "| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
        lines += ["| " + " | ".join(row) + " |" for row in rows] + [""]
    lines += [f"- {warning}" for warning in warnings(outcome)]
    return "\n".join(lines).rstrip() + "\n"


def append(outcome: Outcome, path: Path = RESULTS) -> None:
    """Put the run in front of the earlier ones."""
    before = path.read_text() if path.exists() else ""
    at = before.find("\n## ")
    earlier = before[at + 1 :] if at >= 0 else ""
    path.write_text(HEADING + "\n" + section(outcome) + ("\n" + earlier if earlier else ""))
