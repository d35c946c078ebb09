"""After a failed sync: what only the page cache has is written anew, from the proven part on and no further back."""

from random import Random

import pytest

from skidway.errors import StorageError
from skidway.log import lookup, truncation
from skidway.log.durability import checkpointing
from skidway.log.log import Log
from skidway.log.logs import Logs
from skidway.log.settings import LogSettings
from skidway.records.batch import read_header
from skidway.records.record import Record, build_batch
from skidway.sim.world.disk import Crashed, SimDisk, SimFile
from skidway.steps import at_once

SETTINGS = LogSettings(segment_bytes=2_000, index_interval_bytes=200, retention_ms=-1)
NOW_MS = 1_000_000
BATCH_BYTES = 600


def create(disk: SimDisk, topic: str = "orders") -> Log:
    return Logs(disk).create(topic, 0, bytes(range(16)), SETTINGS, NOW_MS)


def reload(disk: SimDisk, *, write_anew: bool = True, topic: str = "orders") -> tuple[Log, int]:
    logs = Logs(disk)
    written = logs.write_anew() if write_anew else 0
    return logs.load(topic, 0, SETTINGS, NOW_MS), written


def append(log: Log, count: int = 1) -> None:
    for _ in range(count):
        batch = build_batch([Record(0, NOW_MS, b"k", bytes(BATCH_BYTES), [])])
        log.append(batch, read_header(batch), 1, NOW_MS)


def sync(log: Log, *, checkpoint: bool = False) -> None:
    ticket = checkpointing.begin(log) if checkpoint else log.begin_sync()
    assert ticket is not None
    ticket.run()
    log.finish_sync(ticket)


def fail_sync(disk: SimDisk, log: Log) -> None:
    disk.failing_syncs = {disk.syncs}
    ticket = log.begin_sync()
    assert ticket is not None
    with pytest.raises(OSError, match="Input/output"):
        ticket.run()
    disk.failing_syncs = None
    disk.kill()


def lose_power(disk: SimDisk, seed: int = 1) -> None:
    disk.crash(Random(seed))


def test_without_it_a_new_process_believes_what_the_disk_does_not_have() -> None:
    disk = SimDisk()
    log = create(disk)
    append(log)
    sync(log)
    append(log, 2)
    fail_sync(disk, log)
    log, _ = reload(disk, write_anew=False)
    assert (log.end_offset, log.synced_offset) == (3, 3), "its own sync has succeeded"
    lose_power(disk)
    assert reload(disk)[0].end_offset < 3


@pytest.mark.parametrize("seed", range(8))
def test_what_was_written_anew_outlives_a_loss_of_power(seed: int) -> None:
    disk = SimDisk()
    log = create(disk)
    append(log)
    sync(log)
    append(log, 8)
    fail_sync(disk, log)
    log, _ = reload(disk)
    assert log.synced_offset == 9
    lose_power(disk, seed)
    assert reload(disk)[0].end_offset == 9


@pytest.mark.parametrize("seed", range(8))
def test_pages_that_were_dropped_before_end_the_log_there(seed: int) -> None:
    disk = SimDisk()
    log = create(disk)
    append(log)
    sync(log)
    append(log, 8)
    fail_sync(disk, log)
    disk.evict(Random(seed))
    log, _ = reload(disk)
    assert log.synced_offset >= 1
    kept = log.synced_offset
    lose_power(disk, seed)
    assert reload(disk)[0].end_offset == kept


def test_only_what_lies_behind_the_last_checkpoint_is_written() -> None:
    disk = SimDisk()
    log = create(disk)
    append(log, 7)
    sync(log, checkpoint=True)
    append(log, 3)
    size = log.size()
    fail_sync(disk, log)
    log, written = reload(disk)
    assert log.end_offset == 10
    assert written == size * 3 // 10


def test_without_any_checkpoint_everything_is_written() -> None:
    disk = SimDisk()
    log = create(disk)
    append(log, 7)
    size = log.size()
    fail_sync(disk, log)
    log, written = reload(disk)
    assert written == size
    lose_power(disk)
    log, _ = reload(disk)
    assert log.end_offset == 7
    assert disk.read("orders-0/partition.metadata").startswith(b"version: 0\ntopic_id:"), "written with the first sync"


def test_a_checkpoint_of_a_tail_that_was_cut_proves_nothing() -> None:
    disk = SimDisk()
    log = create(disk)
    append(log, 2)
    sync(log, checkpoint=True)
    append(log, 4)
    sync(log, checkpoint=True)
    snapshot = disk.read("orders-0/00000000000000000006.snapshot")
    truncation.truncate(log, 3, NOW_MS)
    # A worker that had begun before the cut comes late with its file.
    disk.write_atomic("orders-0/00000000000000000006.snapshot", snapshot)
    append(log, 4)
    fail_sync(disk, log)
    log, _ = reload(disk)
    assert log.end_offset == 7
    lose_power(disk)
    assert reload(disk)[0].end_offset == 7


def test_a_log_that_no_topic_knows_is_not_forgotten() -> None:
    disk = SimDisk()
    log = create(disk)
    append(log, 2)
    fail_sync(disk, log)
    logs = Logs(disk)
    stray = logs.set_aside("orders", 0)
    disk.kill()
    Logs(disk).write_anew()
    lose_power(disk)
    assert disk.read(f"{stray}/00000000000000000000.log").count(b"\0") > BATCH_BYTES
    assert read_header(disk.read(f"{stray}/00000000000000000000.log")).size > BATCH_BYTES


def test_an_unreadable_beginning_leads_to_the_whole_file() -> None:
    disk = SimDisk()
    log = create(disk)
    append(log)
    sync(log, checkpoint=True)
    append(log)
    size = log.size()
    fail_sync(disk, log)
    for suffix in ("index", "timeindex"):
        disk.remove(f"orders-0/00000000000000000000.{suffix}")
    disk.corrupt("orders-0/00000000000000000000.log", 16)
    assert Logs(disk).write_anew() == size


@pytest.mark.parametrize("failing", range(4))
def test_a_disk_that_fails_again_is_not_believed(failing: int) -> None:
    disk = SimDisk()
    log = create(disk)
    append(log, 2)
    fail_sync(disk, log)
    logs = Logs(disk)
    disk.failing_syncs = {disk.syncs + failing}
    with pytest.raises(StorageError, match=r"failed before, and writing the unsynced data again failed too"):
        logs.write_anew()


def test_without_room_for_the_new_file_nothing_is_believed_and_nothing_lost() -> None:
    disk = SimDisk()
    log = create(disk)
    append(log)
    sync(log, checkpoint=True)
    append(log)
    fail_sync(disk, log)
    disk.capacity = disk.used() + BATCH_BYTES // 2
    with pytest.raises(StorageError, match="No space left"):
        Logs(disk).write_anew()
    disk.kill()
    disk.capacity = None
    assert reload(disk)[0].end_offset == 2


def test_the_tail_of_a_segment_that_is_proven_in_part_becomes_one_of_its_own() -> None:
    disk = SimDisk()
    log = create(disk)
    append(log)
    sync(log, checkpoint=True)
    append(log, 3)
    fail_sync(disk, log)
    log, _ = reload(disk)
    assert [segment.base_offset for segment in log.segments] == [0, 1, 2]
    assert [batch[1] for batch in log.batches()] == [0, 1, 2, 3]
    assert at_once(lookup.offset_for_timestamp(log, NOW_MS)) == (0, NOW_MS, 1)
    append(log)
    sync(log, checkpoint=True)
    lose_power(disk)
    assert [batch[1] for batch in reload(disk, write_anew=False)[0].batches()] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("power", [False, True])
def test_it_may_be_interrupted_anywhere(power: bool) -> None:
    for stop in range(1, 40):
        disk = SimDisk()
        log = create(disk)
        append(log)
        sync(log, checkpoint=True)
        append(log)
        sync(log)
        append(log, 4)
        fail_sync(disk, log)
        for attempt in range(2):
            disk.crash_at = disk.operations + stop - attempt
            try:
                log, _ = reload(disk)
                disk.crash_at = None
            except Crashed:
                if power:
                    lose_power(disk, stop)
                disk.kill()
        log, _ = reload(disk)
        offsets = [batch[1] for batch in log.batches()]
        assert offsets == list(range(log.end_offset))
        assert log.end_offset >= 2, "what was synced before"
        assert power or log.end_offset == 6
        for segment in log.segments:
            assert all(batch[1] >= segment.base_offset for batch in segment.batches(0, segment.size))
        end_offset = log.end_offset
        lose_power(disk, stop)
        assert reload(disk)[0].end_offset == end_offset


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_a_cut_whose_own_sync_never_came_is_synced_by_the_next_start(
    seed: int, killed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = SimDisk()
    log = create(disk)
    append(log)
    sync(log, checkpoint=True)
    append(log)
    sync(log)
    append(log)
    fail_sync(disk, log)
    truncate = SimFile.truncate

    def interrupted(file: SimFile, size: int) -> None:
        truncate(file, size)
        if killed:
            raise Crashed
        disk.failing_syncs = {disk.syncs}

    with monkeypatch.context() as patched:
        patched.setattr(SimFile, "truncate", interrupted)
        with pytest.raises((StorageError, Crashed)):
            Logs(disk).write_anew()
    disk.failing_syncs = None
    disk.kill()
    log, _ = reload(disk)
    append(log)
    sync(log, checkpoint=True)
    lose_power(disk, seed)
    log, _ = reload(disk, write_anew=False)
    assert [batch[1] for segment in log.segments for batch in segment.batches(0, segment.size)] == [0, 1, 2, 3]
