"""Forgetting: segments that are too old or too many, and records a user deleted.

A segment that is given up leaves the log at once. Its files are renamed (`.deleted`) by a checkpoint, oldest first, and
removed by a later one, so that no event loop waits for a disk and no crash leaves a hole. Nothing is renamed before a
producer snapshot covers it: the batches it held are the only other memory of their producers.

Nothing is removed before the new start of the log is saved: a first segment above the saved start is missing, unless a
renamed file tells that it was given up. A disk that is too full to save anything gets its room all the same: renamed
files are emptied, and keep their names.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from skidway.log.compaction.swapping import SEGMENT_SUFFIXES
from skidway.log.durability.sync import Removal, SyncTicket
from skidway.log.health import SOUND
from skidway.log.segment import Segment

if TYPE_CHECKING:
    from skidway.log.log import Log


@dataclass(slots=True, eq=False)
class Doomed:
    """A segment that left its log but not yet the disk."""

    segment: Segment
    end_offset: int
    given_up_ms: int
    renamed: bool = False
    due: bool = False
    begun: Removal | None = None
    emptied: bool = False
    """The step that was begun only makes room."""


def apply(log: Log, now_ms: int) -> list[Segment]:
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


def schedule(doomed: list[Doomed], now_ms: int, delay_ms: int) -> int:
    for item in doomed:
        # The clock was set back: not for as long as that takes to pass again.
        item.given_up_ms = min(item.given_up_ms, now_ms)
        if item.renamed and not item.due and now_ms - item.given_up_ms >= delay_ms:
            item.due = True
            item.begun = None
    return sum(item.due for item in doomed)


def enter(ticket: SyncTicket, doomed: list[Doomed], covered: int, saved_start: int) -> None:
    """Put the next step of each given-up segment into a ticket; a snapshot covers those below `covered` already, and
    one tells that the log begins at `saved_start`."""
    for item in doomed:
        removal = item.begun = ticket.early if item.end_offset <= covered else ticket.late
        # What comes late comes after a snapshot that tells the start of now.
        item.emptied = item.due and removal is ticket.early and item.end_offset > saved_start
        if item.emptied:
            removal.emptied.append(item.segment.path(".log") + ".deleted")
        elif item.due:
            removal.removed += [item.segment.path(suffix) + ".deleted" for suffix in SEGMENT_SUFFIXES]
        else:
            path = item.segment.path(".log")
            removal.renamed.append((path, path + ".deleted"))
            # Rebuilt when needed, so they need no delay and no order.
            removal.removed += [item.segment.path(suffix) for suffix in SEGMENT_SUFFIXES[1:]]


def leave(doomed: list[Doomed], ticket: SyncTicket) -> None:
    """The ticket ran. What it did not come to is tried again by another."""
    for removal in (ticket.early, ticket.late):
        begun = [item for item in doomed if item.begun is removal]
        for item in begun:
            if not removal.done or item.emptied:
                item.begun = None
            elif item.due:
                doomed.remove(item)
            else:
                item.renamed = True
