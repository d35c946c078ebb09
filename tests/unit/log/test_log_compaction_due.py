"""When a log is compacted, and how much of it."""

from compaction_by_hand import (
    NOW,
    SETTINGS,
    close_segment,
    compact,
    contents,
    open_log,
    settle,
    write,
)
from msgspec.structs import replace

from skidway.log.compaction import cleaning
from skidway.log.compaction.cleaning import roll_overdue
from skidway.sim.world.disk import SimDisk


def test_the_dirty_ratio_decides() -> None:
    log = open_log(SimDisk(), replace(SETTINGS, min_cleanable_dirty_ratio=0.5))
    for i in range(4):
        write(log, (f"k{i}", "v" * 100))
    assert cleaning.candidate(log, NOW) is None, "only the active segment"
    close_segment(log)
    found = cleaning.candidate(log, NOW)
    assert found is not None
    assert (found.dirty_ratio, found.dirty_bytes) == (1.0, log.segments[0].size)
    compact(log)
    write(log, ("k9", "v" * 100))
    close_segment(log)
    assert cleaning.candidate(log, NOW) is None
    for i in range(4):
        write(log, (f"k{i}", "v" * 100))
    close_segment(log)
    assert cleaning.candidate(log, NOW) is not None


def test_nothing_above_the_watermark_or_the_recovery_point_is_touched() -> None:
    log = open_log(SimDisk())
    write(log, ("a", "1"))
    log.roll(NOW)
    write(log, ("a", "2"))
    log.roll(NOW)
    assert cleaning.candidate(log, NOW) is None
    log.advance_high_watermark(2)
    assert cleaning.candidate(log, NOW) is None, "no snapshot covers it yet"
    settle(log)
    assert cleaning.candidate(log, NOW) is not None


def test_records_younger_than_the_least_lag_are_left_alone() -> None:
    log = open_log(SimDisk(), replace(SETTINGS, min_compaction_lag_ms=1000))
    write(log, ("a", "1"), timestamp=NOW - 2000)
    write(log, ("a", "2"), timestamp=NOW - 1500)
    close_segment(log)
    write(log, ("a", "3"), timestamp=NOW - 500)
    close_segment(log)
    compact(log)
    assert [offset for offset, _, _ in contents(log)] == [1, 2]
    assert cleaning.candidate(log, NOW) is None
    assert cleaning.candidate(log, NOW + 501) is not None


def test_records_older_than_the_greatest_lag_do_not_wait_for_the_ratio() -> None:
    log = open_log(SimDisk(), replace(SETTINGS, min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=1000))
    write(log, ("a", "1"))
    roll_overdue(log, NOW + 1000)
    assert len(log.segments) == 1
    roll_overdue(log, NOW + 1001)
    assert len(log.segments) == 2
    settle(log)
    assert cleaning.candidate(log, NOW + 1000) is None
    found = cleaning.candidate(log, NOW + 1001)
    assert found is not None
    assert found.overdue


def test_a_log_that_is_not_to_be_compacted_never_is() -> None:
    log = open_log(SimDisk(), replace(SETTINGS, compact=False))
    write(log, ("a", "1"))
    close_segment(log)
    assert cleaning.candidate(log, NOW) is None
