"""A follower that fetches very many partitions: looked at in several turns, beside everything else."""

from typing import Any

import pytest
from broker_world import batch
from counted_turns import Turns
from follower_by_hand import Follower, replicated_topic

from skidway.errors import ErrorCode

PARTITIONS = 1_200
MANY = {("many", index): 0 for index in range(PARTITIONS)}


@pytest.fixture
def turns() -> Turns:
    """Broker 1 is real and leads `many`; 2 follows as told."""
    turns = Turns(1, session_timeout_ms=10**9, replica_lag_ms=10**9)
    turns.follower = Follower(turns.world, 2)  # type: ignore[attr-defined]
    replicated_topic(turns.world, "many", [[1, 2]] * PARTITIONS, flush="os")
    turns.longest = 0
    return turns


def follower_of(turns: Turns) -> Follower:
    return turns.follower  # type: ignore[attr-defined, no-any-return]


def begin(turns: Turns, follower: Follower, offsets: dict[tuple[str, int], int], **fields: Any) -> None:
    turns.count(lambda: follower.fetch(offsets, **fields))


def finish(turns: Turns, follower: Follower) -> None:
    for _ in range(1_000):
        if follower.peer.connection.outbox:
            return
        turns.turn()
    raise AssertionError("it is never answered")


def watched(turns: Turns) -> int:
    return sum(partition.watched for partition in turns.world.node.partitions)


def test_all_of_them_are_answered_and_no_turn_looks_at_all(turns: Turns) -> None:
    follower = follower_of(turns)
    before = turns.clock.calls
    begin(turns, follower, MANY)
    assert not follower.peer.connection.outbox, "it takes several turns"
    finish(turns, follower)
    assert turns.longest < 0.3 * (turns.clock.calls - before)
    assert follower.reply().keys() == MANY.keys()
    assert watched(turns) == PARTITIONS


def test_what_is_written_to_a_partition_after_it_was_looked_at_comes_with_the_next_fetch(turns: Turns) -> None:
    follower = follower_of(turns)
    begin(turns, follower, MANY)
    while not watched(turns):
        turns.turn()
    turns.world.peer().produce("many", batch(b"late"), acks=1)
    assert not follower.peer.connection.outbox
    finish(turns, follower)
    assert not follower.reply()["many", 0].records
    while turns.world.node.world.slices.under_way:
        turns.turn()  # the connection frees the request before it takes the next one
    assert follower.ask({})["many", 0].records


def test_a_long_poll_of_very_many_is_answered_in_steps_as_well(turns: Turns) -> None:
    follower = follower_of(turns)
    follower.fetch(MANY)
    finish(turns, follower)
    follower.reply()
    follower.fetch({}, max_wait_ms=10_000)
    for _ in range(3):
        turns.turn()
    assert not follower.peer.connection.outbox, "there is nothing new"
    producer = turns.world.peer()
    for index in range(PARTITIONS):
        producer.produce("many", batch(b"new"), acks=1, index=index)
    before, turns.longest = turns.clock.calls, 0
    finish(turns, follower)
    assert turns.longest < 0.5 * (turns.clock.calls - before)
    told = follower.reply()
    assert told.keys() == MANY.keys()
    assert all(data.records for data in told.values())


def test_a_follower_that_hangs_up_in_the_middle_leaves_nothing_behind(turns: Turns) -> None:
    follower = follower_of(turns)
    follower.session_epoch = -1
    begin(turns, follower, MANY)
    while watched(turns) < 100:
        turns.turn()
    follower.peer.connection.closed()
    for _ in range(100):
        turns.turn()
    assert watched(turns) == 0
    assert turns.world.node.world.slices.under_way == 0


def test_a_new_session_of_the_follower_ends_a_fetch_that_is_worked_on(turns: Turns) -> None:
    late = follower_of(turns)
    begin(turns, late, MANY)
    while watched(turns) < 100:
        turns.turn()
    assert not late.peer.connection.outbox
    follower = late.again()
    assert follower.ask({("many", 0): 0}).keys() == {("many", 0)}
    finish(turns, late)
    assert late.peer.reply().error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    for _ in range(100):
        turns.turn()
    assert watched(turns) == 1, "what the new session follows"
    assert len(turns.world.node.rooms.replica_polls.sessions.open) == 1
    assert turns.world.node.world.slices.under_way == 0
