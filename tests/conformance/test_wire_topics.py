"""Creating, growing, deleting and configuring topics in every version of the requests, field by field."""

import uuid
from typing import Any

import pytest
from raw import Body, Connection, MakeTopic
from wire_calls import end_offset, topic_id

from waiting import eventually

UNKNOWN_SERVER_ERROR = -1
UNKNOWN_TOPIC_OR_PARTITION = 3
INVALID_TOPIC = 17
TOPIC_ALREADY_EXISTS = 36
INVALID_PARTITIONS = 37
INVALID_REPLICATION_FACTOR = 38
INVALID_REPLICA_ASSIGNMENT = 39
INVALID_CONFIG = 40
INVALID_REQUEST = 42
UNKNOWN_TOPIC_ID = 100
TOPIC = 2
BROKER = 4
DYNAMIC_TOPIC, STATIC_BROKER, DEFAULT = 1, 4, 5
SET, DELETE, APPEND, SUBTRACT = range(4)


def wanted(name: str, partitions: int = 1, replication: int = 1, configs: dict[str, str | None] | None = None) -> Body:
    entries = [{"name": key, "value": value} for key, value in (configs or {}).items()]
    return {"name": name, "num_partitions": partitions, "replication_factor": replication, "configs": entries}


def create(wire: Connection, *topics: Body, version: int = 7, **more: object) -> list[Body]:
    return list(wire.call("CreateTopics", version, {"topics": list(topics), **more})["topics"])


def node_id(wire: Connection) -> int:
    return int(wire.call("Metadata", 1, {"topics": []})["brokers"][0]["node_id"])


@pytest.mark.parametrize("version", range(2, 8))
def test_every_version_creates(wire: Connection, name: str, version: int) -> None:
    (made,) = create(wire, wanted(name, 2, configs={"retention.ms": "7200000"}), version=version)
    assert (made["name"], made["error_code"], made["error_message"]) == (name, 0, None)
    eventually(lambda: end_offset(wire, name, 1) == 0)
    if version >= 5:
        assert (made["num_partitions"], made["replication_factor"]) == (2, 1)
        configs = {config["name"]: config for config in made["configs"]}
        retention = configs["retention.ms"]
        assert (retention["value"], retention["config_source"]) == ("7200000", DYNAMIC_TOPIC)
        assert configs["cleanup.policy"]["config_source"] == DEFAULT
        assert made["topic_config_error_code"] == 0
    if version >= 7:
        assert made["topic_id"] == topic_id(wire, name)


def test_defaults_for_partitions_and_replicas(wire: Connection, name: str) -> None:
    (made,) = create(wire, wanted(name, -1, -1))
    assert (made["error_code"], made["num_partitions"], made["replication_factor"]) == (0, 1, 1)


def test_a_dry_run_tells_what_would_be(wire: Connection, name: str) -> None:
    (made,) = create(wire, wanted(name, 3), validate_only=True)
    assert (made["error_code"], made["num_partitions"]) == (0, 3)
    assert name not in [one["name"] for one in wire.call("Metadata", 12, {"topics": None})["topics"]]


def test_each_topic_of_a_request_on_its_own(wire: Connection, name: str) -> None:
    asked = [wanted(f"{name}-good"), wanted(f"{name} bad"), wanted(f"{name}-zero", 0), wanted(f"{name}-many", 1, 9)]
    made = {one["name"]: one["error_code"] for one in create(wire, *asked)}
    assert made == {
        f"{name}-good": 0,
        f"{name} bad": INVALID_TOPIC,
        f"{name}-zero": INVALID_PARTITIONS,
        f"{name}-many": INVALID_REPLICATION_FACTOR,
    }


def test_the_same_name_twice_in_one_request(wire: Connection, name: str) -> None:
    made = create(wire, wanted(name), wanted(name, 2))
    assert {one["error_code"] for one in made} == {INVALID_REQUEST}
    assert name not in [one["name"] for one in wire.call("Metadata", 12, {"topics": None})["topics"]]


def test_refusals_say_why(wire: Connection, name: str, topic: str) -> None:
    asked = [wanted(f"{name} x"), wanted(topic), wanted(name, configs={"retention.ms": "x"}), wanted(f"{name}-0", 0)]
    for one in create(wire, *asked):
        assert one["error_code"] != 0
        assert one["error_message"]
        assert (one["num_partitions"], one["replication_factor"]) == (-1, -1)
        assert one["topic_id"] == bytes(16)


def test_a_given_assignment(wire: Connection, name: str) -> None:
    here = node_id(wire)
    assignments = [{"partition_index": index, "broker_ids": [here]} for index in range(3)]
    (made,) = create(wire, {**wanted(name, -1, -1), "assignments": assignments})
    assert (made["error_code"], made["num_partitions"], made["replication_factor"]) == (0, 3, 1)


@pytest.mark.parametrize(
    ("partitions", "assignments"),
    [(-1, {0: [77]}), (-1, {0: []}), (-1, {1: [-9]}), (-1, {0: [-9], 2: [-9]}), (-1, {0: [-9, -9]})],
    ids=["unknown broker", "no broker", "no partition 0", "hole", "broker twice"],
)
def test_bad_assignments(wire: Connection, name: str, partitions: int, assignments: dict[int, list[int]]) -> None:
    """-9 stands for the broker that is there."""
    here = node_id(wire)
    given = [
        {"partition_index": index, "broker_ids": [here if one == -9 else one for one in brokers]}
        for index, brokers in assignments.items()
    ]
    (made,) = create(wire, {**wanted(name, partitions, -1), "assignments": given})
    assert made["error_code"] == INVALID_REPLICA_ASSIGNMENT


def test_an_assignment_and_a_count(wire: Connection, name: str) -> None:
    given = [{"partition_index": 0, "broker_ids": [node_id(wire)]}]
    (made,) = create(wire, {**wanted(name, 1, 1), "assignments": given})
    assert made["error_code"] == INVALID_REQUEST


def test_a_config_without_a_value(wire: Connection, name: str) -> None:
    (made,) = create(wire, wanted(name, configs={"retention.ms": None}))
    assert made["error_code"] == INVALID_CONFIG


@pytest.mark.parametrize("version", range(1, 7))
def test_every_version_deletes(wire: Connection, topic: str, name: str, version: int) -> None:
    if version < 6:
        body: Body = {"topic_names": [topic, name], "timeout_ms": 8_000}
    else:
        body = {"topics": [{"name": topic}, {"name": name}], "timeout_ms": 8_000}
    answer = wire.call("DeleteTopics", version, body)
    found = {one["name"]: one["error_code"] for one in answer["responses"]}
    assert found == {topic: 0, name: UNKNOWN_TOPIC_OR_PARTITION}


def test_delete_by_id(wire: Connection, topic: str) -> None:
    id_, nobody = topic_id(wire, topic), uuid.uuid4().bytes
    body = {"topics": [{"topic_id": id_}, {"topic_id": nobody}], "timeout_ms": 8_000}
    answer = wire.call("DeleteTopics", 6, body)
    found = {one["topic_id"]: (one["name"], one["error_code"]) for one in answer["responses"]}
    assert found == {id_: (topic, 0), nobody: (None, UNKNOWN_TOPIC_ID)}


@pytest.mark.parametrize("version", range(4))
def test_every_version_grows(wire: Connection, topic: str, version: int) -> None:
    grown = {"topics": [{"name": topic, "count": 3, "assignments": None}], "timeout_ms": 8_000}
    (found,) = wire.call("CreatePartitions", version, grown)["results"]
    assert (found["name"], found["error_code"], found["error_message"]) == (topic, 0, None)
    eventually(lambda: end_offset(wire, topic, 2) == 0)


def describe(wire: Connection, topic: str, version: int = 4, **more: object) -> dict[str, Body]:
    resource = {"resource_type": TOPIC, "resource_name": topic, "configuration_keys": None, **more}
    body = {"resources": [resource], "include_synonyms": True, "include_documentation": True}
    (found,) = wire.call("DescribeConfigs", version, body)["results"]
    assert (found["error_code"], found["resource_type"], found["resource_name"]) == (0, TOPIC, topic)
    return {config["name"]: config for config in found["configs"]}


@pytest.mark.parametrize("version", range(1, 5))
def test_every_version_describes_configs(wire: Connection, make_topic: MakeTopic, version: int) -> None:
    topic = make_topic(configs={"retention.ms": "5000"})
    config = describe(wire, topic, version)["retention.ms"]
    assert (config["value"], config["config_source"], config["read_only"]) == ("5000", DYNAMIC_TOPIC, False)
    names = [(synonym["name"], synonym["value"], synonym["source"]) for synonym in config["synonyms"]]
    assert names[0] == ("retention.ms", "5000", DYNAMIC_TOPIC)
    if version >= 3:
        assert config["config_type"] == 5
        assert config["documentation"]


def test_only_the_configs_asked_for(wire: Connection, topic: str) -> None:
    found = describe(wire, topic, configuration_keys=["retention.ms", "no.such.thing"])
    assert set(found) == {"retention.ms"}


def test_types_of_configs(wire: Connection, topic: str) -> None:
    """1 boolean, 2 string, 3 int, 5 long, 6 double, 7 list."""
    found = describe(wire, topic)
    types = {name: found[name]["config_type"] for name in found}
    assert types["retention.ms"] == types["retention.bytes"] == types["segment.ms"] == 5
    assert types["segment.bytes"] == types["max.message.bytes"] == types["min.insync.replicas"] == 3
    assert types["cleanup.policy"] == 7
    assert types["compression.type"] == types["message.timestamp.type"] == 2
    assert types["preallocate"] == 1
    assert types["min.cleanable.dirty.ratio"] == 6


def test_defaults_are_kafkas(wire: Connection, topic: str) -> None:
    found = {name: config["value"] for name, config in describe(wire, topic).items()}
    expected = {
        "cleanup.policy": "delete",
        "compression.type": "producer",
        "delete.retention.ms": "86400000",
        "file.delete.delay.ms": "60000",
        "flush.messages": "9223372036854775807",
        "flush.ms": "9223372036854775807",
        "index.interval.bytes": "4096",
        "max.compaction.lag.ms": "9223372036854775807",
        "max.message.bytes": "1048588",
        "message.timestamp.after.max.ms": "3600000",
        "message.timestamp.before.max.ms": "9223372036854775807",
        "message.timestamp.type": "CreateTime",
        "min.cleanable.dirty.ratio": "0.5",
        "min.compaction.lag.ms": "0",
        "min.insync.replicas": "1",
        "preallocate": "false",
        "retention.bytes": "-1",
        "retention.ms": "604800000",
        "segment.bytes": "1073741824",
        "segment.index.bytes": "10485760",
        "segment.jitter.ms": "0",
        "segment.ms": "604800000",
        "unclean.leader.election.enable": "false",
    }
    assert {name: found.get(name) for name in expected} == expected


def test_configs_of_what_is_not_there(wire: Connection, name: str) -> None:
    resource = {"resource_type": TOPIC, "resource_name": name, "configuration_keys": None}
    (found,) = wire.call("DescribeConfigs", 4, {"resources": [resource]})["results"]
    assert (found["error_code"], found["configs"]) == (UNKNOWN_TOPIC_OR_PARTITION, [])


def test_broker_configs(wire: Connection) -> None:
    here = str(node_id(wire))
    resource = {"resource_type": BROKER, "resource_name": here, "configuration_keys": None}
    (found,) = wire.call("DescribeConfigs", 4, {"resources": [resource]})["results"]
    configs = {config["name"]: config for config in found["configs"]}
    assert found["error_code"] == 0
    assert configs["node.id"]["value"] == here
    assert configs["node.id"]["read_only"] is True
    assert configs["log.retention.ms"]["name"] == "log.retention.ms"


def change(
    wire: Connection, topic: str, *changes: tuple[str, int, str | None], version: int = 1, validate_only: bool = False
) -> Body:
    configs = [{"name": key, "config_operation": op, "value": value} for key, op, value in changes]
    resource = {"resource_type": TOPIC, "resource_name": topic, "configs": configs}
    body = {"resources": [resource], "validate_only": validate_only}
    (found,) = wire.call("IncrementalAlterConfigs", version, body)["responses"]
    assert (found["resource_type"], found["resource_name"]) == (TOPIC, topic)
    return dict(found)


@pytest.mark.parametrize("version", range(2))
def test_incremental_changes(wire: Connection, topic: str, version: int) -> None:
    assert change(wire, topic, ("retention.ms", SET, "7"), version=version)["error_code"] == 0
    eventually(lambda: describe(wire, topic)["retention.ms"]["value"] == "7")
    assert change(wire, topic, ("retention.ms", DELETE, None), version=version)["error_code"] == 0
    eventually(lambda: describe(wire, topic)["retention.ms"]["value"] == "604800000")
    assert change(wire, topic, ("retention.ms", DELETE, None), version=version)["error_code"] == 0, "nothing to delete"


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ([("retention.ms", SET, "x")], INVALID_CONFIG),
        ([("retention.ms", SET, None)], INVALID_REQUEST),
        ([("retention.ms", SET, "1"), ("retention.ms", DELETE, None)], INVALID_REQUEST),
        ([("retention.ms", APPEND, "1")], INVALID_CONFIG),
        ([("cleanup.policy", APPEND, "shred")], INVALID_CONFIG),
        ([("no.such.thing", SET, "1")], INVALID_CONFIG),
        ([("no.such.thing", APPEND, "1")], INVALID_CONFIG),
    ],
    ids=["bad value", "null", "twice", "append to no list", "bad item", "unknown", "append unknown"],
)
def test_bad_incremental_changes(wire: Connection, topic: str, changes: list[Any], code: int) -> None:
    found = change(wire, topic, *changes)
    assert found["error_code"] == code
    assert found["error_message"]
    assert describe(wire, topic)["retention.ms"]["value"] == "604800000"


def test_an_operation_nobody_knows(wire: Connection, topic: str) -> None:
    """Kafka 4.3.1 stumbles and says so with -1."""
    assert change(wire, topic, ("retention.ms", 9, "1"))["error_code"] in (UNKNOWN_SERVER_ERROR, INVALID_REQUEST)
    assert describe(wire, topic)["retention.ms"]["value"] == "604800000"


def test_a_dry_run_changes_nothing(wire: Connection, topic: str) -> None:
    assert change(wire, topic, ("retention.ms", SET, "7"), validate_only=True)["error_code"] == 0
    assert change(wire, topic, ("retention.ms", SET, "x"), validate_only=True)["error_code"] == INVALID_CONFIG
    assert describe(wire, topic)["retention.ms"]["value"] == "604800000"


@pytest.mark.parametrize("version", range(3))
def test_the_old_way_replaces_all(wire: Connection, make_topic: MakeTopic, version: int) -> None:
    topic = make_topic(configs={"retention.ms": "7", "segment.bytes": "2000000"})
    configs = [{"name": "segment.bytes", "value": "3000000"}]
    body = {"resources": [{"resource_type": TOPIC, "resource_name": topic, "configs": configs}]}
    (found,) = wire.call("AlterConfigs", version, body)["responses"]
    assert found["error_code"] == 0
    eventually(lambda: describe(wire, topic)["segment.bytes"]["value"] == "3000000")
    assert describe(wire, topic)["retention.ms"]["value"] == "604800000"


def test_resource_types_nobody_knows(wire: Connection) -> None:
    body = {"resources": [{"resource_type": 77, "resource_name": "x", "configs": []}]}
    (found,) = wire.call("IncrementalAlterConfigs", 1, body)["responses"]
    assert found["error_code"] == INVALID_REQUEST


@pytest.mark.skidway_only
def test_flush_is_a_config(wire: Connection, topic: str) -> None:
    assert describe(wire, topic)["flush"]["value"] == "sync"
    assert change(wire, topic, ("flush", SET, "os"))["error_code"] == 0
    assert describe(wire, topic)["flush"]["value"] == "os"
    assert change(wire, topic, ("flush", SET, "never"))["error_code"] == INVALID_CONFIG
