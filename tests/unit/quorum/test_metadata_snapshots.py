"""Snapshots of the metadata: written beside the log, kept in pairs, fetched in pieces, and never believed blindly."""

from collections.abc import Callable
from random import Random

import pytest
from metadata_logs import append, open_log, sync, voter_set

from skidway.errors import CorruptMessage, StorageError
from skidway.log.durability import checkpointing
from skidway.quorum import snapshots
from skidway.quorum.log import MetadataLog, load_voter_history
from skidway.quorum.messages import EpochEnd
from skidway.quorum.state_file import METADATA_DIRECTORY
from skidway.records.record import read_records
from skidway.sim.world.disk import Crashed, SimDisk

VOTERS = voter_set(1, 2, 3)


def records_below(end_offset: int) -> list[tuple[None, bytes]]:
    """What a snapshot holds in the place of the log: the numbers below its end, as the tests write them."""
    return [(None, b"%d" % number) for number in range(end_offset)]


def fill(log: MetadataLog, count: int, epoch: int = 1) -> None:
    for _ in range(count):
        append(log, epoch, b"%d" % log.end_offset + bytes(50))
    sync(log)


def take(log: MetadataLog, end_offset: int) -> None:
    log.log.advance_high_watermark(end_offset)
    ticket = log.begin_snapshot_of(end_offset, VOTERS, records_below(end_offset), 1_000)
    assert ticket is not None
    ticket.run()
    log.finish_snapshot_of(ticket)


def checkpoint(log: MetadataLog) -> None:
    """What the node's upkeep does: makes the log's new start durable, takes segments away."""
    ticket = checkpointing.begin(log.log)
    if ticket is not None:
        ticket.run()
        log.log.finish_sync(ticket)


def numbers(log: MetadataLog) -> list[int]:
    """The metadata as a start would see it: the newest snapshot, then the log."""
    found: list[int] = []
    offset = 0
    if log.snapshot is not None:
        offset = log.snapshot.end_offset
        for batch in log.snapshot_batches():
            found += [int(record.value or b"") for record in read_records(batch, decompressed_bytes_max=1 << 20)]
    while offset < log.end_offset:
        for record in read_records(log.read(offset), decompressed_bytes_max=1 << 20):
            found.append(int((record.value or b"").rstrip(b"\0")))
            offset = record.offset + 1
    return found


def checkpoint_files(disk: SimDisk) -> list[str]:
    return [name for name in disk.list(METADATA_DIRECTORY) if ".checkpoint" in name]


def test_a_snapshot_stands_for_the_log_below_it() -> None:
    disk = SimDisk()
    log = open_log(disk)
    fill(log, 20, epoch=3)
    take(log, 15)
    assert checkpoint_files(disk) == ["00000000000000000015-0000000003.checkpoint"]
    again = open_log(disk)
    assert again.snapshot == EpochEnd(3, 15)
    assert numbers(again) == list(range(20))
    assert again.log.high_watermark == 15


def test_the_latest_two_are_kept_and_the_log_between_them() -> None:
    disk = SimDisk()
    log = open_log(disk)
    for end in (50, 100, 150, 200):
        fill(log, 60)
        take(log, end)
        checkpoint(log)
    assert log.start_offset == 150
    assert [snapshots.parse_snapshot_name(name) for name in checkpoint_files(disk)] == [
        EpochEnd(1, 150),
        EpochEnd(1, 200),
    ]
    assert log.log.segments[0].base_offset > 0
    again = open_log(disk)
    assert again.start_offset == 150
    assert numbers(again) == list(range(240))
    assert load_voter_history(again, voter_set(9)).latest == VOTERS


def test_a_damaged_snapshot_is_replaced_by_the_one_before_and_the_log() -> None:
    disk = SimDisk()
    log = open_log(disk)
    fill(log, 100)
    take(log, 40)
    take(log, 80)
    checkpoint(log)
    disk.corrupt(f"{METADATA_DIRECTORY}/{snapshots.snapshot_name(EpochEnd(1, 80))}", 300)
    again = open_log(disk)
    assert again.snapshot == EpochEnd(1, 40)
    assert numbers(again) == list(range(100))
    assert checkpoint_files(disk)[1].endswith(".checkpoint.damaged")


def test_without_any_whole_snapshot_the_node_refuses() -> None:
    disk = SimDisk()
    log = open_log(disk)
    fill(log, 100)
    take(log, 40)
    take(log, 80)
    checkpoint(log)
    for end in (40, 80):
        disk.corrupt(f"{METADATA_DIRECTORY}/{snapshots.snapshot_name(EpochEnd(1, end))}", 300)
    with pytest.raises(StorageError, match="no complete snapshot"):
        open_log(disk)


def test_a_snapshot_is_not_needed_while_the_log_has_everything() -> None:
    disk = SimDisk()
    log = open_log(disk)
    fill(log, 100)
    take(log, 40)
    disk.corrupt(f"{METADATA_DIRECTORY}/{snapshots.snapshot_name(EpochEnd(1, 40))}", 300)
    again = open_log(disk)
    assert again.snapshot is None
    assert numbers(again) == list(range(100))


def cut_the_footer(data: bytearray) -> None:
    del data[-80:]


def flip_a_bit(data: bytearray) -> None:
    data[len(data) // 2] ^= 1


def append_something(data: bytearray) -> None:
    data += bytes(100)


def repeat(data: bytearray) -> None:
    data += bytes(data)


def empty(data: bytearray) -> None:
    data.clear()


@pytest.mark.parametrize("damage", [cut_the_footer, flip_a_bit, append_something, repeat, empty])
def test_damage_of_any_kind_is_seen(damage: Callable[[bytearray], None]) -> None:
    disk = SimDisk()
    log = open_log(disk)
    fill(log, 30)
    take(log, 30)
    path = f"{METADATA_DIRECTORY}/{checkpoint_files(disk)[0]}"
    assert snapshots.check(disk, path) == VOTERS
    data = bytearray(disk.read(path))
    damage(data)
    disk.write_atomic(path, data)
    with pytest.raises(CorruptMessage):
        snapshots.check(disk, path)


def test_one_at_a_time_and_only_newer_ones() -> None:
    log = open_log(SimDisk())
    fill(log, 30)
    log.log.advance_high_watermark(30)
    first = log.begin_snapshot_of(10, VOTERS, records_below(10), 1)
    assert first is not None
    assert log.begin_snapshot_of(20, VOTERS, records_below(20), 1) is None
    first.run()
    log.finish_snapshot_of(first)
    assert log.begin_snapshot_of(10, VOTERS, records_below(10), 1) is None
    assert log.begin_snapshot_of(20, VOTERS, records_below(20), 1) is not None


def test_a_full_disk_leaves_nothing_behind() -> None:
    disk = SimDisk()
    log = open_log(disk)
    fill(log, 30)
    log.log.advance_high_watermark(30)
    ticket = log.begin_snapshot_of(30, VOTERS, records_below(30), 1)
    assert ticket is not None
    disk.capacity = disk.used() + 100
    with pytest.raises(OSError, match="No space"):
        ticket.run()
    log.finish_snapshot_of(ticket)
    assert log.snapshot is None
    assert checkpoint_files(disk) == []
    disk.capacity = None
    take(log, 30)
    assert log.snapshot == EpochEnd(1, 30)


def test_many_records_take_many_batches() -> None:
    disk = SimDisk()
    log = open_log(disk)
    fill(log, 5)
    log.log.advance_high_watermark(5)
    ticket = log.begin_snapshot_of(5, VOTERS, ((None, bytes(300)) for _ in range(5_000)), 1)
    assert ticket is not None
    ticket.run()
    log.finish_snapshot_of(ticket)
    sizes = [len(list(read_records(batch, decompressed_bytes_max=1 << 22))) for batch in log.snapshot_batches()]
    assert sum(sizes) == 5_000
    assert max(sizes) == 1_000


def test_whenever_power_is_lost_the_metadata_is_whole() -> None:
    """Snapshots, log starts and segments go from one state to the next; in between nothing may be missing."""
    done = 0
    crash_at = 1
    while not done:
        for seed in range(2):
            disk = SimDisk()
            disk.crash_at = crash_at
            written = 0
            try:
                log = open_log(disk)
                for end in (30, 60, 90):
                    fill(log, 35)
                    written = log.end_offset
                    take(log, end)
                    checkpoint(log)
                done += 1
            except Crashed:
                pass
            disk.crash(Random(seed))
            again = open_log(disk)
            found = numbers(again)
            assert found == list(range(len(found)))
            assert len(found) >= written
            assert load_voter_history(again, VOTERS).latest == VOTERS
        crash_at += 1


def copy_snapshot(leader: MetadataLog, follower: MetadataLog) -> None:
    snapshot = leader.snapshot
    assert snapshot is not None
    follower.begin_snapshot(snapshot)
    position, size = 0, 1
    while position < size:
        found = leader.read_snapshot(snapshot, position)
        assert found is not None
        size, data = found
        position = follower.append_snapshot(data[:100])


def prepared() -> tuple[MetadataLog, SimDisk]:
    """A follower that has a log of its own, of another epoch."""
    disk = SimDisk()
    follower = open_log(disk)
    fill(follower, 12)
    return follower, disk


def leading() -> MetadataLog:
    leader = open_log(SimDisk())
    fill(leader, 50, epoch=4)
    take(leader, 40)
    return leader


def test_a_fetched_snapshot_takes_the_place_of_the_log() -> None:
    leader = leading()
    follower, disk = prepared()
    copy_snapshot(leader, follower)
    assert follower.end_offset == 12
    assert follower.finish_snapshot() == VOTERS
    assert (follower.start_offset, follower.end_offset, follower.last_epoch) == (40, 40, 4)
    assert follower.log.high_watermark == 40
    follower.append_fetched(leader.read(40))
    sync(follower)
    assert numbers(follower) == numbers(open_log(disk)) == list(range(50))


def test_a_damaged_piece_is_found_out_before_the_log_is_touched() -> None:
    leader = leading()
    follower, disk = prepared()
    assert leader.snapshot is not None
    found = leader.read_snapshot(leader.snapshot, 0)
    assert found is not None
    data = bytearray(found[1])
    data[200] ^= 4
    follower.begin_snapshot(leader.snapshot)
    follower.append_snapshot(data)
    with pytest.raises(CorruptMessage):
        follower.finish_snapshot()
    assert follower.end_offset == 12
    assert follower.snapshot is None
    assert checkpoint_files(disk) == []


def test_a_snapshot_that_never_ends_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "SNAPSHOT_BYTES_MAX", 1_000)
    follower, _ = prepared()
    follower.begin_snapshot(EpochEnd(4, 40))
    for _ in range(10):
        follower.append_snapshot(bytes(100))
    with pytest.raises(CorruptMessage):
        follower.append_snapshot(bytes(1))


def test_power_lost_while_a_snapshot_takes_over_leaves_the_old_log_or_the_new() -> None:
    outcomes = set()
    for crash_at in range(1, 40):
        for seed in range(4):
            leader = leading()
            follower, disk = prepared()
            copy_snapshot(leader, follower)
            disk.crash_at = disk.operations + crash_at
            try:
                follower.finish_snapshot()
            except Crashed:
                pass
            disk.crash(Random(seed))
            found = numbers(open_log(disk))
            assert found in (list(range(12)), list(range(40)))
            outcomes.add(len(found))
    assert outcomes == {12, 40}


def test_a_log_whose_tail_was_lost_goes_on_after_its_snapshot() -> None:
    """A snapshot may be durable before the log it was made of."""
    for seed in range(10):
        disk = SimDisk()
        log = open_log(disk)
        fill(log, 10)
        for number in range(10, 20):
            append(log, 1, b"%d" % number)
        take(log, 20)
        disk.crash(Random(seed))
        again = open_log(disk)
        assert (again.end_offset, again.last_epoch) == (20, 1)
        assert numbers(again) == list(range(20))
        append(again, 2, b"20")
        sync(again)
        assert numbers(open_log(disk)) == list(range(21))


def test_another_members_snapshot_is_not_found() -> None:
    leader = leading()
    assert leader.read_snapshot(EpochEnd(4, 41), 0) is None
    assert leader.read_snapshot(EpochEnd(4, 40), 1 << 40) is not None
