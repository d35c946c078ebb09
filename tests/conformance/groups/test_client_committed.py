"""Committed offsets and group administration as each client offers them."""

import asyncio
from collections.abc import Iterator
from typing import Any

import aiokafka
import confluent_kafka as ck
import pytest
from aiokafka.admin import AIOKafkaAdminClient
from confluent_kafka import admin as cka
from group_calls import (
    GROUP_ID_NOT_FOUND,
    GROUP_SUBSCRIBED_TO_TOPIC,
    NON_EMPTY_GROUP,
    UNKNOWN_MEMBER_ID,
    ClassicMember,
    assignment,
    commit,
    committed,
    listed,
    stable_group,
    subscription,
)
from kafka.admin import MemberToRemove
from kafka.structs import OffsetAndMetadata
from raw import Connection

import kafka

TIMEOUT_S = 30


@pytest.fixture
def living(bootstrap: str, group: str, filled: str) -> Iterator[ClassicMember]:
    """A group with a member that reads the first partition."""
    with ClassicMember(bootstrap, group, protocols=[("range", subscription([filled]))]) as member:
        member.join()
        member.sync({member.id: assignment({filled: [0]})})
        yield member


# ------------------------------------------------------------------------------------------------ confluent-kafka


@pytest.fixture
def confluent(bootstrap: str, group: str) -> Iterator[ck.Consumer]:
    consumer = ck.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    yield consumer
    consumer.close()


@pytest.fixture
def confluent_admin(bootstrap: str) -> cka.AdminClient:
    return cka.AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


def code(future: Any) -> int:
    with pytest.raises(ck.KafkaException) as refused:
        future.result(TIMEOUT_S)
    code: int = refused.value.args[0].code()
    return code


def test_confluent_commits_without_a_group_membership(confluent: ck.Consumer, filled: str) -> None:
    where = ck.TopicPartition(filled, 0)
    (nothing,) = confluent.committed([where], timeout=TIMEOUT_S)
    assert nothing.offset == ck.OFFSET_INVALID
    confluent.assign([ck.TopicPartition(filled, 0, 3)])
    message = confluent.poll(TIMEOUT_S)
    assert message is not None
    assert message.value() == b"3"
    confluent.commit(message=message, asynchronous=False)
    (found,) = confluent.committed([where], timeout=TIMEOUT_S)
    assert (found.offset, found.leader_epoch) == (4, 0)
    told = ck.TopicPartition(filled, 0, 7, metadata="seven", leader_epoch=0)
    confluent.commit(offsets=[told], asynchronous=False)
    (found,) = confluent.committed([where], timeout=TIMEOUT_S)
    assert (found.offset, found.metadata, found.leader_epoch) == (7, "seven", 0)


def test_confluent_goes_on_at_the_committed_offset(
    confluent: ck.Consumer, wire: Connection, group: str, filled: str
) -> None:
    commit(wire, group, filled, {0: 6, 1: 9})
    confluent.assign([ck.TopicPartition(filled, p, ck.OFFSET_STORED) for p in range(2)])
    found: list[tuple[int | None, bytes | None]] = []
    while len(found) < 5 and (message := confluent.poll(TIMEOUT_S)):
        found.append((message.partition(), message.value()))
    assert sorted(found) == [(0, b"6"), (0, b"7"), (0, b"8"), (0, b"9"), (1, b"9")]


def test_confluent_lists_and_describes(
    confluent_admin: cka.AdminClient, living: ClassicMember, group: str, filled: str
) -> None:
    result = confluent_admin.list_consumer_groups().result(TIMEOUT_S)
    assert not result.errors
    (found,) = [one for one in result.valid if one.group_id == group]
    assert (found.state, found.is_simple_consumer_group) == (ck.ConsumerGroupState.STABLE, False)
    empty = confluent_admin.list_consumer_groups(states={ck.ConsumerGroupState.EMPTY}).result(TIMEOUT_S)
    assert group not in [one.group_id for one in empty.valid]
    described = confluent_admin.describe_consumer_groups([group])[group].result(TIMEOUT_S)
    assert (described.state, described.partition_assignor) == (ck.ConsumerGroupState.STABLE, "range")
    (member,) = described.members
    assert (member.member_id, member.client_id) == (living.id, "raw")
    assert [(tp.topic, tp.partition) for tp in member.assignment.topic_partitions] == [(filled, 0)]


def test_confluent_reads_and_resets_offsets(
    confluent_admin: cka.AdminClient, wire: Connection, group: str, filled: str
) -> None:
    places = [ck.TopicPartition(filled, p, 2 + p) for p in range(2)]
    request = ck.ConsumerGroupTopicPartitions(group, places)
    changed = confluent_admin.alter_consumer_group_offsets([request])[group].result(TIMEOUT_S)
    assert all(tp.error is None for tp in changed.topic_partitions)
    assert committed(wire, group, filled, range(2)) == {0: 2, 1: 3}
    asked = ck.ConsumerGroupTopicPartitions(group)
    found = confluent_admin.list_consumer_group_offsets([asked])[group].result(TIMEOUT_S)
    assert {(tp.topic, tp.partition): tp.offset for tp in found.topic_partitions} == {(filled, 0): 2, (filled, 1): 3}


def test_confluent_cannot_reset_a_living_group(
    confluent_admin: Any, living: ClassicMember, group: str, filled: str
) -> None:
    request = ck.ConsumerGroupTopicPartitions(group, [ck.TopicPartition(filled, 0, 2)])
    future = confluent_admin.alter_consumer_group_offsets([request])[group]
    found = future.result(TIMEOUT_S)
    assert [tp.error.code() for tp in found.topic_partitions] == [UNKNOWN_MEMBER_ID]


def test_confluent_deletes_groups(
    confluent_admin: cka.AdminClient, living: ClassicMember, wire: Connection, group: str
) -> None:
    assert code(confluent_admin.delete_consumer_groups([group])[group]) == NON_EMPTY_GROUP
    living.leave()
    confluent_admin.delete_consumer_groups([group])[group].result(TIMEOUT_S)
    assert listed(wire, group) is None
    assert code(confluent_admin.delete_consumer_groups([group])[group]) == GROUP_ID_NOT_FOUND


# --------------------------------------------------------------------------------------------------- kafka-python


@pytest.fixture
def python_admin(bootstrap: str) -> Iterator[kafka.KafkaAdminClient]:
    admin = kafka.KafkaAdminClient(bootstrap_servers=bootstrap)
    yield admin
    admin.close()


def test_kafka_python_commits_without_a_group_membership(bootstrap: str, group: str, filled: str) -> None:
    where = kafka.TopicPartition(filled, 0)
    consumer = kafka.KafkaConsumer(bootstrap_servers=bootstrap, group_id=group, enable_auto_commit=False)
    consumer.assign([where])
    assert consumer.committed(where) is None
    consumer.commit({where: OffsetAndMetadata(4, "four", 0)})
    found = consumer.committed(where, metadata=True)
    assert (found.offset, found.metadata, found.leader_epoch) == (4, "four", 0)
    assert consumer.position(where) == 4
    consumer.close()


def test_kafka_python_lists_and_describes(python_admin: Any, living: ClassicMember, group: str, filled: str) -> None:
    (found,) = [one for one in python_admin.list_groups() if one["group_id"] == group]
    assert (found["protocol_type"], found["group_state"], found["group_type"]) == ("consumer", "Stable", "classic")
    assert [one["group_id"] for one in python_admin.list_groups(states_filter=["Empty"])].count(group) == 0
    described = python_admin.describe_groups([group])
    text = str(described)
    assert living.id in text
    assert filled in text


def test_kafka_python_reads_resets_and_deletes_offsets(
    python_admin: Any, wire: Connection, group: str, filled: str
) -> None:
    places = [kafka.TopicPartition(filled, p) for p in range(2)]
    python_admin.alter_group_offsets(group, {place: OffsetAndMetadata(5, "", -1) for place in places})
    assert committed(wire, group, filled, range(2)) == {0: 5, 1: 5}
    found = python_admin.list_group_offsets({group: None})[group]
    assert {place.partition: one.offset for place, one in found.items()} == {0: 5, 1: 5}
    from kafka.protocol.consumer import OffsetSpec

    python_admin.reset_group_offsets(group, {places[0]: OffsetSpec.LATEST, places[1]: OffsetSpec.EARLIEST})
    assert committed(wire, group, filled, range(2)) == {0: 10, 1: 0}
    python_admin.delete_group_offsets(group, [places[0]])
    assert committed(wire, group, filled, range(2)) == {0: -1, 1: 0}


def test_kafka_python_cannot_change_a_living_group(
    python_admin: Any, living: ClassicMember, group: str, filled: str
) -> None:
    place = kafka.TopicPartition(filled, 0)
    refused = python_admin.alter_group_offsets(group, {place: OffsetAndMetadata(5, "", -1)})
    assert [error.errno for error in refused.values()] == [UNKNOWN_MEMBER_ID]
    living.commit(filled, {0: 3})
    refused = python_admin.delete_group_offsets(group, [place])
    assert [error.errno for error in refused.values()] == [GROUP_SUBSCRIBED_TO_TOPIC]
    refused = python_admin.delete_groups([group])
    assert "NonEmptyGroup" in str(refused)


def test_kafka_python_removes_a_member(bootstrap: str, python_admin: Any, wire: Connection, group: str) -> None:
    with ClassicMember(bootstrap, group, instance="stuck") as member:
        stable_group([member])
        python_admin.remove_group_members(group, [MemberToRemove(group_instance_id="stuck")])
        assert listed(wire, group)["group_state"] == "Empty"
    python_admin.delete_groups([group])
    assert listed(wire, group) is None


# ------------------------------------------------------------------------------------------------------- aiokafka


def test_aiokafka_commits_without_a_group_membership(bootstrap: str, group: str, filled: str) -> None:
    async def check() -> None:
        where = aiokafka.TopicPartition(filled, 0)
        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=group, enable_auto_commit=False)
        await consumer.start()
        try:
            consumer.assign([where])
            assert await consumer.committed(where) is None
            await consumer.commit({where: (4, "four")})
            assert await consumer.committed(where) == 4
        finally:
            await consumer.stop()
        again = aiokafka.AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=group, enable_auto_commit=False)
        await again.start()
        try:
            again.assign([where])
            assert await again.position(where) == 4
        finally:
            await again.stop()

    asyncio.run(check())


def test_aiokafka_lists_describes_and_reads_offsets(
    bootstrap: str, living: ClassicMember, group: str, filled: str
) -> None:
    living.commit(filled, {0: 3}, metadata="three")

    async def check() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await admin.start()
        try:
            assert (group, "consumer") in await admin.list_consumer_groups()
            (answer,) = await admin.describe_consumer_groups([group])
            assert living.id in str(answer.groups)
            found = await admin.list_consumer_group_offsets(group)
            assert {place.partition: (one.offset, one.metadata) for place, one in found.items()} == {0: (3, "three")}
        finally:
            await admin.close()

    asyncio.run(check())


# ------------------------------------------------------------------------------------------- the newer protocol


@pytest.mark.newer_protocol
def test_confluent_describes_a_group_of_the_newer_protocol(
    bootstrap: str, confluent_admin: cka.AdminClient, group: str, filled: str
) -> None:
    consumer = ck.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": group, "group.protocol": "consumer", "log_level": 0}
    )
    consumer.subscribe([filled])
    try:
        for _ in range(100):
            consumer.poll(0.1)
            if len(consumer.assignment()) == 2:
                break
        described = confluent_admin.describe_consumer_groups([group])[group].result(TIMEOUT_S)
        assert (described.state, described.type) == (ck.ConsumerGroupState.STABLE, ck.ConsumerGroupType.CONSUMER)
        (member,) = described.members
        assert sorted(tp.partition for tp in member.assignment.topic_partitions) == [0, 1]
        only = confluent_admin.list_consumer_groups(types={ck.ConsumerGroupType.CONSUMER}).result(TIMEOUT_S)
        assert group in [one.group_id for one in only.valid]
    finally:
        consumer.close()
