"""confluent-kafka's AdminClient, method by method."""

import time
from concurrent.futures import Future
from typing import Any

import confluent_kafka as ck
import pytest
from confluent_kafka import admin as cka
from group_calls import (
    GROUP_ID_NOT_FOUND,
    INVALID_REQUEST,
    NON_EMPTY_GROUP,
    UNKNOWN_MEMBER_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
    ClassicMember,
    ConsumerMember,
    commit,
    committed,
)
from raw import Connection, MakeTopic
from raw_batches import Record, build, now_ms
from wire_calls import produce, start_offset

from skidway.limits import DEFAULT_SEND_BUFFER_BYTES
from waiting import eventually

TIMEOUT_S = 30
START_MS = now_ms() - 3_600_000
OFFSET_OUT_OF_RANGE = 1
INVALID_REPLICA_ASSIGNMENT = 39
INVALID_CONFIG = 40
TOPIC, BROKER, GROUP = cka.ResourceType.TOPIC, cka.ResourceType.BROKER, cka.ResourceType.GROUP
READ, DELETE, DESCRIBE = cka.AclOperation.READ, cka.AclOperation.DELETE, cka.AclOperation.DESCRIBE
SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"


def refusal(future: Any) -> int:
    """The code a future of confluent-kafka failed with."""
    with pytest.raises(ck.KafkaException) as refused:
        future.result(TIMEOUT_S)
    code: int = refused.value.args[0].code()
    return code


def configs(admin: cka.AdminClient, kind: cka.ResourceType, name: str) -> dict[str, cka.ConfigEntry]:
    resource = cka.ConfigResource(kind, name)
    found: dict[str, cka.ConfigEntry] = admin.describe_configs([resource])[resource].result(TIMEOUT_S)
    return found


def source(entry: cka.ConfigEntry) -> cka.ConfigSource:
    """What is described comes with the number, whatever its type says."""
    return cka.ConfigSource(entry.source)


def change(
    admin: cka.AdminClient, kind: cka.ResourceType, name: str, *entries: tuple[str, str, str | None], **more: Any
) -> Future[None]:
    made = [
        cka.ConfigEntry(key, value, incremental_operation=cka.AlterConfigOpType[operation])
        for operation, key, value in entries
    ]
    resource = cka.ConfigResource(kind, name, incremental_configs=made)
    return admin.incremental_alter_configs([resource], **more)[resource]


# ---------------------------------------------------------------------------------------------------------- topics


def test_create_topics_with_an_assignment(confluent: cka.AdminClient, name: str, broker_id: int) -> None:
    placed = cka.NewTopic(name, num_partitions=2, replica_assignment=[[broker_id], [broker_id]])
    confluent.create_topics([placed])[name].result(TIMEOUT_S)
    described = confluent.describe_topics(ck.TopicCollection([name]))
    eventually(lambda: len(described[name].result(TIMEOUT_S).partitions) == 2)
    nowhere = cka.NewTopic(name + "-x", num_partitions=1, replica_assignment=[[broker_id + 100]])
    assert refusal(confluent.create_topics([nowhere])[name + "-x"]) == INVALID_REPLICA_ASSIGNMENT


def test_create_topics_with_the_broker_s_defaults(confluent: cka.AdminClient, name: str) -> None:
    confluent.create_topics([cka.NewTopic(name)])[name].result(TIMEOUT_S)
    eventually(lambda: len(confluent.list_topics(name, timeout=TIMEOUT_S).topics[name].partitions) == 1)


def test_create_partitions_with_an_assignment(confluent: cka.AdminClient, topic: str, broker_id: int) -> None:
    wrong = cka.NewPartitions(topic, 3, [[broker_id]])
    assert refusal(confluent.create_partitions([wrong])[topic]) == INVALID_REPLICA_ASSIGNMENT
    nowhere = cka.NewPartitions(topic, 2, [[broker_id + 100]])
    assert refusal(confluent.create_partitions([nowhere])[topic]) == INVALID_REPLICA_ASSIGNMENT
    right = cka.NewPartitions(topic, 3, [[broker_id], [broker_id]])
    confluent.create_partitions([right])[topic].result(TIMEOUT_S)
    eventually(lambda: len(confluent.list_topics(topic, timeout=TIMEOUT_S).topics[topic].partitions) == 3)


def test_describe_topics(confluent: cka.AdminClient, wire: Connection, make_topic: MakeTopic, name: str) -> None:
    topic = make_topic(partitions=2)
    asked = ck.TopicCollection([topic, name])
    found = confluent.describe_topics(asked, include_authorized_operations=True)
    described = found[topic].result(TIMEOUT_S)
    assert (described.name, described.is_internal, len(described.partitions)) == (topic, False, 2)
    assert str(described.topic_id)
    assert {READ, DELETE, DESCRIBE} <= set(described.authorized_operations)
    assert refusal(found[name]) == UNKNOWN_TOPIC_OR_PARTITION


def test_the_offsets_topic_is_internal(confluent: cka.AdminClient, coordinators: None) -> None:
    name = "__consumer_offsets"
    assert confluent.describe_topics(ck.TopicCollection([name]))[name].result(TIMEOUT_S).is_internal


def test_delete_topics(confluent: cka.AdminClient, make_topic: MakeTopic, name: str) -> None:
    one, two = make_topic(), make_topic()
    deleted = confluent.delete_topics([one, two, name])
    assert deleted[one].result(TIMEOUT_S) is deleted[two].result(TIMEOUT_S) is None
    assert refusal(deleted[name]) == UNKNOWN_TOPIC_OR_PARTITION
    eventually(lambda: not {one, two} & set(confluent.list_topics(timeout=TIMEOUT_S).topics))


def test_delete_records_of_several_partitions(confluent: cka.AdminClient, wire: Connection, filled: str) -> None:
    asked = [
        ck.TopicPartition(filled, 0, 3),
        ck.TopicPartition(filled, 1, ck.OFFSET_END),
        ck.TopicPartition(filled, 7, 1),  # librdkafka looks for the leader itself, and finds none
    ]
    found = confluent.delete_records(asked)
    assert [found[place].result(TIMEOUT_S).low_watermark for place in asked[:2]] == [3, 10]
    assert refusal(found[asked[2]]) == ck.KafkaError._UNKNOWN_PARTITION
    assert (start_offset(wire, filled, 0), start_offset(wire, filled, 1)) == (3, 10)
    beyond = ck.TopicPartition(filled, 0, 11)
    assert refusal(confluent.delete_records([beyond])[beyond]) == OFFSET_OUT_OF_RANGE


def test_describe_cluster(confluent: cka.AdminClient) -> None:
    described = confluent.describe_cluster(include_authorized_operations=True).result(TIMEOUT_S)
    assert described.cluster_id == confluent.cluster_id(timeout=TIMEOUT_S)
    assert described.controller.id in [node.id for node in described.nodes]
    assert cka.AclOperation.CREATE in described.authorized_operations


# ---------------------------------------------------------------------------------------------------------- configs


def test_configs_of_a_broker(confluent: cka.AdminClient, broker_id: int) -> None:
    name = str(broker_id)
    before = configs(confluent, BROKER, name)
    assert (before["node.id"].value, before["node.id"].is_read_only) == (name, True)
    assert before["socket.send.buffer.bytes"].value == str(DEFAULT_SEND_BUFFER_BYTES)
    changed = "log.retention.ms", str(987_654_321 + time.time_ns() % 1000)
    change(confluent, BROKER, name, ("SET", *changed)).result(TIMEOUT_S)
    try:
        eventually(lambda: configs(confluent, BROKER, name)[changed[0]].value == changed[1])
        found = configs(confluent, BROKER, name)[changed[0]]
        assert source(found) == cka.ConfigSource.DYNAMIC_BROKER_CONFIG
        assert changed[0] in found.synonyms
    finally:
        change(confluent, BROKER, name, ("DELETE", changed[0], None)).result(TIMEOUT_S)
    eventually(lambda: configs(confluent, BROKER, name)[changed[0]].value == before[changed[0]].value)


def test_configs_of_a_broker_that_cannot_be_changed(confluent: cka.AdminClient, broker_id: int) -> None:
    for name, value in (("node.id", "7"), ("group.max.size", "7"), ("offsets.retention.minutes", "7")):
        assert refusal(change(confluent, BROKER, str(broker_id), ("SET", name, value))) == INVALID_REQUEST


def test_configs_of_a_group(confluent: cka.AdminClient, group: str) -> None:
    entries = [("SET", SESSION, "20000"), ("SET", HEARTBEAT, "2000")]
    change(confluent, GROUP, group, *entries, validate_only=True).result(TIMEOUT_S)
    assert configs(confluent, GROUP, group)[SESSION].value == "8000"
    change(confluent, GROUP, group, *entries).result(TIMEOUT_S)
    eventually(lambda: configs(confluent, GROUP, group)[SESSION].value == "20000")
    found = configs(confluent, GROUP, group)[HEARTBEAT]
    assert (found.value, source(found)) == ("2000", cka.ConfigSource.GROUP_CONFIG)
    assert refusal(change(confluent, GROUP, group, ("SET", SESSION, "1"))) == INVALID_CONFIG
    change(confluent, GROUP, group, ("DELETE", SESSION, None), ("DELETE", HEARTBEAT, None)).result(TIMEOUT_S)
    eventually(lambda: configs(confluent, GROUP, group)[SESSION].value == "8000")


@pytest.mark.filterwarnings("ignore:alter_configs has been deprecated")
def test_replace_configs_of_a_group(confluent: cka.AdminClient, group: str) -> None:
    change(confluent, GROUP, group, ("SET", SESSION, "20000")).result(TIMEOUT_S)
    resource = cka.ConfigResource(GROUP, group, set_config={HEARTBEAT: "1500"})
    confluent.alter_configs([resource])[resource].result(TIMEOUT_S)
    eventually(lambda: configs(confluent, GROUP, group)[HEARTBEAT].value == "1500")
    assert configs(confluent, GROUP, group)[SESSION].value == "8000", "what is not named goes back to the broker's"


def test_describe_several_configs_at_once(confluent: cka.AdminClient, topic: str, broker_id: int, group: str) -> None:
    asked = [
        cka.ConfigResource(TOPIC, topic),
        cka.ConfigResource(BROKER, str(broker_id)),
        cka.ConfigResource(GROUP, group),
    ]
    found = confluent.describe_configs(asked)
    names = ["retention.ms", "log.retention.ms", SESSION]
    assert [name in found[resource].result(TIMEOUT_S) for name, resource in zip(names, asked, strict=True)] == [
        True
    ] * 3


# ----------------------------------------------------------------------------------------------- groups and offsets


@pytest.mark.filterwarnings("ignore:list_groups.. is deprecated")
def test_list_groups(confluent: cka.AdminClient, classic: ClassicMember, group: str) -> None:
    """The older call, which describes groups as well."""
    found: Any  # confluent-kafka types what is set later as None
    (found,) = confluent.list_groups(group, timeout=TIMEOUT_S)
    assert (found.id, found.state, found.protocol_type, found.protocol) == (group, "Stable", "consumer", "range")
    assert [(member.id, member.client_id) for member in found.members] == [(classic.id, "raw")]


def test_list_consumer_groups_by_state_and_type(
    confluent: cka.AdminClient, classic: ClassicMember, modern: ConsumerMember, group: str, filled: str
) -> None:
    states, types = ck.ConsumerGroupState, ck.ConsumerGroupType

    def listed(**filters: Any) -> set[str]:
        found = confluent.list_consumer_groups(**filters).result(TIMEOUT_S)
        assert not found.errors
        return {one.group_id for one in found.valid} & {group, modern.group}

    assert listed() == {group, modern.group}
    assert listed(types={types.CLASSIC}) == {group}
    assert listed(types={types.CONSUMER}) == {modern.group}
    assert listed(types={types.CLASSIC, types.CONSUMER}) == {group, modern.group}
    assert listed(states={states.STABLE}, types={types.CLASSIC}) == {group}
    assert listed(states={states.EMPTY, states.PREPARING_REBALANCING}) == set()
    classic.leave()
    modern.leave()
    assert listed(states={states.EMPTY}) == {group, modern.group}
    assert listed(states={states.EMPTY}, types={types.CONSUMER}) == {modern.group}


def test_describe_consumer_groups(
    confluent: cka.AdminClient, classic: ClassicMember, modern: ConsumerMember, group: str, filled: str
) -> None:
    nobody = group + "-nobody"
    found = confluent.describe_consumer_groups([group, modern.group, nobody], include_authorized_operations=True)
    old, new = found[group].result(TIMEOUT_S), found[modern.group].result(TIMEOUT_S)
    assert (old.type, new.type) == (ck.ConsumerGroupType.CLASSIC, ck.ConsumerGroupType.CONSUMER)
    assert (old.partition_assignor, new.partition_assignor) == ("range", "uniform")
    assert {READ, DELETE, DESCRIBE} <= set(new.authorized_operations)
    assert old.coordinator.id == new.coordinator.id
    (member,) = new.members
    assert (member.member_id, member.client_id, member.group_instance_id) == (modern.id, "raw", None)
    assert {(tp.topic, tp.partition) for tp in member.target_assignment.topic_partitions} == {(filled, 0), (filled, 1)}
    missing = found[nobody].result(TIMEOUT_S)
    assert (missing.state, missing.members) == (ck.ConsumerGroupState.DEAD, [])


def test_delete_consumer_groups(
    confluent: cka.AdminClient, modern: ConsumerMember, group: str, wire: Connection, filled: str
) -> None:
    commit(wire, group, filled, {0: 1})
    found = confluent.delete_consumer_groups([group, modern.group, group + "-nobody"])
    assert found[group].result(TIMEOUT_S) is None
    assert refusal(found[modern.group]) == NON_EMPTY_GROUP
    assert refusal(found[group + "-nobody"]) == GROUP_ID_NOT_FOUND
    modern.leave()
    confluent.delete_consumer_groups([modern.group])[modern.group].result(TIMEOUT_S)


def test_list_consumer_group_offsets(confluent: cka.AdminClient, wire: Connection, group: str, filled: str) -> None:
    commit(wire, group, filled, {0: 4})
    some = ck.ConsumerGroupTopicPartitions(group, [ck.TopicPartition(filled, p) for p in range(2)])
    found = confluent.list_consumer_group_offsets([some], require_stable=True)[group].result(TIMEOUT_S)
    assert [(tp.partition, tp.offset) for tp in found.topic_partitions] == [(0, 4), (1, ck.OFFSET_INVALID)]
    nobody = ck.ConsumerGroupTopicPartitions(group + "-nobody")
    found = confluent.list_consumer_group_offsets([nobody])[group + "-nobody"].result(TIMEOUT_S)
    assert found.topic_partitions == []


def test_alter_consumer_group_offsets(
    confluent: cka.AdminClient, modern: ConsumerMember, wire: Connection, group: str, filled: str
) -> None:
    """A group that nobody knew is made; a living one is left alone; a topic nobody knew is refused by itself."""
    places = [ck.TopicPartition(filled, 0, 3, metadata="three"), ck.TopicPartition("nobody-made-this", 0, 1)]
    request = ck.ConsumerGroupTopicPartitions(group, places)
    found = confluent.alter_consumer_group_offsets([request])[group].result(TIMEOUT_S)
    codes = {tp.topic: tp.error.code() if tp.error else 0 for tp in found.topic_partitions}
    assert codes == {filled: 0, "nobody-made-this": UNKNOWN_TOPIC_OR_PARTITION}
    assert committed(wire, group, filled, range(2)) == {0: 3, 1: -1}
    living = ck.ConsumerGroupTopicPartitions(modern.group, [ck.TopicPartition(filled, 0, 3)])
    found = confluent.alter_consumer_group_offsets([living])[modern.group].result(TIMEOUT_S)
    assert [tp.error.code() for tp in found.topic_partitions] == [UNKNOWN_MEMBER_ID]
    assert committed(wire, modern.group, filled, range(2)) == {0: -1, 1: -1}


@pytest.mark.parametrize("isolation", list(ck.IsolationLevel))
def test_list_offsets_in_either_isolation(
    confluent: cka.AdminClient, wire: Connection, make_topic: MakeTopic, isolation: Any
) -> None:
    topic = make_topic(partitions=4)
    for partition in range(4):
        produce(
            wire,
            topic,
            build([Record(b"v", timestamp_delta=d) for d in (0, 9, 5)], timestamp=START_MS),
            partition=partition,
        )
    spec: Any = cka.OffsetSpec  # half of its functions have no types
    specs = [spec.earliest(), spec.latest(), spec.max_timestamp(), spec.for_timestamp(START_MS + 1)]
    asked = {ck.TopicPartition(topic, number): wanted for number, wanted in enumerate(specs)}
    found = confluent.list_offsets(asked, isolation_level=isolation)
    answers = {place.partition: future.result(TIMEOUT_S) for place, future in found.items()}
    assert {p: (answer.offset, answer.timestamp) for p, answer in answers.items()} == {
        0: (0, -1),
        1: (3, -1),
        2: (1, START_MS + 9),
        3: (1, START_MS + 9),
    }
