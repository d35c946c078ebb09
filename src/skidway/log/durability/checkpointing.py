"""A log's checkpoints: the ticket that saves indexes, epochs and producers, and what follows when it ran.

A producer snapshot vouches for everything below its offset. One at or below the high watermark is always kept: a
truncation goes no deeper, and needs the producers as they were. For the same reason compaction ends at `vouched`, and
the files of given-up segments stay until it covers them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from skidway.log import retention
from skidway.log.compaction.swapping import REBUILT_SUFFIXES
from skidway.log.durability.checkpoints import write_epochs
from skidway.log.durability.sync import SyncTicket, snapshot_path

if TYPE_CHECKING:
    from skidway.log.log import Log


SEGMENTS_DUE = 64
"""With so many closed segments since the last checkpoint another one is due, however few bytes they have."""
SEGMENTS_MAX = 1_000
"""With so many no further segment is begun: a stop has to save the indexes of all of them."""


def begin(log: Log) -> SyncTicket | None:
    covered = vouched(log)
    # The snapshot that is about to be taken counts too, if nothing below it can be cut off.
    reach = log.end_offset if log.end_offset == log.high_watermark else covered
    doomed = [item for item in log.doomed if item.begun is None and item.end_offset <= reach]
    news = log.end_offset > log.recovery_point or log.start_offset > log.saved_start or log.epochs_changed
    if not news and not doomed and not log.dirty:
        return None
    ticket = log.unsynced.ticket(log.end_offset)
    ticket.is_checkpoint = True
    log.checkpoints_begun += 1
    retention.enter(ticket, doomed, covered, log.saved_start)
    if news:
        _enter_state(log, ticket)
    return ticket


def _enter_state(log: Log, ticket: SyncTicket) -> None:
    replaced = log.compaction.segments if log.compaction is not None else ()
    ticket.indexes = [
        (segment, segment.size, *segment.index_bytes())
        for segment in log.segments
        if segment.size and (segment is log.active or not segment.index_saved) and segment not in replaced
    ]
    # Those of a compaction have other names for a while.
    ticket.expected = [segment for segment in log.segments if not segment.pinned]
    if log.epochs_changed:
        ticket.epochs = write_epochs(log.epochs.entries())
    ticket.start_offset = log.start_offset
    log.producers.transactions.commit(log.high_watermark)
    ticket.snapshot = log.producers.snapshot(log.start_offset, log.truncated.count)
    ticket.snapshots_kept_from = vouched(log)
    log.bytes_since_checkpoint = 0


def vouched(log: Log) -> int:
    """The highest offset at or below the watermark that has a snapshot."""
    return max((offset for offset in log.snapshots if offset <= log.high_watermark), default=0)


def finish(log: Log, ticket: SyncTicket) -> None:
    """The ticket ran, and the log was not cut meanwhile."""
    if ticket.snapshot is None:
        return
    log.recovery_point = max(log.recovery_point, ticket.offset)
    log.snapshots = sorted({ticket.offset, *(s for s in log.snapshots if s >= ticket.snapshots_kept_from)})
    log.saved_start = max(log.saved_start, ticket.start_offset)
    log.durable_start = max(log.durable_start, ticket.start_offset)
    if ticket.epochs is not None and ticket.epochs == write_epochs(log.epochs.entries()):
        log.epochs_changed = False
    # Not earlier: until now a crash may take the start offset back.
    log.epochs.forget_before(ticket.start_offset)
    for segment, size, *_ in ticket.indexes:
        # A segment may have grown since its indexes were copied.
        segment.index_saved = segment is not log.active and segment.size == size
    log.unsaved_segments = sum(not segment.index_saved for segment in log.segments[:-1])


def void(log: Log, ticket: SyncTicket) -> None:
    """The log was cut after the ticket had begun: its files may have replaced better ones, so all are written again."""
    if ticket.snapshot is not None:
        log.disk.remove(snapshot_path(log.directory, ticket.offset))
        for segment, *_ in ticket.indexes:
            for suffix in REBUILT_SUFFIXES:
                log.disk.remove(segment.path(suffix))
        log.recovery_point = 0
        log.snapshots = []
        log.epochs_changed = True
