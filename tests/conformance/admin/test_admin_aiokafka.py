"""aiokafka's AIOKafkaAdminClient: what is not in test_client_admin.py and groups/test_client_committed.py."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import aiokafka
import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from group_calls import ClassicMember, ConsumerMember, commit
from raw import Connection

from waiting import eventually

INVALID_REPLICA_ASSIGNMENT = 39
Ask = Callable[[Callable[[AIOKafkaAdminClient], Awaitable[Any]]], Any]


@pytest.fixture
def ask(aio: Callable[[], AIOKafkaAdminClient]) -> Ask:
    """Run one coroutine with a started client."""

    def run(question: Callable[[AIOKafkaAdminClient], Awaitable[Any]]) -> Any:
        async def answer() -> Any:
            admin = aio()
            await admin.start()
            try:
                return await question(admin)
            finally:
                await admin.close()

        return asyncio.run(answer())

    return run


def test_create_topics_and_partitions_with_assignments(ask: Ask, name: str, broker_id: int) -> None:
    placed = NewTopic(name, -1, -1, replica_assignments={0: [broker_id], 1: [broker_id]})
    answer = ask(lambda admin: admin.create_topics([placed]))
    assert [error[1] for error in answer.topic_errors] == [0]
    more = NewPartitions(3, [[broker_id]])
    answer = ask(lambda admin: admin.create_partitions({name: more}))
    assert [error[1] for error in answer.topic_errors] == [0]

    def partitions() -> int:
        (found,) = ask(lambda admin: admin.describe_topics([name]))
        return len(found["partitions"])

    eventually(lambda: partitions() == 3)
    nowhere = NewTopic(f"{name}-x", -1, -1, replica_assignments={0: [broker_id + 100]})
    answer = ask(lambda admin: admin.create_topics([nowhere]))
    assert [error[1] for error in answer.topic_errors] == [INVALID_REPLICA_ASSIGNMENT]


def test_describe_configs_of_a_broker(ask: Ask, broker_id: int) -> None:
    resource = ConfigResource(ConfigResourceType.BROKER, str(broker_id), {"node.id": None, "log.retention.ms": None})
    (answer,) = ask(lambda admin: admin.describe_configs([resource], include_synonyms=True))
    ((code, _, kind, name, entries),) = answer.resources
    assert (code, kind, name) == (0, ConfigResourceType.BROKER, str(broker_id))
    assert {entry[0]: entry[2] for entry in entries} == {"node.id": True, "log.retention.ms": False}, "read only or not"


def test_find_coordinator(ask: Ask, group: str, broker_id: int) -> None:
    assert ask(lambda admin: admin.find_coordinator(group)) == broker_id


def test_list_and_describe_groups_of_both_protocols(
    ask: Ask, classic: ClassicMember, modern: ConsumerMember, group: str
) -> None:
    listed = ask(lambda admin: admin.list_consumer_groups())
    assert {(group, "consumer"), (modern.group, "consumer")} <= set(listed)

    def state(name: str) -> str:
        # One at a time: aiokafka 0.14 misreads an answer about several.
        (answer,) = ask(lambda admin: admin.describe_consumer_groups([name]))
        ((_, found, state, *_),) = answer.groups
        assert found == name
        return str(state)

    assert state(group) == "Stable"
    assert state(modern.group) == "Dead", "this call is of the classic protocol"


def test_list_offsets_of_some_partitions(ask: Ask, wire: Connection, group: str, filled: str) -> None:
    commit(wire, group, filled, {0: 4})
    asked = [aiokafka.TopicPartition(filled, partition) for partition in range(2)]
    found = ask(lambda admin: admin.list_consumer_group_offsets(group, partitions=asked))
    assert {place.partition: one.offset for place, one in found.items()} == {0: 4, 1: -1}
    assert ask(lambda admin: admin.list_consumer_group_offsets(group + "-nobody")) == {}
