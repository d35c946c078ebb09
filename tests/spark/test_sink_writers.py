"""The writers as Spark calls them, without Spark: Arrow batches in, rows in topics out, read back by another client."""

import json
import logging
import pickle
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import ArrayType, BinaryType, IntegerType, LongType, MapType, StringType, StructField, StructType
from topic_contents import Seen, new_topic, read_topic, values_of

from skidway.blocking_client.partitioners import partition_of_key
from skidway.spark.sink.delivery import Attempt
from skidway.spark.sink.options import BadColumns
from skidway.spark.sink.producing import DeliveryFailed
from skidway.spark.sink.routing import BadRow
from skidway.spark.sink.writers import BadSaveMode, Written, batch_writer, stream_writer
from skidway.testing import Broker

CREATE_TIME = 1
HEADERS_TYPE = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
TYPES = {
    "binary": BinaryType(),
    "string": StringType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "headers": ArrayType(HEADER),
    "map": MapType(StringType(), BinaryType()),
}


def schema(columns: str) -> StructType:
    """`name type, name type`; Spark's own reader of such text needs a session."""
    fields = [column.split() for column in columns.split(",")]
    return StructType([StructField(name, TYPES[kind]) for name, kind in fields])


def write(
    bootstrap: str,
    columns: str,
    batches: "list[pa.RecordBatch] | Iterator[pa.RecordBatch]",
    options: dict[str, str] | None = None,
) -> Written:
    writer = batch_writer(schema(columns), {"kafka.bootstrap.servers": bootstrap, **(options or {})}, False)
    # As Spark does: the writer goes to the task by pickle, and the message comes back so.
    message = pickle.loads(pickle.dumps(writer)).write(iter(batches))
    assert isinstance(message, Written)
    returned: Written = pickle.loads(pickle.dumps(message))
    return returned


def values(numbers: range) -> pa.RecordBatch:
    return pa.record_batch({"value": pa.array([b"value %d" % number for number in numbers])})


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_rows_come_back_as_they_went_in(bootstrap: str, codec: str) -> None:
    topic = new_topic(bootstrap, partitions=3)
    count = 2_000
    keys = [None if number % 7 == 0 else b"k%d" % (number % 100) for number in range(count)]
    contents = [None if number % 5 == 0 else b"v%d" % number for number in range(count)]
    headers: list[Any] = [
        None if number % 3 == 0 else [{"key": "n", "value": b"%d" % number}, {"key": "ü", "value": None}][: number % 3]
        for number in range(count)
    ]
    batch = pa.record_batch({"key": pa.array(keys), "value": contents, "headers": pa.array(headers, HEADERS_TYPE)})
    before_ms = time.time_ns() // 1_000_000
    message = write(
        bootstrap,
        "key binary, value binary, headers headers",
        [batch.slice(0, 900), batch.slice(900)],
        {"topic": topic, "kafka.compression.type": codec, "kafka.batch.size": "5000"},
    )
    after_ms = time.time_ns() // 1_000_000
    seen = read_topic(bootstrap, topic)
    expected = [
        (key, value, [(header["key"], header["value"]) for header in attached or []])
        for key, value, attached in zip(keys, contents, headers, strict=True)
    ]
    assert sorted(map(repr, expected)) == sorted(repr((one.key, one.value, list(one.headers))) for one in seen)
    assert message.rows == count
    assert all(one.partition == partition_of_key(one.key, 3) for one in seen if one.key is not None)
    assert all(one.timestamp[0] == CREATE_TIME and before_ms <= one.timestamp[1] <= after_ms for one in seen)
    _assert_in_order(seen)


def _assert_in_order(seen: list[Seen]) -> None:
    """Rows of one key are in one partition, and there in the order in which they were written."""
    last: dict[bytes, int] = {}
    for one in seen:
        if one.key is not None and one.value is not None:
            number = int(one.value[1:])
            assert last.get(one.key, -1) < number
            last[one.key] = number


def test_a_hundred_thousand_rows_in_many_batches(bootstrap: str) -> None:
    topic = new_topic(bootstrap, partitions=7)
    message = write(
        bootstrap, "value binary", [values(range(n, n + 10_000)) for n in range(0, 100_000, 10_000)], {"topic": topic}
    )
    seen = read_topic(bootstrap, topic)
    assert sorted(int(one.value[6:]) for one in seen if one.value) == list(range(100_000))
    assert message.rows == 100_000
    assert message.prepared.bytes > 100_000
    for partition in range(7):
        offsets = [one.offset for one in seen if one.partition == partition]
        receipt = message.prepared.receipts[topic, partition]
        assert (receipt.start_offset, receipt.end_offset) == (0, len(offsets))
        assert receipt.records == len(offsets) > 0, "rows without a key are spread over all partitions"


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()], ids=str)
def test_text_and_bytes_of_any_kind(bootstrap: str, kind: Any) -> None:
    topic = new_topic(bootstrap)
    text = pa.array(["plain", "zwölf", "", None]).cast(pa.binary()).cast(kind)
    write(bootstrap, "key string, value string", [pa.record_batch({"key": text, "value": text})], {"topic": topic})
    expected = [b"plain", "zwölf".encode(), b"", None]
    assert [(one.key, one.value) for one in read_topic(bootstrap, topic)] == [(text, text) for text in expected]


def test_each_row_to_its_own_topic_and_partition(bootstrap: str) -> None:
    topics = [new_topic(bootstrap, partitions=number % 3 + 1) for number in range(12)]
    rows = [(topics[number % 12], number % (number % 12 % 3 + 1), b"%d" % number) for number in range(1200)]
    batch = pa.record_batch(
        {
            "topic": pa.array([row[0] for row in rows]),
            "partition": pa.array([row[1] for row in rows], pa.int32()),
            "value": pa.array([row[2] for row in rows]),
        }
    )
    write(bootstrap, "topic string, partition int, value binary", [batch])
    for topic in topics:
        expected: dict[int, list[bytes]] = {}
        for where, partition, value in rows:
            if where == topic:
                expected.setdefault(partition, []).append(value)
        seen: dict[int, list[bytes | None]] = {}
        for one in read_topic(bootstrap, topic):
            seen.setdefault(one.partition, []).append(one.value)
        assert seen == expected


def test_columns_that_the_source_adds_are_left_aside(bootstrap: str) -> None:
    topic = new_topic(bootstrap)
    batch = pa.record_batch({"value": pa.array([b"x"]), "offset": pa.array([12]), "timestampType": pa.array([0])})
    write(bootstrap, "value binary, offset bigint, timestampType int", [batch], {"topic": topic})
    assert values_of(bootstrap, topic) == [b"x"]


def test_a_task_without_rows_writes_nothing_and_asks_nobody() -> None:
    nobody = "127.0.0.1:1"
    assert write(nobody, "value binary", [], {"topic": "t"}).rows == 0
    assert write(nobody, "value binary", [values(range(0))], {"topic": "t"}).rows == 0


def test_small_batches_of_many_partitions_are_gathered(bootstrap: str) -> None:
    topic = new_topic(bootstrap, partitions=20)
    batches = [
        pa.record_batch({"key": pa.array([b"%d" % n for n in rows]), "value": pa.array([b"%d" % n for n in rows])})
        for rows in (range(start, start + 100) for start in range(0, 5_000, 100))
    ]
    message = write(bootstrap, "key binary, value binary", batches, {"topic": topic})
    per_row = message.prepared.bytes / 5_000
    assert per_row < 20, "61 bytes of header for each batch would show if the batches were small"
    assert sorted(int(value or b"") for value in values_of(bootstrap, topic)) == list(range(5_000))


def test_a_failed_attempt_and_the_next_one_write_at_least_once(bootstrap: str) -> None:
    topic = new_topic(bootstrap, partitions=2)

    def interrupted() -> Iterator[pa.RecordBatch]:
        yield values(range(10_000))
        yield values(range(10_000, 20_000))
        raise RuntimeError("the executor ran out of something")

    with pytest.raises(RuntimeError, match="ran out"):
        write(bootstrap, "value binary", interrupted(), {"topic": topic})
    write(bootstrap, "value binary", [values(range(20_000)), values(range(20_000, 30_000))], {"topic": topic})
    numbers = [int(value[6:]) for value in values_of(bootstrap, topic) if value]
    assert set(numbers) == set(range(30_000)), "nothing is lost"
    assert len(numbers) <= 50_000, "at most what the first attempt had written is there twice"


def test_a_row_above_the_topics_limit_is_an_error_that_says_so(bootstrap: str) -> None:
    topic = new_topic(bootstrap, partitions=1, max__message__bytes="5000")
    batch = pa.record_batch({"value": pa.array([b"small", b"x" * 10_000, b"small"])})
    with pytest.raises(DeliveryFailed, match=rf"cannot write to {topic}-0: .*a single row.* above the topic's max"):
        write(bootstrap, "value binary", [batch], {"topic": topic})


def test_rows_below_the_topics_limit_are_written_whatever_the_batch_size(bootstrap: str) -> None:
    topic = new_topic(bootstrap, max__message__bytes="5000")
    write(bootstrap, "value binary", [values(range(n, n + 1000)) for n in range(0, 5000, 1000)], {"topic": topic})
    assert values_of(bootstrap, topic) == [b"value %d" % number for number in range(5000)]


def test_a_null_topic_and_a_partition_that_is_not_there(bootstrap: str) -> None:
    topic = new_topic(bootstrap)
    nowhere = pa.record_batch({"value": pa.array([b"x"]), "topic": pa.array([None], pa.string())})
    with pytest.raises(BadRow, match="null topic"):
        write(bootstrap, "value binary, topic string", [nowhere])
    beyond = pa.record_batch({"value": pa.array([b"x"]), "partition": pa.array([1], pa.int32())})
    with pytest.raises(BadRow, match=f"partition 1 of topic {topic}, which has 1"):
        write(bootstrap, "value binary, partition int", [beyond], {"topic": topic})


def test_what_is_wrong_shows_before_the_job() -> None:
    here = {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t"}
    for make in (batch_writer, stream_writer):
        with pytest.raises(BadColumns, match="column value is of type bigint"):
            make(schema("value bigint"), here, False)
        with pytest.raises(BadColumns, match="column headers is of type map<string,binary>"):
            make(schema("value string, headers map"), here, False)
    with pytest.raises(BadSaveMode, match=r'overwrite is not possible.*use mode\("append"\)'):
        batch_writer(schema("value string"), here, True)
    # Output mode complete, which Kafka's sink takes too.
    stream_writer(schema("value string"), here, True)


def test_the_driver_says_what_was_written_and_what_may_be_there_twice(
    bootstrap: str, caplog: pytest.LogCaptureFixture
) -> None:
    topic = new_topic(bootstrap)
    options = {"kafka.bootstrap.servers": bootstrap, "topic": topic}
    writer = stream_writer(schema("value binary"), options, False)
    message = writer.write(iter([values(range(10))]))
    assert isinstance(message, Written)
    assert message.prepared.attempt == Attempt(None, None, 0, 0), "no task of Spark's runs this"
    with caplog.at_level(logging.INFO):
        writer.commit([message], 3)
    assert "batch 3: 10 rows" in caplog.text
    caplog.clear()
    writer.abort([message, None], 3)
    assert "batch 3 was given up: tasks that did not fail have written 10 rows" in caplog.text
    assert "a second time" in caplog.text


def test_a_broker_killed_in_the_middle_of_a_task_loses_and_doubles_nothing(fresh_broker: Broker) -> None:
    topic = new_topic(fresh_broker.bootstrap, partitions=4)

    def rows() -> Iterator[pa.RecordBatch]:
        for number in range(20):
            numbers = range(number * 5_000, (number + 1) * 5_000)
            content = [json.dumps({"n": n}).encode() for n in numbers]
            yield pa.record_batch({"key": pa.array([b"%d" % (n % 50) for n in numbers]), "value": pa.array(content)})
            if number in (5, 11, 16):
                fresh_broker.restart(kill=True)

    options = {"topic": topic, "kafka.batch.size": "10000"}
    message = write(fresh_broker.bootstrap, "key binary, value binary", rows(), options)
    seen = read_topic(fresh_broker.bootstrap, topic)
    assert sorted(json.loads(one.value or b"")["n"] for one in seen) == list(range(100_000))
    assert message.rows == 100_000
    order: dict[bytes | None, int] = {}
    for one in seen:
        number = json.loads(one.value or b"")["n"]
        assert order.get(one.key, -1) < number
        order[one.key] = number
