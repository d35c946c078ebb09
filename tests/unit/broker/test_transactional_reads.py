"""Readers of committed data beside transactions that are open, committed and aborted."""

from typing import Any

import pytest
from broker_world import WALL_MS, Peer, World, batch, marker_of, part, values

from skidway.log import retention
from skidway.records.batch import read_header
from skidway.records.control import EndTransaction

READ_UNCOMMITTED, READ_COMMITTED = 0, 1
SEQUENCES: dict[int, int] = {}


@pytest.fixture
def world() -> World:
    SEQUENCES.clear()
    world = World()
    world.peer().create("t", flush="os", index_interval_bytes="0")
    return world


def write(world: World, producer_id: int, value: bytes) -> None:
    """A transactional batch that the coordinator knows of."""
    sequence = SEQUENCES.get(producer_id, 0)
    SEQUENCES[producer_id] = sequence + 1
    data = bytearray(
        batch(value, producer_id=producer_id, producer_epoch=0, base_sequence=sequence, transactional=True)
    )
    world.partition("t").append(data, read_header(data), WALL_MS)
    world.settle()


def end(world: World, producer_id: int, *, committed: bool) -> None:
    world.partition("t").write_marker(marker_of(producer_id, 0, EndTransaction(committed, 4), 1, WALL_MS))
    world.settle()


def plain(world: World, value: bytes) -> None:
    world.peer().produce("t", batch(value))
    world.settle()


def fetched(peer: Peer, offset: int, isolation_level: int, **fields: Any) -> Any:
    peer.fetch({("t", 0): offset}, isolation_level=isolation_level, **fields)
    return peer.reply()


def told(response: Any) -> Any:
    (data,) = response.responses[0].partitions
    return data


def aborted(response: Any) -> list[tuple[int, int]] | None:
    listed = told(response).aborted_transactions
    return None if listed is None else [(entry.producer_id, entry.first_offset) for entry in listed]


def test_a_reader_gets_what_is_stable_and_what_of_it_was_aborted(world: World) -> None:
    plain(world, b"a")
    write(world, 7, b"b")
    write(world, 8, b"c")
    end(world, 7, committed=False)
    end(world, 8, committed=False)
    write(world, 9, b"d")
    plain(world, b"e")
    response = fetched(world.peer(), 0, READ_COMMITTED)
    assert [value for value in values(response) if value in (b"a", b"b", b"c", b"d", b"e")] == [b"a", b"b", b"c"]
    assert aborted(response) == [(7, 1), (8, 2)]
    assert (told(response).last_stable_offset, told(response).high_watermark) == (5, 7)
    response = fetched(world.peer(), 0, READ_UNCOMMITTED)
    assert values(response)[-2:] == [b"d", b"e"]
    assert aborted(response) is None
    assert told(response).last_stable_offset == 5
    end(world, 9, committed=True)
    response = fetched(world.peer(), 5, READ_COMMITTED)
    assert values(response)[:2] == [b"d", b"e"]
    assert aborted(response) == []


def test_who_gets_a_part_is_told_of_that_part(world: World) -> None:
    """A list of everything up to the end would be as long as the log."""
    for number in range(50):
        write(world, 7, b"%d" % number)
        end(world, 7, committed=False)
    peer = world.peer()
    limited = part("Fetch", "FetchPartition", 0, fetch_offset=10, partition_max_bytes=300)
    topics = [part("Fetch", "FetchTopic", "t", partitions=[limited])]
    peer.send("Fetch", topics=topics, max_wait_ms=0, min_bytes=1, max_bytes=10_000, session_epoch=-1, isolation_level=1)
    response = peer.reply()
    listed = aborted(response)
    assert listed is not None
    assert listed[:2] == [(7, 10), (7, 12)]
    assert len(listed) <= 4


def test_a_long_poll_waits_for_the_end_of_a_transaction(world: World) -> None:
    """Its records are committed one after the other: each would wake a reader for nothing."""
    committed, uncommitted = world.peer(), world.peer()
    for peer, isolation_level in ((committed, READ_COMMITTED), (uncommitted, READ_UNCOMMITTED)):
        # More than a marker has.
        peer.fetch({("t", 0): 0}, isolation_level=isolation_level, max_wait_ms=1000, min_bytes=150)
    write(world, 7, b"a" * 100)
    assert committed.replies() == []
    assert values(uncommitted.reply()) == [b"a" * 100]
    write(world, 7, b"b" * 100)
    assert committed.replies() == []
    end(world, 7, committed=True)
    assert values(committed.reply())[:2] == [b"a" * 100, b"b" * 100]


def test_a_long_poll_waits_for_the_first_of_several_transactions(world: World) -> None:
    write(world, 7, b"a")
    write(world, 8, b"b")
    peer = world.peer()
    peer.fetch({("t", 0): 0}, isolation_level=READ_COMMITTED, max_wait_ms=1000)
    end(world, 8, committed=True)
    assert peer.replies() == []
    end(world, 7, committed=True)
    assert [value for value in values(peer.reply()) if value in (b"a", b"b")] == [b"a", b"b"]


def test_a_long_poll_is_woken_by_what_comes_before_a_transaction_in_the_same_turn(world: World) -> None:
    peer = world.peer()
    peer.fetch({("t", 0): 0}, isolation_level=READ_COMMITTED, max_wait_ms=1000)
    partition = world.partition("t")
    for options in ({}, {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0, "transactional": True}):
        data = bytearray(batch(b"a", **options))
        partition.append(data, read_header(data), WALL_MS)
    world.settle()
    assert values(peer.reply()) == [b"a"]


def test_plain_records_wake_who_reads_committed_ones(world: World) -> None:
    peer = world.peer()
    peer.fetch({("t", 0): 0}, isolation_level=READ_COMMITTED, max_wait_ms=1000, min_bytes=100)
    plain(world, b"a")
    assert peer.replies() == []
    plain(world, b"b")
    assert values(peer.reply()) == [b"a", b"b"]


def test_who_waits_for_the_end_of_a_transaction_is_not_forgotten(world: World) -> None:
    """The deadline comes, the topic goes, the reader hangs up: as for any other."""
    write(world, 7, b"a")
    peer, gone, late = world.peer(), world.peer(), world.peer()
    for each, wait_ms in ((peer, 10_000), (gone, 10_000), (late, 100)):
        each.fetch({("t", 0): 0}, isolation_level=READ_COMMITTED, max_wait_ms=wait_ms)
    assert world.node.waiting.stable_polls.waits == 3
    world.pass_time(100)
    assert values(late.reply()) == []
    gone.connection.closed()
    assert world.node.waiting.stable_polls.waits == 1
    world.peer().delete("t")
    world.settle()
    assert told(peer.reply()).error_code != 0
    assert world.node.waiting.stable_polls.waits == 0


def test_offsets_end_at_the_last_stable_one(world: World) -> None:
    plain(world, b"a")
    write(world, 7, b"b")
    for isolation_level, end_offset, by_time in ((READ_COMMITTED, 1, 0), (READ_UNCOMMITTED, 2, 0)):
        assert listed(world, -1, isolation_level) == end_offset
        assert listed(world, WALL_MS, isolation_level) == by_time
    retention.delete_before(world.partition("t").log, 1)
    assert listed(world, WALL_MS, READ_COMMITTED) == -1
    assert listed(world, WALL_MS, READ_UNCOMMITTED) == 1
    assert listed(world, -2, READ_COMMITTED) == 1
    end(world, 7, committed=True)
    assert listed(world, -1, READ_COMMITTED) == 3
    assert listed(world, WALL_MS, READ_COMMITTED) == 1


def listed(world: World, timestamp: int, isolation_level: int) -> int:
    peer = world.peer()
    entry = part("ListOffsets", "ListOffsetsPartition", 0, timestamp=timestamp)
    topics = [part("ListOffsets", "ListOffsetsTopic", "t", [entry])]
    peer.send("ListOffsets", replica_id=-1, isolation_level=isolation_level, topics=topics, version=7)
    world.settle()
    (answer,) = peer.reply().topics[0].partitions
    assert answer.error_code == 0
    return int(answer.offset)


def test_producers_are_described_with_what_they_have_open(world: World) -> None:
    write(world, 7, b"a")
    end(world, 7, committed=True)
    write(world, 7, b"b")
    write(world, 8, b"c")
    asked = [part("DescribeProducers", "TopicRequest", "t", [0])]
    (found,) = world.peer().call("DescribeProducers", topics=asked).topics[0].partitions
    described = [
        (each.producer_id, each.coordinator_epoch, each.current_txn_start_offset) for each in found.active_producers
    ]
    assert described == [(7, 4, 2), (8, -1, 3)]


@pytest.mark.parametrize("clean", [True, False])
def test_what_has_ended_is_stable_after_a_start(world: World, clean: bool) -> None:
    """Nobody else has the partition, so all that is in its log is committed."""
    write(world, 7, b"a")
    end(world, 7, committed=False)
    if clean:
        world.node.close(clean=True)
    again = World(world.disk, clock=world.clock)
    again.settle()
    assert aborted(fetched(again.peer(), 0, READ_COMMITTED)) == [(7, 0)]
    assert again.partition("t").log.last_stable_offset == 2
