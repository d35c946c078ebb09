"""The first file of a log is gone. Retention and deletions remove files too, but save where the log begins before they
do: what neither explains is damage."""

from random import Random

import pytest
from log_by_hand import DIRECTORY, NOW, append, checkpoint, commit, open_log

from skidway.log import retention
from skidway.log.durability import checkpointing
from skidway.log.log import Log
from skidway.log.settings import LogSettings
from skidway.sim.world.disk import Crashed, SimDisk

SETTINGS = LogSettings(segment_bytes=300, file_delete_delay_ms=0)
FIRST = f"{DIRECTORY}/{0:020d}.log"


def written(disk: SimDisk) -> Log:
    log = open_log(disk, SETTINGS)
    for _ in range(12):
        append(log)
    commit(log)
    checkpoint(log)
    assert len(log.segments) > 3
    return log


def forget(log: Log, upto: int) -> None:
    """As retention and DeleteRecords do, and as many checkpoints as it takes."""
    retention.delete_before(log, upto)
    for _ in range(4):
        log.doomed.schedule(NOW, log.settings.file_delete_delay_ms)
        ticket = checkpointing.begin(log)
        if ticket is not None:
            ticket.run()
            log.finish_sync(ticket)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("forgotten", [0, 6])
def test_a_first_file_that_nobody_deleted_is_missed(clean: bool, forgotten: int) -> None:
    disk = SimDisk()
    log = written(disk)
    forget(log, forgotten)
    disk.lose(log.segments[0].path(".log"))
    again = open_log(disk, SETTINGS, clean=clean)
    assert again.quarantined
    assert "its first file is gone" in (again.failure or "")


def test_what_was_deleted_is_not_missed_whenever_the_machine_stops() -> None:
    stopped = 0
    for crash_at in range(1, 120):
        disk = SimDisk()
        log = written(disk)
        disk.crash_at = disk.operations + crash_at
        try:
            forget(log, 5)
            append(log)
            commit(log)
            forget(log, 9)
        except Crashed:
            stopped += 1
            disk.crash_at = None
            disk.crash(Random(crash_at))
        disk.crash_at = None
        # The first start may stop as well before it has saved anything.
        for _ in range(2):
            again = open_log(disk, SETTINGS, clean=False)
            assert not again.quarantined, (crash_at, again.failure)
            assert again.end_offset >= 12
            again.close()
    assert stopped > 40


def test_a_full_disk_gets_its_room_though_nothing_can_be_saved() -> None:
    disk = SimDisk()
    log = written(disk)
    size = disk.size(FIRST)
    retention.delete_before(log, log.segments[1].base_offset)
    used, disk.capacity = disk.used(), 1
    for _ in range(3):
        log.doomed.schedule(NOW, log.settings.file_delete_delay_ms)
        ticket = checkpointing.begin(log)
        assert ticket is not None
        with pytest.raises(OSError, match="No space"):
            ticket.run()
        log.finish_without_housekeeping(ticket)
    assert disk.used() <= used - size
    assert disk.size(FIRST + ".deleted") == 0, "its name tells why the log begins later"
    again = open_log(disk, SETTINGS, clean=False)
    assert not again.quarantined
    disk.capacity = None
    checkpoint(again)
    assert not open_log(disk, SETTINGS, clean=False).quarantined
    assert not disk.exists(FIRST + ".deleted"), "saved by now"
