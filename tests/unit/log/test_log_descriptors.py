"""Files that a log keeps open: few, whatever is appended, and too many of them elsewhere is a trouble that passes."""

import errno
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest
from log_by_hand import NOW, append, commit, headers, open_log, sync

from skidway.errors import StorageError
from skidway.log import truncation
from skidway.log.durability import checkpointing, checkpoints, saved, unsynced
from skidway.log.log import Log
from skidway.log.recovery import opening
from skidway.log.settings import LogSettings
from skidway.records.batch import read_header
from skidway.records.record import Record, build_batch
from skidway.server.disk import RealDisk
from skidway.sim.world.disk import SimDisk

TINY = LogSettings(segment_bytes=150)


def offsets(log: Log) -> list[int]:
    log.advance_high_watermark(log.end_offset)
    found, offset = [], 0
    while offset < log.end_offset:
        batch = headers(log.read(offset, 1))[0]
        found.append(batch.base_offset)
        offset = batch.base_offset + batch.last_offset_delta + 1
    return found


def test_segments_are_closed_once_they_are_synced(tmp_path: Path) -> None:
    disk = RealDisk(str(tmp_path))
    log = open_log(disk, TINY)
    for _ in range(40):
        append(log)
    assert len(log.segments) == len(disk.open_files) == 40, "a descriptor opened later might miss a failed write"
    assert log.unsynced.is_crowded
    sync(log)
    assert len(disk.open_files) <= 6
    assert offsets(log) == list(range(40))
    assert len(disk.open_files) <= 6


def test_a_log_begins_no_segment_while_too_many_wait(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(unsynced, "SEGMENTS_MAX", 10)
    log = open_log(RealDisk(str(tmp_path)), TINY)
    for _ in range(10):
        append(log)
    with pytest.raises(StorageError, match="10 segments wait for fsync"):
        append(log)
    assert log.end_offset == 10
    sync(log)
    assert append(log) == 10


def test_nor_while_too_many_are_not_in_a_checkpoint(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(saved, "SEGMENTS_DUE", 5)
    monkeypatch.setattr(saved, "SEGMENTS_MAX", 10)
    log = open_log(RealDisk(str(tmp_path)), TINY)
    for _ in range(11):
        append(log)
        sync(log)
    with pytest.raises(StorageError, match="10 segments wait for fsync"):
        append(log)
    assert log.saved.is_due(log.settings.checkpoint_bytes)
    ticket = checkpointing.begin(log)
    assert ticket is not None
    ticket.run()
    log.finish_sync(ticket)
    assert not log.saved.is_due(log.settings.checkpoint_bytes)
    append(log)


def test_at_the_limit_of_descriptors_an_append_is_refused_and_the_next_one_taken(tmp_path: Path) -> None:
    disk = RealDisk(str(tmp_path), files_max=16)
    log = open_log(disk, TINY)
    for _ in range(16):
        append(log)
    with pytest.raises(StorageError, match="16 files are open"):
        append(log)
    assert log.end_offset == 16
    assert disk.files_short
    assert offsets(log) == list(range(16)), "what is open can be read"
    sync(log)
    assert not disk.files_short
    assert append(log) == 16


def test_files_that_are_synced_are_closed_when_they_are_short(tmp_path: Path) -> None:
    disk = RealDisk(str(tmp_path), files_max=8)
    logs = [
        opening.open_log(disk, name, TINY, clean=True, recovery_point=0, start_offset=None, now_ms=0)
        for name in _made(disk)
    ]
    for number in range(40):
        log = logs[number % len(logs)]
        append(log)
        if disk.files_short:
            for each in logs:
                sync(each)
                each.spare_files()
    assert [log.end_offset for log in logs] == [2] * 20
    for log in logs:
        assert offsets(log) == [0, 1]
        log.spare_files()
    assert not disk.open_files


def _made(disk: RealDisk) -> list[str]:
    names = [f"orders-{number}" for number in range(20)]
    for name in names:
        disk.make_directory(name)
    return names


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE])
def test_a_directory_that_cannot_be_opened_is_no_failed_sync(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: int
) -> None:
    disk = RealDisk(str(tmp_path))
    failed: list[str] = []
    disk.on_sync_failed = lambda: failed.append("sync")
    log = open_log(disk, TINY)
    append(log)

    def refuse(path: str) -> None:
        raise OSError(code, "Too many open files")

    for begin in (log.begin_sync, lambda: checkpointing.begin(log)):
        ticket = begin()
        assert ticket is not None
        with monkeypatch.context() as patched:
            patched.setattr(disk, "sync_directory", refuse)
            with pytest.raises(OSError, match="Too many open files"):
                ticket.run()
        log.give_back_sync(ticket)
        assert log.dirty
        assert log.synced_offset == 0
    sync(log)
    assert log.synced_offset == 1
    assert not failed
    checkpointing.save(log)
    log.close()


class ShortOnce:
    """From a disk's n-th use on, for some uses, no file can be opened."""

    NAMES = ("open", "read", "list", "write_atomic", "open_directory", "sync_directory")

    def __init__(self, monkeypatch: pytest.MonkeyPatch, disk: SimDisk, begin: int, code: int) -> None:
        self.uses, self.begin, self.code = 0, begin, code
        for name in self.NAMES:
            monkeypatch.setattr(disk, name, self._counted(getattr(disk, name)))

    def _counted(self, act: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **options: Any) -> Any:
            self.uses += 1
            if self.uses > self.begin:
                raise OSError(self.code, "Too many open files")
            return act(*arguments, **options)

        return counted


def closed_log(seed: int) -> SimDisk:
    """A log of several segments, after a loss of power that may have torn its end, with a truncation half done."""
    disk = SimDisk()
    log = open_log(disk, TINY)
    for _ in range(6):
        append(log)
    commit(log)
    checkpointing.save(log)
    for _ in range(3):
        append(log)
    sync(log)
    truncation.truncate(log, 8, NOW)
    append(log)
    append(log)
    disk.crash(Random(seed))
    return disk


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE])
@pytest.mark.parametrize("seed", range(3))
def test_a_log_that_cannot_be_opened_now_is_as_good_later(
    monkeypatch: pytest.MonkeyPatch, code: int, seed: int
) -> None:
    ends: set[int] = set()
    for begin in range(1_000):
        disk = closed_log(seed)
        with monkeypatch.context() as patched:
            short = ShortOnce(patched, disk, begin, code)
            with suppress(OSError):
                log = open_log(disk, TINY, clean=False)
                assert short.uses <= begin, "nobody takes what it could not read for what is there"
                break
        log = open_log(disk, TINY, clean=False)
        assert log.failure is None, f"after {begin} uses"
        ends.add(log.end_offset)
    assert begin > 5
    assert ends == {log.end_offset}
    assert log.end_offset >= 8
    assert log.failure is None


# --- a cut ---


def log_to_cut(disk: SimDisk) -> Log:
    """Of several segments, with a producer that has written to most of them, snapshots, and no file open."""
    log = open_log(disk, TINY)
    for number in range(9):
        batch = build_batch([Record(0, NOW, b"key", b"v" * 40)], producer_id=7, producer_epoch=0, base_sequence=number)
        log.append(batch, read_header(batch), number // 4, NOW)
        if number == 3:
            sync(log)
            log.advance_high_watermark(3)
            checkpointing.save(log)
    sync(log)
    checkpointing.save(log)
    for segment in log.segments:
        segment.unload()
    return log


def cut_end(log: Log) -> tuple[int, int, list[tuple[int, int]], int]:
    return log.end_offset, log.high_watermark, log.epochs.entries(), log.producers.entries[7].last_sequence


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE])
def test_a_log_that_cannot_be_cut_now_is_as_it_was_and_cut_later(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    """Half cut, it would have to be fetched anew."""
    for begin in range(1_000):
        disk = SimDisk()
        log = log_to_cut(disk)
        before = cut_end(log)
        with monkeypatch.context() as patched:
            short = ShortOnce(patched, disk, begin, code)
            with suppress(StorageError):
                truncation.truncate(log, 6, NOW)
                break
        assert log.failure is None, f"after {begin} uses"
        assert cut_end(log) == before
        assert (log.synced_offset, log.saved.truncated.is_marked) == (9, False)
        assert not disk.exists(f"{log.directory}/{checkpoints.TRUNCATED}")
        truncation.truncate(log, 6, NOW)
        assert cut_end(log) == (6, 3, [(0, 0), (1, 4)], 5), f"after {begin} uses"
    assert begin > 5
    assert short.uses == begin
    assert cut_end(log) == (6, 3, [(0, 0), (1, 4)], 5)
    disk.crash(Random(1))
    assert cut_end(open_log(disk, TINY, clean=False))[0] == 6


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE])
def test_a_log_that_cannot_begin_anew_now_does_so_later(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    """All of it goes in any case: so nothing is lost by a quarantine, which keeps it from being believed."""
    for begin in range(1_000):
        disk = SimDisk()
        log = log_to_cut(disk)
        before = cut_end(log)
        with monkeypatch.context() as patched:
            ShortOnce(patched, disk, begin, code)
            with suppress(StorageError):
                truncation.restart(log, 20, NOW)
                break
        marked = disk.exists(f"{log.directory}/{checkpoints.TRUNCATED}")
        assert (log.failure is not None) == marked, "a start obeys the mark"
        assert marked or cut_end(log) == before
        truncation.restart(log, 20, NOW)
        assert (log.failure, log.start_offset, log.end_offset) == (None, 20, 20), f"after {begin} uses"
    assert begin > 3
    assert (log.failure, log.start_offset, log.end_offset) == (None, 20, 20)


def test_a_log_whose_cut_may_be_decided_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """A start may obey what the disk did not confirm: until then nothing is acknowledged that it would cut."""
    disk = SimDisk()
    log = log_to_cut(disk)
    really_write = disk.write_atomic

    def write_atomic(path: str, data: bytes) -> None:
        really_write(path, data)
        raise OSError(errno.EIO, "the directory cannot be synced")

    def read(path: str) -> bytes:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(disk, "write_atomic", write_atomic)
    # The snapshots are read before the decision.
    really_mark = truncation.mark

    def mark(*arguments: Any) -> None:
        monkeypatch.setattr(disk, "read", read)
        really_mark(*arguments)

    monkeypatch.setattr(truncation, "mark", mark)
    with pytest.raises(StorageError, match="could not be truncated"):
        truncation.truncate(log, 6, NOW)
    assert log.quarantined
    with pytest.raises(StorageError):
        append(log)
