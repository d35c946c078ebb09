"""No share fetch and no acknowledgement holds the event loop for long, however much it names."""

from typing import Any

import pytest
from bench.worst_requests import worst_requests
from broker_world import Peer, batch, part
from counted_turns import SCALE, TURN_CALLS_MAX, TURNS_MAX, Turns

from skidway import steps
from skidway.broker.api.connection import Connection
from skidway.broker.queues import receiving
from skidway.runtime import slices

ELEMENTS = 60_000 // SCALE
FETCHES = {"version": 2, "group_id": "g", "member_id": "m", "max_bytes": 1 << 20, "max_records": 500, "batch_size": 500}


@pytest.fixture
def turns() -> Turns:
    return Turns(50)


def sent(turns: Turns, connection: Connection | None, frame: bytes) -> Connection:
    if connection is None:
        connection = turns.begin(frame)
    else:
        connection.outbox.clear()
        turns.count(connection.receive, memoryview(bytearray(frame)), turns.clock.monotonic_ms())
    turns.finish(connection, turns.world.peer())
    return connection


def topics_of(turns: Turns, name: str, kinds: tuple[str, str], indexes: range, acks: Any) -> list[Any]:
    entries = [part(name, kinds[1], index, acknowledgement_batches=acks(index)) for index in indexes]
    return [part(name, kinds[0], turns.what.topic_id, entries)]


@pytest.mark.parametrize("key", [78, 79])
def test_the_worst_requests_that_name_no_session(turns: Turns, key: int) -> None:
    good = turns.world.peer()
    for worst in worst_requests(turns.what, ELEMENTS, key):
        turns.longest = 0
        turns.serve(worst, good)
        assert turns.longest < TURN_CALLS_MAX, worst.name


def test_a_session_of_many_partitions_and_acknowledgements_of_all(turns: Turns) -> None:
    play(turns, "first")  # codecs are made on first use, which is not counted
    turns.longest = 0
    play(turns, "m")
    assert turns.longest < TURN_CALLS_MAX
    assert turns.world.node.rooms.services.share_fetches.sessions.open == {}


def play(turns: Turns, member: str) -> None:
    maker = Peer(turns.world)
    names = {"version": 2, "group_id": "g", "member_id": member}
    fetches = FETCHES | names
    kinds = ("FetchTopic", "FetchPartition")
    many = topics_of(turns, "ShareFetch", kinds, range(ELEMENTS), lambda index: [])
    connection = sent(turns, None, maker.frame("ShareFetch", share_session_epoch=0, topics=many, **fetches))

    def acks(index: int) -> list[Any]:
        return [part("ShareFetch", "AcknowledgementBatch", 0, 0, [1])]

    spoken = topics_of(turns, "ShareFetch", kinds, range(ELEMENTS // 2), acks)
    sent(turns, connection, maker.frame("ShareFetch", share_session_epoch=1, topics=spoken, **fetches))

    def long(index: int) -> list[Any]:
        return [
            part("ShareAcknowledge", "AcknowledgementBatch", 0, ELEMENTS - 1, [1 + at % 2 for at in range(ELEMENTS)])
        ]

    one = topics_of(turns, "ShareAcknowledge", ("AcknowledgeTopic", "AcknowledgePartition"), range(1), long)
    sent(turns, connection, maker.frame("ShareAcknowledge", share_session_epoch=2, topics=one, **names))
    turns.count(connection.closed)


def test_a_fetch_looks_at_the_clock_before_many_partitions_are_loaded(
    turns: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each asks the coordinator, which may be this node."""
    monkeypatch.setattr(slices, "FIRST_MS", 0)
    monkeypatch.setattr(steps, "STEPS_UNTIMED", 1)
    count = turns.what.partitions
    topics = topics_of(turns, "ShareFetch", ("FetchTopic", "FetchPartition"), range(count), lambda index: [])
    fetch = Peer(turns.world).frame("ShareFetch", share_session_epoch=0, topics=topics, max_wait_ms=0, **FETCHES)
    connection = turns.begin(fetch)
    assert connection.work is not None, "it goes on in later turns"
    assert turns.world.node.rooms.services.share_fetches.partitions.count < count // 2
    turns.finish(connection, turns.world.peer())


# --- queues ---


def receive(turns: Turns, partitions: int, **fields: Any) -> bytes:
    wanted = {"max_messages": 10, "max_bytes": 1 << 20, "visibility_ms": 60_000, "max_wait_ms": 0}
    asked = {"topic_id": turns.what.topic_id, "partitions": list(range(partitions)), **wanted, **fields}
    return Peer(turns.world).frame("ReceiveMessages", **asked)


def test_a_receive_from_many_partitions_that_are_not_here(turns: Turns) -> None:
    for _ in range(2):  # codecs are made on first use, which is not counted
        turns.longest = 0
        connection = turns.begin(receive(turns, 5_000))
        assert connection.work is not None, "it goes on in later turns"
        assert turns.finish(connection, turns.world.peer()) > 1
        turns.count(connection.closed)
    assert turns.longest < TURN_CALLS_MAX


def test_a_receive_whose_client_leaves_while_partitions_are_looked_at_takes_nothing(
    turns: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiving, "PARTITIONS_PER_STEP", 1)
    monkeypatch.setattr(slices, "FIRST_MS", 0)
    monkeypatch.setattr(slices, "SHARE_MS", 0)
    queues, good = turns.world.node.rooms.services.queues, turns.world.peer()
    for index in range(turns.what.partitions):
        turns.owner.produce("wide", batch(b"a"), index=index)
    turns.world.settle()
    turns.owner.replies()
    turns.finish(turns.begin(receive(turns, 50, max_messages=0)), good)  # what is stored of them is loaded

    def held() -> int:
        shares = [share for group in queues.partitions.groups.values() for share in group.values()]
        return sum(share.delivery.held_offsets for share in shares if share.delivery is not None)

    connection = turns.begin(receive(turns, 50, max_messages=1_000))
    for _ in range(TURNS_MAX):
        if held():
            break
        turns.turn()
    assert 0 < held() < 50
    assert not connection.outbox
    connection.closed()
    assert held() == 0
    last = turns.begin(receive(turns, 50, max_messages=1_000))
    turns.finish(last, good)
    assert held() == 50
