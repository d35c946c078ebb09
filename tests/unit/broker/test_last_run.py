"""A run that was killed has lost nothing unless the machine was started anew, or its disk failed."""

from contextlib import suppress
from random import Random

import pytest

from skidway.broker.last_run import PATH, LastRun
from skidway.sim.disk import Crashed, SimDisk


def noted(epoch: int = 7) -> SimDisk:
    disk = SimDisk()
    LastRun(disk).note(epoch)
    return disk


def test_a_killed_process_still_has_what_it_wrote() -> None:
    disk = noted()
    disk.kill()
    assert LastRun(disk).broker_epoch == 7
    assert LastRun(disk).is_sound


def test_a_machine_that_lost_power_may_have_lost_anything_but_reads_the_truth() -> None:
    disk = noted()
    disk.crash(Random(1))
    assert LastRun(disk).broker_epoch == -1
    assert LastRun(disk).is_sound


def test_a_failed_sync_is_remembered_by_forgetting() -> None:
    disk = noted()
    run = LastRun(disk)
    disk.failing_syncs = {disk.syncs}
    with pytest.raises(OSError, match="Input/output"):
        disk.open("f", create=True).sync()
    assert run.sync_failed
    disk.kill()
    assert LastRun(disk).broker_epoch == -1
    assert not LastRun(disk).is_sound


@pytest.mark.parametrize("path", ["", "f"])
def test_syncs_of_directories_and_small_files_count_too(path: str) -> None:
    disk = noted()
    LastRun(disk)
    disk.failing_syncs = {disk.syncs}
    with pytest.raises(OSError, match="Input/output"):
        disk.write_atomic(path, b"x") if path else disk.sync_directory(path)
    disk.kill()
    assert not LastRun(disk).is_sound


def test_after_a_failed_sync_a_run_notes_nothing_more() -> None:
    disk = noted()
    run = LastRun(disk)
    run.on_sync_failed()
    run.note(8)
    assert not LastRun(disk).is_sound


def test_a_note_whose_own_sync_fails_is_none() -> None:
    for number in range(2):
        disk = noted()
        disk.failing_syncs = {disk.syncs + number}
        LastRun(disk).note(8)
        assert not LastRun(disk).is_sound


def test_a_new_directory_and_nonsense_say_nothing() -> None:
    assert not LastRun(SimDisk()).is_sound
    for nonsense in (b"", b"{", b"[]", b'{"broker_epoch": "7", "boot_id": "boot-0"}', b'{"broker_epoch": 7}'):
        disk = SimDisk()
        disk.write_atomic(PATH, nonsense)
        assert LastRun(disk).broker_epoch == -1
        assert not LastRun(disk).is_sound


def test_a_full_disk_leaves_the_end_unclean() -> None:
    disk = SimDisk(capacity=0)
    LastRun(disk).note(7)
    assert LastRun(disk).broker_epoch == -1


@pytest.mark.parametrize("operation", range(1, 8))
def test_after_a_failed_sync_no_crash_brings_the_note_back(operation: int) -> None:
    disk = noted()
    run = LastRun(disk)
    disk.on_sync_failed()
    disk.crash_at = disk.operations + operation
    with suppress(Crashed):
        run.note(8)
    disk.kill()
    assert not LastRun(disk).is_sound
