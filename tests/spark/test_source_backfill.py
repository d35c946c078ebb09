"""History from the files of a data directory: the same rows as through the broker, or clear words why not."""

import logging
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from source_topics import Sent, batch_options, make_topic, numbered, read_rows, send

from skidway.blocking_client.admin import SET, Admin, ConfigChange
from skidway.blocking_client.cluster import Cluster
from skidway.records.compression import Codec
from skidway.spark.codec.decoding import COLUMNS, CorruptData
from skidway.spark.source import backfill, segment_files
from skidway.spark.source.backfill import plan_backfill, read_files
from skidway.spark.source.offsets import NothingToRead
from skidway.spark.source.options import BadOption, SourceOptions
from skidway.spark.source.planning import DataLoss, OffsetRange
from skidway.spark.source.reading import read_range
from skidway.spark.source.segment_files import BackfillFailed, FileRange, HasTransactions, find_logs, list_segments
from skidway.testing import Broker
from waiting import eventually

Tasks = list[FileRange | OffsetRange]
SMALL: dict[str, Any] = {"internal_segment_bytes": "16384"}


@pytest.fixture
def cluster(bootstrap: str) -> Iterator[Cluster]:
    with Cluster(bootstrap) as cluster:
        yield cluster


def options_of(path: Path, topic: str, **more: str) -> SourceOptions:
    named = {name.replace("__", "."): value for name, value in more.items()}
    return SourceOptions.parse({"backfill.path": str(path), "subscribe": topic, **named})


def read_tasks(tasks: Tasks, options: SourceOptions) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for task in tasks:
        read = read_files(task, options, COLUMNS) if isinstance(task, FileRange) else read_range(task, options, COLUMNS)
        rows += [row for table in read for row in table.to_pylist()]
    return sorted(rows, key=lambda row: (row["partition"], row["offset"]))


def through_broker(bootstrap: str, topic: str, **more: str) -> list[dict[str, Any]]:
    rows = read_rows(batch_options(bootstrap, topic, **more))
    return sorted(rows, key=lambda row: (row["partition"], row["offset"]))


def closed_end(path: Path, topic: str, partition: int = 0) -> int:
    return list_segments(path / f"{topic}-{partition}")[-1]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_closed_segments_have_the_rows_that_the_broker_has(broker: Broker, cluster: Cluster, codec: Codec) -> None:
    topic = make_topic(cluster, 2, **SMALL)
    sent = [record._replace(value=secrets.token_bytes(100), headers=(("h", b"1"),)) for record in numbered(2_000, 2)]
    send(cluster, topic, sent, codec=codec, batch_bytes=2_000)
    options = options_of(broker.data_dir, topic)
    rows = read_tasks(plan_backfill(options), options)
    ends = {partition: closed_end(broker.data_dir, topic, partition) for partition in (0, 1)}
    assert all(0 < end < 1_000 for end in ends.values())
    everything = through_broker(broker.bootstrap, topic)
    assert rows == [row for row in everything if row["offset"] < ends[row["partition"]]]


@pytest.mark.parametrize("with_brokers", [False, True])
def test_the_active_segment_comes_along_when_asked_for(broker: Broker, cluster: Cluster, with_brokers: bool) -> None:
    topic = make_topic(cluster, 2, **SMALL)
    send(cluster, topic, numbered(3_000, 2))
    more = {"kafka.bootstrap.servers": broker.bootstrap} if with_brokers else {}
    options = options_of(broker.data_dir, topic, backfill__active="true", **more)
    tasks = plan_backfill(options)
    assert read_tasks(tasks, options) == through_broker(broker.bootstrap, topic)
    # With brokers, what is still written to is asked of them.
    assert any(isinstance(task, OffsetRange) for task in tasks) == with_brokers


def test_start_and_end_bound_the_rows(broker: Broker, cluster: Cluster) -> None:
    topic = make_topic(cluster, **SMALL)
    send(cluster, topic, numbered(3_000))
    bounds = {
        "startingOffsets": f'{{"{topic}":{{"0":123}}}}',
        "endingOffsets": f'{{"{topic}":{{"0":1234}}}}',
        "minPartitions": "7",
    }
    options = options_of(broker.data_dir, topic, **bounds)
    tasks = plan_backfill(options)
    assert len(tasks) == 7
    assert [row["offset"] for row in read_tasks(tasks, options)] == list(range(123, 1_234))


def test_times_are_looked_up_by_the_brokers(broker: Broker, cluster: Cluster) -> None:
    topic = make_topic(cluster, **SMALL)
    send(cluster, topic, numbered(3_000))
    times = {"startingTimestamp": "1700000000123", "endingTimestamp": "1700000001234"}
    with pytest.raises(BadOption, match=r"startingTimestamp: times are looked up by the brokers.*bootstrap"):
        plan_backfill(options_of(broker.data_dir, topic, **times))
    options = options_of(broker.data_dir, topic, kafka__bootstrap__servers=broker.bootstrap, **times)
    assert [row["offset"] for row in read_tasks(plan_backfill(options), options)] == list(range(123, 1_234))


def test_an_end_in_the_active_segment_is_not_cut_in_silence(broker: Broker, cluster: Cluster) -> None:
    topic = make_topic(cluster, **SMALL)
    send(cluster, topic, numbered(3_000))
    ending = {"endingOffsets": f'{{"{topic}":{{"0":2999}}}}'}
    with pytest.raises(BadOption, match=r"endingOffsets: the closed segments of .* end at offset .*backfill.active"):
        plan_backfill(options_of(broker.data_dir, topic, **ending))
    options = options_of(broker.data_dir, topic, backfill__active="true", **ending)
    assert len(read_tasks(plan_backfill(options), options)) == 2_999


def test_large_segments_are_tasks_of_their_own(
    broker: Broker, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = make_topic(cluster, **SMALL)
    send(cluster, topic, numbered(3_000))
    monkeypatch.setattr(backfill, "TASK_BYTES", 10_000)
    options = options_of(broker.data_dir, topic)
    tasks = plan_backfill(options)
    bases = list_segments(broker.data_dir / f"{topic}-0")
    assert [task.wanted.start for task in tasks if isinstance(task, FileRange)] == bases[:-1]
    assert len(read_tasks(tasks, options)) == bases[-1]


def test_a_young_topic_has_no_history(broker: Broker, cluster: Cluster) -> None:
    topic = make_topic(cluster)
    send(cluster, topic, numbered(10))
    assert plan_backfill(options_of(broker.data_dir, topic)) == []


def test_a_stopped_broker_can_be_read_to_its_end(fresh_broker: Broker) -> None:
    with Cluster(fresh_broker.bootstrap) as cluster:
        topic = make_topic(cluster, **SMALL)
        send(cluster, topic, numbered(3_000))
    fresh_broker.kill()
    options = options_of(fresh_broker.data_dir, topic, backfill__active="true")
    assert [row["offset"] for row in read_tasks(plan_backfill(options), options)] == list(range(3_000))
    # A torn batch at the end was never acknowledged.
    last = sorted((fresh_broker.data_dir / f"{topic}-0").glob("*.log"))[-1]
    last.write_bytes(last.read_bytes()[:-10])
    offsets = [row["offset"] for row in read_tasks(plan_backfill(options), options)]
    assert offsets == list(range(len(offsets)))
    assert 0 < len(offsets) < 3_000


def test_of_two_copies_the_longer_is_read(broker: Broker, cluster: Cluster, tmp_path: Path) -> None:
    topic = make_topic(cluster, **SMALL)
    send(cluster, topic, numbered(2_000))
    shutil.copytree(broker.data_dir / f"{topic}-0", tmp_path / f"{topic}-0")
    send(cluster, topic, numbered(2_000, first=2_000))
    options = SourceOptions.parse(
        {"backfill.path": f'["{tmp_path}", "{broker.data_dir}"]', "assign": f'{{"{topic}":[0]}}'}
    )
    rows = read_tasks(plan_backfill(options), options)
    assert len(rows) == closed_end(broker.data_dir, topic) > closed_end(tmp_path, topic)


# A broker at work on the files.


def test_segments_replaced_by_compaction_between_planning_and_reading() -> None:
    with Broker(checkpoint_ms=100, compaction_check_ms=100) as broker, Cluster(broker.bootstrap) as cluster:
        topic = make_topic(cluster, internal_segment_bytes="20000", flush="os")
        sent = [Sent(0, b"key-%d" % (number % 50), b"%d " % number + b"v" * 50) for number in range(4_000)]
        send(cluster, topic, sent)
        options = options_of(broker.data_dir, topic, minPartitions="6")
        tasks = plan_backfill(options)
        first = tasks[0]
        assert isinstance(first, FileRange)
        begun = read_files(first, options, ("offset",))
        assert next(begun).num_rows
        Admin(cluster).alter_topic(
            topic,
            [ConfigChange("cleanup.policy", SET, "compact"), ConfigChange("min.cleanable.dirty.ratio", SET, "0.01")],
        )
        eventually(lambda: len(through_broker(broker.bootstrap, topic)) < 500)
        # One that has a file open reads it to its end; the others find what is there now.
        list(begun)
        rows = read_tasks(tasks, options)
        end = closed_end(broker.data_dir, topic)
        assert all(row["value"] == sent[row["offset"]].value for row in rows)
        kept = {row["offset"] for row in through_broker(broker.bootstrap, topic)}
        assert {offset for offset in kept if offset < end} <= {row["offset"] for row in rows} | set(range(end, 4_000))


def test_segments_deleted_between_planning_and_reading(caplog: pytest.LogCaptureFixture) -> None:
    with Broker(flush="os", retention_check_ms=50, checkpoint_ms=50) as broker, Cluster(broker.bootstrap) as cluster:
        topic = make_topic(cluster, **SMALL, file_delete_delay_ms="0")
        send(cluster, topic, numbered(3_000))
        strict = options_of(broker.data_dir, topic)
        tasks = plan_backfill(strict)
        directory = broker.data_dir / f"{topic}-0"
        bases = list_segments(directory)
        Admin(cluster).delete_records(topic, {0: bases[1]})
        eventually(lambda: list_segments(directory)[0] == bases[1])
        with pytest.raises(DataLoss, match=f"offsets 0 to {bases[1]} are in no file of"):
            read_tasks(tasks, strict)
        with caplog.at_level(logging.WARNING):
            rows = read_tasks(tasks, options_of(broker.data_dir, topic, failOnDataLoss="false"))
        assert [row["offset"] for row in rows] == list(range(bases[1], bases[-1]))
        assert "are in no file" in caplog.text


def test_a_file_that_is_missing_in_the_middle_is_a_loss(broker: Broker, cluster: Cluster, tmp_path: Path) -> None:
    topic = make_topic(cluster, **SMALL)
    send(cluster, topic, numbered(3_000))
    copy = tmp_path / f"{topic}-0"
    shutil.copytree(broker.data_dir / f"{topic}-0", copy)
    bases = list_segments(copy)
    (copy / f"{bases[1]:020}.log").unlink()
    options = options_of(tmp_path, topic)
    with pytest.raises(DataLoss, match=f"offsets {bases[1]} to {bases[2]} are in no file"):
        read_tasks(plan_backfill(options), options)


def test_records_deleted_by_request_are_not_read_from_the_files(fresh_broker: Broker) -> None:
    with Cluster(fresh_broker.bootstrap) as cluster:
        topic = make_topic(cluster, **SMALL)
        send(cluster, topic, numbered(3_000), batch_bytes=60)
        Admin(cluster).delete_records(topic, {0: 100})
    fresh_broker.stop()
    options = options_of(fresh_broker.data_dir, topic)
    assert read_tasks(plan_backfill(options), options)[0]["offset"] == 100


def test_a_log_that_begins_in_its_active_segment_has_no_history(fresh_broker: Broker) -> None:
    with Cluster(fresh_broker.bootstrap) as cluster:
        topic = make_topic(cluster)
        send(cluster, topic, numbered(10), batch_bytes=60)
        Admin(cluster).delete_records(topic, {0: 5})
        with_brokers = options_of(fresh_broker.data_dir, topic, kafka__bootstrap__servers=fresh_broker.bootstrap)
        assert plan_backfill(with_brokers) == []
    fresh_broker.stop()
    assert plan_backfill(options_of(fresh_broker.data_dir, topic)) == []
    options = options_of(fresh_broker.data_dir, topic, backfill__active="true")
    assert [row["offset"] for row in read_tasks(plan_backfill(options), options)] == [5, 6, 7, 8, 9]


# What cannot be read.


def test_a_directory_that_is_none_is_named(tmp_path: Path) -> None:
    with pytest.raises(BackfillFailed, match=r"cannot read the data directory .*nowhere: no such file"):
        plan_backfill(options_of(tmp_path / "nowhere", "t"))
    with pytest.raises(NothingToRead, match=r"there is no topic t in .*: is it a broker's data directory\?"):
        plan_backfill(options_of(tmp_path, "t"))


def test_a_copy_of_an_older_topic_is_refused(broker: Broker, cluster: Cluster, tmp_path: Path) -> None:
    topic = make_topic(cluster, **SMALL)
    send(cluster, topic, numbered(3_000))
    shutil.copytree(broker.data_dir / f"{topic}-0", tmp_path / f"{topic}-0")
    Admin(cluster).delete_topic(topic)
    Admin(cluster).create_topic(topic, partitions=1)
    with pytest.raises(BackfillFailed, match="belongs to an older topic"):
        plan_backfill(options_of(tmp_path, topic, kafka__bootstrap__servers=broker.bootstrap))


def test_partitions_that_are_in_none_of_the_directories_are_named(
    broker: Broker, cluster: Cluster, tmp_path: Path
) -> None:
    topic = make_topic(cluster, 2, **SMALL)
    shutil.copytree(broker.data_dir / f"{topic}-1", tmp_path / f"{topic}-1")
    with pytest.raises(BackfillFailed, match=f"{topic} partition 0 is in none of"):
        plan_backfill(options_of(tmp_path, topic, kafka__bootstrap__servers=broker.bootstrap))


def test_transactions_are_refused_unless_everything_is_wanted(broker: Broker, cluster: Cluster, tmp_path: Path) -> None:
    topic = make_topic(cluster, **SMALL)
    send(cluster, topic, numbered(3_000))
    copy = tmp_path / f"{topic}-0"
    shutil.copytree(broker.data_dir / f"{topic}-0", copy)
    first = sorted(copy.glob("*.log"))[0]
    content = bytearray(first.read_bytes())
    content[22] |= 0x10
    first.write_bytes(content)
    options = options_of(tmp_path, topic)
    with pytest.raises(HasTransactions, match="set option isolation to read_uncommitted"):
        read_tasks(plan_backfill(options), options)
    # Past that hurdle, the checksum shows that somebody was at the file.
    options = options_of(tmp_path, topic, isolation="read_uncommitted")
    with pytest.raises(CorruptData, match="checksum"):
        read_tasks(plan_backfill(options), options)


def test_a_file_that_is_no_log_is_refused(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    directory.mkdir()
    (directory / f"{0:020}.log").write_bytes(b"\0" * 500)
    (directory / f"{9:020}.log").write_bytes(b"")
    options = options_of(tmp_path, "t")
    with pytest.raises(BackfillFailed, match="no record batch at position 0"):
        read_tasks(plan_backfill(options), options)


def test_a_compaction_that_was_cut_short_needs_its_broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_files, "SWAP_PATIENCE_S", 0.1)
    directory = tmp_path / "t-0"
    directory.mkdir()
    (directory / f"{0:020}.log").write_bytes(b"")
    (directory / f"{0:020}.log.swap").write_bytes(b"")
    with pytest.raises(BackfillFailed, match="start its broker once"):
        find_logs(tmp_path)
