"""What a produce request of one batch costs: counted in calls of Python functions, where each call is a share of it."""

import sys
from types import FrameType
from typing import Any

import pytest
from broker_world import Peer, World, batch, code, part
from played_coordinator import AGREED, TransactionalWorld

ITS_OWN = ("broker/handlers/produce.py", "broker/partitions/partition.py")
OF_PRODUCERS = ("broker/partitions/producer_checks.py", "broker/partitions/guards.py", "log/open_transactions.py")


def called(peer: Peer, frame: bytes, modules: tuple[str, ...] = ITS_OWN) -> list[str]:
    """Functions of the handler and of the partition, in the order of their calls."""
    names: list[str] = []

    def note(running: FrameType, event: str, argument: Any) -> None:
        if event == "call" and running.f_code.co_filename.endswith(modules):
            names.append(running.f_code.co_name)

    sys.setprofile(note)
    try:
        peer.give(frame)
    finally:
        sys.setprofile(None)
    return names


def produce_frame(peer: Peer, topic: str, acks: int) -> bytes:
    entry = part("Produce", "PartitionProduceData", 0, batch(b"x"))
    topics = [part("Produce", "TopicProduceData", topic, partition_data=[entry])]
    return peer.frame("Produce", acks=acks, timeout_ms=5000, topic_data=topics)


@pytest.mark.parametrize("acks", [1, -1])
def test_a_request_of_one_batch_is_one_call_of_the_handler_and_few_of_the_partition(acks: int) -> None:
    peer = World().peer()
    peer.create("calls", flush="os")
    peer.call("Metadata", topics=None)
    found = called(peer, produce_frame(peer, "calls", acks))
    assert code(peer.reply()) == 0
    assert found == ["handle", "produce", "append", "_stored", "advance"]


def test_a_request_that_has_to_be_opened_is_continued_in_steps() -> None:
    peer = World().peer()
    peer.create("opened", flush="os", cleanup_policy="compact")
    found = called(peer, produce_frame(peer, "opened", 1))
    assert "in_steps" in found
    assert code(peer.reply()) != 0, "a record without a key is refused"


def test_transactions_cost_other_producers_nothing() -> None:
    world = TransactionalWorld()
    peer = world.producer

    def frame(sequence: int, transactional: bool, producer_id: int) -> bytes:
        data = peer.data(sequence, transactional=transactional, producer_id=producer_id)
        entry = part("Produce", "PartitionProduceData", 0, data)
        topics = [part("Produce", "TopicProduceData", "orders", partition_data=[entry])]
        transactional_id = "shop" if transactional else None
        fields = {"acks": -1, "timeout_ms": 5000, "topic_data": topics, "transactional_id": transactional_id}
        return peer.frame("Produce", **fields)

    peer.give(frame(0, False, 1))
    assert called(peer, frame(1, False, 1), OF_PRODUCERS) == ["check"]
    peer.give(frame(0, True, 2))
    world.answer(AGREED)
    found = called(peer, frame(1, True, 2), ITS_OWN + OF_PRODUCERS)
    assert found == ["handle", "produce", "check", "append", "_stored", "advance", "commit"]
    assert peer.codes() == [[0]] * 4
