"""aggregate, dedupe, route and replay with a real broker: what comes out is counted by value."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pipeline_topics import documents, new_name, new_topic, put, taken
from queries import to_the_end

from skidway.cli.main import main as skidway
from skidway.records.dead_letter_headers import read_report
from skidway.spark.pipelines.aggregate import Aggregate, AggregateOptions
from skidway.spark.pipelines.dedupe import Dedupe, DedupeOptions
from skidway.spark.pipelines.options import ONCE, BadPipeline
from skidway.spark.pipelines.replay import Replay, ReplayOptions
from skidway.spark.pipelines.route import Route, RouteOptions


def run(spark: Any, pipeline: Any) -> Any:
    return to_the_end(lambda: pipeline.start(spark, ONCE))


def at(second: int) -> str:
    return f"2026-11-16T00:{second // 60:02d}:{second % 60:02d}Z"


PURCHASES = [
    {"at": at(1), "country": "DE", "amount": 10.5},
    {"at": at(5), "country": "DE", "amount": 4.5},
    {"at": at(59), "country": "FR", "amount": 7},
    {"at": at(61), "country": "DE", "amount": "no number"},
]


def test_windows_are_summed_and_written_once_when_they_are_over(spark: Any, bootstrap: str, tmp_path: Path) -> None:
    topic, table = new_topic(bootstrap, "purchases"), str(tmp_path / "sums")
    options = AggregateOptions(
        topic=[topic],
        bootstrap=bootstrap,
        to_table=table,
        event_time="at",
        group_by=["country"],
        measure=["count", "sum:amount"],
        window="1m",
        watermark="10s",
        checkpoint=str(tmp_path / "checkpoint"),
    )
    put(bootstrap, topic, [*PURCHASES, b"no JSON", {"country": "DE"}])
    observed: Counter[str] = Counter()
    for progress in run(spark, Aggregate(options)).recentProgress:
        observed.update(
            {name: count for row in progress["observedMetrics"].values() for name, count in row.asDict().items()}
        )
    assert observed == {"read": 6, "without_time": 2}
    # The watermark of the first run is known to the second: it closes the first minute, and the late one is left out.
    put(bootstrap, topic, [{"at": at(200), "country": "JP", "amount": 1}])
    run(spark, Aggregate(options))
    put(bootstrap, topic, [{"at": at(2), "country": "DE", "amount": 1000}, {"at": at(201), "country": "JP"}])
    run(spark, Aggregate(options))
    rows = spark.read.parquet(table).orderBy("window_start", "country").collect()
    told = [(row.window_start.minute, row.country, row["count"], row.sum_amount) for row in rows]
    assert told == [(0, "DE", 2, 15.0), (0, "FR", 1, 7.0), (1, "DE", 1, None)]


def test_changing_windows_go_to_a_topic_as_json(spark: Any, bootstrap: str, tmp_path: Path) -> None:
    topic, out = new_topic(bootstrap, "purchases"), new_name("sums")
    options = AggregateOptions(
        topic=[topic],
        bootstrap=bootstrap,
        to_topic=out,
        event_time="at",
        emit="changes",
        group_by=["country"],
        measure=["count", "max:amount", "distinct:country"],
        checkpoint=str(tmp_path / "checkpoint"),
    )
    put(bootstrap, topic, PURCHASES)
    run(spark, Aggregate(options))
    found = {
        (record.key, json.loads(record.value or b"")["window_start"][14:16]): record for record in taken(bootstrap, out)
    }
    assert set(found) == {(b"DE", "00"), (b"FR", "00"), (b"DE", "01")}
    told = json.loads(found[b"DE", "00"].value or b"")
    assert (told["count"], told["max_amount"], told["distinct_country"]) == (2, 10.5, 1)
    assert json.loads(found[b"DE", "01"].value or b"")["max_amount"] is None


def test_duplicates_go_and_everything_else_passes_untouched(spark: Any, bootstrap: str, tmp_path: Path) -> None:
    topic, out = new_topic(bootstrap, "events"), new_name("events-once")
    options = DedupeOptions(
        topic=[topic], bootstrap=bootstrap, to_topic=out, id="id", checkpoint=str(tmp_path / "checkpoint")
    )
    first = [
        (b"a", {"id": 1}),
        (b"a", {"id": 1}),
        (b"b", {"id": 1}),
        (b"a", {"id": 2}),
        (b"a", b"broken"),
        (b"a", b"broken"),
    ]
    put(bootstrap, topic, first, headers=(("trace", b"7"),))
    run(spark, Dedupe(options))
    put(bootstrap, topic, [(b"a", {"id": 2}), (b"a", {"id": 3}), (b"a", {"other": 1})])  # A restart remembers.
    run(spark, Dedupe(options))
    found = taken(bootstrap, out)
    assert Counter((record.key, record.value) for record in found) == Counter(
        [
            (b"a", b'{"id": 1}'),
            (b"b", b'{"id": 1}'),
            (b"a", b'{"id": 2}'),
            (b"a", b"broken"),
            (b"a", b"broken"),
            (b"a", b'{"id": 3}'),
            (b"a", b'{"other": 1}'),
        ]
    )
    assert {tuple(record.headers) for record in found} == {(("trace", b"7"),), ()}


def test_the_id_may_be_a_header_and_decide_alone(spark: Any, bootstrap: str, tmp_path: Path) -> None:
    topic, out = new_topic(bootstrap, "events"), new_name("events-once")
    for identity in (b"x", b"y", b"x"):
        put(bootstrap, topic, [(identity + b"-key", b"value")], headers=(("message-id", identity),))
    put(bootstrap, topic, [(b"other", b"value")], headers=(("message-id", b"x"),))
    options = DedupeOptions(
        topic=[topic],
        bootstrap=bootstrap,
        to_topic=out,
        id="header:message-id",
        across_keys=True,
        checkpoint=str(tmp_path / "checkpoint"),
    )
    run(spark, Dedupe(options))
    assert Counter(dict(record.headers)["message-id"] for record in taken(bootstrap, out)) == {b"x": 1, b"y": 1}


def test_records_are_split_enriched_and_failures_can_be_replayed(
    spark: Any, bootstrap: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topic, big, rest = new_topic(bootstrap, "orders"), new_name("big"), new_name("rest")
    countries = tmp_path / "countries.csv"
    countries.write_text("code,vat\nDE,0.19\nFR,0.20\n")
    options = RouteOptions(
        topic=[topic],
        bootstrap=bootstrap,
        route=[f"{big}: data.amount >= 100", rest],
        schema="id int, country string, amount double",
        check=["positive: data.amount > 0"],
        sql="SELECT e.*, c.vat FROM events e LEFT JOIN vats c ON e.data.country = c.code",
        lookup=[f"vats={countries}"],
        set=["vat = round(data.amount * vat, 2)", "seen = topic"],
        checkpoint=str(tmp_path / "checkpoint"),
    )
    sound = [
        {"id": 1, "country": "DE", "amount": 100, "unknown": [1]},
        {"id": 2, "country": "FR", "amount": 50},
        {"id": 3, "country": "XX", "amount": 5},
    ]
    broken = [b"no JSON", {"id": 4, "amount": -1}, {"id": 5, "amount": "much"}, None, b"\xff{}"]
    put(bootstrap, topic, [(b"k", value) for value in [*sound, *broken]], headers=(("trace", b"7"),))
    query = run(spark, Route(options))
    assert query.lastProgress["observedMetrics"]["routes"].asDict() == {"read": 8, "dead": 5, "dropped": 0}
    assert documents(bootstrap, big) == [{**sound[0], "vat": 19.0, "seen": topic}]
    assert sorted(documents(bootstrap, rest), key=lambda one: int(one["id"])) == [
        {**sound[1], "vat": 10.0, "seen": topic},
        {**sound[2], "vat": None, "seen": topic},
    ]

    letters = taken(bootstrap, f"{topic}-dlq")
    reports = [read_report(letter.headers) for letter in letters]
    assert all(report is not None and report.topic == topic and report.group == "skidway-route" for report in reports)
    assert Counter(report.error_type for report in reports if report) == {
        "NotJson": 3,
        "CheckFailed": 1,
        "SchemaMismatch": 1,
    }
    assert {letter.headers[0] for letter in letters} == {("trace", b"7")}
    assert Counter(letter.value for letter in letters)[b"\xff{}"] == 1

    # Sent back by the command line, they fail again, and the count of replays stays with them.
    assert skidway(["dlq", "replay", f"{topic}-dlq", "--execute", "--bootstrap", bootstrap]) == 0
    assert "sent 5 letters" in capsys.readouterr().out
    run(spark, Route(options))
    again = [read_report(letter.headers) for letter in taken(bootstrap, f"{topic}-dlq")[len(letters) :]]
    replays = Counter(read_report(letter.headers).replays for letter in taken(bootstrap, f"{topic}-dlq"))  # type: ignore[union-attr]
    assert (len(again), replays) == (5, {0: 5, 1: 5})


def test_a_record_may_go_to_every_route_or_be_a_dead_letter_if_none_wants_it(
    spark: Any, bootstrap: str, tmp_path: Path
) -> None:
    topic, even, large = new_topic(bootstrap, "numbers"), new_name("even"), new_name("large")
    options = RouteOptions(
        topic=[topic],
        bootstrap=bootstrap,
        parse="none",
        route=[f"{even}: cast(value AS int) % 2 = 0", f"{large}: cast(value AS int) > 5"],
        every=True,
        unmatched="dead",
        checkpoint=str(tmp_path / "checkpoint"),
    )
    put(bootstrap, topic, [b"2", b"8", b"9", b"1", b"no number"])
    run(spark, Route(options))
    assert sorted(record.value or b"" for record in taken(bootstrap, even)) == [b"2", b"8"]
    assert sorted(record.value or b"" for record in taken(bootstrap, large)) == [b"8", b"9"]
    assert sorted(record.value or b"" for record in taken(bootstrap, f"{topic}-dlq")) == [b"1", b"no number"]


def test_a_slice_of_history_is_replayed(spark: Any, bootstrap: str) -> None:
    topic, out = new_topic(bootstrap, "history", 1), new_name("again")
    for number in range(10):
        put(
            bootstrap,
            topic,
            [(b"k", str(number).encode())],
            timestamp_ms=1_700_000_000_000 + number * 1000,
            headers=(("h", b"1"),),
        )
    options = ReplayOptions(
        topic=[topic],
        bootstrap=bootstrap,
        to_topic=out,
        since="2023-11-14T22:13:22Z",
        until="1700000008000",
        where="value % 2 = 0",
    )
    assert Replay(options).run(spark) == 3
    found = taken(bootstrap, out)
    assert [record.value for record in found] == [b"2", b"4", b"6"]
    assert list(found[0].headers) == [
        ("h", b"1"),
        ("replay.topic", topic.encode()),
        ("replay.partition", b"0"),
        ("replay.offset", b"2"),
    ]
    by_offset = ReplayOptions(
        topic=[topic],
        bootstrap=bootstrap,
        to_topic=topic,
        into_same_topic=True,
        offsets=json.dumps({topic: {"0": 8}}),
        end_offsets=json.dumps({topic: {"0": 9}}),
    )
    assert Replay(by_offset).run(spark) == 1
    assert [record.value for record in taken(bootstrap, topic)][10:] == [b"8"]


def test_what_would_never_end_is_refused() -> None:
    with pytest.raises(BadPipeline, match="into_same_topic"):
        ReplayOptions(topic=["a"], to_topic="a")
    with pytest.raises(BadPipeline, match="never ends"):
        DedupeOptions(topic=["a"], to_topic="a", id="id")
    with pytest.raises(BadPipeline, match="never ends"):
        RouteOptions(topic=["a", "a-dlq"], route=["b"])
    with pytest.raises(BadPipeline, match="either to_topic or to_table"):
        AggregateOptions(topic=["a"])
    with pytest.raises(BadPipeline, match="not a measure"):
        AggregateOptions(topic=["a"], to_topic="b", measure=["sum"])
    with pytest.raises(BadPipeline, match="is later than"):
        ReplayOptions(topic=["a"], to_topic="b", since="2026-01-02", until="2026-01-01")
