"""archive: every record once, in the table or among the rejected, over restarts, in each format."""

import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pipeline_topics import new_topic, put
from pyspark.errors import StreamingQueryException
from queries import to_the_end

from skidway.spark.pipelines.archive import Archive, ArchiveOptions
from skidway.spark.pipelines.clickstream import BROKEN, ORDER_SCHEMA, ORDERS, Clickstream
from skidway.spark.pipelines.options import ONCE, BadPipeline

START_MS = 1_794_787_200_000


def run(spark: Any, options: ArchiveOptions) -> Any:
    return to_the_end(lambda: Archive(options).start(spark, ONCE))


def read(spark: Any, path: str, kind: str) -> list[dict[str, Any]]:
    if kind == "parquet":
        return [row.asDict(recursive=True) for row in spark.read.parquet(path).collect()]
    if kind == "delta":
        from deltalake import DeltaTable

        return list(DeltaTable(path).to_pyarrow_table().to_pylist())
    from skidway.spark.lake import Target, open_table

    table = open_table(Target(path, kind))
    return list(table.catalog.load_table(table.name).scan().to_arrow().to_pylist())  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", ["parquet", "delta", "iceberg"])
def test_orders_are_archived_and_what_is_broken_is_set_aside(
    spark: Any, bootstrap: str, tmp_path: Path, kind: str
) -> None:
    topic = new_topic(bootstrap, "orders")
    events = [event for event in Clickstream(start_ms=START_MS).events(1500) if event.topic == ORDERS]
    half = len(events) // 2
    options = ArchiveOptions(
        topic=[topic],
        bootstrap=bootstrap,
        path=str(tmp_path / "orders"),
        format=kind,
        schema=ORDER_SCHEMA,
        require=["event_id"],
        checkpoint=str(tmp_path / "checkpoint"),
        partition_by=["date", "country"],
        event_time="at",
    )
    for part, schema in ((events[:half], ORDER_SCHEMA), (events[half:], f"{ORDER_SCHEMA}, coupon string")):
        put(bootstrap, topic, [(event.key, event.value) for event in part])
        run(spark, replace(options, schema=schema))

    sound = Counter(event.value for event in events if event.fault != BROKEN)
    broken = Counter(event.value for event in events if event.fault == BROKEN)
    assert broken
    rows = read(spark, options.path, kind)
    assert len(rows) == sum(sound.values())
    assert {row["value"]["event_id"] for row in rows} == {value.split(b'"')[3].decode() for value in sound}
    assert {row["value"]["coupon"] for row in rows} == {None}
    assert {row["country"] for row in rows} == {"DE", "FR", "US", "JP", "BR"}
    assert {str(row["date"]) for row in rows} <= {"2026-11-15", "2026-11-16"}
    rejected = read(spark, f"{options.path}-rejected", kind)
    assert Counter(bytes(row["value"]) for row in rejected) == broken
    assert {row["reason"] for row in rejected} == {
        "the value is not a JSON object",
        "the value is not UTF-8 text",
        "a field does not have the type the schema gives it",
    }


def test_without_parsing_records_stay_as_they_are(spark: Any, bootstrap: str, tmp_path: Path) -> None:
    topic = new_topic(bootstrap, "bytes", 1)
    put(bootstrap, topic, [(b"k", b"\xff\x00"), (None, b"text"), (b"gone", None)], headers=(("h", b"1"),))
    options = ArchiveOptions(
        topic=[topic], bootstrap=bootstrap, path=str(tmp_path / "raw"), checkpoint=str(tmp_path / "checkpoint")
    )
    run(spark, options)
    rows = sorted(read(spark, options.path, "parquet"), key=lambda row: int(row["offset"]))
    assert [(row["key"], row["value"], row["offset"]) for row in rows] == [
        (b"k", b"\xff\x00", 0),
        (None, b"text", 1),
        (b"gone", None, 2),
    ]
    assert rows[0]["headers"] == [{"key": "h", "value": b"1"}]
    assert {row["topic"] for row in rows} == {topic}
    assert not Path(f"{options.path}-rejected").exists()


def test_json_without_a_schema_is_checked_and_kept_as_text(spark: Any, bootstrap: str, tmp_path: Path) -> None:
    topic = new_topic(bootstrap, "json", 1)
    put(bootstrap, topic, [{"a": 1, "kind": "x"}, b"[1]", b"{} trailing", b'{"a": {"b": [1, null]}}', None])
    options = ArchiveOptions(
        topic=[topic],
        bootstrap=bootstrap,
        path=str(tmp_path / "json"),
        checkpoint=str(tmp_path / "checkpoint"),
        parse="json",
        partition_by=["kind"],
    )
    run(spark, options)
    rows = sorted(read(spark, options.path, "parquet"), key=lambda row: int(row["offset"]))
    assert [(row["value"], row["kind"]) for row in rows] == [
        ('{"a": 1, "kind": "x"}', "x"),
        ('{"a": {"b": [1, null]}}', None),
    ]
    rejected = read(spark, f"{options.path}-rejected", "parquet")
    assert sorted((row["offset"], row["reason"]) for row in rejected) == [
        (1, "the value is not a JSON object"),
        (2, "the value is not a JSON object"),
        (4, "the value is null"),
    ]


def test_a_crash_behind_either_table_doubles_nothing_even_without_the_checkpoint(
    spark: Any, bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """First the rejects of a batch are committed and its rows are not, then both are and Spark does not know."""
    from skidway.spark.lake.parquet import ParquetTable

    topic = new_topic(bootstrap, "crash")
    put(bootstrap, topic, [{"n": number} if number % 5 else b"broken" for number in range(100)])
    options = ArchiveOptions(
        topic=[topic],
        bootstrap=bootstrap,
        path=str(tmp_path / "table"),
        checkpoint=str(tmp_path / "checkpoint"),
        schema="n int",
        expect=["n < 96"],
    )
    real, calls = ParquetTable.commit, []

    def crashing(*arguments: Any, **more: Any) -> Any:
        calls.append(arguments)
        committed = real(*arguments, **more)
        if len(calls) <= 2:
            raise OSError("power lost")
        return committed

    monkeypatch.setattr(ParquetTable, "commit", crashing)
    for _ in range(2):
        with pytest.raises(StreamingQueryException, match="power lost"):
            run(spark, options)
    shutil.rmtree(tmp_path / "checkpoint")
    put(bootstrap, topic, [{"n": number} for number in range(200, 210)])
    run(spark, options)
    expected = [number for number in range(96) if number % 5]
    found = Counter(row["value"]["n"] for row in read(spark, options.path, "parquet"))
    assert found == Counter(expected)
    rejected = read(spark, f"{options.path}-rejected", "parquet")
    assert Counter(row["reason"] for row in rejected) == {
        "the value is not a JSON object": 20,
        "not true: n < 96": 14,
    }


def test_a_driver_killed_as_it_wrote_its_first_offsets_is_followed_by_another(
    spark: Any, bootstrap: str, tmp_path: Path
) -> None:
    """The folder as `kill -9` left it; Spark by itself refuses it."""
    topic = new_topic(bootstrap, "first")
    put(bootstrap, topic, [{"n": number} for number in range(10)])
    offsets = tmp_path / "checkpoint" / "offsets"
    offsets.mkdir(parents=True)
    (offsets / ".0.d901ab02-3b42-49e3-a9e4-0d188d83082d.tmp").touch()
    options = ArchiveOptions(
        topic=[topic],
        bootstrap=bootstrap,
        path=str(tmp_path / "table"),
        checkpoint=str(offsets.parent),
        schema="n int",
    )
    run(spark, options)
    assert sorted(row["value"]["n"] for row in read(spark, options.path, "parquet")) == list(range(10))


def test_options_that_make_no_sense_are_told(tmp_path: Path) -> None:
    with pytest.raises(BadPipeline, match="format must be one of parquet, delta, iceberg"):
        ArchiveOptions(topic=["t"], path="x", format="csv")
    with pytest.raises(BadPipeline, match="require needs a schema"):
        ArchiveOptions(topic=["t"], path="x", require=["a"])
    with pytest.raises(BadPipeline, match="no topic"):
        ArchiveOptions(topic=[], path="x")


def test_a_run_that_rejects_too_much_fails_and_says_why(spark: Any, bootstrap: str, tmp_path: Path) -> None:
    topic = new_topic(bootstrap, "rejects")
    put(bootstrap, topic, [{"n": 1}, {"n": "x"}, b"broken", b"too", None, {"m": 2}])
    options = ArchiveOptions(
        topic=[topic],
        bootstrap=bootstrap,
        path=str(tmp_path / "table"),
        checkpoint=str(tmp_path / "checkpoint"),
        schema="n int",
        require=["n"],
        max_rejected="50%",
    )
    archive = Archive(options)
    with pytest.raises(StreamingQueryException, match="5 of 6 records were rejected"):
        to_the_end(lambda: archive.start(spark, ONCE))
    assert archive.counts() == {
        "rejected": 5,
        "rejected (the value is not a JSON object)": 2,
        "rejected (a field does not have the type the schema gives it)": 1,
        "rejected (the field n is missing)": 1,
        "rejected (the value is null)": 1,
    }
    # All of it is in the tables, so the next run has nothing to do.
    run(spark, options)
    assert len(read(spark, options.path, "parquet")) == 1
    assert len(read(spark, f"{options.path}-rejected", "parquet")) == 5
