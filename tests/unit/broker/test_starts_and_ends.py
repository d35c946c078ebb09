"""Where a partition begins and ends, as clients see and move it: DeleteRecords and ListOffsets."""

from copy import deepcopy
from random import Random

import pytest
from broker_world import WALL_MS, Peer, World, batch, code, part, values

from skidway.broker.reads.ends import SYNC_WAIT_MS
from skidway.log.durability.directory_work import FilesTicket, RemovalTicket
from skidway.log.durability.sync import SyncTicket
from skidway.runtime.jobs import Lane

REQUEST_TIMED_OUT = 7


def read(world: World, topic: str, offset: int = 0) -> list[bytes | None]:
    peer = world.peer()
    peer.fetch({(topic, 0): offset})
    return values(peer.reply())


def test_records_can_be_deleted_up_to_the_high_watermark() -> None:
    world = World()
    peer = world.peer()
    peer.create("t", flush="sync")
    for value in (b"a", b"b", b"c"):
        peer.produce("t", batch(value))
    world.settle()
    peer.replies()
    assert deleted(world, 2) == (0, 2)
    assert read(world, "t", 2) == [b"c"]
    assert deleted(world, 4) == (1, -1)
    assert deleted(world, -7) == (1, -1)
    assert deleted(world, -1) == (0, 3)


def ask_to_delete(world: World, offset: int, *partitions: int) -> Peer:
    asked = [part("DeleteRecords", "DeleteRecordsPartition", index, offset) for index in partitions or (0,)]
    peer = world.peer()
    peer.send("DeleteRecords", topics=[part("DeleteRecords", "DeleteRecordsTopic", "t", asked)], timeout_ms=1000)
    return peer


def deleted(world: World, offset: int) -> tuple[int, int]:
    peer = ask_to_delete(world, offset)
    world.settle()
    (answer,) = peer.reply().topics[0].partitions
    return answer.error_code, answer.low_watermark


@pytest.mark.parametrize("flush", ["sync", "os"])
def test_a_deletion_is_answered_when_no_crash_undoes_it(flush: str) -> None:
    world = World()
    peer = world.peer()
    peer.create("t", 3, flush=flush)
    for index in range(3):
        peer.produce("t", batch(b"a", b"b", b"c"), index=index)
    world.settle()
    waiting = ask_to_delete(world, 2, 0, 1, 2)
    world.end_turn()
    assert waiting.replies() == []
    world.settle()
    assert [answer.low_watermark for answer in waiting.reply().topics[0].partitions] == [2, 2, 2]
    world.disk.crash(Random(3))
    again = World(world.disk)
    assert [again.partition("t", index).log.start_offset for index in range(3)] == [2, 2, 2]


def test_a_deletion_above_what_is_synced_waits_for_the_sync_and_a_save_behind_it() -> None:
    world = World()
    peer = world.peer()
    peer.create("t", flush="os")
    peer.produce("t", batch(b"a", b"b", b"c"))
    assert deleted(world, 2) == (0, 2)
    peer.produce("t", batch(b"d", b"e", b"f"))
    waiting = ask_to_delete(world, 5)
    world.end_turn()
    saves = [job for job in world.held if isinstance(job.ticket, FilesTicket)]
    syncs = [job for job in world.held if isinstance(job.ticket, SyncTicket)]
    assert len(saves) == len(syncs) == 1
    world.held = saves
    world.sync()
    power_lost = deepcopy(world.disk)
    world.held += syncs
    world.sync()
    assert waiting.replies() == [], "no file names this start"
    world.settle()
    assert waiting.reply().topics[0].partitions[0].low_watermark == 5
    for disk, start in ((power_lost, 3), (world.disk, 5)):
        disk.crash(Random(3))
        assert World(disk).partition("t").log.start_offset == start


def test_a_deletion_that_cannot_be_saved_is_not_confirmed() -> None:
    world = World()
    peer = world.peer()
    peer.create("t", flush="sync")
    peer.produce("t", batch(b"a", b"b", b"c"))
    world.settle()
    world.disk.capacity = world.disk.used()
    waiting = ask_to_delete(world, 2)
    world.settle()
    assert waiting.replies() == [], "the disk is full"
    world.pass_time(1000)
    assert waiting.reply().topics[0].partitions[0].error_code == REQUEST_TIMED_OUT


def test_deletions_of_many_partitions_cost_one_save() -> None:
    world = World()
    peer = world.peer()
    peer.create("t", 20, flush="sync")
    for index in range(20):
        peer.produce("t", batch(b"a", b"b"), index=index)
    world.settle()
    waiting = ask_to_delete(world, 1, *range(20))
    world.end_turn()
    assert len(world.held) == 1
    world.sync()
    assert {answer.low_watermark for answer in waiting.reply().topics[0].partitions} == {1}


def test_a_deletion_does_not_wait_behind_maintenance() -> None:
    """On a slow disk the checkpoints of thousands of partitions keep the thread for maintenance busy for many seconds,
    and the files of deleted topics may be large."""
    world = World()
    peer = world.peer()
    peer.create("t", 20)
    peer.create("old", file_delete_delay_ms="0")
    for index in range(20):
        peer.produce("t", batch(b"a", b"b", b"c"), index=index)
    world.settle()
    peer.delete("old")
    world.settle()
    world.clock.now_ms += world.node.settings.checkpoint_ms
    world.node.maintain(world.clock.now_ms, world.clock.wall_ms())
    world.end_turn()
    slow = [job for job in world.held if job.lane is Lane.MAINTENANCE]
    assert len([job for job in slow if isinstance(job.ticket, SyncTicket)]) > 20, "and the metadata log"
    assert [job.ticket.trees for job in slow if isinstance(job.ticket, RemovalTicket)] != []
    waiting = ask_to_delete(world, 2)
    while quick := [job for job in world.held if job not in slow]:
        world.held = quick
        world.sync()
    assert waiting.reply().topics[0].partitions[0].low_watermark == 2
    world.held = slow
    world.settle()
    assert not [name for name in world.disk.list("") if name.startswith("old-")]


def end_of(peer: Peer, timestamp: int = -1) -> int:
    entry = part("ListOffsets", "ListOffsetsPartition", 0, timestamp=timestamp)
    topics = [part("ListOffsets", "ListOffsetsTopic", "t", [entry])]
    return peer.send("ListOffsets", replica_id=-1, topics=topics, version=7)


@pytest.mark.parametrize("timestamp", [-1, -3, WALL_MS], ids=["end", "largest timestamp", "by time"])
def test_the_end_after_acks_1_comes_with_the_sync(timestamp: int) -> None:
    world = World()
    peer, asking = world.peer(), world.peer()
    peer.create("t", flush="sync")
    peer.produce("t", batch(b"a"), acks=1)
    assert code(peer.reply()) == 0
    world.end_turn()
    end_of(asking, timestamp)
    world.end_turn()
    assert asking.replies() == []
    world.sync()
    (answer,) = asking.reply().topics[0].partitions
    assert (answer.error_code, answer.offset) == (0, 1 if timestamp == -1 else 0)


def test_nobody_waits_for_the_end_where_nothing_is_under_way() -> None:
    world = World()
    peer = world.peer()
    peer.create("t", flush="sync")
    peer.produce("t", batch(b"a"), acks=1)
    peer.reply()
    world.settle()
    end_of(peer)
    assert peer.reply().topics[0].partitions[0].offset == 1
    peer.produce("t", batch(b"b"), acks=1)
    peer.reply()
    end_of(peer, -2)
    assert peer.reply().topics[0].partitions[0].offset == 0, "where it begins is known"
    world.node.relay.fail("a broken disk")
    end_of(peer)
    assert peer.reply().topics[0].partitions[0].offset == 1, "no sync will come"


def test_the_wait_for_a_slow_disk_has_an_end() -> None:
    world = World()
    peer = world.peer()
    peer.create("t", flush="sync")
    peer.produce("t", batch(b"a"), acks=1)
    peer.reply()
    world.end_turn()
    end_of(peer)
    world.pass_time(SYNC_WAIT_MS)
    assert peer.reply().topics[0].partitions[0].offset == 0
    world.sync()
