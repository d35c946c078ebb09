"""insights finds the hot key, the skew and the delay that were put in; the generator puts in what it says."""

import json
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

from pipeline_topics import new_topic, put
from queries import to_the_end

from skidway.spark.pipelines.clickstream import BROKEN, DUPLICATE, HOT_USER, LATE, Clickstream, Shape
from skidway.spark.pipelines.insights import Insights, InsightsOptions
from skidway.spark.pipelines.options import ONCE
from skidway.spark.pipelines.report import DelayFound, Findings, KeyFound, PartitionFound, percentile, write_report

START_MS = 1_794_787_200_000


def test_a_seed_gives_the_same_events_always() -> None:
    first, second = (list(Clickstream(seed=3, start_ms=START_MS).events(500)) for _ in range(2))
    assert first == second
    assert first != list(Clickstream(seed=4, start_ms=START_MS).events(500))


def test_faults_come_as_often_as_asked_and_are_what_they_say() -> None:
    shape = Shape(late_share=0.1, duplicate_share=0.1, broken_share=0.1, hot_share=0.3)
    events = list(Clickstream(start_ms=START_MS, shape=shape).events(5000))
    faults = Counter(event.fault for event in events)
    assert all(400 < faults[name] < 600 for name in (LATE, DUPLICATE, BROKEN))
    hot = sum(event.key == HOT_USER.encode() for event in events)
    assert 1300 < hot < 1700
    seen = set()
    for event in events:
        if event.fault == DUPLICATE:
            assert event.value in seen
        elif event.fault != BROKEN:
            seen.add(event.value)
            assert set(json.loads(event.value)) >= {"event_id", "user", "country", "at"}


def test_hot_keys_skew_throughput_and_delay_are_found(spark: Any, bootstrap: str, tmp_path: Path) -> None:
    topic = new_topic(bootstrap, "clicks", 3)
    for number in range(4):
        when = START_MS + number * 10_000
        event = {"at": when - 2_000}
        put(
            bootstrap,
            topic,
            [(b"hot <b>", event)] * 30 + [(f"k{n}".encode(), event) for n in range(10)],
            timestamp_ms=when,
        )
    options = InsightsOptions(
        topic=[topic],
        bootstrap=bootstrap,
        path=str(tmp_path / "insights"),
        event_time="at",
        checkpoint=str(tmp_path / "checkpoint"),
    )
    pipeline = Insights(options)
    to_the_end(lambda: pipeline.start(spark, ONCE))
    found = pipeline.findings()
    assert sum(one.records for one in found.partitions) == 160
    assert (found.keys[0].key, found.keys[0].records, found.keys[0].share) == ("hot <b>", 120, 0.75)
    hottest = max(found.partitions, key=lambda one: one.records)
    assert hottest.partition == found.keys[0].partition
    assert hottest.skew >= 0.75 * 3
    assert [records for _, records in found.throughput[topic]] == [40, 40, 40, 40]
    produced = [one for one in found.delays if one.part == "produced"]
    assert sum(one.records for one in produced) == 160
    assert all(2_000 <= one.p50_ms <= 2_000 * 1.15 for one in produced)

    files = pipeline.finish()
    assert {path.name for path in files} == {
        "report.html",
        "skew.png",
        "throughput.png",
        "hot-keys.png",
        "delay.png",
        "summary.json",
    }
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in files if path.suffix == ".png")
    page = files[0].read_text()
    assert "hot &lt;b&gt;" in page
    assert "hot <b>" not in page
    assert json.loads((tmp_path / "insights" / "summary.json").read_text())["keys"][0]["records"] == 120


def test_a_report_of_nothing_is_still_a_page(tmp_path: Path) -> None:
    files = write_report(Findings.of([], [], []), tmp_path)
    assert [path.name for path in files] == ["report.html", "summary.json"]
    assert "no records yet" in files[0].read_text()


def test_percentiles_of_steps() -> None:
    counts = Counter({0: 50, 10: 45, 20: 5})
    assert percentile(counts, 0.5) == 1
    assert percentile(counts, 0.95) == 1.15**10
    assert percentile(counts, 0.99) == 1.15**20


def test_keys_are_drawn_as_they_are_and_not_as_formulas(tmp_path: Path) -> None:
    """Matplotlib takes text between dollar signs for mathematics, and fails when it is none."""
    hostile = [r"$\bad{$", "$x^$", "$$", r"\$\frac$ $", "a\x00\x1b[31m\nb", "k" * 40 + "1", "k" * 40 + "2"]
    found = Findings(
        partitions=[PartitionFound("orders", 0, 45, 900, 1.0, 1.0)],
        keys=[KeyFound("orders", key, 9 - number, 0.1, 0) for number, key in enumerate(hostile)],
        delays=[DelayFound("orders", 0, "produced", 45, 1.0, 2.0, 3.0, 4.0)],
        throughput={"orders": [("2026-01-31T12:00:00+00:00", 45)]},
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        names = [path.name for path in write_report(found, tmp_path)]
    assert {"hot-keys.png", "report.html", "summary.json"} <= set(names)
