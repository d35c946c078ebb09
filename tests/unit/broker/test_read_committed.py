"""Who reads with isolation level read_committed sees nothing from the last stable offset on."""

from collections.abc import Iterator
from unittest.mock import patch

import pytest
from broker_world import WALL_MS, World, batch, part, values

from skidway.log.log import Log

READ_UNCOMMITTED, READ_COMMITTED = 0, 1


@pytest.fixture
def world() -> Iterator[World]:
    """Five batches of one record, and a transaction open since the third."""
    world = World()
    peer = world.peer()
    peer.create("t", flush="os")
    for value in (b"a", b"b", b"c", b"d", b"e"):
        peer.produce("t", batch(value))
    world.settle()
    with patch.object(Log, "last_stable_offset", 2):
        yield world


def test_a_fetch_ends_at_the_last_stable_offset(world: World) -> None:
    peer = world.peer()
    for isolation_level, seen in ((READ_UNCOMMITTED, b"abcde"), (READ_COMMITTED, b"ab")):
        peer.fetch({("t", 0): 0}, isolation_level=isolation_level)
        response = peer.reply()
        assert b"".join(value or b"" for value in values(response)) == seen
        (told,) = response.responses[0].partitions
        assert (told.high_watermark, told.last_stable_offset) == (5, 2)


def test_a_fetch_above_the_last_stable_offset_waits(world: World) -> None:
    peer = world.peer()
    peer.fetch({("t", 0): 2}, isolation_level=READ_COMMITTED, max_wait_ms=100)
    assert peer.replies() == []
    world.pass_time(100)
    assert values(peer.reply()) == []
    peer.fetch({("t", 0): 2}, isolation_level=READ_UNCOMMITTED, max_wait_ms=100)
    assert values(peer.reply()) == [b"c", b"d", b"e"]


@pytest.mark.parametrize(
    ("timestamp", "anywhere", "stable"),
    [(-1, 5, 2), (-2, 0, 0), (-3, 0, 0), (WALL_MS, 0, 0), (WALL_MS + 1, -1, -1)],
    ids=["end", "start", "largest timestamp", "by time", "later than all"],
)
def test_offsets_are_listed_below_the_last_stable_offset(
    world: World, timestamp: int, anywhere: int, stable: int
) -> None:
    assert listed(world, timestamp, READ_UNCOMMITTED) == anywhere
    assert listed(world, timestamp, READ_COMMITTED) == stable


def test_what_is_not_stable_is_not_found_by_time(world: World) -> None:
    with patch.object(Log, "last_stable_offset", 0):
        for timestamp in (-3, WALL_MS):
            assert listed(world, timestamp, READ_UNCOMMITTED) == 0
            assert listed(world, timestamp, READ_COMMITTED) == -1


def listed(world: World, timestamp: int, isolation_level: int) -> int:
    peer = world.peer()
    entry = part("ListOffsets", "ListOffsetsPartition", 0, timestamp=timestamp)
    topics = [part("ListOffsets", "ListOffsetsTopic", "t", [entry])]
    peer.send("ListOffsets", replica_id=-1, isolation_level=isolation_level, topics=topics, version=7)
    (answer,) = peer.reply().topics[0].partitions
    assert answer.error_code == 0
    return int(answer.offset)
