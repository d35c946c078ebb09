"""One partition's log is opened again, after a clean stop, a crash or damage: what is believed, cut, quarantined."""

import random

import pytest
from log_by_hand import DIRECTORY, NOW, append, checkpoint, offsets, open_log, sync

from skidway.errors import StorageError
from skidway.log.durability import checkpointing
from skidway.log.recovery.rewriting import write_anew
from skidway.log.settings import LogSettings
from skidway.sim.world.disk import SimDisk


def test_a_clean_stop_leaves_nothing_to_scan() -> None:
    disk = SimDisk()
    settings = LogSettings(segment_bytes=2000, index_interval_bytes=300)
    log = open_log(disk, settings)
    for number in range(60):
        append(log, timestamp=NOW + number, epoch=number // 20)
    expected = log.batches()
    checkpointing.save(log)
    log.close()
    with pytest.raises(StorageError):
        append(log)
    again = open_log(disk, settings)
    assert (again.end_offset, again.high_watermark, again.synced_offset) == (60, 60, 60)
    assert again.saved.bytes_since <= 600
    assert again.batches() == expected
    assert again.epochs.entries() == [(0, 0), (1, 20), (2, 40)]
    assert checkpointing.begin(again) is None
    assert append(again) == 60


@pytest.mark.parametrize("tail", [b"\0" * 700, b"garbage", b"\xff" * 100, None])
def test_a_torn_tail_is_cut_at_the_last_good_batch(tail: bytes | None) -> None:
    disk = SimDisk()
    log = open_log(disk)
    for _ in range(5):
        append(log, 2)
    file = disk.open(f"{DIRECTORY}/{0:020d}.log")
    whole = file.size()
    file.append(tail if tail is not None else file.read_at(0, whole // 5)[:-1])
    again = open_log(disk, clean=False)
    assert again.end_offset == 10
    assert disk.size(f"{DIRECTORY}/{0:020d}.log") == whole
    assert append(again) == 10


def test_a_batch_whose_checksum_is_wrong_ends_the_log() -> None:
    disk = SimDisk()
    log = open_log(disk, LogSettings(segment_bytes=400))
    for _ in range(9):
        append(log)
    assert len(log.segments) == 3
    size = log.batches()[0][3]
    disk.corrupt(f"{DIRECTORY}/{3:020d}.log", size + 70)
    again = open_log(disk, clean=False)
    assert again.end_offset == 4
    assert [segment.base_offset for segment in again.segments] == [0, 3]
    assert not disk.exists(f"{DIRECTORY}/{6:020d}.log")


def test_offsets_that_go_back_end_the_log() -> None:
    disk = SimDisk()
    log = open_log(disk)
    append(log, 3)
    file = disk.open(f"{DIRECTORY}/{0:020d}.log")
    file.append(file.read_at(0, file.size()))
    assert open_log(disk, clean=False).end_offset == 3


def test_damage_below_the_recovery_point_is_quarantined_and_not_cut() -> None:
    disk = SimDisk()
    log = open_log(disk)
    for _ in range(4):
        append(log)
    checkpoint(log)
    assert log.saved.recovery_point == 4
    path = f"{DIRECTORY}/{0:020d}.log"
    size = disk.size(path)
    disk.corrupt(path, size // 4 + 16)  # the magic of the second batch
    again = open_log(disk, clean=False)
    assert again.quarantined
    assert disk.size(path) == size
    for act in (lambda: append(again), lambda: again.read(0, 100)):
        with pytest.raises(StorageError, match="below offset 4"):
            act()
    assert again.begin_sync() is None


def test_a_missing_segment_below_the_recovery_point_is_quarantined() -> None:
    disk = SimDisk()
    log = open_log(disk)
    append(log)
    checkpointing.save(log)
    log.close()
    disk.remove(f"{DIRECTORY}/{0:020d}.log")
    assert open_log(disk, clean=False).quarantined


def test_a_sync_does_not_wait_for_a_checkpoint_that_was_begun_first() -> None:
    log = open_log(SimDisk())
    append(log)
    checkpoint = checkpointing.begin(log)
    assert checkpoint is not None
    assert log.dirty
    sync(log)
    assert log.synced_offset == 1
    assert log.begin_sync() is None
    checkpoint.run()
    log.finish_sync(checkpoint)
    assert (log.synced_offset, log.saved.recovery_point) == (1, 1)
    assert not log.dirty


def test_what_a_checkpoint_has_synced_needs_no_sync() -> None:
    log = open_log(SimDisk())
    append(log)
    checkpoint = checkpointing.begin(log)
    assert checkpoint is not None
    checkpoint.run()
    log.finish_sync(checkpoint)
    assert not log.dirty
    assert log.begin_sync() is None
    assert checkpointing.begin(log) is None


def test_a_checkpoint_bounds_the_scan() -> None:
    disk = SimDisk()
    settings = LogSettings(index_interval_bytes=500, checkpoint_bytes=5000)
    log = open_log(disk, settings)
    while not log.saved.is_due(log.settings.checkpoint_bytes):
        append(log)
    ticket = checkpointing.begin(log)
    assert ticket is not None
    assert checkpointing.begin(log) is None
    assert not log.saved.is_due(log.settings.checkpoint_bytes)
    ticket.run()
    log.finish_sync(ticket)
    for _ in range(3):
        append(log)
    sync(log)
    disk.crash(random.Random(0))
    again = open_log(disk, settings, clean=False)
    assert again.end_offset == log.end_offset
    assert again.saved.bytes_since <= 500 + 4 * again.batches()[0][3]


def test_a_checkpoint_that_a_roll_overtakes_does_not_save_the_segment() -> None:
    disk = SimDisk()
    log = open_log(disk, LogSettings(index_interval_bytes=0))
    append(log, timestamp=NOW)
    ticket = checkpointing.begin(log)
    assert ticket is not None
    append(log, timestamp=NOW + 5000)
    log.roll(NOW)
    ticket.run()
    log.finish_sync(ticket)
    append(log)
    checkpointing.save(log)
    log.close()
    again = open_log(disk, log.settings)
    assert again.segments[0].load_max_timestamp() == NOW + 5000
    assert list(again.segments[0].index.offsets) == [1]


@pytest.mark.parametrize("content", [b"garbage", b"0\n3\n1 0\n", b"0\n3\n1 9\n3 4\n4 6\n", b"", None])
@pytest.mark.parametrize("clean", [True, False])
def test_epochs_are_read_from_the_batches_where_their_file_is_of_no_use(content: bytes | None, clean: bool) -> None:
    """Without them a follower would say nothing of its last epoch, and keep a tail that its leader does not have."""
    disk = SimDisk()
    log = open_log(disk, LogSettings(segment_bytes=300))
    for epoch in (1, 1, 3, 4):
        append(log, 2, epoch=epoch)
    sync(log)
    checkpoint(log)
    known = log.epochs.entries()
    assert known == [(1, 0), (3, 4), (4, 6)]
    path = f"{DIRECTORY}/leader-epoch-checkpoint"
    disk.remove(path)
    if content is not None:
        disk.write_atomic(path, content)
    if not clean:
        log.active.file.append(bytes(100))
    again = open_log(disk, LogSettings(segment_bytes=300), clean=clean, recovery_point=log.saved.recovery_point)
    assert again.failure is None
    assert again.epochs.entries() == known
    checkpoint(again)
    assert open_log(disk, recovery_point=log.saved.recovery_point).epochs.entries() == known


def test_indexes_that_lie_are_found_out() -> None:
    disk = SimDisk()
    settings = LogSettings(segment_bytes=3000, index_interval_bytes=200)
    log = open_log(disk, settings)
    for _ in range(50):
        append(log)
    checkpointing.save(log)
    log.close()
    index = bytearray(disk.read(f"{DIRECTORY}/{0:020d}.index"))
    index[7] ^= 1
    disk.write_atomic(f"{DIRECTORY}/{0:020d}.index", index)
    disk.remove(f"{DIRECTORY}/{log.segments[1].base_offset:020d}.index")
    again = open_log(disk, settings)
    for offset in range(50):
        assert offsets(again.read(offset, 1)) == [offset]


def test_leftovers_are_swept() -> None:
    disk = SimDisk()
    log = open_log(disk)
    append(log)
    checkpointing.save(log)
    log.close()
    for name in (f"{5:020d}.log.deleted", "x.tmp", f"{5:020d}.index", f"{5:020d}.timeindex"):
        disk.open(f"{DIRECTORY}/{name}", create=True)
    open_log(disk)
    assert [name for name in disk.list(DIRECTORY) if "5" in name or name == "x.tmp"] == []


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("stem", ["7", "٠" * 19 + "٧", "²" * 20, "9" * 20, "0" * 20 + "7", "copy of 0", "-" + "0" * 19])
def test_files_with_names_that_no_segment_has_are_left_alone(stem: str, clean: bool) -> None:
    disk = SimDisk()
    settings = LogSettings(segment_bytes=400)
    log = open_log(disk, settings)
    for _ in range(9):
        append(log)
    checkpoint(log)
    checkpointing.save(log)
    log.close()
    strays = [f"{DIRECTORY}/{stem}{suffix}" for suffix in (".log", ".index", ".snapshot")]
    for path in strays:
        disk.write_atomic(path, b"somebody else's")
    disk.write_atomic(f"{DIRECTORY}/{stem} lonely.index", b"somebody else's")
    if not clean:
        write_anew(disk, DIRECTORY, 0)
    again = open_log(disk, settings, clean=clean)
    assert not again.quarantined, again.failure
    assert [segment.base_offset for segment in again.segments] == [0, 3, 6]
    assert append(again) == 9
    checkpoint(again)
    for path in (*strays, f"{DIRECTORY}/{stem} lonely.index"):
        assert disk.read(path) == b"somebody else's"
