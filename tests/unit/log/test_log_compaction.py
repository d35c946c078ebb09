"""Compaction of one log, told on a simulated disk: what stays, what goes, and what readers see meanwhile."""

import pytest
from compaction_by_hand import (
    DAY,
    DIRECTORY,
    NOW,
    SETTINGS,
    close_segment,
    compact,
    contents,
    files,
    finish,
    open_log,
    raw,
    read,
    settle,
    write,
)
from msgspec.structs import replace

from skidway.errors import StorageError
from skidway.limits import Limits
from skidway.log import following, lookup, retention
from skidway.log.compaction import cleaning
from skidway.log.compaction.cleaning import CleanTicket, DirectCompactor, SwapTicket
from skidway.log.durability import checkpointing
from skidway.records.batch import DELETE_HORIZON_BIT, read_header, set_crc
from skidway.records.record import Record, build_batch
from skidway.sim.world.disk import SimDisk
from skidway.steps import at_once

# What stays.


@pytest.mark.parametrize("codec", range(5))
def test_the_newest_value_of_each_key_stays_where_it_was(codec: int) -> None:
    log = open_log(SimDisk())
    write(log, ("a", "1"), ("b", "1"), ("a", "2"), codec=codec)
    write(log, ("c", "1"), ("a", "3"), codec=codec, timestamp=NOW + 100)
    close_segment(log)
    write(log, ("c", "2"), codec=codec)
    settle(log)
    result = compact(log)
    # The active segment is left alone, and what it holds replaces nothing yet.
    assert contents(log) == [(1, "b", "1"), (3, "c", "1"), (4, "a", "3"), (5, "c", "2")]
    assert (result.records_kept, result.records_dropped, result.keys) == (3, 2, 3)
    first, second, _ = [header for header, _ in raw(log)]
    assert (first.base_offset, first.last_offset, first.record_count, first.codec) == (0, 2, 1, codec)
    assert (second.base_offset, second.last_offset, second.record_count) == (3, 4, 2)
    assert [(r.timestamp, list(r.headers)) for r in read(log)[:3]] == [
        (NOW + 1, [("h", b"1")]),
        (NOW + 100, [("h", b"1")]),
        (NOW + 101, [("h", b"1")]),
    ]
    assert first.max_timestamp == NOW + 1


def test_a_later_run_drops_what_the_first_one_kept() -> None:
    log = open_log(SimDisk())
    write(log, ("a", "1"), ("b", "1"))
    close_segment(log)
    compact(log)
    assert log.cleaned_offset == 2
    write(log, ("a", "2"))
    close_segment(log)
    compact(log, token="t2")
    assert contents(log) == [(1, "b", "1"), (2, "a", "2")]
    assert log.cleaned_offset == 3


def test_long_keys_are_told_apart() -> None:
    log = open_log(SimDisk())
    write(log, ("k" * 100 + "a", "1"), ("k" * 100 + "b", "1"), ("k" * 100 + "a", "2"))
    close_segment(log)
    compact(log)
    assert [offset for offset, _, _ in contents(log)] == [1, 2]


def test_records_without_a_key_go() -> None:
    log = open_log(SimDisk())
    batch = build_batch([Record(0, NOW, None, b"v", []), Record(0, NOW, b"a", b"v", [])])
    log.append(batch, read_header(batch), 0, NOW)
    close_segment(log)
    compact(log)
    assert contents(log) == [(1, "a", "v")]


def test_the_last_offset_of_a_segment_stays_known_even_without_records() -> None:
    log = open_log(SimDisk())
    write(log, ("b", "v" * 200))
    write(log, ("a", "1"))
    write(log, ("a", "2"))
    close_segment(log)
    write(log, ("a", "3"))
    close_segment(log)
    log.settings = replace(SETTINGS, segment_bytes=300)  # too small for both
    compact(log)
    _, (bare, _), (kept, _) = raw(log)
    assert (bare.base_offset, bare.last_offset, bare.record_count, bare.size) == (2, 2, 0, 61)
    assert kept.base_offset == 3
    # A log without any snapshot to lean on still finds its way from segment to segment.
    for name in log.disk.list(DIRECTORY):
        if name.endswith(".snapshot"):
            log.disk.remove(f"{DIRECTORY}/{name}")
    again = open_log(log.disk)  # type: ignore[arg-type]
    assert (again.end_offset, contents(again)) == (4, [(0, "b", "v" * 200), (3, "a", "3")])


def test_the_last_batch_of_a_producer_keeps_its_header() -> None:
    log = open_log(SimDisk())
    write(log, ("a", "1"), producer_id=7, producer_epoch=0, base_sequence=0)
    write(log, ("a", "2"), ("a", "3"), producer_id=7, producer_epoch=0, base_sequence=1)
    write(log, ("a", "4"), producer_id=8, producer_epoch=3, base_sequence=5)
    write(log, ("a", "5"))
    close_segment(log)
    before = log.producers.state()
    compact(log)
    found = [(h.producer_id, h.producer_epoch, h.base_sequence, h.last_sequence, h.record_count) for h, _ in raw(log)]
    assert found == [(7, 0, 1, 2, 0), (8, 3, 5, 5, 0), (-1, -1, -1, -1, 1)]
    assert log.producers.state() == before
    assert open_log(log.disk).producers.state() == before  # type: ignore[arg-type]


def test_the_first_batch_of_an_epoch_keeps_its_header() -> None:
    """Whoever fetches the log anew, and leads it later, has to tell others exactly where each epoch ended: one that
    has a tail of epoch 1 which nobody else ever had must not be told that epoch 1 went on for so long."""
    log = open_log(SimDisk())
    for epoch, count in ((1, 3), (2, 3), (4, 3)):
        for number in range(count):
            write(log, ("a", f"{epoch} {number}"), epoch=epoch)
    write(log, ("b", "last"), epoch=4)
    close_segment(log)
    compact(log)
    assert contents(log) == [(8, "a", "4 2"), (9, "b", "last")]
    copy = open_log(SimDisk())
    following.append(copy, b"".join(data for _, data in raw(log)), NOW)
    assert copy.epochs.entries() == log.epochs.entries() == [(1, 0), (2, 3), (4, 6)]
    assert copy.end_offset_for_epoch(1) == (1, 3)


def test_control_batches_stay() -> None:
    log = open_log(SimDisk())
    write(log, ("a", "1"))
    batch = build_batch(
        [Record(0, NOW, b"\0\0\0\1", bytes(6), [])], producer_id=7, producer_epoch=0, transactional=True, control=True
    )
    log.append(batch, read_header(batch), 0, NOW)
    write(log, ("a", "2"))
    close_segment(log)
    compact(log)
    assert [(h.base_offset, h.is_control) for h, _ in raw(log)] == [(1, True), (2, False)]


def test_a_batch_nobody_can_read_stays_as_it_is() -> None:
    log = open_log(SimDisk())
    batch = bytearray(build_batch([Record(0, NOW, b"a", b"1", [])]))
    batch[61] ^= 0x54
    set_crc(batch)
    log.append(batch, read_header(batch), 0, NOW)
    write(log, ("a", "2"))
    write(log, ("a", "3"))
    close_segment(log)
    compact(log)
    assert [h.base_offset for h, _ in raw(log)] == [0, 2]


# Tombstones.


def test_a_tombstone_stays_for_its_time_and_then_goes() -> None:
    log = open_log(SimDisk(), replace(SETTINGS, delete_retention_ms=DAY))
    write(log, ("a", "1"), ("b", "1"), ("a", None), timestamp=NOW - 5 * DAY)
    close_segment(log)
    compact(log)
    assert contents(log) == [(1, "b", "1"), (2, "a", None)]
    header = raw(log)[0][0]
    assert header.attributes & DELETE_HORIZON_BIT
    assert header.base_timestamp == NOW + DAY
    assert [r.timestamp for r in read(log)] == [NOW - 5 * DAY + 1, NOW - 5 * DAY + 2]
    write(log, ("c", "1"))
    close_segment(log)
    compact(log, NOW + DAY - 1, "t2")
    assert contents(log) == [(1, "b", "1"), (2, "a", None), (3, "c", "1")]
    assert raw(log)[0][0].base_timestamp == NOW + DAY, "the horizon is set once"
    write(log, ("d", "1"))
    close_segment(log)
    compact(log, NOW + DAY, "t3")
    assert contents(log) == [(1, "b", "1"), (3, "c", "1"), (4, "d", "1")]


def test_a_value_after_a_tombstone_replaces_it() -> None:
    log = open_log(SimDisk())
    write(log, ("a", "1"), ("a", None), ("a", "2"))
    close_segment(log)
    compact(log)
    assert contents(log) == [(2, "a", "2")]


# How.


def test_small_segments_become_one() -> None:
    log = open_log(SimDisk())
    for i in range(6):
        write(log, (f"k{i % 2}", str(i)))
        close_segment(log)
    compact(log)
    assert [s.base_offset for s in log.segments] == [0, 6]
    assert files(log) == [f"{0:020d}.index", f"{0:020d}.log", f"{0:020d}.timeindex", f"{6:020d}.log"]
    assert contents(log) == [(4, "k0", "4"), (5, "k1", "5")]
    again = open_log(log.disk)  # type: ignore[arg-type]
    assert contents(again) == contents(log)


def test_segments_of_which_nothing_is_left_do_not_stay_one_by_one() -> None:
    """librdkafka gives up when a dozen replies in a row hold no record."""
    log = open_log(SimDisk(), replace(SETTINGS, segment_bytes=1000))
    for i in range(100):
        write(log, ("a", f"{i}" + "v" * 300))
    write(log, ("b", "v" * 300))
    close_segment(log)
    assert len(log.segments) > 30
    compact(log)
    assert len(log.segments) == 2
    assert [h.record_count for h, _ in raw(log)] == [1, 1]


def test_what_needs_no_change_is_not_written_again() -> None:
    log = open_log(SimDisk())
    write(log, ("a", "1"), ("b", "1"))
    close_segment(log)
    segment = log.segments[0]
    result = compact(log)
    assert result.cleaned == []
    assert log.segments[0] is segment
    assert log.cleaned_offset == 2


def test_readers_go_on_through_every_step() -> None:
    log = open_log(SimDisk(), replace(SETTINGS, segment_bytes=400, index_interval_bytes=0))
    for i in range(30):
        write(log, (f"k{i % 3}", "v" * 50), (f"own{i}", "v" * 50))
    close_segment(log)
    old = log.read(0, 10_000)
    assert old is not None
    before = old.read()
    newest = [found for found in contents(log) if found[1].startswith("own") or found[0] >= 54]

    def look() -> None:
        assert set(contents(log)) >= set(newest)
        assert old.read() == before
        for segment in log.segments:
            segment.unload()

    running = cleaning.begin(log, NOW, "t")
    assert running is not None
    clean = running.clean(DirectCompactor(log.disk))
    clean.run()
    look()
    assert clean.result is not None
    assert len(clean.result.cleaned) > 3
    ticket = running.on_cleaned(clean.result)
    places = []
    while ticket is not None:
        look()
        ticket.run()
        look()
        places += [ticket.segment.base_offset] if ticket.segment is not None else []
        ticket = running.on_swapped(ticket)
    look()
    assert contents(log) == newest
    # Oldest first: a tombstone may leave only after what it deleted.
    assert places == sorted(places)


def test_many_passes_when_the_map_is_small() -> None:
    log = open_log(SimDisk(), limits=Limits(compaction_bytes_max=24 * 8))  # six keys
    for i in range(40):
        write(log, (f"k{i % 20}", str(i)))
    close_segment(log)
    ends = []
    for number in range(20):
        if cleaning.candidate(log, NOW) is None:
            break
        ends.append(compact(log, token=f"t{number}").end_offset)
    assert len(ends) > 3
    assert ends == sorted(set(ends))
    assert ends[-1] == log.cleaned_offset == 40
    assert contents(log) == [(i, f"k{i % 20}", str(i)) for i in range(20, 40)]


def test_a_damaged_batch_stops_compaction_and_is_left_as_it_is() -> None:
    disk = SimDisk()
    log = open_log(disk)
    write(log, ("a", "1"))
    write(log, ("a", "2"))
    close_segment(log)
    disk.corrupt(f"{DIRECTORY}/{0:020d}.log", 65)
    before = files(log)
    running = cleaning.begin(log, NOW, "t")
    assert running is not None
    ticket = running.clean(DirectCompactor(disk))
    ticket.run()
    assert ticket.result is None
    assert "damaged batch" in (ticket.damage or "")
    running.end()
    assert files(log) == before
    assert log.cleaned_offset == 0


def test_a_full_disk_leaves_everything_as_it_was() -> None:
    disk = SimDisk()
    log = open_log(disk)
    for i in range(10):
        write(log, ("a", "v" * 100), (f"k{i}", "v" * 100))
    close_segment(log)
    disk.capacity = disk.used() + 700
    before, seen = files(log), contents(log)
    running = cleaning.begin(log, NOW, "t")
    assert running is not None
    with pytest.raises(OSError):
        running.clean(DirectCompactor(disk)).run()
    running.end()
    disk.capacity = None
    assert (files(log), contents(log)) == (before, seen)
    compact(log, token="t2")
    assert len(contents(log)) == 11


def test_deleting_and_retention_wait_for_a_compaction() -> None:
    settings = replace(SETTINGS, cleanup_delete=True, retention_ms=1000)
    log = open_log(SimDisk(), settings)
    write(log, ("a", "1"), timestamp=NOW - 5000)
    close_segment(log)
    write(log, ("a", "2"))
    close_segment(log)
    running = cleaning.begin(log, NOW, "t")
    assert running is not None
    assert retention.apply(log, NOW) == []
    retention.delete_before(log, 1)
    assert len(log.segments) == 3
    finish(log, running)
    assert (log.start_offset, contents(log)) == (1, [(1, "a", "2")])
    assert retention.apply(log, NOW + 2000) != []
    assert contents(log) == []


def test_a_start_offset_inside_a_compacted_batch_hides_what_is_below() -> None:
    log = open_log(SimDisk(), replace(SETTINGS, cleanup_delete=True))
    write(log, ("a", "1"), ("b", "1"), ("c", "1"), ("a", "2"))
    close_segment(log)
    retention.delete_before(log, 2)
    compact(log)
    assert contents(log) == [(2, "c", "1"), (3, "a", "2")]


def test_no_checkpoint_writes_indexes_over_those_of_the_new_segments() -> None:
    log = open_log(SimDisk())
    for i in range(20):
        write(log, ("a", str(i)))
    log.roll(NOW)
    ticket = checkpointing.begin(log)
    assert ticket is not None
    assert cleaning.begin(log, NOW, "t") is None
    ticket.run()
    log.finish_sync(ticket)
    log.advance_high_watermark(log.synced_offset)
    log.segments[0].index_saved = False
    running = cleaning.begin(log, NOW, "t")
    assert running is not None
    write(log, ("a", "20"))
    ticket = checkpointing.begin(log)
    assert ticket is not None
    assert [segment.base_offset for segment, *_ in ticket.indexes] == [20]


def test_offsets_by_time_know_bare_headers() -> None:
    log = open_log(SimDisk())
    write(log, ("a", "1"), timestamp=NOW + 500, producer_id=7, producer_epoch=0, base_sequence=0)
    write(log, ("a", "2"), timestamp=NOW)
    close_segment(log)
    compact(log)
    assert [h.record_count for h, _ in raw(log)] == [0, 1]
    assert at_once(lookup.offset_of_max_timestamp(log)) == (1, NOW, 0)
    assert at_once(lookup.offset_for_timestamp(log, NOW)) == (1, NOW, 0)
    assert at_once(lookup.offset_for_timestamp(log, NOW + 1)) is None


# Crashes.


def test_a_swap_is_completed_by_whoever_opens_the_log_next() -> None:
    disk = SimDisk()
    log = open_log(disk)
    for i in range(4):
        write(log, ("a", str(i)))
        close_segment(log)
    running = cleaning.begin(log, NOW, "t")
    assert running is not None
    clean = running.clean(DirectCompactor(disk))
    clean.run()
    assert clean.result is not None
    ticket = running.on_cleaned(clean.result)
    assert isinstance(ticket, SwapTicket)
    ticket.run()
    assert f"{0:020d}.log.swap" in files(log)
    again = open_log(disk)
    assert [s.base_offset for s in again.segments] == [0, 4]
    assert contents(again) == [(3, "a", "3")]
    assert not [name for name in files(again) if name.endswith((".swap", ".cleaned"))]


def test_what_was_only_cleaned_means_nothing() -> None:
    disk = SimDisk()
    log = open_log(disk)
    write(log, ("a", "1"), ("a", "2"))
    close_segment(log)
    running = cleaning.begin(log, NOW, "t")
    assert running is not None
    clean = running.clean(DirectCompactor(disk))
    assert isinstance(clean, CleanTicket)
    clean.run()
    again = open_log(disk)
    assert len(contents(again)) == 2
    assert not [name for name in files(again) if name.endswith(".cleaned")]


def test_a_swap_file_that_is_no_segment_quarantines_the_log() -> None:
    disk = SimDisk()
    log = open_log(disk)
    write(log, ("a", "1"), ("a", "2"))
    close_segment(log)
    disk.open(f"{DIRECTORY}/{0:020d}.log.swap", create=True).append(b"x" * 100)
    again = open_log(disk)
    assert again.quarantined
    with pytest.raises(StorageError):
        again.read(0, 100)
