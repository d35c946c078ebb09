"""What insights' tables say, and the report made of it: report.html with its plots, the plots as PNG, summary.json.

Without matplotlib the report has no plots, and says so.
"""

import base64
import html
import io
import json
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

STEP = 1.15
PERCENTILES = (0.5, 0.95, 0.99)
HOT_KEYS_SHOWN = 20
COLOURS = ("#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#3ca951", "#ff8ab7", "#a463f2", "#97bbf5")
STYLE = """body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#222}
table{border-collapse:collapse;margin:1rem 0}th,td{padding:.25rem .8rem;border-bottom:1px solid #ddd;text-align:right}
th:first-child,td:first-child{text-align:left}img{max-width:100%}"""

Row = dict[str, Any]


@dataclass(slots=True)
class PartitionFound:
    topic: str
    partition: int
    records: int
    bytes: int
    share: float
    """Of the topic's records."""
    skew: float
    """How many times as much as an even share; 1 is even."""


@dataclass(slots=True)
class KeyFound:
    topic: str
    key: str
    records: int
    share: float
    partition: int


@dataclass(slots=True)
class DelayFound:
    topic: str
    partition: int
    part: str
    records: int
    p50_ms: float
    p95_ms: float
    p99_ms: float
    max_ms: float


@dataclass(slots=True)
class Findings:
    partitions: list[PartitionFound]
    keys: list[KeyFound]
    delays: list[DelayFound]
    throughput: dict[str, list[tuple[str, int]]]
    """For each topic: the beginning of each interval and the records in it."""

    @classmethod
    def of(cls, partitions: Sequence[Row], keys: Sequence[Row], delays: Sequence[Row]) -> "Findings":
        totals: Counter[str] = Counter()
        for row in partitions:
            totals[row["topic"]] += row["records"]
        return cls(_partitions(partitions, totals), _keys(keys, totals), _delays(delays), _throughput(partitions))


def _partitions(rows: Sequence[Row], totals: Counter[str]) -> list[PartitionFound]:
    records: Counter[tuple[str, int]] = Counter()
    sizes: Counter[tuple[str, int]] = Counter()
    for row in rows:
        place = (row["topic"], row["partition"])
        records[place] += row["records"]
        sizes[place] += row["bytes"]
    count = Counter(topic for topic, _ in records)
    return [
        PartitionFound(
            topic,
            partition,
            number,
            sizes[topic, partition],
            number / totals[topic],
            number / totals[topic] * count[topic],
        )
        for (topic, partition), number in sorted(records.items())
    ]


def _keys(rows: Sequence[Row], totals: Counter[str]) -> list[KeyFound]:
    records: Counter[tuple[str, str]] = Counter()
    places: dict[tuple[str, str], int] = {}
    for row in rows:
        records[row["topic"], row["key"]] += row["records"]
        places[row["topic"], row["key"]] = row["partition"]
    ordered = sorted(records.items(), key=lambda one: (-one[1], one[0]))
    return [
        KeyFound(topic, key, number, number / totals[topic], places[topic, key]) for (topic, key), number in ordered
    ]


def _delays(rows: Sequence[Row]) -> list[DelayFound]:
    steps: dict[tuple[str, int, str], Counter[int]] = defaultdict(Counter)
    for row in rows:
        steps[row["topic"], row["partition"], row["part"]][row["step"]] += row["records"]
    found = []
    for (topic, partition, part), counts in sorted(steps.items()):
        p50, p95, p99 = (percentile(counts, share) for share in PERCENTILES)
        found.append(DelayFound(topic, partition, part, counts.total(), p50, p95, p99, STEP ** max(counts)))
    return found


def percentile(counts: Counter[int], share: float) -> float:
    """At most a step too high."""
    wanted, seen = share * counts.total(), 0
    for step in sorted(counts):
        seen += counts[step]
        if seen >= wanted:
            return STEP**step
    return 0.0


def _throughput(rows: Sequence[Row]) -> dict[str, list[tuple[str, int]]]:
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for row in rows:
        counts[row["topic"]][row["at"].isoformat()] += row["records"]
    return {topic: sorted(found.items()) for topic, found in sorted(counts.items())}


def write_report(findings: Findings, folder: Path) -> list[Path]:
    """Answers the files, report.html first."""
    folder.mkdir(parents=True, exist_ok=True)
    plots = _plots(findings)
    written = [_write(folder / "report.html", _page(findings, plots).encode())]
    for name, image in plots.items():
        written.append(_write(folder / f"{name}.png", image))
    written.append(_write(folder / "summary.json", json.dumps(asdict(findings), indent=2).encode()))
    return written


def _write(path: Path, content: bytes) -> Path:
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    fresh.write_bytes(content)
    fresh.replace(path)
    return path


def _plots(findings: Findings) -> dict[str, bytes]:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return {}
    if not findings.partitions:
        return {}

    def drawn(title: str, draw: Any) -> bytes:
        figure = Figure(figsize=(9, 4), layout="constrained")
        axes = figure.add_subplot()
        axes.set_title(title, loc="left")
        axes.spines[["top", "right"]].set_visible(False)
        draw(axes)
        image = io.BytesIO()
        figure.savefig(image, format="png", dpi=110)
        return image.getvalue()

    plots = {
        "skew": drawn("Records by partition", lambda axes: _draw_skew(axes, findings)),
        "throughput": drawn("Records over time", lambda axes: _draw_throughput(axes, findings)),
    }
    if findings.keys:
        plots["hot-keys"] = drawn("Most frequent keys", lambda axes: _draw_keys(axes, findings))
    if findings.delays:
        plots["delay"] = drawn("Delay: median to 99th percentile", lambda axes: _draw_delay(axes, findings))
    return plots


def _colours(findings: Findings) -> dict[str, str]:
    names = sorted({found.topic for found in findings.partitions})
    return {name: COLOURS[number % len(COLOURS)] for number, name in enumerate(names)}


def _plain(text: str) -> str:
    """Text from messages, drawn as it is: matplotlib reads what stands between two dollar signs as a formula, and has
    no glyphs for control characters."""
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in text).replace("$", r"\$")


def _draw_skew(axes: Any, findings: Findings) -> None:
    colours = _colours(findings)
    labels = [_plain(f"{found.topic}/{found.partition}") for found in findings.partitions]
    axes.bar(
        range(len(labels)),
        [found.records for found in findings.partitions],
        color=[colours[found.topic] for found in findings.partitions],
    )
    if len(labels) <= 40:
        axes.set_xticks(range(len(labels)), labels, rotation=45, ha="right")


def _draw_throughput(axes: Any, findings: Findings) -> None:
    colours = _colours(findings)
    for topic, points in findings.throughput.items():
        times = [datetime.fromisoformat(at) for at, _ in points]
        axes.plot(times, [number for _, number in points], label=_plain(topic), color=colours[topic], marker=".")
    axes.set_ylim(bottom=0)
    axes.tick_params("x", rotation=30)
    axes.legend(frameon=False)


def _draw_keys(axes: Any, findings: Findings) -> None:
    colours = _colours(findings)
    shown = findings.keys[:HOT_KEYS_SHOWN][::-1]
    # By position, not by label: two long keys may begin alike.
    axes.barh(range(len(shown)), [found.records for found in shown], color=[colours[found.topic] for found in shown])
    axes.set_yticks(range(len(shown)), [_plain(f"{found.key[:30]}  {found.topic}") for found in shown], fontsize=7)


def _draw_delay(axes: Any, findings: Findings) -> None:
    colours = _colours(findings)
    labels = [_plain(f"{found.topic}/{found.partition} {found.part}") for found in findings.delays]
    for number, found in enumerate(findings.delays):
        axes.plot([found.p50_ms, found.p99_ms], [number, number], color=colours[found.topic], linewidth=5, alpha=0.6)
        axes.plot([found.p95_ms], [number], color="#222", marker="|", markersize=12)
    axes.set_xscale("log")
    axes.set_xlabel("ms; the tick marks the 95th percentile")
    if len(labels) <= 40:
        axes.set_yticks(range(len(labels)), labels, fontsize=8)


def _page(findings: Findings, plots: dict[str, bytes]) -> str:
    images = "".join(
        f'<img alt="{name}" src="data:image/png;base64,{base64.b64encode(image).decode()}">'
        for name, image in plots.items()
    )
    if not images:
        images = "<p>No plots: no records yet, or matplotlib is not installed (pip install 'skidway[pipelines]').</p>"
    partitions = _table(
        ("partition", "records", "bytes", "share", "skew"),
        (
            (
                f"{one.topic}/{one.partition}",
                f"{one.records:,}",
                f"{one.bytes:,}",
                f"{one.share:.1%}",
                f"{one.skew:.2f}",
            )
            for one in findings.partitions
        ),
    )
    keys = _table(
        ("key", "topic", "partition", "records", "share"),
        (
            (one.key, one.topic, one.partition, f"{one.records:,}", f"{one.share:.1%}")
            for one in findings.keys[:HOT_KEYS_SHOWN]
        ),
    )
    delays = _table(
        ("partition", "delay", "records", "p50 ms", "p95 ms", "p99 ms", "max ms"),
        (
            (
                f"{one.topic}/{one.partition}",
                one.part,
                f"{one.records:,}",
                *(f"{value:,.0f}" for value in (one.p50_ms, one.p95_ms, one.p99_ms, one.max_ms)),
            )
            for one in findings.delays
        ),
    )
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Topics</title><style>{STYLE}</style>'
        f"<h1>Topics</h1>{images}<h2>Partitions</h2>{partitions}<h2>Keys</h2>{keys}<h2>Delay</h2>{delays}</html>"
    )


def _table(columns: Iterable[str], rows: Iterable[Sequence[object]]) -> str:
    """Keys are whatever producers sent: nothing of them is markup."""
    head = "".join(f"<th>{html.escape(name)}</th>" for name in columns)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"
