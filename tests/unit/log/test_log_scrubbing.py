"""A log's segments are read slice by slice and every batch is checked; what changes meanwhile is not damage."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from struct import pack_into
from typing import Any

import pytest
from log_by_hand import DIRECTORY, NOW, append, checkpoint, commit, open_log, sync
from msgspec.structs import replace

from skidway.log import following, retention, scrubbing, truncation
from skidway.log.compaction import cleaning
from skidway.log.compaction.cleaning import DirectCompactor
from skidway.log.durability import checkpointing
from skidway.log.log import Log
from skidway.log.scrubbing import READ_BYTES, SLICE_BATCHES, SLICE_BYTES, SegmentCheck, next_check
from skidway.log.settings import LogSettings
from skidway.records.batch import HEADER_BYTES
from skidway.records.record import Record, build_batch
from skidway.server.disk import RealDisk
from skidway.sim.world.disk import SimDisk

SMALL = LogSettings(segment_bytes=1_000)
LARGE = SLICE_BYTES * 2 + 100


@pytest.fixture
def disk() -> SimDisk:
    return SimDisk()


def filled(disk: SimDisk, batches: int = 30, settings: LogSettings = SMALL) -> Log:
    log = open_log(disk, settings)
    for _ in range(batches):
        append(log)
    commit(log)
    assert len(log.segments) > 3
    return log


def checks(log: Log) -> Iterator[SegmentCheck]:
    after = -1
    while (check := next_check(log, after)) is not None:
        yield check
        after = check.segment.base_offset


def damage_in(check: SegmentCheck) -> str | None:
    damage = None
    while not check.is_done and damage is None:
        ticket = check.begin()
        ticket.run()
        damage = check.finish(ticket)
    return damage


def scrub(log: Log) -> dict[int, str]:
    """What is wrong, by the base offsets of segments."""
    found = {check.segment.base_offset: damage_in(check) for check in checks(log)}
    return {base_offset: damage for base_offset, damage in found.items() if damage is not None}


def path_of(log: Log, number: int) -> str:
    return log.segments[number].path(".log")


def test_what_was_written_is_found_sound_once_over(disk: SimDisk) -> None:
    log = filled(disk)
    assert scrub(log) == {}
    assert [check.segment for check in checks(log)] == log.segments


def test_one_flipped_bit_is_found_wherever_the_checksum_or_the_order_covers_it(disk: SimDisk) -> None:
    log = filled(disk)
    segment = log.segments[1]
    second = [batch[0] for batch in segment.batches(0, segment.size)][1]
    size = next(segment.batches(second, segment.size))[3]
    missed = []
    for at in range(size):
        for bit in range(8):
            disk.corrupt(segment.path(".log"), second + at, 1 << bit)
            if list(scrub(log)) != [segment.base_offset]:
                missed.append(at)
            disk.corrupt(segment.path(".log"), second + at, 1 << bit)
    # The base offset, and the leader epoch, may be a little off and still fit in between.
    assert set(missed) <= {7, 12, 13, 14, 15}
    assert scrub(log) == {}


def test_a_segment_that_was_cut_short_or_is_gone_is_damaged(disk: SimDisk) -> None:
    log = filled(disk)
    for segment in log.segments:
        segment.unload()
    disk.open(path_of(log, 0)).truncate(log.segments[0].size - 1)
    disk.remove(path_of(log, 2))
    found = scrub(log)
    assert list(found) == [log.segments[0].base_offset, log.segments[2].base_offset]
    assert "ends at" in found[0]
    assert "cannot be read" in found[log.segments[2].base_offset]


def test_a_segment_with_the_batches_of_an_earlier_one_is_damaged(disk: SimDisk) -> None:
    log = filled(disk)
    for segment in log.segments:
        segment.unload()
    first, second = log.segments[:2]
    assert first.size == second.size
    disk.write_atomic(second.path(".log"), disk.read(first.path(".log")))
    found = scrub(log)
    assert list(found) == [second.base_offset]
    assert "offsets that belong elsewhere (0)" in found[second.base_offset]


def test_a_closed_segment_that_was_emptied_while_nobody_looked_is_damaged(disk: SimDisk) -> None:
    log = filled(disk)
    checkpoint(log)
    checkpointing.save(log)
    log.close()
    base_offset, following = (segment.base_offset for segment in log.segments[1:3])
    disk.open(path_of(log, 1)).truncate(0)
    assert open_log(disk, SMALL).quarantined
    log = open_log(disk, replace(SMALL, compact=True))
    assert not log.quarantined, "in a compacted topic a start takes gaps for granted"
    found = scrub(log)
    assert list(found) == [base_offset]
    assert f"is empty, and had batches: the next segment is at {following}" in found[base_offset]


def test_neither_a_new_segment_nor_a_closed_one_that_waits_for_its_sync_is_damaged(disk: SimDisk) -> None:
    log = open_log(disk, SMALL)
    while len(log.segments) < 3:
        append(log)
    log.roll(NOW)
    assert (log.active.size, log.segments[0].synced_size) == (0, 0)
    assert next_check(log) is None
    commit(log)
    assert scrub(log) == {}
    assert [check.segment for check in checks(log)] == log.segments[:-1]


def test_gaps_that_a_leader_left_by_compacting_are_not_damage(disk: SimDisk) -> None:
    log = open_log(disk, SMALL)
    for offset in (0, 7, 8, 30, 31, 32, 90):
        batch = build_batch([Record(0, NOW, b"key", b"v" * 300, [])])
        pack_into(">q", batch, 0, offset)
        following.append(log, batch, NOW)
    commit(log)
    assert len(log.segments) > 2
    assert scrub(log) == {}


def test_a_batch_larger_than_a_slice_is_checked_over_several(disk: SimDisk) -> None:
    log = open_log(disk)
    append(log, size=LARGE)
    append(log)
    append(log, size=LARGE)
    commit(log)
    (check,) = checks(log)
    slices = 0
    while not check.is_done:
        ticket = check.begin()
        ticket.run()
        assert ticket.bytes_read <= SLICE_BYTES
        assert check.finish(ticket) is None
        slices += 1
    assert slices >= log.size() // SLICE_BYTES
    for position in (LARGE - 5, log.size() - 5):
        disk.corrupt(path_of(log, 0), position)
        assert "checksum" in scrub(log)[0]
        disk.corrupt(path_of(log, 0), position)
    assert scrub(log) == {}


def test_a_length_that_lies_costs_no_more_memory_than_a_slice(disk: SimDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scrubbing, "SLICE_BYTES", 1_000)
    monkeypatch.setattr(scrubbing, "READ_BYTES", 1_000)
    log = open_log(disk)
    for _ in range(100):
        append(log)
    commit(log)
    disk.corrupt(path_of(log, 0), 10, 0x20)  # 8 KiB more
    check = next_check(log)
    assert check is not None
    longest = 0
    while not check.is_done:
        ticket = check.begin()
        ticket.run()
        longest = max(longest, ticket.bytes_read)
        if check.finish(ticket):
            break
    else:
        raise AssertionError("not found")
    assert longest <= 1_000


def test_a_slice_of_small_batches_is_a_short_one(disk: SimDisk) -> None:
    log = open_log(disk)
    for _ in range(5 * SLICE_BATCHES):
        append(log, size=1)
    commit(log)
    check = next_check(log)
    assert check is not None
    taken = []
    while not check.is_done:
        ticket = check.begin()
        ticket.run()
        taken.append(ticket.bytes_read)
        assert check.finish(ticket) is None
    assert len(taken) > 1
    assert max(taken) == READ_BYTES


def test_only_what_is_synced_is_looked_at(disk: SimDisk) -> None:
    log = open_log(disk)
    append(log)
    assert next_check(log) is None
    sync(log)
    synced = log.active.size
    append(log)
    disk.corrupt(path_of(log, 0), synced + HEADER_BYTES)
    assert scrub(log) == {}
    sync(log)
    assert list(scrub(log)) == [0]


def test_what_is_appended_meanwhile_waits_for_the_next_time(disk: SimDisk) -> None:
    log = open_log(disk)
    append(log)
    commit(log)
    check = next_check(log)
    assert check is not None
    ticket = check.begin()
    for _ in range(5):
        append(log)
    ticket.run()
    assert check.finish(ticket) is None
    assert check.is_done


# A segment that is not the same any more tells nothing.


def held_slice(log: Log, number: int) -> tuple[SegmentCheck, Any]:
    """A slice that a worker has and has not read yet."""
    check = list(checks(log))[number]
    return check, check.begin()


def test_a_segment_that_is_given_up_meanwhile_is_not_damaged(disk: SimDisk) -> None:
    log = filled(disk)
    check, ticket = held_slice(log, 0)
    retention.delete_before(log, log.segments[2].base_offset)
    checkpoint(log)
    assert not disk.exists(check.segment.path(".log"))
    ticket.run()
    assert ticket.damage is not None
    assert check.finish(ticket) is None
    assert check.is_void
    assert scrub(log) == {}


def test_a_segment_that_is_cut_meanwhile_is_not_damaged(disk: SimDisk) -> None:
    log = filled(disk)
    check, ticket = held_slice(log, 1)
    size = check.segment.size
    truncation.truncate(log, check.segment.base_offset + 2, NOW)
    ticket.run()
    assert ticket.damage is not None
    while log.active is check.segment:
        append(log)
    assert check.segment.size == size, "closed anew, and as large as before"
    assert check.finish(ticket) is None
    commit(log)
    assert scrub(log) == {}


def test_a_log_that_begins_anew_meanwhile_is_not_damaged(disk: SimDisk) -> None:
    log = filled(disk)
    check, ticket = held_slice(log, 0)
    truncation.restart(log, 0, NOW)
    append(log, size=2)
    commit(log)
    ticket.run()
    assert ticket.damage is not None
    assert check.finish(ticket) is None
    assert scrub(log) == {}


def test_a_segment_that_is_compacted_meanwhile_is_not_damaged(disk: SimDisk) -> None:
    log = filled(disk, settings=LogSettings(segment_bytes=1_000, compact=True, min_cleanable_dirty_ratio=0.0))
    checkpoint(log)
    first, slice_of_first = held_slice(log, 0)
    compaction = cleaning.begin(log, NOW, "token")
    assert compaction is not None
    clean = compaction.clean(DirectCompactor(disk))
    clean.run()
    assert clean.result is not None
    swap = compaction.on_cleaned(clean.result)
    assert swap is not None
    swap.run()
    swap = compaction.on_swapped(swap)
    assert log.segments[0].pinned
    assert all(not check.segment.pinned for check in checks(log)), "its file has another name for now"
    while swap is not None:
        swap.run()
        swap = compaction.on_swapped(swap)
    assert log.segments[0].base_offset == first.segment.base_offset
    slice_of_first.run()
    assert slice_of_first.damage is not None, "it is another file, and a smaller one"
    assert first.finish(slice_of_first) is None
    assert scrub(log) == {}
    assert next_check(log) is not None


def test_a_log_that_has_failed_or_is_quarantined_is_left_alone(disk: SimDisk) -> None:
    log = filled(disk)
    check, ticket = held_slice(log, 0)
    disk.corrupt(path_of(log, 0), HEADER_BYTES)
    log.fail("a sync failed")
    ticket.run()
    assert check.finish(ticket) is None
    assert next_check(log) is None


@pytest.mark.parametrize(("code", "is_damage"), [(errno.EIO, True), (errno.EMFILE, False)])
def test_a_disk_that_cannot_read_is_one_thing_and_too_many_open_files_another(
    disk: SimDisk, monkeypatch: pytest.MonkeyPatch, code: int, is_damage: bool
) -> None:
    log = filled(disk)
    check, ticket = held_slice(log, 0)

    def refuse(path: str, *, create: bool = False) -> Any:
        raise OSError(code, "the disk says no")

    monkeypatch.setattr(disk, "open", refuse)
    if is_damage:
        ticket.run()
        assert "the disk says no" in (check.finish(ticket) or "")
    else:
        with pytest.raises(OSError, match="says no"):
            ticket.run()


@pytest.mark.timeout(60)
@pytest.mark.parametrize("what", ["a directory", "a link to itself", "a pipe", "a link to a pipe"])
def test_a_file_that_is_something_else_now_is_damaged_and_holds_nobody_up(tmp_path: Path, what: str) -> None:
    real = RealDisk(str(tmp_path))
    log = open_log(real, SMALL)
    while len(log.segments) < 4:
        append(log)
    commit(log)
    for segment in log.segments:
        segment.unload()
    path = tmp_path / path_of(log, 1)
    path.unlink()
    if what == "a directory":
        path.mkdir()
    elif what == "a link to itself":
        path.symlink_to(path)
    else:
        pipe = path if what == "a pipe" else tmp_path / "pipe"
        os.mkfifo(pipe)
        if pipe != path:
            path.symlink_to(pipe)
    found = scrub(log)
    assert list(found) == [log.segments[1].base_offset]
    assert "cannot be read at byte 0" in found[log.segments[1].base_offset]
    real.close()


def test_after_a_loss_of_power_what_came_back_is_checked_too(disk: SimDisk) -> None:
    log = filled(disk)
    disk.corrupt(path_of(log, 0), HEADER_BYTES + 3)
    checkpointing.save(log)
    log.close()
    disk.kill()
    log = open_log(disk)
    assert DIRECTORY in path_of(log, 0)
    assert list(scrub(log)) == [0]
