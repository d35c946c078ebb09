"""What compaction leaves of transactions: committed records, and markers as long as somebody needs them."""

from typing import Any

from compaction_by_hand import DAY, NOW, SETTINGS, close_segment, compact, contents, open_log, raw, settle, write

from skidway.limits import Limits
from skidway.log import following
from skidway.log.aborted import Aborted
from skidway.log.compaction import cleaning
from skidway.log.log import Log
from skidway.records.batch import DELETE_HORIZON_BIT, read_header
from skidway.records.control import EndTransaction, end_transaction_batch, read_marker
from skidway.sim.world.disk import SimDisk

SEQUENCES: dict[int, int] = {}


def opened(disk: SimDisk | None = None) -> Log:
    SEQUENCES.clear()
    return open_log(disk or SimDisk())


def transact(log: Log, producer_id: int, *pairs: tuple[str, str | None], epoch: int = 0) -> int:
    sequence = SEQUENCES.get(producer_id, 0)
    SEQUENCES[producer_id] = sequence + len(pairs)
    options: dict[str, Any] = {"producer_id": producer_id, "producer_epoch": epoch, "base_sequence": sequence}
    return write(log, *pairs, transactional=True, **options)


def end(log: Log, producer_id: int, *, committed: bool, epoch: int = 0) -> int:
    marker = EndTransaction(committed, 0)
    batch = end_transaction_batch(marker, producer_id=producer_id, producer_epoch=epoch, timestamp=NOW)
    return log.append(batch, read_header(batch), 0, NOW)


def offsets(log: Log) -> list[tuple[int, int]]:
    """Base offset and number of records of each batch."""
    return [(header.base_offset, header.record_count) for header, _ in raw(log)]


def indexed(log: Log) -> list[Aborted]:
    return [entry for segment in log.segments for entry in segment.aborted.entries]


def copied(log: Log) -> Log:
    """A follower that begins with what compaction left."""
    copy = open_log(SimDisk())
    following.append(copy, b"".join(data for _, data in raw(log)), NOW)
    return copy


def test_committed_records_are_compacted_as_others_are() -> None:
    log = opened()
    transact(log, 7, ("a", "1"), ("b", "1"))
    end(log, 7, committed=True)
    transact(log, 7, ("a", "2"))
    end(log, 7, committed=True)
    write(log, ("b", "2"))
    close_segment(log)
    compact(log)
    assert contents(log)[1:] == [(3, "a", "2"), (4, "\0\0\0\1", contents(log)[2][2]), (5, "b", "2")]
    assert offsets(log) == [(2, 1), (3, 1), (4, 1), (5, 1)], "the first marker stays for another pass"
    assert copied(log).producers.open_transaction(7) == -1


def test_aborted_records_go_and_replace_nothing() -> None:
    log = opened()
    write(log, ("a", "1"))
    transact(log, 7, ("a", "aborted"), ("b", "aborted"))
    transact(log, 8, ("b", "1"))
    end(log, 7, committed=False)
    end(log, 8, committed=True)
    close_segment(log)
    result = compact(log)
    # Of producer 7 the header of its last batch stays.
    assert offsets(log) == [(0, 1), (1, 0), (3, 1), (4, 1), (5, 1)]
    assert result.end_offset == 6
    assert indexed(log) == [Aborted(7, 1, 4, 3)]
    assert copied(log).producers.open_transaction(7) == -1


def test_nothing_is_compacted_from_the_first_open_transaction_on() -> None:
    log = opened()
    write(log, ("a", "1"))
    write(log, ("a", "2"))
    close_segment(log)
    transact(log, 7, ("a", "3"))
    close_segment(log)
    write(log, ("a", "4"))
    close_segment(log)
    assert log.last_stable_offset == 2
    compact(log)
    assert offsets(log) == [(1, 1), (2, 1), (3, 1)]
    assert cleaning.candidate(log, NOW) is None
    end(log, 7, committed=False)
    close_segment(log)
    compact(log)
    assert offsets(log)[:1] == [(2, 0)], "aborted"
    assert [value for _, key, value in contents(log) if key == "a"] == ["4"]


def test_a_marker_stays_until_a_pass_has_met_nothing_of_its_transaction() -> None:
    """And then as long as a tombstone would: a reader may be between the records and their marker."""
    log = opened()
    transact(log, 7, ("a", "1"))
    marker = end(log, 7, committed=True)
    transact(log, 7, ("a", "2"))
    end(log, 7, committed=True)
    close_segment(log)
    compact(log)
    assert marker in dict(offsets(log)), "its records went in this pass"
    write(log, ("b", "1"))
    close_segment(log)
    compact(log, token="t2")
    ((header, data),) = [(header, data) for header, data in raw(log) if header.base_offset == marker]
    assert header.attributes & DELETE_HORIZON_BIT
    assert header.base_timestamp == NOW + SETTINGS.delete_retention_ms
    assert read_marker(data) == EndTransaction(True, 0)
    for now_ms, stays in ((NOW + DAY - 1, True), (NOW + DAY, False)):
        write(log, ("b", "1"))
        close_segment(log)
        compact(log, now_ms, token=f"t{now_ms}")
        assert (marker in dict(offsets(log))) == stays
    assert copied(log).producers.open_transaction(7) == -1


def test_a_marker_in_another_segment_than_its_records_stays_with_them() -> None:
    """What was met is carried from one new file to the next (KAFKA-8351)."""
    log = opened()
    transact(log, 7, ("a", "x" * 9_000))
    close_segment(log)
    transact(log, 8, ("b", "x" * 9_000))
    close_segment(log)
    ends = [end(log, 7, committed=True), end(log, 8, committed=False)]
    write(log, ("c", "1"))
    close_segment(log)
    for number in range(4):
        write(log, ("c", "1"))
        close_segment(log)
        compact(log, NOW + number * 2 * DAY, token=f"t{number}")
        assert [offset for offset, _ in offsets(log) if offset in ends] == ends
        copy = copied(log)
        assert [copy.producers.open_transaction(producer_id) for producer_id in (7, 8)] == [-1, -1]


def test_a_producer_of_which_only_a_marker_is_left_keeps_it() -> None:
    """It holds the epoch: without it a copy of the log would let an older producer in."""
    log = opened()
    transact(log, 7, ("a", "1"))
    marker = end(log, 7, committed=False, epoch=1)
    write(log, ("a", "2"))
    close_segment(log)
    for number in range(4):
        compact(log, NOW + number * 2 * DAY, token=f"t{number}")
        write(log, ("a", "2"))
        close_segment(log)
    assert offsets(log)[0] == (marker, 1)
    assert copied(log).producers.entries[7].epoch == 1


def test_entries_go_with_their_markers_and_no_sooner() -> None:
    """A reader leaves out what it finds of a producer from the first offset that an entry names to its marker."""
    disk = SimDisk()
    log = opened(disk)
    transact(log, 7, ("a", "aborted"))
    marker = end(log, 7, committed=False)
    transact(log, 7, ("a", "1"))
    end(log, 7, committed=True)
    close_segment(log)
    for number, now_ms in enumerate((NOW, NOW, NOW + DAY, NOW + DAY)):
        compact(log, now_ms, token=f"t{number}")
        assert [entry.last_offset for entry in indexed(log)] == [
            offset for offset, count in offsets(log) if offset == marker and count
        ]
        settle(log)
        again = open_log(disk)
        assert indexed(again) == indexed(log)
        write(log, ("b", "1"))
        close_segment(log)
    assert indexed(log) == []
    assert disk.read(f"{log.directory}/{0:020d}.txnindex") == b""


def test_what_there_was_no_room_for_keeps_its_entries() -> None:
    """A segment is compacted up to where the keys went in; its index is still that of the whole (KAFKA-13727)."""
    log = open_log(SimDisk(), limits=Limits(compaction_bytes_max=24 * 4))
    SEQUENCES.clear()
    for number in range(6):
        transact(log, 7, (f"k{number}", "1"))
        end(log, 7, committed=True)
        transact(log, 8, (f"k{number}", "aborted"))
        end(log, 8, committed=False)
    close_segment(log)
    result = compact(log)
    assert 0 < result.end_offset < 24
    kept = [entry.first_offset for entry in indexed(log)]
    assert kept == [2, 6, 10, 14, 18, 22]
    left = [header.base_offset for header, _ in raw(log) if header.producer_id == 8 and not header.is_control]
    assert [offset for offset in left if offset < result.end_offset] == []
    assert [offset for offset in left if offset >= result.end_offset] == [
        first for first in kept if first >= result.end_offset
    ]
