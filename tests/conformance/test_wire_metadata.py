"""Metadata and its kin: which topics an answer names, and what happens to names nobody knows."""

import uuid
from typing import Any

import pytest
from raw import ZERO_UUID, Connection, MakeTopic
from raw_batches import build
from wire_calls import produce, topic_id

from waiting import eventually

UNKNOWN_TOPIC_OR_PARTITION = 3
LEADER_NOT_AVAILABLE = 5
INVALID_TOPIC = 17
UNKNOWN_TOPIC_ID = 100


def names(answer: dict[str, Any]) -> set[str]:
    return {topic["name"] for topic in answer["topics"]}


def test_version_zero_takes_an_empty_list_as_all(wire: Connection, topic: str) -> None:
    assert topic in names(wire.call("Metadata", 0, {"topics": []}))


@pytest.mark.parametrize("version", [1, 4, 8, 9, 12, 13])
def test_later_versions_take_null_as_all_and_empty_as_none(wire: Connection, topic: str, version: int) -> None:
    assert topic in names(wire.call("Metadata", version, {"topics": None}))
    assert names(wire.call("Metadata", version, {"topics": []})) == set()


@pytest.mark.parametrize("version", range(14))
def test_every_version_describes_a_topic(wire: Connection, make_topic: MakeTopic, bootstrap: str, version: int) -> None:
    topic = make_topic(partitions=2)
    answer = wire.call("Metadata", version, {"topics": [{"name": topic}]})
    (broker,) = answer["brokers"]
    assert broker["port"] == int(bootstrap.rpartition(":")[2])
    if version >= 1:
        assert answer["controller_id"] == broker["node_id"]
    if version >= 2:
        assert answer["cluster_id"]
    (found,) = answer["topics"]
    assert (found["error_code"], found["name"]) == (0, topic)
    if version >= 1:
        assert found["is_internal"] is False
    if version >= 10:
        assert found["topic_id"] != ZERO_UUID
    node = broker["node_id"]
    for index, partition in enumerate(sorted(found["partitions"], key=lambda one: one["partition_index"])):
        assert (partition["error_code"], partition["partition_index"], partition["leader_id"]) == (0, index, node)
        assert partition["replica_nodes"] == partition["isr_nodes"] == [node]
        if version >= 5:
            assert partition["offline_replicas"] == []
        if version >= 7:
            assert partition["leader_epoch"] >= 0


@pytest.mark.parametrize("version", [4, 8, 12])
def test_without_the_flag_an_unknown_topic_stays_unknown(wire: Connection, name: str, version: int) -> None:
    for _ in range(2):
        answer = wire.call("Metadata", version, {"topics": [{"name": name}], "allow_auto_topic_creation": False})
        (found,) = answer["topics"]
        assert (found["error_code"], found["partitions"]) == (UNKNOWN_TOPIC_OR_PARTITION, [])


@pytest.mark.parametrize("version", [0, 3, 4, 12])
def test_asking_for_an_unknown_topic_makes_it(wire: Connection, name: str, version: int) -> None:
    """Versions before 4 have no flag and always make it. The first answer may come before the topic does."""

    def asked() -> bool:
        (found,) = wire.call("Metadata", version, {"topics": [{"name": name}]})["topics"]
        assert found["error_code"] in (0, UNKNOWN_TOPIC_OR_PARTITION, LEADER_NOT_AVAILABLE)
        return found["error_code"] == 0 and len(found["partitions"]) == 1

    eventually(asked)


@pytest.mark.parametrize("bad", ["with space", "", "..", "x" * 250])
def test_impossible_names_are_refused_and_not_made(wire: Connection, bad: str) -> None:
    (found,) = wire.call("Metadata", 12, {"topics": [{"name": bad}]})["topics"]
    assert found["error_code"] == INVALID_TOPIC
    assert bad not in names(wire.call("Metadata", 12, {"topics": None}))


def test_a_topic_asked_for_twice_is_told_once(wire: Connection, topic: str) -> None:
    answer = wire.call("Metadata", 12, {"topics": [{"name": topic}, {"name": topic}]})
    assert [found["name"] for found in answer["topics"]] == [topic]


def test_by_id(wire: Connection, topic: str) -> None:
    id_ = topic_id(wire, topic)
    (found,) = wire.call("Metadata", 12, {"topics": [{"topic_id": id_, "name": None}]})["topics"]
    assert (found["error_code"], found["name"], found["topic_id"]) == (0, topic, id_)


def test_by_an_id_nobody_has(wire: Connection) -> None:
    nobody = uuid.uuid4().bytes
    (found,) = wire.call("Metadata", 12, {"topics": [{"topic_id": nobody, "name": None}]})["topics"]
    assert (found["error_code"], found["name"], found["topic_id"]) == (UNKNOWN_TOPIC_ID, None, nobody)


def test_describe_topic_partitions_pages_through(wire: Connection, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=7)
    cursor, seen = None, []
    while True:
        body = {"topics": [{"name": topic}], "response_partition_limit": 3, "cursor": cursor}
        answer = wire.call("DescribeTopicPartitions", 0, body)
        (found,) = answer["topics"]
        assert (found["error_code"], found["name"], found["topic_id"]) == (0, topic, topic_id(wire, topic))
        assert len(found["partitions"]) <= 3
        for partition in found["partitions"]:
            assert partition["eligible_leader_replicas"] == partition["last_known_elr"] == []
            assert partition["leader_id"] >= 0
        seen += [partition["partition_index"] for partition in found["partitions"]]
        cursor = answer["next_cursor"]
        if cursor is None:
            break
        assert cursor == {"topic_name": topic, "partition_index": len(seen)}
    assert seen == list(range(7))


def test_describe_topic_partitions_of_an_unknown_topic(wire: Connection, name: str) -> None:
    (found,) = wire.call("DescribeTopicPartitions", 0, {"topics": [{"name": name}]})["topics"]
    assert (found["error_code"], found["name"], found["partitions"]) == (UNKNOWN_TOPIC_OR_PARTITION, name, [])


@pytest.mark.parametrize("version", range(3))
def test_describe_cluster(wire: Connection, bootstrap: str, version: int) -> None:
    answer = wire.call("DescribeCluster", version, {})
    (broker,) = answer["brokers"]
    assert answer["error_code"] == 0
    assert answer["cluster_id"] == wire.call("Metadata", 12, {"topics": []})["cluster_id"]
    assert answer["controller_id"] == broker["broker_id"]
    assert broker["port"] == int(bootstrap.rpartition(":")[2])
    assert answer["cluster_authorized_operations"] == -(2**31), "not asked for"


def test_authorized_operations_when_asked_for(wire: Connection, topic: str) -> None:
    """Without an authorizer a client may do all that its resource knows."""
    body = {"topics": [{"name": topic}], "include_topic_authorized_operations": True}
    (found,) = wire.call("Metadata", 12, body)["topics"]
    assert found["topic_authorized_operations"] == sum(1 << op for op in (3, 4, 5, 6, 7, 8, 10, 11))
    answer = wire.call("DescribeCluster", 0, {"include_cluster_authorized_operations": True})
    assert answer["cluster_authorized_operations"] == sum(1 << op for op in (5, 7, 8, 9, 10, 11, 12))


@pytest.mark.parametrize("version", range(1, 6))
def test_describe_log_dirs_knows_the_size(wire: Connection, topic: str, version: int) -> None:
    batch = build([b"v" * 1_000])
    produce(wire, topic, batch)
    answer = wire.call("DescribeLogDirs", version, {"topics": [{"topic": topic, "partitions": [0]}]})
    (directory,) = answer["results"]
    (found,) = directory["topics"]
    assert (directory["error_code"], found["name"]) == (0, topic)
    assert found["partitions"] == [
        {"partition_index": 0, "partition_size": len(batch), "offset_lag": 0, "is_future_key": False}
    ]
    if version >= 4:
        assert directory["total_bytes"] > directory["usable_bytes"] > 0


def test_list_config_resources(wire: Connection, make_topic: MakeTopic) -> None:
    """Topics are listed whether or not they have configs of their own."""
    topic = make_topic()
    answer = wire.call("ListConfigResources", 1, {"resource_types": [2]})
    assert answer["error_code"] == 0
    assert {"resource_name": topic, "resource_type": 2} in answer["config_resources"]
    everything = wire.call("ListConfigResources", 1, {"resource_types": []})["config_resources"]
    assert {"resource_name": topic, "resource_type": 2} in everything
    assert wire.call("ListConfigResources", 0, {})["config_resources"] == []
