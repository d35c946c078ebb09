"""A run that was killed has lost nothing unless the machine was started anew, or its disk failed."""

from contextlib import suppress
from random import Random

import pytest
from nodes_together import create, made, produce

from skidway.broker.last_run import PATH, LastRun
from skidway.sim.world.disk import Crashed, SimDisk


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


def test_what_a_loss_of_power_tore_may_be_torn_until_all_logs_were_opened() -> None:
    disk = noted()
    LastRun(disk).note_opened()
    disk.kill()
    assert LastRun(disk).has_opened, "a kill alone does not tear what was written before"
    disk.crash(Random(1))
    second = LastRun(disk)
    assert not second.has_opened
    second.note(-1)
    disk.kill()  # before it has opened its logs
    third = LastRun(disk)
    assert third.is_same_boot
    assert not third.has_opened, "the ends that the loss of power left are still there"
    third.note_opened()
    third.note(8)
    disk.kill()
    assert (LastRun(disk).has_opened, LastRun(disk).broker_epoch) == (True, 8)


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


# --- a registration whose answer nobody heard ---


def test_a_run_killed_before_it_heard_the_answer_registers_again_as_the_same() -> None:
    disk = noted()
    LastRun(disk).note_registering(bytes(range(16)), 7)
    disk.kill()
    assert LastRun(disk).unanswered == (bytes(range(16)), 7)


def test_once_it_was_answered_the_next_run_is_another() -> None:
    disk = noted()
    run = LastRun(disk)
    run.note_registering(bytes(range(16)), 7)
    run.note_registered(9)
    disk.kill()
    assert LastRun(disk).unanswered is None
    assert LastRun(disk).broker_epoch == 9


def test_after_a_loss_of_power_or_a_failed_sync_it_is_another_in_any_case() -> None:
    for seed in range(10):
        disk = noted()
        LastRun(disk).note_registering(bytes(range(16)), 7)
        disk.crash(Random(seed))
        assert LastRun(disk).unanswered is None
    disk = noted()
    run = LastRun(disk)
    run.note_registering(bytes(range(16)), 7)
    run.on_sync_failed()
    assert LastRun(disk).unanswered is None


@pytest.mark.parametrize("data", [b"", b"{}", b'{"incarnation": "xx", "previous": 1, "boot_id": "boot-0"}', b"[1]"])
def test_a_file_that_says_nothing_is_ignored(data: bytes) -> None:
    disk = noted()
    disk.write_atomic("registering", data)
    assert LastRun(disk).unanswered is None


def test_a_broker_that_was_killed_while_it_registered_stays_trusted() -> None:
    """The controller took it in, and it never heard so: what it holds is as good as before."""
    cluster = made()
    leader = create(cluster, "t", min_insync_replicas="2")
    assert produce(cluster, "t", b"a") == 0
    cluster.until(lambda: cluster.agree("t"))
    victim = next(number for number in (1, 2, 3) if number not in (leader, cluster.controller()))
    cluster.kill(victim)
    controller = cluster.nodes[cluster.until(cluster.controller)]
    cluster.until(lambda: controller.image.brokers[victim].fenced)
    before = controller.image.brokers[victim].epoch
    cluster.restart(victim)
    cluster.nodes[victim].rooms.registration._on_answer = lambda response: None  # type: ignore[method-assign]
    cluster.until(lambda: controller.image.brokers[victim].epoch > before)
    epoch = controller.image.brokers[victim].epoch
    cluster.kill(victim)
    cluster.restart(victim)
    cluster.until(cluster.ready)
    assert controller.image.brokers[victim].epoch == epoch, "the same registration"
    cluster.until(lambda: cluster.agree("t"))
