"""Where a log begins is saved only as far as the log is synced. A loss of power may take everything else, and a start
above the end that is left is not believed: it must not have replaced a lower one that somebody was told of."""

from random import Random

from log_by_hand import NOW, append, sync

from skidway.log import retention, truncation
from skidway.log.durability import starts
from skidway.log.durability.checkpoints import START_OFFSETS
from skidway.log.log import Log
from skidway.log.logs import Logs
from skidway.log.settings import LogSettings
from skidway.sim.world.disk import Crashed, SimDisk

SETTINGS = LogSettings(segment_bytes=10_000)
TOPIC_ID = bytes(range(16))
CRASHES = 30


def create(disk: SimDisk) -> tuple[Logs, Log]:
    logs = Logs(disk)
    return logs, logs.create("t", 0, TOPIC_ID, SETTINGS, NOW)


def write(log: Log, count: int) -> None:
    """Committed at once, as with `flush=os`."""
    for _ in range(count):
        append(log)
    log.advance_high_watermark(log.end_offset)


def save(logs: Logs) -> None:
    ticket = logs.begin_save()
    assert ticket is not None
    ticket.run()
    logs.finish_save(ticket)


def reopened(disk: SimDisk, seed: int) -> Log:
    disk.crash(Random(seed))
    return Logs(disk).load("t", 0, SETTINGS, NOW, may_be_short=True)


def test_a_deletion_that_is_being_saved_does_not_undo_an_earlier_one() -> None:
    ends = set()
    for seed in range(CRASHES):
        disk = SimDisk()
        logs, log = create(disk)
        write(log, 5)
        sync(log)
        retention.delete_before(log, 3)
        save(logs)
        assert log.proven_start == 3
        write(log, 5)
        retention.delete_before(log, 8)
        save(logs)
        assert log.proven_start == 5, "all that is synced is deleted"
        again = reopened(disk, seed)
        assert again.start_offset == 5
        ends.add(again.end_offset)
    assert min(ends) < 8, "no loss of power took what the second deletion was about"


def test_a_start_is_saved_when_what_lies_below_it_is_synced() -> None:
    for seed in range(CRASHES):
        disk = SimDisk()
        logs, log = create(disk)
        write(log, 10)
        retention.delete_before(log, 8)
        save(logs)
        assert (log.proven_start, starts.savable(log)) == (0, 0)
        sync(log)
        assert (log.proven_start, starts.savable(log)) == (0, 8), "it is synced, and no file tells"
        save(logs)
        assert log.proven_start == 8
        assert reopened(disk, seed).start_offset == 8


def test_a_log_that_was_emptied_before_its_first_sync() -> None:
    disk = SimDisk()
    logs, log = create(disk)
    write(log, 5)
    retention.delete_before(log, 5)
    save(logs)
    assert disk.read(START_OFFSETS) == b"0\n0\n"
    sync(log)
    save(logs)
    assert log.proven_start == 5
    again = reopened(disk, 1)
    assert (again.start_offset, again.end_offset) == (5, 5)


def test_a_cut_names_no_start_above_what_is_synced() -> None:
    """The file that decides a cut is another that names the start."""
    stopped = 0
    for crash_at in range(1, 12):
        disk = SimDisk()
        logs, log = create(disk)
        write(log, 5)
        sync(log)
        retention.delete_before(log, 3)
        save(logs)
        write(log, 5)
        retention.delete_before(log, 8)
        append(log)
        disk.crash_at = disk.operations + crash_at
        try:
            truncation.truncate(log, 10, NOW)
        except Crashed:
            stopped += 1
        assert log.proven_start <= 5
        assert 3 <= reopened(disk, crash_at).start_offset <= 5
    assert 0 < stopped < 11, "power was lost before the cut, in it, and behind it"
