"""`transaction.partition.verification.enable`: whether leaders believe clients that say they have added a partition."""

from typing import Any

import pytest
from broker_world import batch, part
from transactions_world import ID, Transactions

from skidway.errors import ErrorCode as E

BROKER_RESOURCE = 4
NAME = "transaction.partition.verification.enable"
STEADY, BUMPING = 11, 12


def setting(story: Transactions, broker: str, value: str | None) -> int:
    asked = part("IncrementalAlterConfigs", "AlterableConfig", NAME, 1 if value is None else 0, value)
    resource = part("IncrementalAlterConfigs", "AlterConfigsResource", BROKER_RESOURCE, broker, [asked])
    (answer,) = story.peer.call("IncrementalAlterConfigs", resources=[resource]).responses
    return int(answer.error_code)


def write(story: Transactions, producer: Any, version: int, index: int = 0) -> int:
    """Without adding the partition."""
    data = batch(b"x", producer_id=producer[0], producer_epoch=producer[1], base_sequence=0, transactional=True)
    entry = part("Produce", "PartitionProduceData", index, data)
    topics = [part("Produce", "TopicProduceData", "t", partition_data=[entry])]
    story.peer.send("Produce", version=version, transactional_id=ID, acks=-1, timeout_ms=5_000, topic_data=topics)
    (answered,) = story.turns().responses
    return int(answered.partition_responses[0].error_code)


@pytest.fixture
def story() -> Transactions:
    return Transactions()


def new_producer(story: Transactions) -> tuple[int, int]:
    answer = story.init()
    assert answer.error_code == E.NONE
    return answer.producer_id, answer.producer_epoch


@pytest.mark.parametrize("broker", ["", "1"])
def test_what_a_client_says_is_believed_while_the_setting_is_off(story: Transactions, broker: str) -> None:
    producer = new_producer(story)
    assert write(story, producer, STEADY) == E.TRANSACTION_ABORTABLE
    assert setting(story, broker, "false") == E.NONE
    assert write(story, producer, STEADY) == E.NONE
    assert story.state().places == frozenset(), "the coordinator knows nothing of it"
    assert setting(story, broker, None) == E.NONE
    assert write(story, producer, STEADY, 1) == E.TRANSACTION_ABORTABLE


def test_for_clients_that_leave_it_to_leaders_partitions_are_added_all_the_same(story: Transactions) -> None:
    assert setting(story, "1", "false") == E.NONE
    producer = new_producer(story)
    assert write(story, producer, BUMPING) == E.NONE
    assert story.state().places == frozenset({("t", 0)})


@pytest.mark.parametrize("producer", [(-1, -1), (-5, 0), (7, -1)])
@pytest.mark.parametrize("verifies", ["true", "false"])
def test_a_producer_that_cannot_be_has_no_pending_offsets(
    story: Transactions, verifies: str, producer: tuple[int, int]
) -> None:
    """No marker could end what it has pending, and nobody who waits for stable offsets would get any again."""
    assert setting(story, "1", verifies) == E.NONE
    story.peer.call("FindCoordinator", key_type=0, coordinator_keys=["g"], version=4)
    entry = part("TxnOffsetCommit", "TxnOffsetCommitRequestPartition", 0, 5, -1, "")
    topics = [part("TxnOffsetCommit", "TxnOffsetCommitRequestTopic", "t", partitions=[entry])]
    asked = {"transactional_id": ID, "group_id": "g", "producer_id": producer[0], "producer_epoch": producer[1]}
    story.peer.send("TxnOffsetCommit", version=3, topics=topics, **asked)
    (answered,) = story.turns().topics
    assert answered.partitions[0].error_code == E.INVALID_PRODUCER_ID_MAPPING


def test_it_is_true_or_false(story: Transactions) -> None:
    assert setting(story, "1", "no") == E.INVALID_REQUEST
