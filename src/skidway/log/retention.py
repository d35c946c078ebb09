"""Forgetting: segments that are too old or too many, and records a user deleted.

A segment that is given up leaves the log at once, and its files later (see `doomed`).
"""

from skidway.errors import OffsetOutOfRange
from skidway.log.doomed import Doomed
from skidway.log.health import SOUND
from skidway.log.log import Log
from skidway.log.segment import Segment


def delete_before(log: Log, offset: int) -> None:
    """Records below `offset` are gone; whole segments below it leave the disk."""
    if offset > log.high_watermark:
        raise OffsetOutOfRange(f"{offset} is above the high watermark {log.high_watermark}")
    advance_start(log, offset)


def apply(log: Log, now_ms: int) -> list[Segment]:
    """Give up segments that are too old or too many; returns them."""
    settings = log.settings
    if log.health is not SOUND or log.compaction is not None:
        return []
    # Records of what was the active segment may have been deleted before it was closed.
    give_up_below_start(log, now_ms)
    if not settings.cleanup_delete:
        return []
    given_up = 0
    if settings.retention_bytes >= 0:
        excess = log.size() - settings.retention_bytes
        while given_up < len(log.segments) and excess >= (size := log.segments[given_up].size) > 0:
            if not _may_go(log, given_up, now_ms):
                break
            excess -= size
            given_up += 1
    if settings.retention_ms >= 0:
        while given_up < len(log.segments) and _expired(log, log.segments[given_up], now_ms):
            if not _may_go(log, given_up, now_ms):
                break
            given_up += 1
    if not given_up:
        return []
    gone = log.segments[:given_up]
    advance_start(log, log.segments[given_up].base_offset, now_ms)
    return gone


def _expired(log: Log, segment: Segment, now_ms: int) -> bool:
    # Records without timestamps never expire by age: there is no file time to fall back on that survives a copy.
    timestamp = segment.load_max_timestamp()
    return segment.size > 0 and timestamp >= 0 and now_ms - timestamp > log.settings.retention_ms


def _may_go(log: Log, number: int, now_ms: int) -> bool:
    """Whether all of it is committed. The active segment is closed then: another has to be there before it goes."""
    is_active = number + 1 == len(log.segments)
    if (log.end_offset if is_active else log.segments[number + 1].base_offset) > log.high_watermark:
        return False
    if is_active:
        log.roll(now_ms)
    return True


def advance_start(log: Log, offset: int, now_ms: int = 0) -> None:
    """The log now begins at `offset`; segments wholly below it are given up."""
    if offset <= log.start_offset:
        return
    assert offset <= log.high_watermark, f"{log.directory}: what is not committed may not be given up"
    log.start_offset = offset
    give_up_below_start(log, now_ms)


def give_up_below_start(log: Log, now_ms: int) -> None:
    if log.compaction is not None:
        return  # it comes back when it is done
    while len(log.segments) > 1 and log.segments[1].base_offset <= log.start_offset:
        segment = log.segments.pop(0)
        log.forget_segment(segment)
        log.doomed.append(Doomed(segment, log.segments[0].base_offset, now_ms))
