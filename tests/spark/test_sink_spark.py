"""The sink inside Spark: batch and streaming writes, what happens when they fail, and what Spark tells the tasks."""

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from pyspark.errors import AnalysisException, PythonException, StreamingQueryException
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import StructType
from topic_contents import new_topic, read_topic, values_of

from skidway.blocking_client.partitioners import partition_of_key
from skidway.spark.sink.writers import current_attempt
from skidway.testing import Broker
from waiting import SPARK_PATIENCE_S, comes_true


def save(rows: Any, bootstrap: str, mode: str = "append", **options: str) -> None:
    named = {name.replace("__", "."): value for name, value in options.items()}
    rows.write.format("skidway").option("kafka.bootstrap.servers", bootstrap).options(**named).mode(mode).save()


def run_stream(rows: Any, bootstrap: str, checkpoint: Path, mode: str = "append", **options: str) -> None:
    """All there is now, then the end."""
    query = (
        rows.writeStream.format("skidway")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("checkpointLocation", str(checkpoint))
        .options(**options)
        .outputMode(mode)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def lines(directory: Path, name: str, numbers: range) -> None:
    """A file of numbers, whole from the moment it is there."""
    directory.mkdir(exist_ok=True)
    unfinished = directory / f".{name}"
    unfinished.write_text("".join(f"{number}\n" for number in numbers))
    unfinished.rename(directory / name)


def test_a_hundred_thousand_rows_row_for_row(spark: Any, bootstrap: str) -> None:
    topic = new_topic(bootstrap, partitions=5)
    rows = spark.range(0, 100_000, 1, 3).selectExpr(
        "cast(id % 1000 as string) AS key",
        "CASE WHEN id % 11 = 0 THEN NULL ELSE cast(concat('value ', id) as binary) END AS value",
        "array(struct('id' AS key, cast(cast(id as string) as binary) AS value)) AS headers",
    )
    save(rows, bootstrap, topic=topic, kafka__compression__type="lz4")
    seen = read_topic(bootstrap, topic)
    expected = [
        (b"%d" % (n % 1000), None if n % 11 == 0 else b"value %d" % n, [("id", b"%d" % n)]) for n in range(100_000)
    ]
    got = [(one.key, one.value, list(one.headers)) for one in seen]
    assert sorted(got, key=repr) == sorted(expected, key=repr)
    assert all(one.partition == partition_of_key(one.key or b"", 5) for one in seen)


def test_rows_choose_their_topics(spark: Any, bootstrap: str) -> None:
    topics = [new_topic(bootstrap, partitions=2) for _ in range(3)]
    names = ", ".join(f"'{topic}'" for topic in topics)
    rows = spark.range(300).selectExpr(
        f"element_at(array({names}), cast(id % 3 + 1 as int)) AS topic",
        "cast(id % 2 as int) AS partition",
        "cast(id as string) AS value",
    )
    save(rows, bootstrap)
    for index, topic in enumerate(topics):
        seen = read_topic(bootstrap, topic)
        assert sorted(int(one.value or b"") for one in seen) == list(range(index, 300, 3))
        assert all(one.partition == int(one.value or b"") % 2 for one in seen)


def test_what_the_source_reads_can_be_written_as_it_is(spark: Any, bootstrap: str) -> None:
    topic, copy = new_topic(bootstrap, partitions=3), new_topic(bootstrap, partitions=3)
    save(
        spark.range(1000).selectExpr("cast(id as string) AS value", "cast(id as string) AS key"), bootstrap, topic=topic
    )
    rows = spark.read.format("skidway").option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic).load()
    assert {"offset", "timestamp", "timestampType", "topic"} < set(rows.columns)
    save(rows, bootstrap, topic=copy)
    assert [one[:4] for one in read_topic(bootstrap, copy)] == [one[:4] for one in read_topic(bootstrap, topic)]
    assert len(read_topic(bootstrap, copy)) == 1000


def test_what_is_wrong_fails_before_the_job(spark: Any, bootstrap: str) -> None:
    rows = spark.range(1).selectExpr("cast(id as string) AS value")
    with pytest.raises(AnalysisException, match="option topik: there is no such option; did you mean topic"):
        save(rows, bootstrap, topik="t")
    with pytest.raises(AnalysisException, match="no topic is given: set option topic"):
        save(rows, bootstrap)
    with pytest.raises(AnalysisException, match="column id is not one the sink takes"):
        save(spark.range(1).selectExpr("id", "cast(id as string) AS value"), bootstrap, topic="t")
    with pytest.raises(AnalysisException, match="overwrite is not possible"):
        save(rows, bootstrap, mode="overwrite", topic="t")
    # Spark asks for a mode of its own accord.
    with pytest.raises(AnalysisException, match="UNSUPPORTED_DATA_SOURCE_SAVE_MODE"):
        save(rows, bootstrap, mode="ignore", topic="t")


def test_jobs_and_streams_write_exactly_once_and_the_source_reads_what_is_committed(
    spark: Any, bootstrap: str, tmp_path: Path
) -> None:
    topic = new_topic(bootstrap)
    rows = spark.range(100).selectExpr("cast(id as string) AS value")
    save(rows, bootstrap, topic=topic, delivery="exactly_once")
    lines(tmp_path / "in", "0.txt", range(100, 200))
    incoming = spark.readStream.text(str(tmp_path / "in")).repartition(3)
    run_stream(incoming, bootstrap, tmp_path / "checkpoint", topic=topic, delivery="exactly_once")
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "transactional.id": topic})
    producer.init_transactions()
    for value, end in ((b"-1", producer.abort_transaction), (b"-2", producer.flush)):
        producer.begin_transaction()
        producer.produce(topic, value)
        producer.flush()
        end()

    def read(**options: str) -> list[int]:
        told = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, **options}
        found = spark.read.format("skidway").options(**told).load().selectExpr("int(string(value))").collect()
        return sorted(row[0] for row in found)

    assert read() == list(range(200))
    assert read(isolation="read_uncommitted") == list(range(-2, 200))
    producer.abort_transaction()


def test_a_row_without_a_place_fails_the_job_and_says_why(spark: Any, bootstrap: str) -> None:
    topic = new_topic(bootstrap)
    # One task: of several, any may be the first to fail.
    rows = spark.range(0, 10, 1, 1).selectExpr("cast(id as string) AS value", "cast(id as int) AS partition")
    with pytest.raises(PythonException, match=f"partition 1 of topic {topic}, which has 1"):
        save(rows, bootstrap, topic=topic)


def test_a_stream_goes_on_where_it_stopped(spark: Any, bootstrap: str, tmp_path: Path) -> None:
    topic = new_topic(bootstrap, partitions=2)
    incoming, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    for number in range(2):
        lines(incoming, f"{number}.txt", range(number * 1000, (number + 1) * 1000))
        run_stream(spark.readStream.text(str(incoming)), bootstrap, checkpoint, topic=topic)
    assert sorted(int(value or b"") for value in values_of(bootstrap, topic)) == list(range(2000))


def test_a_complete_stream_writes_every_row_anew(spark: Any, bootstrap: str, tmp_path: Path) -> None:
    topic = new_topic(bootstrap)
    incoming, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    for number in range(2):
        lines(incoming, f"{number}.txt", range(10))
        counts = spark.readStream.text(str(incoming)).selectExpr("value AS word").groupBy("word").count()
        rows = counts.selectExpr("word AS key", "cast(count as string) AS value")
        run_stream(rows, bootstrap, checkpoint, mode="complete", topic=topic)
    assert Counter(values_of(bootstrap, topic)) == {b"1": 10, b"2": 10}


def test_a_batch_that_fails_is_written_again_at_least_once(spark: Any, bootstrap: str, tmp_path: Path) -> None:
    topic = new_topic(bootstrap)
    incoming, checkpoint, broken = tmp_path / "in", tmp_path / "checkpoint", tmp_path / "broken"
    lines(incoming, "0.txt", range(30_000))
    broken.touch()

    def stumble(batches: Iterator[Any]) -> Iterator[Any]:
        yield from batches
        if broken.exists():
            raise RuntimeError("out of disk")

    rows = spark.readStream.text(str(incoming)).mapInArrow(stumble, "value string")
    with pytest.raises(StreamingQueryException, match="out of disk"):
        run_stream(rows, bootstrap, checkpoint, topic=topic)
    broken.unlink()
    run_stream(rows, bootstrap, checkpoint, topic=topic)
    numbers = [int(value or b"") for value in values_of(bootstrap, topic)]
    assert set(numbers) == set(range(30_000)), "nothing is lost"
    assert len(numbers) <= 60_000, "at most what the failed run had written is there twice"


def test_a_broker_killed_under_a_running_job_loses_and_doubles_nothing(spark: Any, fresh_broker: Broker) -> None:
    topic = new_topic(fresh_broker.bootstrap, partitions=3)

    def slowly(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            for start in range(0, batch.num_rows, 500):
                yield batch.slice(start, 500)
                time.sleep(0.05)

    # Slow enough for the broker to die in the middle of both tasks.
    rows = spark.range(0, 60_000, 1, 2).selectExpr("cast(id as string) AS value").mapInArrow(slowly, "value string")
    killed_at: list[int] = []

    def stored() -> int:
        return len(values_of(fresh_broker.bootstrap, topic))

    def kill_twice() -> None:
        for wanted in (2_000, 25_000):
            if comes_true(lambda: stored() > wanted, SPARK_PATIENCE_S):  # noqa: B023
                killed_at.append(wanted)
                fresh_broker.restart(kill=True)

    # The job stays in this thread: in another, Spark has no active session and does not find the format.
    killing = threading.Thread(target=kill_twice, daemon=True)
    killing.start()
    save(rows, fresh_broker.bootstrap, topic=topic, kafka__batch__size="2000")
    killing.join()
    assert killed_at == [2_000, 25_000]
    counted = Counter(int(value or b"") for value in values_of(fresh_broker.bootstrap, topic))
    assert sorted(counted) == list(range(60_000)), "nothing is lost"
    assert max(counted.values()) == 1, "nothing is there twice"


def diary_source() -> type[DataSource]:
    """A sink that only writes down who its tasks are told they are. Made in a function: so it travels to the tasks."""

    class DiaryWriter(DataSourceStreamArrowWriter):
        def __init__(self, diary: str, failing: str) -> None:
            self.diary = diary
            self.failing = failing

        def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
            rows = sum(batch.num_rows for batch in iterator)
            who = current_attempt()
            entry = [who.query_id, who.batch_id, who.partition, who.attempt, rows]
            with Path(self.diary).open("a") as diary:
                diary.write(json.dumps(entry) + "\n")
            if self.failing:
                raise RuntimeError("told to fail")
            return WriterCommitMessage()

    class Diary(DataSource):
        @classmethod
        def name(cls) -> str:
            return "diary"

        def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
            return DiaryWriter(self.options["diary"], self.options.get("failing", ""))

    return Diary


def test_spark_tells_tasks_which_query_and_batch_they_belong_to(spark: Any, tmp_path: Path) -> None:
    """What a two-phase commit will stand on: names that Spark does not document, the same after every restart."""
    spark.dataSource.register(diary_source())
    incoming, checkpoint, diary = tmp_path / "in", tmp_path / "checkpoint", tmp_path / "diary"

    def run(**options: str) -> list[Any]:
        diary.write_text("")
        query = (
            spark.readStream.text(str(incoming))
            .repartition(2)
            .writeStream.format("diary")
            .options(diary=str(diary), checkpointLocation=str(checkpoint), **options)
            .trigger(availableNow=True)
            .start()
        )
        with pytest.raises(StreamingQueryException, match="told to fail") if options else nullcontext():
            query.awaitTermination()
        entries = [json.loads(line) for line in diary.read_text().splitlines()]
        assert {entry[0] for entry in entries} == {str(query.id)}
        return entries

    lines(incoming, "0.txt", range(100))
    first = run(failing="yes")
    again = run()
    assert {entry[1] for entry in first} == {entry[1] for entry in again} == {0}, "the batch is run again as itself"
    assert {entry[0] for entry in first} == {entry[0] for entry in again}, "by the same query"
    assert sorted(entry[2] for entry in again) == [0, 1]
    assert sum(entry[4] for entry in again) == 100
    lines(incoming, "1.txt", range(50))
    later = run()
    assert {entry[1] for entry in later} == {1}
    assert {entry[0] for entry in later} == {entry[0] for entry in first}
