"""Rejected records judged again: added once, however a run is cut short, in each format."""

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
from skidway.spark.pipelines.options import ONCE, BadPipeline
from skidway.spark.pipelines.redo import Redone

NOT_JSON = "the value is not a JSON object"


@pytest.mark.parametrize("kind", ["parquet", "delta", "iceberg"])
def test_what_passes_after_a_fix_is_added_once_even_if_the_run_dies(
    spark: Any, bootstrap: str, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic(bootstrap, "mended", 2)
    at = "2026-01-31T12:00:10Z"
    put(bootstrap, topic, [*({"n": n, "at": at} for n in range(10)), b"broken", None], headers=(("h", b"1"),))
    options = ArchiveOptions(
        topic=[topic],
        bootstrap=bootstrap,
        path=str(tmp_path / "table"),
        format=kind,
        checkpoint=str(tmp_path / "checkpoint"),
        schema="n int, at timestamp",
        expect=["n < 5"],
        event_time="at",
    )
    to_the_end(lambda: Archive(options).start(spark, ONCE))
    assert numbers(options) == list(range(5))

    mended = replace(options, expect=["n < 8"], redo_rejected=True)
    archive = Archive(mended)

    def power_lost(*arguments: Any) -> bool:
        raise OSError("power lost")

    with monkeypatch.context() as cut:
        cut.setattr(type(archive._rejected), "replace", power_lost)
        with pytest.raises(OSError, match="power lost"):
            archive.redo(spark)
    assert len(reasons(mended)) == 7, "nothing was taken away"
    done = Archive(mended).redo(spark)
    assert (done.read, done.added + done.there, done.there > 0) == (7, 3, True)
    for _ in range(2):
        assert numbers(mended) == list(range(8))
        expected = Counter({"not true: n < 8": 2, NOT_JSON: 1, "the value is null": 1})
        assert Counter(reasons(mended)) == expected == Counter(done.reasons)
        done = Archive(mended).redo(spark)
        assert done == Redone(read=4, reasons=dict(expected))
    # The archive goes on where it was, and its table is as it would be had nothing been rejected.
    put(bootstrap, topic, [{"n": 7, "at": at}], headers=(("h", b"1"),))
    to_the_end(lambda: Archive(replace(mended, redo_rejected=False)).start(spark, ONCE))
    assert numbers(mended) == [*range(7), 7, 7]
    [columns] = {tuple(sorted(row)) for row in rows(mended)}
    assert columns == ("date", "headers", "hour", "key", "offset", "partition", "timestamp", "topic", "value")
    assert {(row["headers"][0]["value"], str(row["date"])) for row in rows(mended)} == {(b"1", "2026-01-31")}


def test_what_the_archive_will_judge_again_by_itself_is_left_to_it(
    spark: Any, bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It died between the commits of rejects and rows, and its checkpoint is lost."""
    topic = new_topic(bootstrap, "halfway", 1)
    put(bootstrap, topic, [{"n": n} for n in range(10)])
    options = ArchiveOptions(
        topic=[topic],
        bootstrap=bootstrap,
        path=str(tmp_path / "table"),
        checkpoint=str(tmp_path / "checkpoint"),
        schema="n int",
        expect=["n < 5"],
    )
    archive = Archive(options)

    def power_lost(*arguments: Any) -> bool:
        raise OSError("power lost")

    with monkeypatch.context() as cut:
        cut.setattr(archive._table, "commit", power_lost)
        with pytest.raises(StreamingQueryException, match="power lost"):
            to_the_end(lambda: archive.start(spark, ONCE))
    assert len(reasons(options)) == 5
    shutil.rmtree(options.folder("archive"))
    mended = replace(options, expect=["n < 8"])
    again = Archive(replace(mended, redo_rejected=True))
    assert again.redo(spark) == Redone(early=5)
    to_the_end(lambda: Archive(mended).start(spark, ONCE))
    assert again.redo(spark) == Redone(read=5, there=3, reasons={"not true: n < 8": 2})
    assert numbers(mended) == list(range(8))


def test_without_a_schema_there_is_nothing_to_judge_again() -> None:
    with pytest.raises(BadPipeline, match="without them no record is rejected"):
        ArchiveOptions(topic=["t"], path="x", redo_rejected=True)


def rows(options: ArchiveOptions) -> list[dict[str, Any]]:
    table = Archive(options)._table
    return sorted((row for batch in table.scan() for row in batch.to_pylist()), key=lambda row: row["value"]["n"])


def numbers(options: ArchiveOptions) -> list[int]:
    return [row["value"]["n"] for row in rows(options)]


def reasons(options: ArchiveOptions) -> list[str]:
    return [row["reason"] for batch in Archive(options)._rejected.scan(["reason"]) for row in batch.to_pylist()]
