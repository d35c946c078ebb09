"""The time of day is set while producers are at work: none of them is forgotten for it."""

import pytest
from broker_world import World, batch, code

from skidway.errors import ErrorCode

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


def produce(world: World, sequence: int) -> tuple[int, int]:
    """(error, base offset) of one message of producer 7."""
    peer = world.peer()
    peer.produce("orders", batch(b"%d" % sequence, producer_id=7, producer_epoch=0, base_sequence=sequence))
    world.settle()
    reply = peer.reply()
    return code(reply), reply.responses[0].partition_responses[0].base_offset


def look_after(world: World, milliseconds: int) -> None:
    world.pass_time(milliseconds)
    world.node.maintain(world.clock.now_ms, world.clock.wall_ms())
    world.settle()


@pytest.fixture
def world() -> World:
    world = World()
    # Its records are of a time that may seem long past or far ahead.
    world.peer().create("orders", retention_ms="-1", message_timestamp_after_max_ms=str(2**62))
    return world


@pytest.mark.parametrize("leap_ms", [-2 * DAY_MS, 2 * DAY_MS])
@pytest.mark.parametrize("sent_after_the_leap", [False, True])
def test_a_producer_at_work_is_known_after_a_leap(world: World, leap_ms: int, sent_after_the_leap: bool) -> None:
    assert produce(world, 0) == (0, 0)
    look_after(world, HOUR_MS)
    assert produce(world, 1) == (0, 1)
    world.clock.leapt_ms += leap_ms
    last = 1
    if sent_after_the_leap:
        assert produce(world, last := 2) == (0, 2)
    look_after(world, HOUR_MS)
    assert produce(world, last) == (0, last), "stored twice"
    assert produce(world, last + 5)[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    # Silent for a day from here, it is forgotten as ever.
    look_after(world, DAY_MS - 2 * HOUR_MS)
    assert produce(world, last + 5)[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    if leap_ms > 0:
        look_after(world, DAY_MS)
        assert produce(world, last + 5) == (0, last + 1)
