"""Offsets: ListOffsets and its special timestamps, leader epochs, deleted records, retention."""

from typing import Any

import pytest
from raw import Connection, MakeTopic
from raw_batches import Record, build, now_ms
from wire_calls import end_offset, fetch, list_offset, produce, start_offset

from waiting import eventually

OFFSET_OUT_OF_RANGE = 1
UNKNOWN_TOPIC_OR_PARTITION = 3
POLICY_VIOLATION = 44
FENCED_LEADER_EPOCH = 74
UNKNOWN_LEADER_EPOCH = 75
UNSUPPORTED_VERSION = 35

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -1, -2, -3, -4, -5, -6
HOUR_MS = 3_600_000


@pytest.fixture
def base_ms() -> int:
    return now_ms() - HOUR_MS


@pytest.fixture
def filled(wire: Connection, topic: str, base_ms: int) -> str:
    """Times 0, 30, 10 | 20, 50 after the base: not in order, and the first batch outlasts the start of the second."""
    produce(wire, topic, build([Record(b"v", timestamp_delta=at) for at in (0, 30, 10)], timestamp=base_ms))
    produce(wire, topic, build([Record(b"v", timestamp_delta=at) for at in (0, 30)], timestamp=base_ms + 20))
    return topic


def answered(found: dict[str, Any]) -> tuple[int, int, int]:
    return found["error_code"], found["offset"], found["timestamp"]


@pytest.mark.parametrize("version", range(1, 12))
def test_every_version_finds_the_ends(wire: Connection, filled: str, version: int) -> None:
    assert answered(list_offset(wire, filled, LATEST, version=version)) == (0, 5, -1)
    assert answered(list_offset(wire, filled, EARLIEST, version=version)) == (0, 0, -1)
    if version >= 4:
        assert list_offset(wire, filled, LATEST, version=version)["leader_epoch"] >= 0
        assert list_offset(wire, filled, EARLIEST, version=version)["leader_epoch"] >= 0


@pytest.mark.parametrize("version", [1, 5, 9])
def test_by_time(wire: Connection, filled: str, base_ms: int, version: int) -> None:
    """The first record in the log that is not older, with its own time."""
    expected = {0: (0, 0), 1: (1, 30), 30: (1, 30), 31: (4, 50), 50: (4, 50)}
    for after, (offset, at) in expected.items():
        found = list_offset(wire, filled, base_ms + after, version=version)
        assert answered(found) == (0, offset, base_ms + at)
    assert answered(list_offset(wire, filled, base_ms + 51, version=version)) == (0, -1, -1)


@pytest.mark.parametrize("version", range(7, 12))
def test_the_largest_timestamp(wire: Connection, filled: str, base_ms: int, version: int) -> None:
    assert answered(list_offset(wire, filled, MAX_TIMESTAMP, version=version)) == (0, 4, base_ms + 50)


def test_of_several_largest_timestamps_the_first_counts(wire: Connection, topic: str, base_ms: int) -> None:
    for _ in range(2):
        produce(wire, topic, build([Record(b"v"), Record(b"v", timestamp_delta=9)] * 2, timestamp=base_ms))
    assert answered(list_offset(wire, topic, MAX_TIMESTAMP)) == (0, 1, base_ms + 9)


def test_an_empty_partition(wire: Connection, topic: str) -> None:
    assert answered(list_offset(wire, topic, LATEST)) == (0, 0, -1)
    assert answered(list_offset(wire, topic, EARLIEST)) == (0, 0, -1)
    assert answered(list_offset(wire, topic, MAX_TIMESTAMP)) == (0, -1, -1)
    assert answered(list_offset(wire, topic, 0)) == (0, -1, -1)


def test_tiers_without_tiered_storage(wire: Connection, filled: str) -> None:
    assert answered(list_offset(wire, filled, EARLIEST_LOCAL, version=9)) == (0, 0, -1)
    assert answered(list_offset(wire, filled, LATEST_TIERED, version=9)) == (0, -1, -1)


@pytest.mark.parametrize(
    ("timestamp", "version"), [(MAX_TIMESTAMP, 6), (EARLIEST_LOCAL, 7), (LATEST_TIERED, 8), (-7, 9), (-100, 9)]
)
def test_special_timestamps_before_their_version(wire: Connection, filled: str, timestamp: int, version: int) -> None:
    found = list_offset(wire, filled, timestamp, version=version)
    assert answered(found) == (UNSUPPORTED_VERSION, -1, -1)


def test_read_committed(wire: Connection, filled: str) -> None:
    asked = {"name": filled, "partitions": [{"partition_index": 0, "timestamp": LATEST}]}
    answer = wire.call("ListOffsets", 9, {"replica_id": -1, "isolation_level": 1, "topics": [asked]})
    assert answer["topics"][0]["partitions"][0]["offset"] == 5


def test_unknown_partitions(wire: Connection, topic: str, name: str) -> None:
    assert answered(list_offset(wire, topic, LATEST, partition=5)) == (UNKNOWN_TOPIC_OR_PARTITION, -1, -1)
    assert answered(list_offset(wire, name, LATEST)) == (UNKNOWN_TOPIC_OR_PARTITION, -1, -1)


def test_leader_epochs_are_checked(wire: Connection, topic: str) -> None:
    epoch = list_offset(wire, topic, LATEST)["leader_epoch"]
    assert list_offset(wire, topic, LATEST, epoch=epoch)["error_code"] == 0
    assert list_offset(wire, topic, LATEST, epoch=epoch + 1)["error_code"] == UNKNOWN_LEADER_EPOCH


@pytest.mark.parametrize("version", [2, 3, 4])
def test_the_end_of_a_leader_epoch(wire: Connection, filled: str, version: int) -> None:
    def asked(epoch: int, current: int = -1, partition: int = 0) -> tuple[int, int, int]:
        one = {"partition": partition, "leader_epoch": epoch, "current_leader_epoch": current}
        body = {"topics": [{"topic": filled, "partitions": [one]}]}
        (found,) = wire.call("OffsetForLeaderEpoch", version, body)["topics"][0]["partitions"]
        return found["error_code"], found["leader_epoch"], found["end_offset"]

    epoch = list_offset(wire, filled, LATEST)["leader_epoch"]
    assert asked(epoch) == (0, epoch, 5)
    assert asked(epoch + 1) == (0, -1, -1), "an epoch of the future"
    assert asked(-1) == (0, -1, -1)
    assert asked(epoch, current=epoch + 1) == (UNKNOWN_LEADER_EPOCH, -1, -1)
    assert asked(epoch, partition=4) == (UNKNOWN_TOPIC_OR_PARTITION, -1, -1)


def delete_before(wire: Connection, topic: str, offset: int, partition: int = 0, version: int = 2) -> tuple[int, int]:
    one = {"name": topic, "partitions": [{"partition_index": partition, "offset": offset}]}
    answer = wire.call("DeleteRecords", version, {"topics": [one], "timeout_ms": 5_000})
    (found,) = answer["topics"][0]["partitions"]
    return found["error_code"], found["low_watermark"]


@pytest.mark.parametrize("version", range(3))
def test_deleted_records_are_gone_everywhere(wire: Connection, filled: str, base_ms: int, version: int) -> None:
    assert delete_before(wire, filled, 2, version=version) == (0, 2)
    assert start_offset(wire, filled) == 2
    assert fetch(wire, filled, 1)["error_code"] == OFFSET_OUT_OF_RANGE
    answer = fetch(wire, filled, 2)
    assert (answer["error_code"], answer["log_start_offset"], answer["high_watermark"]) == (0, 2, 5)
    assert produce(wire, filled, build([b"v"]))["log_start_offset"] == 2


def test_times_of_deleted_records_are_not_found(wire: Connection, filled: str, base_ms: int) -> None:
    delete_before(wire, filled, 3)
    assert answered(list_offset(wire, filled, base_ms)) == (0, 3, base_ms + 20)


def test_deleting_everything(wire: Connection, filled: str) -> None:
    assert delete_before(wire, filled, -1) == (0, 5)
    assert (start_offset(wire, filled), end_offset(wire, filled)) == (5, 5)
    assert produce(wire, filled, build([b"v"]))["base_offset"] == 5
    assert fetch(wire, filled, 5)["error_code"] == 0


def test_deleting_what_is_not_there(wire: Connection, filled: str) -> None:
    assert delete_before(wire, filled, 6) == (OFFSET_OUT_OF_RANGE, -1)
    assert delete_before(wire, filled, 0) == (0, 0)
    assert delete_before(wire, filled, 0, partition=3) == (UNKNOWN_TOPIC_OR_PARTITION, -1)
    assert start_offset(wire, filled) == 0


def retention_interval_ms(wire: Connection) -> int:
    (broker,) = wire.call("Metadata", 12, {"topics": []})["brokers"]
    key = "log.retention.check.interval.ms"
    resource = {"resource_type": 4, "resource_name": str(broker["node_id"]), "configuration_keys": [key]}
    (found,) = wire.call("DescribeConfigs", 4, {"resources": [resource]})["results"]
    values = {config["name"]: config["value"] for config in found["configs"]}
    return int(values.get(key) or 300_000)


def test_retention_by_size_drops_whole_segments(wire: Connection, make_topic: MakeTopic) -> None:
    if retention_interval_ms(wire) > 3_000:
        pytest.skip("this broker looks for old segments too seldom: log.retention.check.interval.ms")
    topic = make_topic(configs={"segment.bytes": "1048576", "retention.bytes": "1048576"})
    for _ in range(8):
        assert produce(wire, topic, build([b"v" * 500_000]))["error_code"] == 0
    eventually(lambda: start_offset(wire, topic) >= 4)
    assert end_offset(wire, topic) == 8
    start = start_offset(wire, topic)
    assert fetch(wire, topic, start - 1)["error_code"] == OFFSET_OUT_OF_RANGE
    assert fetch(wire, topic, start)["error_code"] == 0


def test_retention_by_time_goes_by_the_records_own_times(wire: Connection, make_topic: MakeTopic) -> None:
    """Also the segment that is being written, once its youngest record is too old."""
    if retention_interval_ms(wire) > 3_000:
        pytest.skip("this broker looks for old segments too seldom: log.retention.check.interval.ms")
    topic = make_topic(configs={"retention.ms": str(HOUR_MS)})
    produce(wire, topic, build([b"old"] * 3, timestamp=now_ms() - 2 * HOUR_MS))
    eventually(lambda: start_offset(wire, topic) == 3)
    assert produce(wire, topic, build([b"young"]))["base_offset"] == 3
    assert fetch(wire, topic, 3)["error_code"] == 0
