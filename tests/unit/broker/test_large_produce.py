"""Produce requests that are large: by their batches, or by the number of their partitions."""

import pytest
from bench.worst_requests import worst_requests
from broker_world import KEYS, Peer, batch, part
from counted_turns import CALLS_PER_MS, Turns

from skidway.broker.api.call import Malformed
from skidway.broker.api.table import SERVED
from skidway.broker.handlers.produce import BATCHES_AT_ONCE
from skidway.limits import KIB

PARTITIONS = 20
AT_ONCE = SERVED[KEYS["Produce"]].elements_at_once or 0


@pytest.fixture(scope="module")
def turns() -> Turns:
    assert AT_ONCE > BATCHES_AT_ONCE
    return Turns(PARTITIONS)


def produce_frame(peer: Peer, topic: str, count: int, data: bytes) -> bytes:
    entries = [part("Produce", "PartitionProduceData", index % PARTITIONS, data) for index in range(count)]
    topics = [part("Produce", "TopicProduceData", topic, partition_data=entries)]
    return peer.frame("Produce", acks=1, timeout_ms=5000, topic_data=topics)


def give(turns: Turns, peer: Peer, frame: bytes, *, offered: bool) -> bytearray:
    """What a shell does that gives its buffer away if it can; returns the buffer."""
    buffer = bytearray(frame)
    peer.connection.offered = offered
    assert turns.count(peer.connection.receive, memoryview(buffer), turns.clock.monotonic_ms()) == len(frame)
    peer.connection.offered = False
    return buffer


def finish(turns: Turns, peer: Peer) -> list[int]:
    """The error codes in the reply."""
    while not peer.connection.outbox:
        turns.turn()
    (topic,) = peer.reply().responses
    return [answer.error_code for answer in topic.partition_responses]


def test_a_request_of_very_many_partitions_is_decoded_in_steps(turns: Turns) -> None:
    worst = next(
        each for each in worst_requests(turns.what, 5 * AT_ONCE, KEYS["Produce"]) if each.shape == "deep topic_data"
    )
    turns.longest = 0
    connection = turns.begin(worst.frame())
    assert connection.work is not None
    assert turns.longest < 10 * CALLS_PER_MS, "one try to decode it at once, and the first steps"
    connection.closed()


def ends(turns: Turns) -> int:
    return sum(turns.world.partition("wide", index).log.end_offset for index in range(PARTITIONS))


@pytest.mark.parametrize("offered", [True, False], ids=["given away", "read into again"])
@pytest.mark.parametrize("count", [AT_ONCE // 2, 2 * AT_ONCE], ids=["decoded at once", "decoded in steps"])
def test_batches_that_wait_for_later_turns_stay_as_they_were_sent(turns: Turns, count: int, offered: bool) -> None:
    before = ends(turns)
    peer = turns.world.peer()
    buffer = give(turns, peer, produce_frame(peer, "wide", count, batch(b"x" * 100)), offered=offered)
    assert peer.connection.kept == offered, "what need not be copied is kept"
    assert peer.connection.work is not None
    if not offered:
        buffer[:] = bytes(len(buffer))
    assert finish(turns, peer) == [0] * count, "the checksums are right"
    assert ends(turns) == before + count


def test_large_batches_are_not_appended_all_at_once(turns: Turns) -> None:
    peer = turns.world.peer()
    give(turns, peer, produce_frame(peer, "wide", PARTITIONS, batch(bytes(900 * KIB))), offered=True)
    assert peer.connection.kept, "the last of them wait for a later step"
    assert finish(turns, peer) == [0] * PARTITIONS


def test_a_small_request_keeps_nothing(turns: Turns) -> None:
    peer = turns.world.peer()
    give(turns, peer, produce_frame(peer, "wide", BATCHES_AT_ONCE, batch(b"x")), offered=True)
    assert not peer.connection.kept
    assert set(finish(turns, peer)) == {0}


def test_a_request_that_cannot_be_decoded_is_malformed_however_it_is_tried(turns: Turns) -> None:
    peer = turns.world.peer()
    frame = bytearray(produce_frame(peer, "wide", 3, batch(b"x")))
    del frame[-40:]
    frame[:4] = (len(frame) - 4).to_bytes(4, "big")
    with pytest.raises(Malformed):
        peer.give(bytes(frame))
