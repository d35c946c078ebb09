"""A log cannot be read to its end. Where a crash explains that, it is cut, and the operator hears of it. Where records
are missing that were known to be there, it is damaged: nobody gets a shorter log in its place."""

import random
from typing import Any

import pytest

from skidway.log import retention, truncation
from skidway.log.directories import partition_metadata
from skidway.log.durability import checkpointing
from skidway.log.log import Log
from skidway.log.logs import Logs, is_unborn
from skidway.log.settings import LogSettings
from skidway.records.batch import read_header
from skidway.records.record import Record, build_batch
from skidway.sim.world.disk import SimDisk

ID = bytes.fromhex("5f0e6ad1c5a94b1f9d2c7a8e11223344")
OTHER_ID = bytes.fromhex("a1b2c3d4e5f60718293a4b5c6d7e8f90")
SETTINGS = LogSettings(segment_bytes=1000)
FIRST = "orders-0/00000000000000000000.log"
COMMITTED = "committed-offset-checkpoint"
WATERMARKS = "replication-offset-checkpoint"
LENGTH_AT = 11
VALUE_AT = 80


def append(log: Log, times: int) -> None:
    for _ in range(times):
        batch = build_batch([Record(0, 1000, b"k", b"v" * 40, [])])
        log.append(batch, read_header(batch), 0, 1000)


def commit(log: Log) -> None:
    ticket = log.begin_sync()
    if ticket is not None:
        ticket.run()
        log.finish_sync(ticket)
    log.advance_high_watermark(log.end_offset)


def save(logs: Logs) -> None:
    ticket = logs.begin_save()
    assert ticket is not None
    ticket.run()
    logs.finish_save(ticket)


def written(count: int = 9, *, saved: bool = True, later: int = 0) -> SimDisk:
    """A partition with so many committed records, which the checkpoints know of if they were saved."""
    disk = SimDisk()
    logs = Logs(disk)
    log = logs.create("orders", 0, ID, SETTINGS, 0)
    append(log, count)
    commit(log)
    if saved:
        save(logs)
    append(log, later)
    commit(log)
    return disk


def batch_at(disk: SimDisk, number: int, path: str = FIRST) -> int:
    """Where a batch of a file begins; all are of one size."""
    return read_header(disk.read(path)).size * number


def reopened(disk: SimDisk, *, intact: bool = False, may_be_short: bool = False) -> Log:
    return Logs(disk, intact=intact).load("orders", 0, SETTINGS, 0, ID, may_be_short=may_be_short)


def files(disk: SimDisk) -> dict[str, bytes]:
    return {name: disk.read(f"orders-0/{name}") for name in disk.list("orders-0") if name.endswith(".log")}


def assert_quarantined(disk: SimDisk, log: Log, *words: str) -> None:
    before = files(disk)
    assert log.quarantined
    assert all(word in str(log.failure) for word in words), log.failure
    assert files(disk) == before, "nothing was cut"
    again = reopened(disk)
    assert again.quarantined, "and so it stays"
    assert files(disk) == before


# --- below what was known to be committed ---


@pytest.mark.parametrize("intact", [False, True])
@pytest.mark.parametrize("number", [0, 4, 8])
def test_a_bit_that_flips_below_the_saved_watermark_is_damage(number: int, intact: bool) -> None:
    disk = written()
    disk.corrupt(FIRST, batch_at(disk, number) + VALUE_AT, 0x10)
    before = files(disk)
    log = reopened(disk, intact=intact)
    assert files(disk) == before
    assert_quarantined(disk, log, "below offset 9", f"from offset {number} on")


def test_what_was_never_known_to_be_committed_may_be_torn_by_a_loss_of_power() -> None:
    disk = written(5, later=4)
    disk.corrupt(FIRST, batch_at(disk, 6) + VALUE_AT, 0x10)
    log = reopened(disk)
    assert (log.failure, log.end_offset) == (None, 6)
    (cut,) = log.cuts
    assert "orders-0: cut at offset 6, from byte" in cut
    assert "interrupted" in cut


def test_segment_files_that_are_gone_are_damage() -> None:
    disk = written()
    disk.remove(FIRST)
    assert_quarantined(disk, reopened(disk), "its segment files are missing", "below offset 9")


def test_the_last_segment_alone_is_gone() -> None:
    disk = written(30)
    last = sorted(files(disk))[-1]
    disk.remove(f"orders-0/{last}")
    assert_quarantined(disk, reopened(disk), "below offset 30")


def test_the_first_segment_alone_is_gone() -> None:
    disk = written(30)
    disk.remove(FIRST)
    assert_quarantined(disk, reopened(disk), "below offset 30", "it starts at")


def test_an_old_copy_of_the_files_that_is_put_back_is_damage() -> None:
    disk = written(4)
    old = disk.read(FIRST)
    logs = Logs(disk)
    log = logs.load("orders", 0, SETTINGS, 0, ID)
    append(log, 5)
    commit(log)
    save(logs)
    disk.write_atomic(FIRST, old)
    assert_quarantined(disk, reopened(disk), "it ends at 4", "below offset 9")


def test_a_log_that_its_leader_had_cut_is_not_damaged() -> None:
    disk = written(9)
    logs = Logs(disk)
    log = logs.load("orders", 0, SETTINGS, 0, ID)
    truncation.truncate(log, 3, 0)
    disk.crash(random.Random(1))
    log = reopened(disk)
    assert (log.failure, log.end_offset) == (None, 3)


def test_with_synced_records_only_what_is_synced_counts_as_known() -> None:
    disk = SimDisk()
    logs = Logs(disk)
    log = logs.create("orders", 0, ID, SETTINGS, 0)
    log.is_flushed = True
    append(log, 3)
    commit(log)
    append(log, 3)
    log.advance_high_watermark(6)
    save(logs)
    assert Logs(disk).committed_in("orders", 0, ID) == 3
    log.is_flushed = False
    save(logs)
    assert Logs(disk).committed_in("orders", 0, ID) == 6


def test_without_syncs_and_without_replicas_a_loss_of_power_takes_what_it_takes() -> None:
    disk = written(9)
    disk.open(FIRST).truncate(batch_at(disk, 5))
    assert reopened(disk, intact=True, may_be_short=True).quarantined, "but a kill takes nothing"
    log = reopened(disk, may_be_short=True)
    assert (log.failure, log.end_offset) == (None, 5)
    (cut,) = log.cuts
    assert "offsets 5 to 9 were acknowledged and are lost" in cut


@pytest.mark.parametrize("clean", [True, False])
def test_a_file_in_the_middle_of_the_proven_part_is_gone_or_short(clean: bool) -> None:
    for change in ("gone", "short"):
        disk = SimDisk()
        logs = Logs(disk)
        log = logs.create("orders", 0, ID, SETTINGS, 0)
        append(log, 40)
        commit(log)
        ticket = checkpointing.begin(log)
        assert ticket is not None
        ticket.run()
        log.finish_sync(ticket)
        save(logs)
        if clean:
            logs.close(clean=True)
        path = f"orders-0/{sorted(files(disk))[1]}"
        if change == "gone":
            disk.remove(path)
        else:
            disk.open(path).truncate(batch_at(disk, 2, path))
        assert_quarantined(disk, reopened(disk), "are missing: a file is gone or short")


@pytest.mark.parametrize("epochs", ["kept", "lost"])
def test_a_torn_file_of_deleted_records_is_no_damage(epochs: str) -> None:
    """Records were deleted before any sync. A checkpoint of the others came next, then a loss of power."""
    disk = SimDisk()
    log = Logs(disk).create("orders", 0, ID, SETTINGS, 0)
    append(log, 40)
    log.advance_high_watermark(20)
    retention.delete_before(log, 20)
    ticket = checkpointing.begin(log)
    assert ticket is not None
    ticket.run()
    log.finish_sync(ticket)
    start = f"{log.segments[0].base_offset:020d}.log"
    deleted = [name for name in sorted(files(disk)) if name < start]
    assert len(deleted) > 1, "they wait for a snapshot below the watermark"
    for name in deleted:
        disk.open(f"orders-0/{name}").truncate(batch_at(disk, 1, f"orders-0/{name}") + 30)
    if epochs == "lost":
        disk.remove("orders-0/leader-epoch-checkpoint")
    log = reopened(disk)
    assert (log.failure, log.start_offset, log.end_offset) == (None, 20, 40)
    assert log.epochs.latest == 0
    assert log.segments[0].path(".log") == f"orders-0/{start}"


# --- a process that was killed loses nothing it wrote ---


def test_damage_found_after_a_kill_is_no_torn_write_after_a_loss_of_power() -> None:
    disk = written(9, saved=False)
    at = batch_at(disk, 5) + VALUE_AT
    disk.corrupt(FIRST, at, 0x10)
    assert_quarantined(disk, reopened(disk, intact=True), "from offset 5 on", "no crash explains it")
    assert_quarantined(disk, reopened(disk), "from offset 5 on", "no crash explains it")
    disk.corrupt(FIRST, at, 0x10)
    log = reopened(disk)
    assert (log.failure, log.end_offset) == (None, 9), "the operator has repaired the file"
    disk.corrupt(FIRST, at, 0x10)
    log = reopened(disk)
    assert (log.failure, log.end_offset) == (None, 5), "and nothing is known of this one"


def test_damage_found_while_the_disk_is_full_is_remembered() -> None:
    disk = written(9, saved=False)
    disk.corrupt(FIRST, batch_at(disk, 5) + VALUE_AT, 0x10)
    disk.capacity = disk.used()
    assert reopened(disk, intact=True).quarantined
    disk.capacity = None
    assert_quarantined(disk, reopened(disk), "from offset 5 on", "no crash explains it")


def test_after_a_kill_an_append_that_was_under_way_is_cut_and_told() -> None:
    whole = written(5, saved=False)
    size = batch_at(whole, 1)
    for gone in (1, size // 2, size - 61, size - 60, size - 1):
        disk = written(5, saved=False)
        disk.open(FIRST).truncate(5 * size - gone)
        log = reopened(disk, intact=True)
        assert (log.failure, log.end_offset, len(log.cuts)) == (None, 4, 1)


@pytest.mark.parametrize(("number", "at"), [(2, VALUE_AT), (4, VALUE_AT), (2, 16), (4, 16), (2, 0), (4, 0)])
def test_after_a_kill_a_batch_that_is_whole_and_wrong_is_damage(number: int, at: int) -> None:
    disk = written(5, saved=False)
    disk.corrupt(FIRST, batch_at(disk, number) + at, 0x80)
    before = files(disk)
    log = reopened(disk, intact=True)
    assert log.quarantined
    assert "no crash explains it" in str(log.failure)
    assert files(disk) == before


@pytest.mark.parametrize("number", [0, 2, 4])
@pytest.mark.parametrize("mask", [0x40, 0x01])
def test_after_a_kill_a_batch_whose_length_flipped_is_damage(number: int, mask: int) -> None:
    """It looks like one that is not finished; but it is whole, or others lie behind it."""
    disk = written(5, saved=False)
    disk.corrupt(FIRST, batch_at(disk, number) + LENGTH_AT - 1, mask)
    assert reopened(disk, intact=True).quarantined


def test_after_a_kill_a_gap_between_segments_is_damage() -> None:
    disk = written(30, saved=False)
    middle = sorted(files(disk))[1]
    disk.remove(f"orders-0/{middle}")
    before = files(disk)
    assert reopened(disk, intact=True).quarantined
    assert files(disk) == before


# --- an operator accepts the loss ---


@pytest.mark.parametrize("damage", ["bit", "files", "directory", "middle"])
def test_a_damaged_log_is_served_as_far_as_it_can_be_read_once_an_operator_says_so(damage: str) -> None:
    disk = written(30)
    if damage == "bit":
        disk.corrupt(FIRST, batch_at(disk, 4) + VALUE_AT, 0x10)
    elif damage == "files":
        for name in files(disk):
            disk.remove(f"orders-0/{name}")
    elif damage == "middle":
        disk.remove(f"orders-0/{sorted(files(disk))[1]}")
    else:
        disk.remove_tree("orders-0")
        Logs(disk).create_missing("orders", 0, ID, SETTINGS, 0, "its directory is missing")
    end_offset = {"bit": 4, "files": 30, "directory": 30, "middle": 9}[damage]
    assert reopened(disk).quarantined
    disk.write_atomic("orders-0/accept-loss", b"")
    logs = Logs(disk)
    log = logs.load("orders", 0, SETTINGS, 0, ID)
    assert (log.failure, log.end_offset) == (None, end_offset)
    assert f"Given up: offsets {0 if end_offset == 30 else end_offset} to 30" in log.cuts[-1]
    append(log, 2)
    commit(log)
    save(logs)
    again = reopened(disk)
    assert (again.failure, again.end_offset, again.cuts) == (None, end_offset + 2, []), "and only once"


# --- directories that are gone ---


def test_what_was_committed_in_a_directory_that_is_gone_stays_known() -> None:
    disk = written(9)
    disk.remove_tree("orders-0")
    for _ in range(3):
        logs = Logs(disk)
        assert logs.committed_in("orders", 0, ID) == 9
        assert logs.committed_in("orders", 0, OTHER_ID) == 0, "that is another topic"
        save(logs)
    logs.forget_others(lambda topic, partition, topic_id: topic_id == ID)
    save(logs)
    assert Logs(disk).committed_in("orders", 0, ID) == 9
    logs.forget_others(lambda topic, partition, topic_id: False)
    save(logs)
    assert Logs(disk).committed_in("orders", 0, ID) == 0


def test_the_place_of_a_missing_directory_is_taken_by_a_quarantined_one_until_it_begins_anew() -> None:
    disk = written(9)
    disk.remove_tree("orders-0")
    logs = Logs(disk)
    log = logs.create_missing("orders", 0, ID, SETTINGS, 0, "its directory is missing")
    assert log.quarantined
    save(logs)
    for seed in range(5):
        disk.crash(random.Random(seed))
        logs = Logs(disk)
        log = logs.load("orders", 0, SETTINGS, 0, ID)
        assert log.quarantined
        assert "its directory is missing" in str(log.failure)
        save(logs)
        assert Logs(disk).committed_in("orders", 0, ID) == 9
    truncation.restart(log, 4, 0)
    disk.crash(random.Random(9))
    log = reopened(disk)
    assert (log.failure, log.start_offset, log.end_offset) == (None, 4, 4)


def test_a_deleted_topic_leaves_nothing_to_its_heir() -> None:
    disk = written(9)
    logs = Logs(disk)
    logs.load("orders", 0, SETTINGS, 0, ID)
    logs.delete("orders", 0, 0)
    save(logs)
    assert Logs(disk).committed_in("orders", 0, ID) == 0
    log = logs.create("orders", 0, OTHER_ID, SETTINGS, 0)
    append(log, 2)
    commit(log)
    save(logs)
    logs = Logs(disk)
    assert (logs.committed_in("orders", 0, OTHER_ID), logs.committed_in("orders", 0, ID)) == (2, 0)
    assert logs.load("orders", 0, SETTINGS, 0, OTHER_ID).end_offset == 2


# --- files that speak about logs ---


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 0x04]) + data[at + 1 :]


def test_a_partition_whose_metadata_is_damaged_or_missing_belongs_to_its_topic_all_the_same() -> None:
    right = partition_metadata(ID)
    for data in [flipped(right, at) for at in range(len(right))] + [b"\0" * len(right), b"", None]:
        disk = written(9)
        disk.remove("orders-0/partition.metadata")
        if data is not None:
            disk.write_atomic("orders-0/partition.metadata", data)
        logs = Logs(disk)
        assert not is_unborn(logs, ("orders", 0))
        is_readable = logs.found["orders", 0] == ID
        assert bool(logs.claim("orders", 0, ID)) != is_readable
        log = logs.load("orders", 0, SETTINGS, 0, ID)
        assert (log.failure, log.end_offset) == (None, 9)
        assert is_readable or disk.read("orders-0/partition.metadata") == right


def test_a_partition_of_another_topic_is_not_claimed() -> None:
    disk = written(9)
    logs = Logs(disk)
    assert logs.claim("orders", 0, OTHER_ID) is None
    assert logs.found == {("orders", 0): ID}
    disk.remove("orders-0/partition.metadata")
    logs = Logs(disk)
    assert logs.claim("orders", 0, OTHER_ID) is None, "the checkpoints know of which topic it is"


def test_what_was_committed_is_not_decided_by_a_flipped_bit() -> None:
    data = written(9).read(COMMITTED)
    for at in range(len(data)):
        disk = written(9)
        disk.write_atomic(COMMITTED, flipped(data, at))
        logs = Logs(disk)
        assert logs.committed_in("orders", 0, ID) == 9, "the other file knows it too"
        (trouble,) = logs.troubles
        assert COMMITTED in trouble
    watermarks = written(9).read(WATERMARKS)
    for at in range(len(watermarks)):
        disk = written(9)
        disk.write_atomic(WATERMARKS, flipped(watermarks, at))
        assert Logs(disk).committed_in("orders", 0, ID) == 9


@pytest.mark.parametrize("name", [COMMITTED, WATERMARKS, "recovery-point-offset-checkpoint"])
@pytest.mark.parametrize("data", [None, b"", b"\xff\xff"])
def test_a_checkpoint_file_that_is_lost_or_damaged_costs_no_record(name: str, data: Any) -> None:
    disk = written(9)
    disk.remove(name)
    if data is not None:
        disk.write_atomic(name, data)
    logs = Logs(disk)
    log = logs.load("orders", 0, SETTINGS, 0, ID)
    assert (log.failure, log.end_offset, logs.offsets.watermarks["orders", 0]) == (None, 9, 9)
