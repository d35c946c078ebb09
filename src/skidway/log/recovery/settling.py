"""After a crash: what was found in a log's files may be in memory only, and is made durable before any of it is served.

A log that was opened without it is settled by an ordinary sync ticket, on any thread; until then it is nobody's.
"""

from skidway.log.durability.sync import NO_DESCRIPTORS
from skidway.log.health import SOUND, Reason, at, reason_of
from skidway.log.log import Log


def is_settled(log: Log) -> bool:
    return log.quarantined or log.synced_offset >= log.end_offset


def settle(log: Log) -> None:
    """On the owner's thread. OSError when too many files are open: nothing is lost."""
    if is_settled(log) or (ticket := log.begin_sync()) is None:
        return
    try:
        ticket.run()
    except OSError as error:
        if error.errno in NO_DESCRIPTORS:
            raise
        give_up(log, reason_of(error))
        return
    log.finish_sync(ticket)


def give_up(log: Log, reason: Reason) -> None:
    """The disk did not take it: the log is neither served nor cut."""
    assert log.health is SOUND, "nobody else has it yet"
    log.quarantine(at(f"{log.directory} above offset {log.synced_offset}", reason))
    log.end_offset = log.high_watermark = max(log.synced_offset, log.start_offset)
