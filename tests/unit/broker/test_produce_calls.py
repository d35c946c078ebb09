"""What a produce request of one batch costs: counted in calls of Python functions, where each call is a share of it."""

import sys
from types import FrameType
from typing import Any

import pytest
from broker_world import Peer, World, batch, code, part

ITS_OWN = ("broker/handlers/produce.py", "broker/partitions/partition.py")


def called(peer: Peer, frame: bytes) -> list[str]:
    """Functions of the handler and of the partition, in the order of their calls."""
    names: list[str] = []

    def note(running: FrameType, event: str, argument: Any) -> None:
        if event == "call" and running.f_code.co_filename.endswith(ITS_OWN):
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
