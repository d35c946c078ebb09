"""No share fetch and no acknowledgement holds the event loop for long, however much it names."""

from typing import Any

import pytest
from bench.worst_requests import worst_requests
from broker_world import Peer, part
from counted_turns import SCALE, TURN_CALLS_MAX, Turns

from skidway.broker.api.connection import Connection

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
