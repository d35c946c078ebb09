"""Forgetting: segments that are too old or too many, and records a user deleted.

A segment that is given up leaves the log at once. Its files are renamed (`.deleted`) by a checkpoint, oldest first, and
removed by a later one, so that no event loop waits for a disk and no crash leaves a hole. Nothing is renamed before a
producer snapshot covers it: the batches it held are the only other memory of their producers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from skidway.log.segment import Segment
from skidway.log.swapping import SEGMENT_SUFFIXES
from skidway.log.sync import Removal, SyncTicket

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


def apply(log: Log, now_ms: int) -> list[Segment]:
    settings = log.settings
    if not settings.cleanup_delete or log.failure is not None or log.compaction is not None:
        return []
    given_up = 0
    if settings.retention_bytes >= 0:
        excess = log.size() - settings.retention_bytes
        for segment in log.segments[:-1]:
            if excess < segment.size or not _committed(log, given_up):
                break
            excess -= segment.size
            given_up += 1
    if settings.retention_ms >= 0:
        while given_up < len(log.segments) and _expired(log, log.segments[given_up], now_ms):
            if log.segments[given_up] is log.segments[-1]:
                log.roll(now_ms)
            if not _committed(log, given_up):
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


def _committed(log: Log, number: int) -> bool:
    return number + 1 < len(log.segments) and log.segments[number + 1].base_offset <= log.high_watermark


def advance_start(log: Log, offset: int, now_ms: int = 0) -> None:
    """The log now begins at `offset`; segments wholly below it are given up."""
    if offset <= log.start_offset:
        return
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
        if item.renamed and not item.due and now_ms - item.given_up_ms >= delay_ms:
            item.due = True
            item.begun = None
    return sum(item.due for item in doomed)


def enter(ticket: SyncTicket, doomed: list[Doomed], covered: int) -> None:
    """Put the next step of each given-up segment into a ticket; a snapshot covers those below `covered` already."""
    for item in doomed:
        removal = item.begun = ticket.early if item.end_offset <= covered else ticket.late
        if item.due:
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
            if not removal.done:
                item.begun = None
            elif item.due:
                doomed.remove(item)
            else:
                item.renamed = True
