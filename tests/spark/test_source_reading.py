"""Batch reads from a real broker, in this process: every row that was produced, or an error that says what is lost."""

import logging
from collections.abc import Generator, Iterator
from datetime import UTC, datetime
from typing import Any, cast

import pytest
from source_topics import Sent, batch_options, make_topic, numbered, read_rows, send, values

from skidway.blocking_client.admin import Admin
from skidway.blocking_client.cluster import Cluster
from skidway.blocking_client.errors import ClientError
from skidway.blocking_client.offsets import EARLIEST, offsets_at
from skidway.records.compression import Codec
from skidway.spark.source.batch import plan_batch
from skidway.spark.source.fetching import RangeFetch, borrowed
from skidway.spark.source.offsets import NothingToRead
from skidway.spark.source.options import BadOption, SourceOptions
from skidway.spark.source.planning import DataLoss, LossReport, OffsetRange
from skidway.spark.source.reading import read_range
from skidway.testing import Broker
from waiting import eventually


@pytest.fixture
def cluster(bootstrap: str) -> Iterator[Cluster]:
    with Cluster(bootstrap) as cluster:
        yield cluster


def as_row(topic: str, offset: int, sent: Sent) -> dict[str, Any]:
    return {
        "key": sent.key,
        "value": sent.value,
        "topic": topic,
        "partition": sent.partition,
        "offset": offset,
        "timestamp": datetime.fromtimestamp(sent.timestamp_ms / 1000, UTC),
        "timestampType": 0,
        "headers": [{"key": name, "value": content} for name, content in sent.headers] or None,
    }


@pytest.mark.parametrize("kernel", ["numba", "python"])
@pytest.mark.parametrize("codec", list(Codec))
def test_rows_are_what_was_produced(cluster: Cluster, bootstrap: str, codec: Codec, kernel: str) -> None:
    topic = make_topic(cluster)
    sent = [
        Sent(0, None, b"no key"),
        Sent(0, b"no value", None),
        Sent(0, b"", b"", 1),
        Sent(0, b"headers", b"v", 5, (("a", b"1"), ("b", None), ("a", b""))),
        Sent(0, "schlüssel".encode(), bytes(range(256)) * 40, 1_700_000_000_123),
        *numbered(300),
    ]
    send(cluster, topic, sent, codec=codec)
    rows = read_rows(batch_options(bootstrap, topic, kernel=kernel))
    assert rows == [as_row(topic, offset, record) for offset, record in enumerate(sent)]


def test_a_projection_has_the_columns_asked_for_in_their_order(cluster: Cluster, bootstrap: str) -> None:
    topic = make_topic(cluster)
    send(cluster, topic, numbered(3))
    rows = read_rows(batch_options(bootstrap, topic), ("offset", "value"))
    assert [list(row.items()) for row in rows] == [[("offset", n), ("value", b"%d" % n)] for n in range(3)]


def test_an_empty_topic_has_no_rows(cluster: Cluster, bootstrap: str) -> None:
    assert plan_batch(batch_options(bootstrap, make_topic(cluster, 3))) == []


def test_a_thousand_partitions_are_read() -> None:
    with Broker(flush="os") as broker, Cluster(broker.bootstrap) as cluster:
        topic = make_topic(cluster, 1_000)
        send(cluster, topic, numbered(2_000, 1_000))
        options = batch_options(broker.bootstrap, topic)
        assert len(plan_batch(options)) == 1_000
        assert values(read_rows(options, ("value",))) == values([{"value": b"%d" % n} for n in range(2_000)])
        # A clean stop would sync them all.
        broker.kill()


@pytest.mark.parametrize(
    ("more", "numbers"),
    [
        ({"startingOffsets": "SOME", "endingOffsets": "latest"}, range(5, 10)),
        ({"startingOffsets": "earliest", "endingOffsets": "SOME"}, range(5)),
        ({"startingTimestamp": "1700000000003"}, range(3, 10)),
        ({"startingTimestamp": "1700000000003", "endingTimestamp": "1700000000006"}, range(3, 6)),
        ({"endingTimestamp": "1900000000000"}, range(10)),
        ({"startingOffsetsByTimestamp": "TIMES", "endingTimestamp": "1700000000009"}, range(4, 9)),
        ({"endingOffsetsByTimestamp": "TIMES"}, range(4)),
        ({"startingTimestamp": "1900000000000", "startingOffsetsByTimestampStrategy": "latest"}, range(0)),
    ],
)
def test_start_and_end_bound_the_rows(cluster: Cluster, bootstrap: str, more: dict[str, str], numbers: range) -> None:
    topic = make_topic(cluster)
    send(cluster, topic, numbered(10), batch_bytes=60)
    texts = {"SOME": f'{{"{topic}":{{"0":5}}}}', "TIMES": f'{{"{topic}":{{"0":1700000000004}}}}'}
    options = batch_options(bootstrap, topic, **{name: texts.get(text, text) for name, text in more.items()})
    assert values(read_rows(options)) == [b"%d" % number for number in numbers]


def test_a_time_after_the_last_record_is_an_error_unless_told_to_begin_at_the_end(
    cluster: Cluster, bootstrap: str
) -> None:
    topic = make_topic(cluster)
    send(cluster, topic, numbered(3))
    with pytest.raises(BadOption, match=r"no record at or after the time.*startingOffsetsByTimestampStrategy"):
        plan_batch(batch_options(bootstrap, topic, startingTimestamp="1900000000000"))


def test_who_names_offsets_names_all_partitions(cluster: Cluster, bootstrap: str) -> None:
    topic = make_topic(cluster, 2)
    with pytest.raises(BadOption, match=f"leaves out {topic} partition 1"):
        plan_batch(batch_options(bootstrap, topic, startingOffsets=f'{{"{topic}":{{"0":0}}}}'))
    with pytest.raises(BadOption, match=f"names what is not read: {topic} partition 2"):
        plan_batch(batch_options(bootstrap, topic, endingOffsets=f'{{"{topic}":{{"0":0,"1":0,"2":0}}}}'))


def test_assign_and_pattern_choose_partitions(cluster: Cluster, bootstrap: str) -> None:
    first, second = make_topic(cluster, 2, "pattern-x"), make_topic(cluster, 1, "pattern-x")
    other = make_topic(cluster, 1, "other-pattern-x")
    for topic in (first, second, other):
        send(cluster, topic, numbered(4, 2 if topic == first else 1))
    brokers = {"bootstrap.servers": bootstrap}
    assigned = read_rows(SourceOptions.parse({**brokers, "assign": f'{{"{first}":[1]}}'}))
    assert [(row["topic"], row["value"]) for row in assigned] == [(first, b"1"), (first, b"3")]
    matched = read_rows(SourceOptions.parse({**brokers, "subscribePattern": "pattern-x-.*"}))
    assert {row["topic"] for row in matched} == {first, second}
    assert read_rows(SourceOptions.parse({**brokers, "subscribePattern": "__.*"})) == []


def test_what_does_not_exist_is_named(cluster: Cluster, bootstrap: str) -> None:
    topic = make_topic(cluster, 1)
    with pytest.raises(NothingToRead, match="there is no topic nowhere: create it first"):
        plan_batch(batch_options(bootstrap, f"{topic},nowhere"))
    with pytest.raises(NothingToRead, match=f"there is no partition 7 of topic {topic}"):
        plan_batch(SourceOptions.parse({"bootstrap.servers": bootstrap, "assign": f'{{"{topic}":[7]}}'}))


def test_more_tasks_than_partitions_read_the_same(cluster: Cluster, bootstrap: str) -> None:
    topic = make_topic(cluster, 2)
    send(cluster, topic, numbered(1_000, 2))
    for more, tasks in (({"minPartitions": "7"}, 7), ({"maxRecordsPerPartition": "100"}, 10)):
        options = batch_options(bootstrap, topic, **more)
        assert abs(len(plan_batch(options)) - tasks) <= 1
        assert values(read_rows(options)) == [b"%d" % number for number in range(1_000)]


def test_small_fetches_read_the_same(cluster: Cluster, bootstrap: str) -> None:
    topic = make_topic(cluster)
    send(cluster, topic, numbered(2_000))
    options = batch_options(bootstrap, topic, **{"kafka.fetch.max.bytes": "1"})
    assert [row["offset"] for row in read_rows(options)] == list(range(2_000))


def test_a_reader_that_stops_early_leaves_nothing_behind_for_the_next(cluster: Cluster, bootstrap: str) -> None:
    topic = make_topic(cluster)
    send(cluster, topic, numbered(5_000))
    options = batch_options(bootstrap, topic, **{"kafka.fetch.max.bytes": "5000"})
    (wanted,) = plan_batch(options)
    for _ in range(3):
        rows = read_range(wanted, options, ("offset",))
        assert next(rows).to_pylist()[0] == {"offset": 0}
        cast("Generator[Any]", rows).close()
    assert len(read_rows(options)) == 5_000


def test_a_task_whose_process_knew_the_topic_before_it_grew_reads_the_new_partition(
    cluster: Cluster, bootstrap: str
) -> None:
    topic = make_topic(cluster)
    send(cluster, topic, numbered(3))
    options = batch_options(bootstrap, topic)
    assert len(read_rows(options)) == 3
    Admin(cluster).grow_topic(topic, 2)
    cluster.forget(topic)
    send(cluster, topic, [record._replace(partition=1) for record in numbered(2, first=3)])
    assert len(read_rows(options)) == 5


def test_compacted_gaps_are_no_loss() -> None:
    with Broker(checkpoint_ms=100, compaction_check_ms=100) as broker, Cluster(broker.bootstrap) as cluster:
        topic = make_topic(
            cluster,
            cleanup_policy="compact",
            min_cleanable_dirty_ratio="0.01",
            internal_segment_bytes="20000",
            flush="os",
        )
        sent = [Sent(0, b"key-%d" % (number % 50), b"%d " % number + b"v" * 50) for number in range(4_000)]
        send(cluster, topic, sent)
        options = batch_options(broker.bootstrap, topic)
        eventually(lambda: len(read_rows(options)) < 500)
        rows = read_rows(options)
        assert all(row["value"] == sent[row["offset"]].value for row in rows)
        offsets = [row["offset"] for row in rows]
        assert offsets == sorted(set(offsets))
        newest = {record.key: number for number, record in enumerate(sent)}
        assert set(newest.values()) <= set(offsets)
        # Ranges that begin and end inside a gap.
        split = batch_options(broker.bootstrap, topic, minPartitions="40")
        assert [row["offset"] for row in read_rows(split)] == offsets


# Loss: with failOnDataLoss an error that says what, without it a warning and the rest.


def test_records_deleted_before_the_read_began(
    cluster: Cluster, bootstrap: str, caplog: pytest.LogCaptureFixture
) -> None:
    topic = make_topic(cluster)
    send(cluster, topic, numbered(10), batch_bytes=60)
    Admin(cluster).delete_records(topic, {0: 4})
    # Nobody who asks for what there is misses anything.
    assert [row["offset"] for row in read_rows(batch_options(bootstrap, topic))] == list(range(4, 10))
    asked = {"startingOffsets": f'{{"{topic}":{{"0":2}}}}'}
    with pytest.raises(DataLoss, match=f"{topic} partition 0: offsets 2 to 4 were deleted"):
        plan_batch(batch_options(bootstrap, topic, **asked))
    with caplog.at_level(logging.WARNING):
        rows = read_rows(batch_options(bootstrap, topic, failOnDataLoss="false", **asked))
    assert [row["offset"] for row in rows] == list(range(4, 10))
    assert "offsets 2 to 4 were deleted" in caplog.text


def test_records_deleted_between_planning_and_reading(
    cluster: Cluster, bootstrap: str, caplog: pytest.LogCaptureFixture
) -> None:
    topic = make_topic(cluster)
    send(cluster, topic, numbered(10), batch_bytes=60)
    strict, lenient = (batch_options(bootstrap, topic, failOnDataLoss=fail) for fail in ("true", "false"))
    (wanted,) = plan_batch(strict)
    Admin(cluster).delete_records(topic, {0: 6})
    with pytest.raises(DataLoss, match=f"{topic} partition 0: offsets 0 to 6 were deleted"):
        list(read_range(wanted, strict, ("offset",)))
    with caplog.at_level(logging.WARNING):
        rows = [row["offset"] for table in read_range(wanted, lenient, ("offset",)) for row in table.to_pylist()]
    assert rows == [6, 7, 8, 9]
    assert "offsets 0 to 6 were deleted" in caplog.text


def test_records_deleted_while_they_are_read(cluster: Cluster, bootstrap: str) -> None:
    topic = make_topic(cluster)
    send(cluster, topic, numbered(1_000), batch_bytes=60)
    options = batch_options(bootstrap, topic)
    (wanted,) = plan_batch(options)
    with borrowed(options.brokers) as own:
        fetch = RangeFetch(own, wanted, LossReport(True), fetch_bytes=500, timeout_ms=30_000)
        chunks = fetch.chunks()
        next(chunks)
        Admin(cluster).delete_records(topic, {0: 800})
        with pytest.raises(DataLoss, match="to 800 were deleted"):
            list(chunks)


@pytest.mark.parametrize("again", [False, True])
def test_a_topic_deleted_between_planning_and_reading(
    cluster: Cluster, bootstrap: str, again: bool, caplog: pytest.LogCaptureFixture
) -> None:
    topic = make_topic(cluster)
    send(cluster, topic, numbered(10))
    strict, lenient = (batch_options(bootstrap, topic, failOnDataLoss=fail) for fail in ("true", "false"))
    (wanted,) = plan_batch(strict)
    Admin(cluster).delete_topic(topic)
    if again:
        # Longer than the old one: by offsets alone nobody would notice.
        Admin(cluster).create_topic(topic, partitions=1, configs={"retention.ms": "-1"})
        send(cluster, topic, numbered(20, first=100))
    with pytest.raises(DataLoss, match="offsets 0 to 10: the topic was deleted"):
        list(read_range(wanted, strict, ("offset",)))
    with caplog.at_level(logging.WARNING):
        assert list(read_range(wanted, lenient, ("offset",))) == []
    assert "the topic was deleted" in caplog.text


def test_records_that_never_come(cluster: Cluster, bootstrap: str, caplog: pytest.LogCaptureFixture) -> None:
    topic = make_topic(cluster)
    send(cluster, topic, numbered(10))
    asked = {"endingOffsets": f'{{"{topic}":{{"0":15}}}}'}
    with pytest.raises(DataLoss, match="ends at offset 10; asked for were records to 15"):
        plan_batch(batch_options(bootstrap, topic, **asked))
    assert len(read_rows(batch_options(bootstrap, topic, failOnDataLoss="false", **asked))) == 10
    for fail in ("true", "false"):
        options = batch_options(bootstrap, topic, **{"failOnDataLoss": fail, "kafkaConsumer.pollTimeoutMs": "100"})
        for begin in (10, 12):
            wanted = OffsetRange(topic, 0, begin, 15)
            if fail == "true":
                with pytest.raises(DataLoss, match=f"offsets {begin} to 15"):
                    list(read_range(wanted, options, ("offset",)))
            else:
                assert list(read_range(wanted, options, ("offset",))) == []


# Brokers that are not there.


def test_an_address_where_nobody_listens_is_named() -> None:
    with pytest.raises(ClientError, match=r"cannot reach 127\.0\.0\.1:9: connection refused"):
        plan_batch(batch_options("127.0.0.1:9", "t"))


def test_a_broker_that_restarts_is_waited_for(fresh_broker: Broker) -> None:
    with Cluster(fresh_broker.bootstrap) as cluster:
        topic = make_topic(cluster)
        send(cluster, topic, numbered(1_000))
    options = batch_options(fresh_broker.bootstrap, topic, **{"kafka.fetch.max.bytes": "5000"})
    (wanted,) = plan_batch(options)
    rows = read_range(wanted, options, ("offset",))
    seen = next(rows).to_pylist()
    fresh_broker.restart(kill=True)
    seen += [row for table in rows for row in table.to_pylist()]
    assert [row["offset"] for row in seen] == list(range(1_000))


def test_a_broker_that_stays_away_is_named_in_the_end(fresh_broker: Broker) -> None:
    with Cluster(fresh_broker.bootstrap) as cluster:
        topic = make_topic(cluster)
        send(cluster, topic, numbered(1_000))
        assert offsets_at(cluster, topic, [0], EARLIEST) == {0: 0}
    options = batch_options(
        fresh_broker.bootstrap, topic, **{"kafka.fetch.max.bytes": "5000", "kafka.request.timeout.ms": "3000"}
    )
    (wanted,) = plan_batch(options)
    rows = read_range(wanted, options, ("offset",))
    next(rows)
    fresh_broker.kill()
    with pytest.raises(ClientError, match=str(fresh_broker.port)):
        list(rows)
