"""A run that was killed has lost nothing unless the machine was started anew, or its disk failed."""

from random import Random

from skidway.broker.last_run import PATH, epoch_of_last_run, forget_run, note_run
from skidway.sim.disk import SimDisk


def noted(epoch: int = 7) -> SimDisk:
    disk = SimDisk()
    note_run(disk, epoch)
    return disk


def test_a_killed_process_still_has_what_it_wrote() -> None:
    disk = noted()
    disk.kill()
    assert epoch_of_last_run(disk) == 7


def test_a_machine_that_lost_power_may_have_lost_anything() -> None:
    disk = noted()
    disk.crash(Random(1))
    assert epoch_of_last_run(disk) == -1


def test_a_failed_sync_is_remembered_by_forgetting() -> None:
    disk = noted()
    forget_run(disk)
    disk.kill()
    assert epoch_of_last_run(disk) == -1


def test_a_new_directory_and_nonsense_say_nothing() -> None:
    assert epoch_of_last_run(SimDisk()) == -1
    for nonsense in (b"", b"{", b"[]", b'{"broker_epoch": "7", "boot_id": "boot-0"}', b'{"broker_epoch": 7}'):
        disk = SimDisk()
        disk.write_atomic(PATH, nonsense)
        assert epoch_of_last_run(disk) == -1


def test_a_full_disk_leaves_the_end_unclean() -> None:
    disk = SimDisk(capacity=0)
    note_run(disk, 7)
    assert epoch_of_last_run(disk) == -1
