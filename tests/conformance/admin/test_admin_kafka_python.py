"""kafka-python's KafkaAdminClient, method by method."""

from collections.abc import Mapping
from typing import Any

import pytest
from group_calls import ClassicMember, ConsumerMember, commit, committed, listed
from kafka.admin import (
    AlterConfigOp,
    ConfigFilterType,
    ConfigResource,
    ConfigResourceType,
    GroupState,
    GroupType,
    KafkaAdminClient,
    MemberToRemove,
    NewTopic,
    OffsetSpec,
    OffsetTimestamp,
)
from kafka.errors import (
    GroupIdNotFoundError,
    InvalidReplicationAssignmentError,
    NonEmptyGroupError,
    TopicAlreadyExistsError,
    UnknownMemberIdError,
    UnknownTopicOrPartitionError,
)
from kafka.structs import OffsetAndMetadata
from raw import Connection, MakeTopic
from raw_batches import Record, build, now_ms
from wire_calls import new_producer_id, produce, topic_id

import kafka
from waiting import eventually

START_MS = now_ms() - 3_600_000
SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
EVERYTHING = {"READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS"}


def place(topic: str, partition: int) -> kafka.TopicPartition:
    return kafka.TopicPartition(topic, partition)


def configs(admin: KafkaAdminClient, kind: str, name: str, which: str = "all") -> Mapping[str, Any]:
    resource = ConfigResource(kind, name)
    found = admin.describe_configs([resource], include_synonyms=True, config_filter=which)
    described: Mapping[str, Any] = found[kind.lower()][name]
    return described


# ------------------------------------------------------------------------------------------- the client and the broker


def test_api_versions(python: KafkaAdminClient, wire: Connection) -> None:
    keys = {api["api_key"] for api in wire.call("ApiVersions", 2)["api_keys"]}
    assert {int(key) for key in python.api_versions()} >= {0, 1, 2, 3, 8, 9, 10, 11, 44, 47, 68, 69, 74}
    assert {int(key) for key in python.api_versions()} <= keys


def test_get_broker_version_data(python: KafkaAdminClient, broker_id: int) -> None:
    assert python.get_broker_version_data(broker_id).broker_version >= (4, 0)


def test_describe_features(python: KafkaAdminClient) -> None:
    version = python.describe_features()["metadata.version"]
    low, high = version["supported"]
    assert low <= version["finalized"][1] <= high


def test_describe_cluster(python: KafkaAdminClient, bootstrap: str, broker_id: int) -> None:
    found = python.describe_cluster()
    assert found["controller_id"] == broker_id
    assert f"{found['brokers'][0]['host']}:{found['brokers'][0]['port']}" == bootstrap
    assert "CLUSTER_ACTION" in found["authorized_operations"]


# ---------------------------------------------------------------------------------------------------------- topics


def test_create_topics_and_wait_for_them(python: KafkaAdminClient, name: str, broker_id: int) -> None:
    (made,) = python.create_topics([NewTopic(name, 2, 1)], wait_for_metadata=True)["topics"]
    assert (made["num_partitions"], made["replication_factor"]) == (2, 1)
    assert made["configs"]["cleanup.policy"]["value"] == "delete"
    python.wait_for_topics([name])
    assert name in python.list_topics()
    with pytest.raises(TopicAlreadyExistsError):
        python.create_topics([NewTopic(name, 2, 1)])
    placed = f"{name}-placed"
    python.create_topics({placed: {"assignments": {0: [broker_id]}}})
    python.wait_for_topics([placed])
    with pytest.raises(InvalidReplicationAssignmentError):
        python.create_topics({f"{name}-x": {"assignments": {0: [broker_id + 100]}}})


def test_describe_topics(python: KafkaAdminClient, make_topic: MakeTopic, name: str) -> None:
    topic = make_topic(partitions=2)
    found = {one["name"]: one for one in python.describe_topics([topic, name])}
    assert [partition["partition_index"] for partition in found[topic]["partitions"]] == [0, 1]
    assert (found[topic]["error_code"], found[name]["error_code"]) == (0, UnknownTopicOrPartitionError.errno)
    assert set(found[topic]["authorized_operations"]) == set(found[name]["authorized_operations"]) == EVERYTHING
    assert {one["name"] for one in python.describe_topics()} >= {topic}


def test_describe_topic_partitions_in_pages(
    python: KafkaAdminClient, wire: Connection, make_topic: MakeTopic, name: str
) -> None:
    topic = make_topic(partitions=3)
    seen, cursor = [], None
    for _ in range(3):
        page = python.describe_topic_partitions([topic], response_partition_limit=2, cursor=cursor)
        (one,) = page["topics"]
        assert one["topic_id"].bytes == topic_id(wire, topic)
        seen += [partition["partition_index"] for partition in one["partitions"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert seen == [0, 1, 2]
    (missing,) = python.describe_topic_partitions([name])["topics"]
    assert missing["error_code"] == UnknownTopicOrPartitionError.errno


def test_create_partitions_with_an_assignment(python: KafkaAdminClient, topic: str, broker_id: int) -> None:
    for wrong in ([[broker_id]], [[broker_id], [broker_id + 100]], [[broker_id], [broker_id, broker_id]]):
        with pytest.raises(InvalidReplicationAssignmentError):
            python.create_partitions({topic: {"count": 3, "assignments": wrong}})
    python.create_partitions({topic: {"count": 3, "assignments": [[broker_id], [broker_id]]}})
    eventually(lambda: len(python.describe_topics([topic])[0]["partitions"]) == 3)


def test_delete_topics(python: KafkaAdminClient, topic: str, name: str) -> None:
    (deleted,) = python.delete_topics([topic])["topics"]
    assert deleted["error_code"] == 0
    eventually(lambda: topic not in python.list_topics())
    with pytest.raises(UnknownTopicOrPartitionError):
        python.delete_topics([name])


def test_delete_records(python: KafkaAdminClient, filled: str) -> None:
    found = python.delete_records({place(filled, 0): 4, place(filled, 1): -1})
    assert {where.partition: one["low_watermark"] for where, one in found.items()} == {0: 4, 1: 10}


@pytest.mark.parametrize("isolation", [0, 1], ids=["read_uncommitted", "read_committed"])
def test_list_partition_offsets(
    python: KafkaAdminClient, wire: Connection, make_topic: MakeTopic, isolation: int
) -> None:
    topic = make_topic(partitions=7)
    for partition in range(6):
        records = [Record(b"v", timestamp_delta=delta) for delta in (0, 9, 5)]
        produce(wire, topic, build(records, timestamp=START_MS), partition=partition)
    specs = [
        *(OffsetSpec.EARLIEST, OffsetSpec.LATEST, OffsetSpec.MAX_TIMESTAMP, OffsetSpec.EARLIEST_LOCAL),
        START_MS + 1,
    ]
    asked = {place(topic, number): spec for number, spec in enumerate(specs)}
    asked[place(topic, 5)] = OffsetSpec.LATEST_TIERED
    asked[place(topic, 6)] = OffsetSpec.EARLIEST
    found = python.list_partition_offsets(asked, isolation_level=isolation)
    assert {where.partition: (one.offset, one.timestamp, one.leader_epoch) for where, one in found.items()} == {
        0: (0, -1, 0),
        1: (3, -1, 0),
        2: (1, START_MS + 9, 0),
        3: (0, -1, 0),
        4: (1, START_MS + 9, 0),
        5: (-1, -1, None),
        6: (0, -1, 0),
    }


def test_describe_log_dirs(python: KafkaAdminClient, filled: str, broker_id: int) -> None:
    (found,) = python.describe_log_dirs({filled: [1]}, brokers=[broker_id])
    (folder,) = found["log_dirs"]
    ((described,),) = [topic["partitions"] for topic in folder["topics"] if topic["name"] == filled]
    assert (described["partition_index"], described["offset_lag"], described["is_future_key"]) == (1, 0, False)
    assert described["partition_size"] > 0
    assert 0 < folder["usable_bytes"] < folder["total_bytes"]
    everything = python.describe_log_dirs()[0]["log_dirs"][0]["topics"]
    assert len(everything) > 1 or everything[0]["name"] == filled


def test_describe_producers(python: KafkaAdminClient, wire: Connection, filled: str) -> None:
    producer_id, epoch = new_producer_id(wire)
    batch = build([b"a", b"b"], producer_id=producer_id, producer_epoch=epoch, base_sequence=0)
    assert produce(wire, filled, batch)["error_code"] == 0
    found = python.describe_producers([place(filled, 0), place(filled, 1)])
    (active,) = found[place(filled, 0)].active_producers
    assert (active.producer_id, active.producer_epoch, active.last_sequence) == (producer_id, epoch, 1)
    assert active.current_transaction_start_offset == -1
    assert found[place(filled, 1)].active_producers == []


# ---------------------------------------------------------------------------------------------------------- configs


def test_configs_of_a_topic_by_where_they_come_from(python: KafkaAdminClient, make_topic: MakeTopic) -> None:
    topic = make_topic(configs={"retention.ms": "1000000"})
    everything = configs(python, "TOPIC", topic)
    assert (everything["retention.ms"]["value"], everything["retention.ms"]["config_source"]) == (
        "1000000",
        "DYNAMIC_TOPIC_CONFIG",
    )
    assert list(configs(python, "TOPIC", topic, "modified")) == ["retention.ms"]
    assert "segment.bytes" in configs(python, "TOPIC", topic, ConfigFilterType.DYNAMIC), "could be changed"
    assert "retention.ms" not in configs(python, "TOPIC", topic, "default")
    assert everything["retention.ms"]["synonyms"][0] == {
        "name": "retention.ms",
        "value": "1000000",
        "source": "DYNAMIC_TOPIC_CONFIG",
    }


def test_alter_configs_of_a_topic(python: KafkaAdminClient, make_topic: MakeTopic) -> None:
    topic = make_topic(configs={"retention.ms": "1000000"})
    changes = {"segment.bytes": "2000000", "cleanup.policy": (AlterConfigOp.APPEND, "compact")}
    assert python.alter_configs([ConfigResource("TOPIC", topic, changes)]) == {"topic": {topic: "OK"}}
    eventually(lambda: configs(python, "TOPIC", topic)["cleanup.policy"]["value"] == "delete,compact")
    assert configs(python, "TOPIC", topic)["retention.ms"]["value"] == "1000000"
    whole = ConfigResource("TOPIC", topic, {"segment.bytes": "3000000"})
    assert python.alter_configs([whole], incremental=False) == {"topic": {topic: "OK"}}
    eventually(lambda: configs(python, "TOPIC", topic)["segment.bytes"]["value"] == "3000000")
    kept = {"segment.bytes", "retention.ms", "cleanup.policy"}
    assert set(configs(python, "TOPIC", topic, "modified")) == kept, "the client itself names what is to stay"
    refused = python.alter_configs([ConfigResource("TOPIC", topic, {"segment.bytes": "no"})])["topic"][topic]
    assert "InvalidConfiguration" in refused


def test_alter_and_reset_configs_of_a_group(python: KafkaAdminClient, group: str) -> None:
    wanted = ConfigResource(ConfigResourceType.GROUP, group, {SESSION: "20000", HEARTBEAT: "2000"})
    assert python.alter_configs([wanted], validate_only=True) == {"group": {group: "OK"}}
    assert group not in python.list_config_resources(["GROUP"]).get("group", [])
    assert python.alter_configs([wanted]) == {"group": {group: "OK"}}
    eventually(lambda: set(configs(python, "GROUP", group, "modified")) == {SESSION, HEARTBEAT})
    assert configs(python, "GROUP", group)[SESSION]["config_source"] == "DYNAMIC_GROUP_CONFIG"
    assert group in python.list_config_resources()["group"]
    assert group in python.list_config_resources([ConfigResourceType.GROUP])["group"]
    refused = python.alter_configs([ConfigResource("GROUP", group, {SESSION: "1"})])["group"][group]
    assert "InvalidConfiguration" in refused
    assert python.reset_configs([ConfigResource("GROUP", group, [SESSION, HEARTBEAT])]) == {"group": {group: "OK"}}
    eventually(lambda: configs(python, "GROUP", group, "modified") == {})


def test_alter_and_reset_configs_of_a_broker(python: KafkaAdminClient, broker_id: int) -> None:
    name, key = str(broker_id), "log.retention.bytes"
    before = configs(python, "BROKER", name)[key]["value"]
    assert python.alter_configs([ConfigResource("BROKER", name, {key: "987654321"})]) == {"broker": {name: "OK"}}
    try:
        eventually(lambda: configs(python, "BROKER", name)[key]["value"] == "987654321")
        assert key in configs(python, "BROKER", name, "modified")
        fixed = ConfigResource("BROKER", name, {"node.id": "9"})
        refused = python.alter_configs([fixed], raise_on_unknown=False)["broker"][name]
        assert "InvalidRequest" in refused
    finally:
        python.reset_configs([ConfigResource("BROKER", name, [key])])
    eventually(lambda: configs(python, "BROKER", name)[key]["value"] == before)


def test_list_config_resources(python: KafkaAdminClient, topic: str, broker_id: int) -> None:
    found = python.list_config_resources()
    assert topic in found["topic"]
    assert found["broker"] == [str(broker_id)]
    assert set(python.list_config_resources(["TOPIC"])) == {"topic"}


# ----------------------------------------------------------------------------------------------- groups and offsets


def test_list_groups_by_state_and_type(
    python: KafkaAdminClient, classic: ClassicMember, modern: ConsumerMember, group: str
) -> None:
    ours = {group, modern.group}

    def found(**filters: Any) -> set[str]:
        return {one["group_id"] for one in python.list_groups(**filters)} & ours

    assert found() == ours
    assert found(types_filter=[GroupType.CLASSIC]) == {group}
    assert found(types_filter=["consumer"]) == {modern.group}
    assert found(states_filter=[GroupState.STABLE]) == ours
    assert found(states_filter=["Empty"]) == set()
    classic.leave()
    modern.leave()
    assert found(states_filter=[GroupState.EMPTY]) == ours
    assert found(states_filter=[GroupState.EMPTY], types_filter=[GroupType.CONSUMER]) == {modern.group}


def test_describe_groups(
    python: KafkaAdminClient, classic: ClassicMember, modern: ConsumerMember, group: str, filled: str
) -> None:
    """A group of the newer protocol is dead to this call, which is of the classic one."""
    found = python.describe_groups([group, modern.group], include_authorized_operations=True)
    described = found[group]
    assert (described["group_state"], described["protocol_data"]) == ("Stable", "range")
    (member,) = described["members"]
    assert member["member_id"] == classic.id
    assert filled in str(member["member_assignment"])
    assert "DELETE" in described["authorized_operations"]
    assert found[modern.group]["group_state"] == "Dead"


def test_delete_groups(
    python: KafkaAdminClient, modern: ConsumerMember, wire: Connection, group: str, filled: str
) -> None:
    commit(wire, group, filled, {0: 1})
    found = python.delete_groups([group, modern.group, group + "-nobody"])
    assert found == {
        group: "OK",
        modern.group: NonEmptyGroupError.__name__,
        group + "-nobody": GroupIdNotFoundError.__name__,
    }
    assert listed(wire, group) is None


def test_list_group_offsets_of_several_groups(
    python: KafkaAdminClient, wire: Connection, group: str, filled: str
) -> None:
    other = group + "-other"
    commit(wire, group, filled, {0: 1, 1: 2})
    commit(wire, other, filled, {1: 3})
    found = python.list_group_offsets({group: [place(filled, 1)], other: None})
    assert {name: {where.partition: one.offset for where, one in of.items()} for name, of in found.items()} == {
        group: {1: 2},
        other: {1: 3},
    }


def test_alter_and_delete_offsets_of_a_living_group(
    python: KafkaAdminClient, modern: ConsumerMember, wire: Connection, filled: str, topic: str
) -> None:
    """Nobody but its members commits; offsets of topics they do not read may go."""
    refused = python.alter_group_offsets(modern.group, {place(filled, 0): OffsetAndMetadata(5, "", -1)})
    assert refused[place(filled, 0)] is UnknownMemberIdError
    refused = python.delete_group_offsets(modern.group, [place(filled, 0)])
    assert "GroupSubscribedToTopic" in str(refused)
    modern.leave()
    python.alter_group_offsets(modern.group, {place(filled, 0): OffsetAndMetadata(5, "", -1)})
    assert committed(wire, modern.group, filled, [0]) == {0: 5}
    python.delete_group_offsets(modern.group, [place(filled, 0)])
    assert committed(wire, modern.group, filled, [0]) == {0: -1}


def test_reset_group_offsets_by_time_and_by_number(
    python: KafkaAdminClient, wire: Connection, group: str, make_topic: MakeTopic
) -> None:
    topic = make_topic(partitions=4)
    for partition in range(4):
        records = [Record(b"v", timestamp_delta=delta) for delta in (0, 9, 19)]
        produce(wire, topic, build(records, timestamp=START_MS), partition=partition)
    specs = [OffsetTimestamp(START_MS + 1), OffsetTimestamp(START_MS + 99), OffsetSpec.EARLIEST, OffsetSpec.LATEST]
    python.reset_group_offsets(group, {place(topic, number): spec for number, spec in enumerate(specs)})
    assert committed(wire, group, topic, range(4)) == {0: 1, 1: 3, 2: 0, 3: 3}


def test_remove_group_members(python: KafkaAdminClient, bootstrap: str, wire: Connection, group: str) -> None:
    with ClassicMember(bootstrap, group, instance="stuck") as member:
        member.join()
        found = python.remove_group_members(group, [MemberToRemove(group_instance_id="nobody")])
        assert found == {"nobody": UnknownMemberIdError}
        assert listed(wire, group)["group_state"] != "Empty"
        python.remove_group_members(group, [MemberToRemove(member_id=member.id)])
        assert listed(wire, group)["group_state"] == "Empty"
