"""A batch gets into a table once: run again, cut short at any step, beside other queries."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as sf

from skidway.spark.lake import BadTable, Target, open_table, staging, table, write_batch

pytest.importorskip("deltalake")
pytest.importorskip("pyiceberg")

FORMATS = ["parquet", "delta", "iceberg"]
QUERY = "11111111-aaaa"
AWKWARD = {"parquet": 'it\'s 100%25 "#1"', "delta": 'it\'s 100% "#1"', "iceberg": 'it\'s 100%25 "1"'}
"""Where the tables are: Spark, the libraries and the readers take the folder by its name."""


def frame(spark: Any, start: int, end: int) -> Any:
    return spark.range(start, end, 1, 2).selectExpr(
        "id",
        "concat('value ', id) AS text",
        "timestamp_seconds(1763251200 + id) AS at",
        "concat('red: 100%/', id % 2) AS colour",
        "if(id % 5 = 0, null, id % 2) AS side",
        "named_struct('x', id, 'tags', array('a', cast(id AS string))) AS nested",
    )


def target(kind: str, tmp_path: Path, partition_by: list[str] | None = None) -> Target:
    return Target(str(tmp_path / AWKWARD[kind] / "events"), kind, ["colour"] if partition_by is None else partition_by)


def read(target: Target, spark: Any) -> Counter[tuple[Any, ...]]:
    """The rows by a reader that is not the writer."""
    columns = ["id", "text", "colour"]
    if target.format == "parquet":
        found = spark.read.parquet(target.path).select(columns).collect()
        return Counter(tuple(row) for row in found)
    if target.format == "delta":
        from deltalake import DeltaTable

        rows = DeltaTable(target.path).to_pyarrow_table().select(columns).to_pylist()
    else:
        rows = open_table(target).catalog.load_table("skidway.events").scan().to_arrow().select(columns).to_pylist()  # type: ignore[attr-defined]
    return Counter(tuple(row.values()) for row in rows)


def expected(start: int, end: int) -> Counter[tuple[Any, ...]]:
    return Counter((number, f"value {number}", f"red: 100%/{number % 2}") for number in range(start, end))


@pytest.mark.parametrize("kind", FORMATS)
def test_batches_add_up_and_a_replayed_batch_is_skipped(spark: Any, tmp_path: Path, kind: str) -> None:
    where = target(kind, tmp_path)
    first = write_batch(open_table(where), frame(spark, 0, 40), QUERY, 0)
    write_batch(open_table(where), frame(spark, 40, 100), QUERY, 1)
    again = write_batch(open_table(where), frame(spark, 40, 100), QUERY, 1)
    assert (first.rows, first.skipped, again.skipped) == (40, False, True)
    assert read(where, spark) == expected(0, 100)


@pytest.mark.parametrize("kind", FORMATS)
def test_an_unpartitioned_table_and_a_partition_of_no_value(spark: Any, tmp_path: Path, kind: str) -> None:
    flat = Target(str(tmp_path / "flat" / "events"), kind)
    write_batch(open_table(flat), frame(spark, 0, 10), QUERY, 0)
    assert read(flat, spark) == expected(0, 10)
    by_side = target(kind, tmp_path, ["side"])
    write_batch(open_table(by_side), frame(spark, 0, 30), QUERY, 0)
    assert read(by_side, spark) == expected(0, 30)


@pytest.mark.parametrize("kind", FORMATS)
def test_two_queries_feed_one_table(spark: Any, tmp_path: Path, kind: str) -> None:
    where = target(kind, tmp_path)
    write_batch(open_table(where), frame(spark, 0, 10), QUERY, 5)
    other = write_batch(open_table(where), frame(spark, 10, 20), "22222222-bbbb", 0)
    assert not other.skipped
    assert read(where, spark) == expected(0, 20)


class Crash(Exception):
    pass


CRASHES = [
    ("stage", False),
    ("sync", False),
    ("commit", False),
    ("move", False),
    ("move", True),
    ("sweep", False),
    ("sweep", True),
]
"""Every place between two steps once: after one step is before the next. A Parquet table's manifest is written between
the beginning of `commit` and `move`."""


@pytest.mark.parametrize(
    ("step", "after"), CRASHES, ids=[f"{'after' if after else 'before'} {step}" for step, after in CRASHES]
)
@pytest.mark.parametrize("kind", FORMATS)
def test_a_crash_at_any_step_is_made_good_by_the_replay(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, step: str, after: bool
) -> None:
    """The replay is a new process's: nothing is in memory but what the files say."""
    from skidway.spark.lake import delta, iceberg, parquet

    where = target(kind, tmp_path)
    write_batch(open_table(where), frame(spark, 0, 10), QUERY, 0)
    module = {"parquet": parquet, "delta": delta, "iceberg": iceberg}[kind]
    writing = open_table(where)
    owner, name = {
        "stage": (table, "stage"),
        "sync": (table, "sync"),
        "commit": (type(writing), "commit"),
        "move": (module, "move"),
        "sweep": (staging.Attempt, "sweep"),
    }[step]
    real = getattr(owner, name)

    def crash(*arguments: Any, **more: Any) -> None:
        if after:
            real(*arguments, **more)
        raise Crash

    with monkeypatch.context() as patched:
        patched.setattr(owner, name, crash)
        if name == "move" and kind == "parquet":
            # `last_batch` also moves: let the crash come with the second call, the commit's.
            patched.setattr(owner, name, _once(real, crash))
        with pytest.raises(Crash):
            write_batch(writing, frame(spark, 10, 30), QUERY, 1)
    write_batch(open_table(where), frame(spark, 10, 30), QUERY, 1)
    assert read(where, spark) == expected(0, 30)
    write_batch(open_table(where), frame(spark, 30, 35), QUERY, 2)
    assert read(where, spark) == expected(0, 35)
    assert not staging.staging_folder(where.folder(), QUERY, 1).exists()


def test_what_executors_of_a_dead_driver_still_write_is_no_part_of_the_next_attempt(spark: Any, tmp_path: Path) -> None:
    """The task of a driver that was killed ends while the next attempt at the same batch runs."""
    where = target("parquet", tmp_path)
    first = staging.stage(frame(spark, 0, 10), staging.Attempt(where.folder(), QUERY, 0), ["colour"])
    path = first[0].staged
    assert path is not None
    content, folder = path.read_bytes(), path.parents[len(first[0].partition)]
    # Where Spark's committer of the first attempt collects what its tasks have done.
    place = folder / "_temporary" / "0" / "task_of_the_dead_m_000000" / path.relative_to(folder)

    def with_a_late_task(rows: Any) -> Any:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
        yield from rows

    rows = frame(spark, 0, 10)
    write_batch(open_table(where), rows.mapInArrow(with_a_late_task, rows.schema), QUERY, 0)
    assert read(where, spark) == expected(0, 10)


def _once(real: Any, crash: Any) -> Any:
    calls: list[int] = []

    def move(*arguments: Any) -> None:
        calls.append(1)
        if len(calls) == 1:
            real(*arguments)
        else:
            crash(*arguments)

    return move


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_another_schema_is_refused_in_words(spark: Any, tmp_path: Path, kind: str) -> None:
    where = target(kind, tmp_path)
    write_batch(open_table(where), frame(spark, 0, 10), QUERY, 0)
    with pytest.raises(BadTable, match=r"text is string in the table and bigint in the rows"):
        write_batch(open_table(where), frame(spark, 0, 10).withColumn("text", sf.col("id")), QUERY, 1)
    with pytest.raises(BadTable, match="partitioned by"):
        write_batch(open_table(target(kind, tmp_path, [])), frame(spark, 0, 10), QUERY, 1)


def test_what_cannot_be_a_table_is_refused(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(BadTable, match="known are parquet, delta, iceberg"):
        open_table(Target("x", "orc"))
    with pytest.raises(BadTable, match="s3://, gs:// and abfs://, and not to ftp://"):
        open_table(Target("ftp://bucket/x"))
    with pytest.raises(BadTable, match="no column nowhere"):
        write_batch(open_table(Target(str(tmp_path), partition_by=["nowhere"])), frame(spark, 0, 1), QUERY, 0)
