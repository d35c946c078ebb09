"""A log is cut where its leader disagrees: what it forgets, what it keeps, who else may be at its files meanwhile."""

import random
from collections.abc import Callable

import pytest
from log_by_hand import checkpoint

from skidway.errors import StorageError
from skidway.log import following, lookup, retention, truncation
from skidway.log.compaction import cleaning
from skidway.log.compaction.cleaning import DirectCompactor
from skidway.log.durability import checkpointing
from skidway.log.log import Log
from skidway.log.logs import Logs
from skidway.log.settings import LogSettings
from skidway.records.batch import read_header, stamp
from skidway.records.record import Record, build_batch
from skidway.sim.world.disk import Crashed, SimDisk
from skidway.steps import at_once

NOW = 1_700_000_000_000
TOPIC_ID = bytes(range(16))
SMALL = LogSettings(segment_bytes=350, index_interval_bytes=0)
COMPACTED = LogSettings(segment_bytes=10_000, compact=True, cleanup_delete=False, min_cleanable_dirty_ratio=0.0)


def create(disk: SimDisk, settings: LogSettings = SMALL) -> tuple[Logs, Log]:
    logs = Logs(disk)
    return logs, logs.create("orders", 0, TOPIC_ID, settings, NOW)


def reopen(disk: SimDisk, settings: LogSettings = SMALL) -> tuple[Logs, Log]:
    logs = Logs(disk)
    return logs, logs.load("orders", 0, settings, NOW, TOPIC_ID)


def append(log: Log, epoch: int = 0, *, sequence: int = -1, timestamp: int = NOW, key: bytes = b"key") -> int:
    producer_id = 7 if sequence >= 0 else -1
    producer_epoch = 0 if sequence >= 0 else -1
    batch = build_batch(
        [Record(0, timestamp, key, b"v" * 40, [])],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=sequence,
    )
    return log.append(batch, read_header(batch), epoch, NOW)


def fetched(base_offset: int, epoch: int) -> bytearray:
    batch = build_batch([Record(0, NOW, b"key", b"from the leader", [])])
    stamp(batch, base_offset, epoch)
    return batch


def save(logs: Logs) -> None:
    ticket = logs.begin_save()
    assert ticket is not None
    ticket.run()
    logs.finish_save(ticket)


# What the offset files and snapshots say about a tail that is gone.


def test_a_cut_below_the_saved_recovery_point_is_no_damage() -> None:
    disk = SimDisk()
    logs, log = create(disk)
    for _ in range(9):
        append(log)
    log.advance_high_watermark(4)
    checkpoint(log)
    save(logs)
    truncation.truncate(log, 5, NOW)
    disk.crash(random.Random(1))
    logs, log = reopen(disk)
    assert (log.quarantined, log.end_offset) == (False, 5)
    # Cut once more, and grown past what the files speak of.
    truncation.truncate(log, 4, NOW)
    for _ in range(8):
        append(log, 2)
    ticket = log.begin_sync()
    assert ticket is not None
    ticket.run()
    disk.crash(random.Random(2))
    logs, log = reopen(disk)
    assert (log.quarantined, log.end_offset, log.epochs.entries()) == (False, 12, [(0, 0), (2, 4)])


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_partition_that_is_deleted_while_offsets_are_saved(when: str) -> None:
    """The file that marks its truncation went with it."""
    disk = SimDisk()
    logs, log = create(disk)
    for _ in range(9):
        append(log)
    checkpoint(log)
    truncation.truncate(log, 5, NOW)
    checkpoint(log)
    ticket = logs.begin_save()
    assert ticket is not None
    assert [each for _, each, _ in ticket.truncated] == [log]
    if when == "before":
        logs.delete("orders", 0, NOW)
    ticket.run()
    if when == "after":
        logs.delete("orders", 0, NOW)
    logs.finish_save(ticket)
    assert logs.begin_save() is not None, "the next one may begin"


def test_a_watermark_saved_before_the_cut_does_not_come_back() -> None:
    disk = SimDisk()
    logs, log = create(disk)
    for _ in range(9):
        append(log)
    log.advance_high_watermark(8)
    checkpoint(log)
    save(logs)
    truncation.truncate(log, 5, NOW)
    assert log.high_watermark == 5
    for _ in range(5):
        append(log, 1)
    checkpoint(log)
    disk.crash(random.Random(1))
    logs, log = reopen(disk)
    assert logs.offsets.watermarks["orders", 0] == 5
    log.begin_at(5)
    # Once the files were written anew, they are believed again.
    log.advance_high_watermark(9)
    save(logs)
    append(log, 1)
    checkpoint(log)
    disk.crash(random.Random(2))
    logs, log = reopen(disk)
    assert logs.offsets.watermarks["orders", 0] == 9
    assert log.saved.recovery_point == 11


@pytest.mark.parametrize("when", ["never", "before the crash", "and is finished"])
def test_a_checkpoint_begun_before_the_cut_is_void(when: str) -> None:
    disk = SimDisk()
    logs, log = create(disk)
    for sequence in range(4):
        append(log, sequence=sequence)
    log.advance_high_watermark(4)
    checkpoint(log)
    for sequence in range(4, 10):
        append(log, 1, sequence=sequence, timestamp=NOW + 1000)
    ticket = checkpointing.begin(log)
    assert ticket is not None
    truncation.truncate(log, 4, NOW)
    log.roll(NOW)
    assert checkpointing.begin(log) is None  # one at a time
    if when != "never":
        ticket.run()
    if when == "and is finished":
        log.finish_sync(ticket)
        assert (log.synced_offset, log.saved.recovery_point) == (4, 0)
        save(logs)
    disk.crash(random.Random(3))
    logs, log = reopen(disk)
    assert (log.quarantined, log.end_offset, log.epochs.entries()) == (False, 4, [(0, 0)])
    assert log.producers.entries[7].last_sequence == 3
    # The index of the cut segment says nothing of what was behind the cut.
    assert max(segment.load_max_timestamp() for segment in log.segments) == NOW
    assert at_once(lookup.offset_for_timestamp(log, NOW + 1)) is None


def test_where_a_log_begins_outlives_the_snapshot_that_told() -> None:
    disk = SimDisk()
    _, log = create(disk, LogSettings(segment_bytes=10_000))
    for _ in range(6):
        append(log, 3)
    log.advance_high_watermark(4)
    retention.delete_before(log, 3)
    checkpoint(log)
    truncation.truncate(log, 5, NOW)
    disk.crash(random.Random(1))
    _, log = reopen(disk)
    assert (log.start_offset, log.end_offset, log.epochs.entries()) == (3, 5, [(3, 3)])


# Batches and offsets.


def test_a_batch_goes_as_a_whole() -> None:
    _, log = create(SimDisk())
    following.append(log, fetched(0, 0), NOW)
    batch = build_batch([Record(i, NOW, b"", b"", []) for i in range(5)])
    log.append(batch, read_header(batch), 0, NOW)
    truncation.truncate(log, 3, NOW)
    assert log.end_offset == 1


def test_where_offsets_are_missing_the_log_ends_with_its_last_batch() -> None:
    _, log = create(SimDisk())
    for offset in (0, 10, 20):
        following.append(log, fetched(offset, 0), NOW)
    truncation.truncate(log, 15, NOW)
    assert log.end_offset == 11
    following.append(log, fetched(14, 1), NOW)
    assert log.epochs.entries() == [(0, 0), (1, 14)]


def test_a_cut_below_the_start_leaves_an_empty_log_there() -> None:
    _, log = create(SimDisk())
    for _ in range(6):
        append(log)
    log.advance_high_watermark(6)
    retention.delete_before(log, 4)
    truncation.truncate(log, 2, NOW)
    assert (log.start_offset, log.high_watermark, log.end_offset, log.size()) == (2, 2, 2, 0)


def test_a_cut_in_the_batch_where_the_log_begins_leaves_nothing_of_it() -> None:
    disk = SimDisk()
    _, log = create(disk)
    append(log)
    batch = build_batch([Record(i, NOW, b"", b"", []) for i in range(5)])
    log.append(batch, read_header(batch), 0, NOW)
    log.advance_high_watermark(6)
    retention.delete_before(log, 3)
    truncation.truncate(log, 4, NOW)
    assert (log.start_offset, log.end_offset) == (3, 3)
    disk.crash(random.Random(0))
    _, log = reopen(disk)
    assert (log.start_offset, log.end_offset) == (3, 3)


def test_readers_below_the_cut_go_on() -> None:
    _, log = create(SimDisk())
    for _ in range(9):
        append(log)
    log.advance_high_watermark(9)
    assert log.read(0, 10_000) is not None
    truncation.truncate(log, 4, NOW)
    append(log, 1)
    log.advance_high_watermark(5)
    offset = 0
    for expected in range(5):
        slice_ = log.read(offset, 1)
        assert slice_ is not None
        header = read_header(slice_.read())
        assert (header.base_offset, header.partition_leader_epoch) == (expected, expected // 4)
        offset += 1
    assert log.read(offset, 1) is None


def test_a_disk_without_room_for_the_decision_leaves_the_log_as_it_was() -> None:
    disk = SimDisk()
    _, log = create(disk)
    for _ in range(6):
        append(log)
    disk.capacity = disk.used()
    acts: list[Callable[[], object]] = [
        lambda: truncation.truncate(log, 3, NOW),
        lambda: truncation.restart(log, 100, NOW),
    ]
    for act in acts:
        with pytest.raises(StorageError, match="retry later"):
            act()
        assert (log.failure, log.end_offset) == (None, 6)
    disk.capacity = None
    truncation.truncate(log, 3, NOW)
    assert log.end_offset == 3


def test_a_sync_that_fails_half_way_is_final() -> None:
    for number in range(6):
        disk = SimDisk()
        _, log = create(disk)
        for _ in range(6):
            append(log)
        checkpoint(log)
        disk.failing_syncs = {disk.syncs + number}
        try:
            truncation.truncate(log, 3, NOW)
        except StorageError:
            if log.failure is None:
                assert log.end_offset == 6
            else:
                with pytest.raises(StorageError):  # nobody can tell what is there
                    log.read(0, 1000)
        disk.failing_syncs = None
        disk.crash(random.Random(number))
        _, log = reopen(disk)
        assert not log.quarantined
        assert 3 <= log.end_offset <= 6


def test_what_is_called_synced_survives_a_loss_of_power_anywhere_in_a_cut() -> None:
    cuts: list[Callable[[Log], object]] = [
        lambda log: truncation.truncate(log, 3, NOW),
        lambda log: truncation.restart(log, 2, NOW),
    ]
    for cut in cuts:
        crashes = 0
        for number in range(1, 40):
            for seed in range(8):
                disk = SimDisk()
                _, log = create(disk)
                for _ in range(6):
                    append(log)
                checkpoint(log)
                assert log.synced_offset == 6
                disk.crash_at = disk.operations + number
                try:
                    cut(log)
                except Crashed:
                    crashes += 1
                synced_offset = log.synced_offset
                disk.crash(random.Random(seed))
                _, log = reopen(disk)
                assert not log.quarantined
                assert log.end_offset >= synced_offset
        assert 0 < crashes < 39 * 8, "it is interrupted everywhere, and comes to its end"


# Epochs.


def test_an_epoch_begins_before_its_first_batch() -> None:
    disk = SimDisk()
    _, log = create(disk)
    assert log.end_offset_for_epoch(0) == (-1, -1)
    log.begin_epoch(4)
    assert log.end_offset_for_epoch(4) == (4, 0)
    append(log, 4)
    log.begin_epoch(6)
    assert [log.end_offset_for_epoch(epoch) for epoch in (3, 4, 5, 6, 7)] == [
        (3, 0),
        (4, 1),
        (4, 1),
        (6, 1),
        (-1, -1),
    ]
    checkpoint(log)
    disk.crash(random.Random(1))
    _, log = reopen(disk)
    assert log.epochs.entries() == [(4, 0), (6, 1)]
    # The next one takes its place: it wrote nothing.
    log.begin_epoch(7)
    assert log.epochs.entries() == [(4, 0), (7, 1)]
    append(log, 7)
    assert log.end_offset_for_epoch(7) == (7, 2)


def test_an_epoch_without_batches_is_forgotten_by_a_cut_at_the_end() -> None:
    """It led and wrote nothing; the next leader knows nothing of its epoch (KAFKA-10706)."""
    disk = SimDisk()
    _, log = create(disk)
    append(log, 4)
    log.begin_epoch(5)
    checkpoint(log)
    truncation.truncate(log, 1, NOW)
    assert log.epochs.entries() == [(4, 0)]
    following.append(log, fetched(1, 4), NOW)
    checkpoint(log)
    disk.crash(random.Random(1))
    _, log = reopen(disk)
    assert log.epochs.entries() == [(4, 0)]


def test_a_log_goes_on_in_an_older_epoch_than_one_that_wrote_nothing() -> None:
    disk = SimDisk()
    _, log = create(disk)
    append(log, 4)
    log.begin_epoch(5)
    checkpoint(log)
    following.append(log, fetched(1, 4), NOW)
    ticket = log.begin_sync()
    assert ticket is not None
    ticket.run()
    assert log.epochs.entries() == [(4, 0)]
    disk.crash(random.Random(1))
    _, log = reopen(disk)
    assert log.epochs.entries() == [(4, 0)]


def test_an_emptied_log_remembers_its_last_epoch() -> None:
    disk = SimDisk()
    _, log = create(disk)
    for epoch in (1, 2, 3):
        append(log, epoch)
    log.advance_high_watermark(3)
    log.roll(NOW)
    retention.delete_before(log, 3)
    checkpoint(log)
    for known in (log, reopen(disk)[1]):
        assert known.epochs.entries() == [(3, 3)]
        assert [known.end_offset_for_epoch(epoch) for epoch in (2, 3, 4)] == [(2, 3), (3, 3), (-1, -1)]


# Beside a compaction.


def filled() -> Log:
    _, log = create(SimDisk(), COMPACTED)
    for _ in range(3):
        for key in (b"a", b"a", b"b"):
            append(log, key=key)
        log.roll(NOW)
    log.advance_high_watermark(log.end_offset)
    checkpoint(log)
    append(log)
    return log


def test_a_cut_above_what_is_compacted_leaves_the_compaction_alone() -> None:
    log = filled()
    running = cleaning.begin(log, NOW, "t1")
    assert running is not None
    clean = running.clean(DirectCompactor(log.disk))
    clean.run()
    assert clean.result is not None
    truncation.truncate(log, 9, NOW)
    ticket = running.on_cleaned(clean.result)
    while ticket is not None:
        ticket.run()
        ticket = running.on_swapped(ticket)
    assert (log.compaction, log.end_offset, log.cleaned_offset) == (None, 9, 9)
    assert log.size() < 700


@pytest.mark.parametrize("cleaned_before", [False, True])
@pytest.mark.parametrize("act", ["cut", "restart"])
def test_a_cut_below_abandons_the_compaction(cleaned_before: bool, act: str) -> None:
    log = filled()
    running = cleaning.begin(log, NOW, "t1")
    assert running is not None
    clean = running.clean(DirectCompactor(log.disk))
    if cleaned_before:
        clean.run()
    if act == "cut":
        truncation.truncate(log, 4, NOW)
    else:
        truncation.restart(log, 4, NOW)
    assert (log.compaction, log.end_offset) == (None, 4)
    before = log.batches()
    if not cleaned_before:
        try:
            clean.run()
        except OSError:
            pass
    if clean.result is not None:
        ticket = running.on_cleaned(clean.result)
        assert ticket is not None
        ticket.run()
        assert running.on_swapped(ticket) is None
    else:
        running.end()
    assert log.batches() == before
    assert not [name for name in log.disk.list("orders-0") if name.endswith((".cleaned", ".swap"))]
    assert log.cleaned_offset == 0


def test_what_is_being_put_in_place_must_be_there_before_a_cut() -> None:
    log = filled()
    running = cleaning.begin(log, NOW, "t1")
    assert running is not None
    clean = running.clean(DirectCompactor(log.disk))
    clean.run()
    assert clean.result is not None
    ticket = running.on_cleaned(clean.result)
    while ticket is not None:
        for act in (truncation.truncate, truncation.restart):
            with pytest.raises(StorageError, match="try again"):
                act(log, 4, NOW)
        assert (log.failure, log.end_offset) == (None, 10)
        ticket.run()
        ticket = running.on_swapped(ticket)
    truncation.truncate(log, 4, NOW)
    # What was compacted above is not compacted any more.
    assert (log.end_offset <= 4, log.cleaned_offset) == (True, log.end_offset)


# All partitions.


def test_a_new_partition_does_not_begin_with_the_watermark_of_an_old_one() -> None:
    disk = SimDisk()
    logs, log = create(disk)
    for _ in range(6):
        append(log)
    log.advance_high_watermark(6)
    save(logs)
    logs.delete("orders", 0, NOW)
    log = logs.create("orders", 0, TOPIC_ID, SMALL, NOW)
    for _ in range(6):
        append(log)
    checkpoint(log)
    disk.crash(random.Random(1))
    logs, log = reopen(disk)
    assert log.end_offset == 6
    assert logs.offsets.watermarks["orders", 0] == 0
