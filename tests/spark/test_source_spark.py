"""`format("skidway")` in a real Spark session: rows, schemas, refusals, streams that stop, fail and go on."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType
from queries import to_the_end
from source_topics import Sent, make_topic, numbered, send

from skidway.blocking_client.admin import Admin
from skidway.blocking_client.cluster import Cluster
from skidway.blocking_client.groups import Groups
from skidway.blocking_client.lag import measure
from skidway.records.compression import Codec
from skidway.testing import Broker
from waiting import SPARK_PATIENCE_S, eventually

SCHEMA = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int,"
    " headers array<struct<key: string, value: binary>>"
)
Load = Callable[..., DataFrame]


@pytest.fixture
def cluster(bootstrap: str) -> Iterator[Cluster]:
    with Cluster(bootstrap) as cluster:
        yield cluster


@pytest.fixture
def load(spark: SparkSession, bootstrap: str) -> Load:
    def batch(topic: str, schema: str | None = None, **options: str) -> DataFrame:
        reader = spark.read.format("skidway").options(**{"kafka.bootstrap.servers": bootstrap, "subscribe": topic})
        return (reader.schema(schema) if schema else reader).options(**options).load()

    return batch


def ddl(text: str) -> StructType:
    schema = StructType.fromDDL(text)
    assert isinstance(schema, StructType)
    return schema


class Streams:
    """Queries over one topic with one checkpoint; what they saw is in `batches`, by number."""

    def __init__(self, spark: SparkSession, bootstrap: str, checkpoint: Path) -> None:
        self.spark = spark
        self.bootstrap = bootstrap
        self.checkpoint = checkpoint
        self.batches: dict[int, list[int]] = {}
        self.broken = False

    def start(self, topic: str, *, now: bool = True, **options: str) -> StreamingQuery:
        frame = (
            self.spark.readStream.format("skidway")
            .options(**{"kafka.bootstrap.servers": self.bootstrap, "subscribe": topic, "startingOffsets": "earliest"})
            .options(**options)
            .load()
        )
        writer = frame.writeStream.foreachBatch(self._take).option("checkpointLocation", str(self.checkpoint))
        triggered = writer.trigger(availableNow=True) if now else writer.trigger(processingTime="100 milliseconds")
        return triggered.start()

    def run(self, topic: str, **options: str) -> None:
        to_the_end(lambda: self.start(topic, now=True, **options))

    def _take(self, frame: DataFrame, number: int) -> None:
        rows = sorted(int(bytes(row.value)) for row in frame.select("value").collect())
        if self.broken:
            raise RuntimeError("the sink is broken")
        self.batches[number] = rows

    @property
    def rows(self) -> list[int]:
        return sorted(number for rows in self.batches.values() for number in rows)


@pytest.fixture
def streams(spark: SparkSession, bootstrap: str, tmp_path: Path) -> Iterator[Streams]:
    streams = Streams(spark, bootstrap, tmp_path / "checkpoint")
    yield streams
    for query in spark.streams.active:
        query.stop()


# Batch.


def test_rows_and_schema_are_those_of_the_kafka_connector(cluster: Cluster, load: Load) -> None:
    sent = [
        Sent(0, None, b"v", 1_700_000_000_123, (("a", b"1"), ("a", None))),
        Sent(0, b"k", None, 0),
        *numbered(50),
    ]
    topics = {codec: make_topic(cluster, 1, f"codec-{codec.name.lower()}") for codec in Codec}
    for codec, topic in topics.items():
        send(cluster, topic, sent, codec=codec)
    frame = load(",".join(topics.values()), includeHeaders="true")
    assert frame.schema == ddl(SCHEMA)
    rows = frame.selectExpr("*", "unix_millis(timestamp) as ms").collect()
    found = {
        (row.topic, row.partition, row.offset): (
            row.key and bytes(row.key),
            row.value and bytes(row.value),
            row.ms,
            row.timestampType,
            row.headers and [(header.key, header.value and bytes(header.value)) for header in row.headers],
        )
        for row in rows
    }
    assert len(rows) == len(found)
    assert found == {
        (topic, 0, offset): (record.key, record.value, record.timestamp_ms, 0, list(record.headers) or None)
        for topic in topics.values()
        for offset, record in enumerate(sent)
    }
    assert load(next(iter(topics.values()))).columns == ddl(SCHEMA).fieldNames()[:-1]


def test_a_schema_selects_columns_in_any_order(cluster: Cluster, load: Load) -> None:
    topic = make_topic(cluster)
    send(cluster, topic, [Sent(0, b"k", b"v", headers=(("h", b"1"),))])
    assert [tuple(row) for row in load(topic, "offset long, value binary").collect()] == [(0, b"v")]
    (row,) = load(topic, "headers array<struct<key: string, value: binary>>, timestampType int").collect()
    assert [tuple(header) for header in row.headers] == [("h", b"1")]
    assert load(topic, "value binary").count() == 1
    assert load(topic).select("partition").distinct().collect()[0].partition == 0


def test_an_empty_topic_is_an_empty_frame(cluster: Cluster, load: Load) -> None:
    assert load(make_topic(cluster, 2)).collect() == []


def test_min_partitions_makes_more_tasks_of_the_same_rows(cluster: Cluster, load: Load) -> None:
    topic = make_topic(cluster)
    send(cluster, topic, numbered(1_000))
    frame = load(topic, minPartitions="4")
    assert frame.rdd.getNumPartitions() == 4
    found = frame.selectExpr("sum(cast(cast(value as string) as int)) as total").first()
    assert found is not None
    assert found.total == 499_500


def test_a_thousand_partitions_are_read_in_two_hundred_tasks(cluster: Cluster, load: Load) -> None:
    topic = make_topic(cluster, 1_000)
    send(cluster, topic, numbered(3_000, 1_000))
    frame = load(topic, "value binary, partition int")
    assert frame.rdd.getNumPartitions() == 200
    found = frame.selectExpr("sum(int(string(value))) as total", "count(distinct partition) as partitions").first()
    assert found is not None
    assert (found.total, found.partitions) == (3_000 * 2_999 // 2, 1_000)


def test_a_view_in_sql_reads_a_topic(spark: SparkSession, cluster: Cluster, bootstrap: str) -> None:
    topic = make_topic(cluster)
    send(cluster, topic, numbered(5))
    spark.sql(
        "create or replace temporary view numbers using skidway"
        f" options (`kafka.bootstrap.servers` '{bootstrap}', subscribe '{topic}')"
    )
    found = spark.sql("select count(*) as n from numbers where offset >= 2").first()
    assert found is not None
    assert found.n == 3


def test_history_is_read_from_files(spark: SparkSession, cluster: Cluster, broker: Broker) -> None:
    topic = make_topic(cluster, internal_segment_bytes="16384")
    send(cluster, topic, numbered(3_000))
    options = {"backfill.path": str(broker.data_dir), "subscribe": topic, "backfill.active": "true"}
    assert spark.read.format("skidway").options(**options).load().count() == 3_000


@pytest.mark.parametrize(
    ("schema", "options", "words"),
    [
        (None, {"startingOffset": "earliest"}, "did you mean startingOffsets?"),
        (None, {"kafka.sasl.mechanism": "PLAIN"}, "PLAINTEXT"),
        (None, {"startingOffsets": "latest"}, "startingOffsets: in a batch read it cannot be latest"),
        (None, {"subscribe": "nowhere"}, "there is no topic nowhere: create it first"),
        (None, {"kafka.bootstrap.servers": "127.0.0.1:9"}, "cannot reach 127.0.0.1:9"),
        ("values binary", {}, "a topic has no column 'values'; it has key, value, topic"),
        ("value string", {}, "column value is binary, not string: select it as it is and convert it"),
        ("value binary not null", {}, "column value is declared NOT NULL"),
    ],
)
def test_what_cannot_be_read_is_said_before_a_job_starts(
    cluster: Cluster, load: Load, schema: str | None, options: dict[str, str], words: str
) -> None:
    topic = make_topic(cluster)
    with pytest.raises(PySparkException) as refused:
        load(topic, schema, **options).collect()
    assert words in str(refused.value)


def test_deleted_records_fail_a_batch_read_or_not(cluster: Cluster, load: Load) -> None:
    topic = make_topic(cluster)
    send(cluster, topic, numbered(10), batch_bytes=60)
    Admin(cluster).delete_records(topic, {0: 4})
    asked = {"startingOffsets": f'{{"{topic}":{{"0":0}}}}'}
    with pytest.raises(PySparkException, match="offsets 0 to 4 were deleted"):
        load(topic, **asked).count()
    assert load(topic, failOnDataLoss="false", **asked).count() == 6


# Streams.


def test_a_stream_goes_on_where_it_stopped(cluster: Cluster, streams: Streams) -> None:
    topic = make_topic(cluster, 2)
    send(cluster, topic, numbered(10, 2))
    streams.run(topic)
    send(cluster, topic, numbered(5, 2, first=10))
    streams.run(topic, startingOffsets="latest")
    assert streams.batches == {0: list(range(10)), 1: list(range(10, 15))}


def test_a_stream_from_latest_whose_first_batch_failed_begins_where_it_began(
    cluster: Cluster, streams: Streams
) -> None:
    topic = make_topic(cluster)
    send(cluster, topic, numbered(5))
    streams.broken = True
    with pytest.raises(PySparkException, match="the sink is broken"):
        streams.run(topic, startingOffsets="latest")
    # These came after the query had begun, so they are its to read.
    send(cluster, topic, numbered(3, first=5))
    streams.broken = False
    streams.run(topic, startingOffsets="latest")
    assert streams.batches == {0: [], 1: [5, 6, 7]}


def test_a_batch_that_failed_is_read_again(cluster: Cluster, streams: Streams) -> None:
    topic = make_topic(cluster)
    send(cluster, topic, numbered(5))
    streams.broken = True
    with pytest.raises(PySparkException, match="the sink is broken"):
        streams.run(topic)
    send(cluster, topic, numbered(3, first=5))
    streams.broken = False
    streams.run(topic)
    assert streams.batches == {0: [0, 1, 2, 3, 4], 1: [5, 6, 7]}


def test_available_now_takes_what_there_is_in_batches_of_the_size_allowed(cluster: Cluster, streams: Streams) -> None:
    topic = make_topic(cluster, 2)
    send(cluster, topic, numbered(20, 2))
    streams.run(topic, maxOffsetsPerTrigger="8", groupId=f"lag-{topic}")
    assert [len(rows) for rows in streams.batches.values()] == [8, 8, 4]
    assert streams.rows == list(range(20))
    # The whole progress is there for whoever watches the group, also of the last batch.
    group = Groups(cluster).describe(f"lag-{topic}")
    lags = measure(cluster, group, Groups(cluster).committed(group.id))
    assert [(lag.partition, lag.committed, lag.messages) for lag in lags] == [(0, 10, 0), (1, 10, 0)]


def test_a_running_stream_finds_new_partitions_and_shows_where_it_is(cluster: Cluster, streams: Streams) -> None:
    topic = make_topic(cluster)
    send(cluster, topic, numbered(3))
    query = streams.start(topic, now=False)
    eventually(lambda: streams.rows == [0, 1, 2], SPARK_PATIENCE_S)
    Admin(cluster).grow_topic(topic, 2)
    cluster.forget(topic)
    send(cluster, topic, [record._replace(partition=1) for record in numbered(3, first=3)])
    eventually(lambda: streams.rows == list(range(6)), SPARK_PATIENCE_S)

    def shows_the_new_partition() -> bool:
        progress = query.lastProgress
        assert progress is not None
        return '"1" : 3' in progress.json or '"1": 3' in progress.json

    eventually(shows_the_new_partition, SPARK_PATIENCE_S)
    query.stop()


def test_a_batch_waits_for_enough_rows(cluster: Cluster, streams: Streams) -> None:
    topic = make_topic(cluster)
    send(cluster, topic, numbered(2))
    query = streams.start(topic, now=False, minOffsetsPerTrigger="4", maxOffsetsPerTrigger="5")
    eventually(lambda: streams.rows == [0, 1], SPARK_PATIENCE_S)
    for number in range(2, 6):
        send(cluster, topic, numbered(1, first=number))
    eventually(lambda: streams.rows == list(range(6)), SPARK_PATIENCE_S)
    query.stop()
    assert [len(rows) for rows in streams.batches.values()] == [2, 4]


def test_lost_records_stop_a_stream_until_the_loss_is_accepted(cluster: Cluster, streams: Streams) -> None:
    topic = make_topic(cluster)
    send(cluster, topic, numbered(3))
    streams.run(topic)
    send(cluster, topic, numbered(7, first=3), batch_bytes=60)
    Admin(cluster).delete_records(topic, {0: 6})
    with pytest.raises(PySparkException, match="offsets 3 to 6 were deleted"):
        streams.run(topic)
    streams.run(topic, failOnDataLoss="false")
    assert streams.rows == [0, 1, 2, 6, 7, 8, 9]


def test_a_topic_made_again_stops_a_stream_until_the_loss_is_accepted(cluster: Cluster, streams: Streams) -> None:
    topic = make_topic(cluster)
    send(cluster, topic, numbered(3))
    streams.run(topic)
    Admin(cluster).delete_topic(topic)
    Admin(cluster).create_topic(topic, partitions=1, configs={"retention.ms": "-1"})
    send(cluster, topic, numbered(9, first=100))
    with pytest.raises(PySparkException, match="was deleted and made again"):
        streams.run(topic)
    streams.run(topic, failOnDataLoss="false")
    assert streams.rows == [0, 1, 2, *range(100, 109)]


def test_a_stream_refuses_options_of_a_batch_read(cluster: Cluster, streams: Streams) -> None:
    topic = make_topic(cluster)
    with pytest.raises(PySparkException, match="endingOffsets: it is for batch reads"):
        streams.run(topic, endingOffsets="latest")


@pytest.mark.parametrize(
    ("settings", "schema", "message"),
    [({"endingOffsets": "latest"}, None, "endingOffsets"), ({}, "value string", "column value is binary, not string")],
    ids=["an option for batches", "a schema that does not fit"],
)
def test_what_is_wrong_with_a_stream_is_named(
    spark: SparkSession, bootstrap: str, tmp_path: Path, settings: dict[str, str], schema: str | None, message: str
) -> None:
    """PySpark by itself shows an UnboundLocalError of its own."""
    reader = spark.readStream.format("skidway").options(
        **{"kafka.bootstrap.servers": bootstrap, "subscribe": "any", **settings}
    )
    frame = (reader.schema(schema) if schema else reader).load()
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))
    with pytest.raises(Exception, match=message):
        writer.trigger(availableNow=True).start().awaitTermination()


def test_create_table_is_refused_with_what_to_do(spark: SparkSession) -> None:
    with pytest.raises(Exception, match="CREATE TEMPORARY VIEW"):
        spark.sql("CREATE TABLE refused USING skidway OPTIONS (subscribe 'any')")
