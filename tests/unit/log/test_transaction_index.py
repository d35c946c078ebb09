"""The transaction index: Kafka's file, where its entries are, how long they stay, and what is found in them."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from log_by_hand import DIRECTORY, NOW, append, checkpoint, open_log
from transactions_by_hand import end, write

from skidway.limits import INT64_MAX
from skidway.log import aborted as aborted_index
from skidway.log import following, lookup, retention, truncation
from skidway.log.aborted import Aborted, AbortedIndex, CorruptTransactionIndex
from skidway.log.bounds import Bound
from skidway.log.durability import checkpointing
from skidway.log.log import Log
from skidway.log.lookup import end_of_slice
from skidway.log.recovery.rewriting import write_anew
from skidway.log.settings import LogSettings
from skidway.sim.world.disk import SimDisk

SETTINGS = LogSettings(index_interval_bytes=0, retention_bytes=0, retention_ms=-1, file_delete_delay_ms=0)
FIRST = f"{DIRECTORY}/{0:020d}.txnindex"


@pytest.fixture
def disk() -> SimDisk:
    return SimDisk()


@pytest.fixture
def log(disk: SimDisk) -> Log:
    return open_log(disk, SETTINGS)


def indexed(log: Log) -> list[list[Aborted]]:
    return [segment.aborted.entries for segment in log.segments]


def test_the_file_is_kafkas(disk: SimDisk, log: Log) -> None:
    write(log, 7, count=2)
    write(log, 8)
    end(log, 7, committed=False)
    end(log, 8, committed=False)
    assert not disk.exists(FIRST), "it is saved by a checkpoint"
    checkpoint(log)
    # Version, producer id, first offset, offset of the marker, last stable offset.
    entries = [struct.pack(">hqqqq", 0, 7, 0, 3, 2), struct.pack(">hqqqq", 0, 8, 2, 4, 5)]
    assert disk.read(FIRST) == b"".join(entries)
    assert [len(entry) for entry in entries] == [34, 34]


def test_commits_and_aborts_of_nothing_have_no_entry(disk: SimDisk, log: Log) -> None:
    write(log, 7)
    end(log, 7, committed=True)
    end(log, 7, committed=False)
    end(log, 8, committed=False)
    checkpoint(log)
    assert indexed(log) == [[]]
    assert not disk.exists(FIRST)


def test_an_entry_is_in_the_segment_of_its_marker(log: Log) -> None:
    write(log, 7)
    log.roll(NOW)
    append(log)
    log.roll(NOW)
    end(log, 7, committed=False)
    assert indexed(log) == [[], [], [Aborted(7, 0, 2, 3)]]
    assert lookup.aborted(log, 0, 1) == [(7, 0)], "two segments behind the records"
    assert lookup.aborted(log, 1, 2) == [(7, 0)], "it was open there"


def test_what_is_found_overlaps_what_is_read(log: Log) -> None:
    """Producer 8 begins first and ends last; 7 has two transactions in between."""
    write(log, 8)
    write(log, 7)
    end(log, 7, committed=False)
    write(log, 7, sequence=1)
    end(log, 7, committed=False)
    end(log, 8, committed=False)
    assert lookup.aborted(log, 0, 1) == [(8, 0)]
    assert lookup.aborted(log, 0, 6) == [(8, 0), (7, 1), (7, 3)], "by first offsets, not by markers"
    assert lookup.aborted(log, 3, 4) == [(8, 0), (7, 3)]
    assert lookup.aborted(log, 5, 6) == [(8, 0)]
    assert lookup.aborted(log, 6, 7) == []


def test_a_look_up_ends_where_nothing_earlier_can_follow(log: Log, disk: SimDisk) -> None:
    """The last stable offset of an entry says that all before have ended: later files are not opened."""
    for producer_id in (7, 8):
        write(log, producer_id)
        end(log, producer_id, committed=False)
        log.roll(NOW)
    checkpoint(log)
    for segment in log.segments:
        segment.unload()
    assert lookup.aborted(log, 0, 2) == [(7, 0)]
    assert [segment._aborted is None for segment in log.segments[:2]] == [False, True]
    assert lookup.aborted(log, 0, 3) == [(7, 0), (8, 2)]


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("saved", ["nothing", "the first segment", "all"])
def test_entries_are_known_after_a_start(disk: SimDisk, log: Log, clean: bool, saved: str) -> None:
    write(log, 7)
    end(log, 7, committed=False)
    write(log, 8)
    if saved == "the first segment":
        checkpoint(log)
    log.roll(NOW)
    end(log, 8, committed=False)
    if saved == "all":
        checkpoint(log)
    again = open_log(disk, SETTINGS, clean=clean)
    assert indexed(again) == indexed(log) == [[Aborted(7, 0, 1, 2)], [Aborted(8, 2, 3, 4)]]


def test_a_cut_drops_what_markers_told_that_are_gone(disk: SimDisk, log: Log) -> None:
    for producer_id in (7, 8, 9):
        write(log, producer_id)
        end(log, producer_id, committed=False)
    checkpoint(log)
    log.begin_at(2)
    truncation.truncate(log, 3, NOW)
    assert indexed(log) == [[Aborted(7, 0, 1, 2)]]
    assert log.producers.open_transaction(8) == 2
    end(log, 8, committed=True)
    assert indexed(open_log(disk, SETTINGS, clean=False)) == [[Aborted(7, 0, 1, 2)]]
    checkpoint(log)
    assert len(disk.read(FIRST)) == 34


def test_a_file_whose_entries_are_all_cut_off_is_emptied(disk: SimDisk, log: Log) -> None:
    write(log, 7)
    end(log, 7, committed=False)
    checkpoint(log)
    log.begin_at(0)
    truncation.truncate(log, 1, NOW)
    end(log, 7, committed=True)
    checkpoint(log)
    assert disk.read(FIRST) == b""
    assert indexed(open_log(disk, SETTINGS)) == [[]]


def test_retention_takes_the_file_with_its_segment(disk: SimDisk, log: Log) -> None:
    write(log, 7)
    end(log, 7, committed=False)
    log.roll(NOW)
    append(log)
    log.advance_high_watermark(log.end_offset)
    checkpoint(log)
    assert disk.exists(FIRST)
    retention.delete_before(log, 2)
    for _ in range(2):
        checkpoint(log)
        log.doomed.schedule(NOW + 1, log.settings.file_delete_delay_ms)
    assert not disk.exists(FIRST)
    assert indexed(log) == [[]]


def test_deletion_does_not_wait_for_open_transactions(log: Log) -> None:
    """Nor does the last stable offset fall below the start of the log, and the marker that follows is as any other."""
    write(log, 7)
    append(log)
    log.advance_high_watermark(2)
    assert log.last_stable_offset == 0
    retention.delete_before(log, 1)
    assert (log.start_offset, log.last_stable_offset) == (1, 1)
    assert log.read(1, 1000, Bound.LAST_STABLE) is None
    end(log, 7, committed=False)
    log.advance_high_watermark(3)
    assert log.last_stable_offset == 3
    assert lookup.aborted(log, 1, 3) == [(7, 0)]


def test_what_a_follower_gets_is_what_its_leader_has(log: Log) -> None:
    write(log, 7)
    write(log, 8)
    end(log, 8, committed=False)
    end(log, 7, committed=True)
    write(log, 7, sequence=1)
    read = log.read(0, 10_000, Bound.END)
    assert read is not None
    follower = open_log(SimDisk(), SETTINGS)
    following.append(follower, read.read(), NOW)
    assert indexed(follower) == indexed(log)
    assert follower.producers.state() == log.producers.state()
    for watermark, stable in ((2, 0), (3, 0), (4, 4), (5, 4)):
        follower.advance_high_watermark(watermark)
        assert follower.last_stable_offset == stable


@pytest.mark.parametrize(
    "damage",
    [
        b"\0",
        struct.pack(">hqqqq", 1, 7, 0, 1, 2),
        struct.pack(">hqqqq", 0, 7, 3, 1, 2),
        struct.pack(">hqqqq", 0, 7, -1, 1, 2),
        struct.pack(">hqqqq", 0, 7, 0, 1, 2) * 2,
    ],
    ids=["torn", "version", "backwards", "negative", "twice"],
)
@pytest.mark.parametrize("by_a_start", [True, False])
def test_a_damaged_file_is_made_again(disk: SimDisk, log: Log, damage: bytes, by_a_start: bool) -> None:
    write(log, 7)
    if not by_a_start:
        # Then the damaged one is closed, and no start reads it.
        end(log, 7, committed=False)
        write(log, 7, sequence=1)
        log.roll(NOW)
        append(log)
    end(log, 7, committed=False)
    checkpoint(log)
    expected = indexed(log)
    disk.write_atomic(FIRST, damage)
    with pytest.raises(CorruptTransactionIndex):
        AbortedIndex.from_bytes(damage, 0)
    again = open_log(disk, SETTINGS)
    assert lookup.aborted(again, 0, 10) == lookup.aborted(log, 0, 10) != []
    assert indexed(again) == expected


def test_a_segment_that_is_written_anew_keeps_what_is_proven(disk: SimDisk, log: Log) -> None:
    write(log, 7)
    end(log, 7, committed=False)
    checkpoint(log)
    write(log, 8)
    end(log, 8, committed=False)
    checkpointing.begin(log)
    write_anew(disk, DIRECTORY, 2)
    again = open_log(disk, SETTINGS, clean=False, recovery_point=2)
    assert indexed(again) == [[Aborted(7, 0, 1, 2)], [Aborted(8, 2, 3, 4)]]


def test_the_end_of_what_was_read_is_not_far_behind_it(log: Log) -> None:
    for number in range(10):
        append(log, 2)
        if number == 5:
            log.roll(NOW)
    log.advance_high_watermark(20)
    for offset in range(20):
        for max_bytes in (1, 250, 10_000):
            read = log.read(offset, max_bytes)
            assert read is not None
            batches = [batch for segment in log.segments for batch in segment.batches(0, segment.size)]
            sizes = read.length
            behind = next(batch[2] + 1 for batch in batches if batch[2] >= offset)
            for batch in batches:
                if batch[2] >= offset and sizes > 0:
                    behind, sizes = batch[2] + 1, sizes - batch[3]
            assert behind <= end_of_slice(log, offset, read) <= behind + 2


def test_a_log_without_transactions_has_no_bound() -> None:
    assert open_log(SimDisk()).producers.transactions.first_unstable == INT64_MAX


def entries_of(steps: list[tuple[int, bool]]) -> list[Aborted]:
    """Each step begins a transaction, or ends one of those that are open: every history that a log may have."""
    opened, found = list[int](), list[Aborted]()
    for offset, (choice, ends) in enumerate(steps):
        if ends and opened:
            first = opened.pop(choice % len(opened))
            found.append(Aborted(7, first, offset, min(opened, default=offset + 1)))
        else:
            opened.append(offset)
    return found


@given(st.lists(st.tuples(st.integers(0, 50), st.booleans()), max_size=60), st.integers(0, 60), st.data())
def test_what_is_passed_over_in_chunks_is_what_nobody_wants(
    steps: list[tuple[int, bool]], cut: int, data: st.DataObject
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(aborted_index, "_CHUNK_WORDS", 3 * 4)
        index = AbortedIndex()
        for entry in entries_of(steps):
            index.append(entry)
        index.cut(cut)
        entries = [entry for entry in entries_of(steps) if entry.last_offset < cut]
        assert index.entries == entries
        begin = data.draw(st.integers(0, 60))
        end = data.draw(st.integers(begin, 60))
        for each in (index, index.copy(), AbortedIndex.from_bytes(index.to_bytes(), 0)):
            found: list[tuple[int, int]] = []
            is_last = each.collect(begin, end, found)
            wanted = [entry for entry in entries if entry.last_offset >= begin]
            assert found == [(7, entry.first_offset) for entry in wanted if entry.first_offset < end]
            assert is_last == any(entry.stable_offset >= end for entry in wanted)


def test_a_transaction_that_was_open_for_long_does_not_make_every_look_up_long() -> None:
    """While it is open the last stable offset stays, so no entry says where to stop."""
    index, looked_at = AbortedIndex(), 0
    for number in range(20_000):
        index.append(Aborted(number, 10 + 2 * number, 11 + 2 * number, 5))
    real = AbortedIndex._collect

    def counting(self: AbortedIndex, begin: int, end: int, upto: int, found: list[tuple[int, int]]) -> bool:
        nonlocal looked_at
        looked_at += (end - begin) // 4
        return real(self, begin, end, upto, found)

    found: list[tuple[int, int]] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(AbortedIndex, "_collect", counting)
        assert not index.collect(100, 110, found)
    assert found == [(number, 10 + 2 * number) for number in range(45, 50)]
    assert looked_at < 1_000
