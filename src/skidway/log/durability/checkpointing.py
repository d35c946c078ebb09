"""A log's checkpoints: a sync that also saves indexes, epochs and producers, so that a crash leaves little to scan.

`begin` hands out a ticket like that of any sync; `Log.finish_sync` takes it back. It takes the files of given-up
segments away too. An ordinary sync may be begun beside it: nobody should wait for a checkpoint.
"""

from skidway.log import doomed
from skidway.log.durability.checkpoints import write_epochs
from skidway.log.durability.sync import SyncTicket
from skidway.log.health import SOUND
from skidway.log.log import Log


def begin(log: Log, *, closing: bool = False) -> SyncTicket | None:
    """None when there is nothing to do or one is under way; a log that is closing does not count on that one."""
    saved = log.saved
    if log.health is not SOUND or (saved.begun and not closing):
        return None
    covered = saved.vouched(log.high_watermark)
    # The snapshot that is about to be taken counts too, if nothing below it can be cut off.
    reach = log.end_offset if log.end_offset == log.high_watermark else covered
    leaving = log.doomed.idle_below(reach)
    news = log.end_offset > saved.recovery_point or log.start_offset > saved.start_offset or saved.epochs_changed
    if not news and not leaving and not log.dirty:
        return None
    ticket = log.unsynced.ticket(log.end_offset)
    ticket.is_checkpoint = True
    saved.begun += 1
    doomed.enter(ticket, leaving, covered, saved.start_offset)
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
    if log.saved.epochs_changed:
        ticket.epochs = write_epochs(log.epochs.entries())
    ticket.start_offset = log.start_offset
    log.producers.transactions.commit(log.high_watermark)
    ticket.snapshot = log.producers.snapshot(log.start_offset, log.saved.truncated.count)
    ticket.snapshots_kept_from = log.saved.vouched(log.high_watermark)
    log.saved.bytes_since = 0


def save(log: Log) -> None:
    """Everything, on the owner's thread, before a clean stop. OSError when that fails."""
    ticket = begin(log, closing=True)
    if ticket is not None:
        ticket.run()
        log.finish_sync(ticket)
