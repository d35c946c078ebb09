"""One partition's log: what it promises its owner, told on a simulated disk."""

import random
from unittest.mock import patch

import pytest
from log_by_hand import DIRECTORY, NOW, append, checkpoint, commit, headers, offsets, open_log, sync

from skidway.errors import OffsetOutOfRange, RecordListTooLarge, StorageError
from skidway.log import lookup, retention, truncation
from skidway.log.bounds import Bound
from skidway.log.durability import checkpointing
from skidway.log.log import Log
from skidway.log.settings import LogSettings
from skidway.records.batch import read_header
from skidway.records.record import Record, build_batch
from skidway.sim.world.disk import SimDisk
from skidway.steps import at_once

# Appending and reading.


def test_batches_get_offsets_and_the_epoch_in_place() -> None:
    log = open_log(SimDisk())
    assert [append(log, 3, epoch=4), append(log, 1, epoch=4), append(log, 2, epoch=5)] == [0, 3, 4]
    assert log.end_offset == 6
    assert [(b[1], b[2], b[5]) for b in log.batches()] == [(0, 2, 4), (3, 3, 4), (4, 5, 5)]


def test_readers_see_whole_batches_below_the_watermark() -> None:
    log = open_log(SimDisk())
    for _ in range(4):
        append(log, 2)
    assert log.read(0, 10_000) is None
    log.advance_high_watermark(4)
    assert offsets(log.read(0, 10_000)) == [0, 2]
    assert offsets(log.read(1, 10_000)) == [0, 2]
    assert log.read(4, 10_000) is None
    assert offsets(log.read(4, 10_000, Bound.END)) == [4, 6]
    log.advance_high_watermark(8)
    assert offsets(log.read(4, 10_000)) == [4, 6]
    log.advance_high_watermark(2)
    assert log.high_watermark == 8


def test_readers_of_what_is_stable_stop_where_a_transaction_is_open() -> None:
    log = open_log(SimDisk(), LogSettings(segment_bytes=300))
    for _ in range(6):
        append(log, 2)
    log.advance_high_watermark(10)
    assert len(log.segments) > 1
    assert offsets(log.read(8, 10_000, Bound.LAST_STABLE)) == [8], "as long as there are no transactions"
    for stable in range(0, 10, 2):
        with patch.object(Log, "last_stable_offset", stable):
            found: list[int] = []
            while (part := log.read(len(found) * 2, 10_000, Bound.LAST_STABLE)) is not None:
                found += offsets(part)
            assert found == list(range(0, stable, 2))
            assert log.read(stable, 10_000, Bound.LAST_STABLE) is None
            assert (log.bound(Bound.LAST_STABLE), log.bound(Bound.HIGH_WATERMARK), log.bound(Bound.END)) == (
                stable,
                10,
                12,
            )
        assert offsets(log.read(8, 10_000)) == [8], "others see what is committed"


def test_a_watermark_inside_a_batch_hides_that_batch() -> None:
    log = open_log(SimDisk())
    append(log, 2)
    append(log, 4)
    log.advance_high_watermark(4)
    assert offsets(log.read(0, 10_000)) == [0]
    assert log.read(3, 10_000) is None


def test_the_limit_cuts_between_batches_but_one_batch_always_comes() -> None:
    log = open_log(SimDisk())
    for _ in range(5):
        append(log)
    commit(log)
    size = log.size() // 5
    assert offsets(log.read(0, 3 * size + 1)) == [0, 1, 2]
    assert offsets(log.read(1, 2 * size)) == [1, 2]
    assert offsets(log.read(1, 1)) == [1]
    assert log.read(1, size - 1, min_one=False) is None
    assert offsets(log.read(1, size, min_one=False)) == [1]


def test_only_offsets_that_never_were_are_out_of_range() -> None:
    log = open_log(SimDisk(), LogSettings(segment_bytes=250))
    for _ in range(6):
        append(log)
    commit(log)
    append(log)
    # Between the watermark and the end a consumer waits, as in Kafka.
    assert log.read(6, 100) is None
    assert log.read(7, 100) is None
    retention.delete_before(log, 2)
    for offset in (-1, 0, 1, 8):
        with pytest.raises(OffsetOutOfRange):
            log.read(offset, 100)


def test_sequential_reads_of_any_size_pass_every_batch_once() -> None:
    log = open_log(SimDisk(), LogSettings(segment_bytes=3000, index_interval_bytes=200))
    draw = random.Random(1)
    for _ in range(80):
        append(log, draw.randrange(1, 4), size=draw.randrange(200))
    commit(log)
    assert len(log.segments) > 3
    for limit in (1, 150, 700, 2500, 10**6):
        offset, seen = 0, []
        while (slice_ := log.read(offset, limit)) is not None:
            found = headers(slice_)
            seen += found
            offset = found[-1].last_offset + 1
        assert [(h.base_offset, h.last_offset) for h in seen] == [(b[1], b[2]) for b in log.batches()]


def test_it_is_known_how_many_bytes_a_move_of_the_watermark_adds() -> None:
    log = open_log(SimDisk(), LogSettings(segment_bytes=1000, index_interval_bytes=200))
    for _ in range(30):
        append(log)
    sizes = [b[3] for b in log.batches()]
    assert len(log.segments) > 3
    before = 0
    for offset in (1, 2, 9, 10, 25, 30):
        assert log.advance_high_watermark(offset) == sum(sizes[before:offset])
        before = offset
    assert log.advance_high_watermark(30) == 0
    append(log)
    assert log.advance_high_watermark(31) == log.batches()[30][3]


# Rolling.


def test_a_full_segment_is_followed_by_another() -> None:
    log = open_log(SimDisk(), LogSettings(segment_bytes=350))
    for _ in range(7):
        append(log)
    size = log.batches()[0][3]
    assert 3 * size <= 350 < 4 * size
    assert [segment.base_offset for segment in log.segments] == [0, 3, 6]


def test_a_batch_larger_than_a_segment_is_refused() -> None:
    log = open_log(SimDisk(), LogSettings(segment_bytes=350))
    append(log)
    with pytest.raises(RecordListTooLarge):
        append(log, size=400)
    assert (log.end_offset, len(log.segments)) == (1, 1)


def test_an_old_segment_is_closed_by_record_time() -> None:
    log = open_log(SimDisk(), LogSettings(segment_ms=1000))
    append(log, timestamp=NOW)
    append(log, timestamp=NOW + 1000)
    assert len(log.segments) == 1
    append(log, timestamp=NOW + 1001)
    assert [segment.base_offset for segment in log.segments] == [0, 2]
    log.settings = LogSettings(segment_ms=10)
    append(log, timestamp=NOW + 1012)
    assert [segment.base_offset for segment in log.segments] == [0, 2, 3]


def test_a_full_index_closes_the_segment() -> None:
    log = open_log(SimDisk(), LogSettings(index_interval_bytes=0, segment_index_bytes=24))
    for _ in range(9):
        append(log)
    assert [len(segment.index) for segment in log.segments] == [3, 3, 0]


def test_index_entries_lie_more_than_the_interval_apart() -> None:
    log = open_log(SimDisk(), LogSettings(index_interval_bytes=250))
    for number in range(10):
        append(log, 2, timestamp=NOW + 10 * number)
    size = log.batches()[0][3]
    assert 2 * size > 250 > size
    segment = log.segments[0]
    assert list(segment.index.positions) == [2 * size, 4 * size, 6 * size, 8 * size]
    assert list(segment.index.offsets) == [5, 9, 13, 17]
    assert list(segment.times.timestamps) == [NOW + 10 * n + 1 for n in (2, 4, 6, 8)]


# Durability.


def test_a_sync_covers_what_was_appended_when_it_began() -> None:
    log = open_log(SimDisk())
    append(log)
    ticket = log.begin_sync()
    assert ticket is not None
    append(log)
    ticket.run()
    assert log.synced_offset == 0
    log.finish_sync(ticket)
    assert log.synced_offset == 1
    assert log.dirty
    sync(log)
    assert log.synced_offset == 2
    assert log.begin_sync() is None
    assert not log.dirty


def test_a_later_ticket_covers_an_earlier_one_that_is_not_done() -> None:
    disk = SimDisk()
    log = open_log(disk, LogSettings(segment_bytes=250))
    for _ in range(3):
        append(log)
    first = log.begin_sync()
    for _ in range(3):
        append(log)
    second = log.begin_sync()
    assert first is not None
    assert second is not None
    second.run()
    log.finish_sync(second)
    assert log.synced_offset == 6
    for seed in range(20):
        disk.crash(random.Random(seed))
        assert open_log(disk, clean=False).end_offset == 6


def test_nobody_waits_for_a_checkpoint() -> None:
    log = open_log(SimDisk())
    append(log)
    slow = checkpointing.begin(log)
    assert slow is not None
    assert log.dirty
    sync(log)
    assert log.synced_offset == 1
    assert not log.dirty
    slow.run()
    log.finish_sync(slow)
    assert (log.synced_offset, log.saved.recovery_point) == (1, 1)
    assert checkpointing.begin(log) is None


def test_a_full_disk_is_freed_by_retention() -> None:
    disk = SimDisk()
    log = open_log(disk, LogSettings(segment_bytes=350, retention_bytes=0, file_delete_delay_ms=0))
    for _ in range(6):
        append(log)
    commit(log)
    checkpoint(log)
    append(log)
    retention.apply(log, NOW)
    disk.capacity = disk.used()
    before = disk.used()
    for _ in range(3):
        ticket = checkpointing.begin(log)
        if ticket is None:
            break
        try:
            ticket.run()
            log.finish_sync(ticket)
        except OSError:
            assert ticket.synced
            log.finish_without_housekeeping(ticket)
        log.doomed.schedule(NOW, log.settings.file_delete_delay_ms)
    assert checkpointing.begin(log) is None
    assert disk.used() < before
    assert log.saved.recovery_point == 7


def test_a_full_disk_refuses_and_harms_nothing() -> None:
    disk = SimDisk()
    log = open_log(disk)
    append(log)
    commit(log)
    before = disk.read(f"{DIRECTORY}/{0:020d}.log")
    disk.capacity = disk.used() + 50
    for _ in range(2):
        with pytest.raises(StorageError):
            append(log, 3)
    assert (log.end_offset, log.size()) == (1, len(before))
    assert disk.read(f"{DIRECTORY}/{0:020d}.log") == before
    assert offsets(log.read(0, 1000)) == [0]
    disk.capacity = None
    assert append(log, 3) == 1


def test_after_a_failed_sync_only_reads_go_on() -> None:
    disk = SimDisk()
    log = open_log(disk)
    append(log)
    commit(log)
    append(log)
    disk.failing_syncs = {disk.syncs}
    ticket = log.begin_sync()
    assert ticket is not None
    with pytest.raises(OSError, match="Input/output"):
        ticket.run()
    log.fail("the disk failed")
    with pytest.raises(StorageError, match="the disk failed"):
        append(log)
    assert log.begin_sync() is None
    assert checkpointing.begin(log) is None
    assert offsets(log.read(0, 1000)) == [0]


# Forgetting.


def test_retention_by_size_keeps_at_least_what_is_asked() -> None:
    log = open_log(SimDisk(), LogSettings(segment_bytes=350, retention_bytes=500))
    for _ in range(12):
        append(log)
    assert retention.apply(log, NOW) == []
    commit(log)
    before = log.size()
    gone = retention.apply(log, NOW)
    assert [segment.base_offset for segment in gone] == [0, 3]
    assert log.start_offset == 6
    assert before - sum(segment.size for segment in gone) == log.size() >= 500


def test_retention_by_time_goes_by_the_youngest_record() -> None:
    log = open_log(SimDisk(), LogSettings(segment_bytes=350, retention_ms=1000))
    for number in range(9):
        append(log, timestamp=NOW + number)
    commit(log)
    assert retention.apply(log, NOW + 1002) == []
    assert [segment.base_offset for segment in retention.apply(log, NOW + 1003)] == [0]
    # All of it too old: the active segment goes as well, and the log goes on behind it.
    assert [segment.base_offset for segment in retention.apply(log, NOW + 9999)] == [3, 6]
    assert (log.start_offset, log.end_offset, log.size()) == (9, 9, 0)
    assert append(log) == 9


def test_retention_stops_at_the_watermark() -> None:
    log = open_log(SimDisk(), LogSettings(segment_bytes=350, retention_ms=0))
    for _ in range(9):
        append(log, timestamp=1)
    log.advance_high_watermark(5)
    assert [segment.base_offset for segment in retention.apply(log, NOW)] == [0]


def test_records_without_a_timestamp_do_not_age() -> None:
    log = open_log(SimDisk(), LogSettings(segment_bytes=350, retention_ms=0))
    for _ in range(5):
        append(log, timestamp=-1)
    commit(log)
    assert retention.apply(log, NOW) == []


def test_given_up_files_are_renamed_then_removed_and_stay_readable() -> None:
    disk = SimDisk()
    log = open_log(disk, LogSettings(segment_bytes=350, retention_bytes=1, file_delete_delay_ms=100))
    for _ in range(6):
        append(log)
    commit(log)
    slice_ = log.read(0, 10_000)
    retention.apply(log, NOW)
    path = f"{DIRECTORY}/{0:020d}.log"
    assert not log.dirty
    checkpoint(log)
    assert (disk.exists(path), disk.exists(path + ".deleted")) == (False, True)
    assert log.doomed.schedule(NOW + 99, log.settings.file_delete_delay_ms) == 0
    assert checkpointing.begin(log) is None
    assert log.doomed.schedule(NOW + 100, log.settings.file_delete_delay_ms) == 1
    checkpoint(log)
    assert not disk.exists(path + ".deleted")
    assert offsets(slice_) == [0, 1, 2]
    assert log.doomed.schedule(NOW + 999, log.settings.file_delete_delay_ms) == 0


def test_deleting_records_hides_them_and_drops_whole_segments() -> None:
    disk = SimDisk()
    log = open_log(disk, LogSettings(segment_bytes=350))
    for _ in range(8):
        append(log)
    log.advance_high_watermark(5)
    with pytest.raises(OffsetOutOfRange):
        retention.delete_before(log, 6)
    retention.delete_before(log, 4)
    assert (log.start_offset, log.segments[0].base_offset) == (4, 3)
    retention.delete_before(log, 2)
    assert log.start_offset == 4
    checkpointing.save(log)
    log.close()
    assert open_log(disk).start_offset == 4


def test_a_start_offset_beyond_the_end_deletes_nothing() -> None:
    disk = SimDisk()
    log = open_log(disk)
    append(log)
    again = open_log(disk, clean=False, start_offset=5)
    assert (again.start_offset, again.end_offset) == (0, 1)
    assert append(again) == 1


def test_an_empty_log_begins_at_its_start_offset() -> None:
    disk = SimDisk()
    open_log(disk)
    log = open_log(disk, clean=False, start_offset=5)
    assert (log.start_offset, log.end_offset) == (5, 5)
    assert append(log) == 5


def test_truncating_forgets_the_tail_and_its_producers() -> None:
    disk = SimDisk()
    log = open_log(disk, LogSettings(segment_bytes=350, index_interval_bytes=0))
    for number in range(9):
        batch = build_batch([Record(0, NOW, b"", b"v" * 40, [])], producer_id=7, producer_epoch=0, base_sequence=number)
        log.append(batch, read_header(batch), number // 3, NOW)
    checkpointing.save(log)
    log.close()
    log = open_log(disk, log.settings)
    truncation.truncate(log, 4, NOW)
    assert (log.end_offset, log.high_watermark, log.saved.recovery_point, log.synced_offset) == (4, 4, 0, 4)
    assert log.producers.entries[7].last_sequence == 3
    assert log.epochs.entries() == [(0, 0), (1, 3)]
    assert append(log, epoch=9) == 4
    sync(log)
    for seed in range(10):
        disk.crash(random.Random(seed))
        assert open_log(disk, log.settings, clean=False).end_offset == 5


# Asking.


@pytest.mark.parametrize("codec", [0, 1])
def test_the_first_record_at_or_after_a_time(codec: int) -> None:
    log = open_log(SimDisk(), LogSettings(segment_bytes=1000, index_interval_bytes=150))
    for number in range(40):
        append(log, 3, timestamp=NOW + 10 * number, epoch=number // 10, codec=codec)
    log.advance_high_watermark(90)
    assert at_once(lookup.offset_for_timestamp(log, 0)) == (0, NOW, 0)
    assert at_once(lookup.offset_for_timestamp(log, NOW + 11)) == (4, NOW + 11, 0)
    assert at_once(lookup.offset_for_timestamp(log, NOW + 255)) == (78, NOW + 260, 2)
    assert at_once(lookup.offset_for_timestamp(log, NOW + 300)) is None
    assert at_once(lookup.offset_of_max_timestamp(log)) == (89, NOW + 292, 2)
    retention.delete_before(log, 5)
    assert at_once(lookup.offset_for_timestamp(log, 0)) == (5, NOW + 12, 0)


def test_times_that_go_back_are_found_all_the_same() -> None:
    log = open_log(SimDisk(), LogSettings(segment_bytes=600, index_interval_bytes=0))
    times = [50, 10, 90, 20, 90, 30, 95, 5, 60, 99, 1]
    for timestamp in times:
        append(log, timestamp=timestamp)
    commit(log)
    for wanted in range(101):
        expected = next(((offset, t) for offset, t in enumerate(times) if t >= wanted), None)
        found = at_once(lookup.offset_for_timestamp(log, wanted))
        assert (found and found[:2]) == expected
    assert at_once(lookup.offset_of_max_timestamp(log)) == (9, 99, 0)


def test_where_an_epoch_ends() -> None:
    log = open_log(SimDisk())
    assert log.end_offset_for_epoch(0) == (-1, -1)
    for epoch, count in ((2, 3), (3, 2), (7, 4)):
        append(log, count, epoch=epoch)
    assert [log.end_offset_for_epoch(epoch) for epoch in (1, 2, 3, 5, 7, 8, -1)] == [
        (1, 0),
        (2, 3),
        (3, 5),
        (3, 5),
        (7, 9),
        (-1, -1),
        (-1, -1),
    ]
