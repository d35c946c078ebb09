"""Which start of a log may be saved.

A loss of power may leave a log that ends where it was synced. Recovery does not believe a start above the end, because
it may be about another log, and the lower start that the file named before is overwritten by then. So no file names a
start before everything below it is synced.
"""

from skidway.log.log import Log


def savable(log: Log) -> int:
    """The highest start that a file may name now."""
    return min(log.start_offset, max(log.synced_offset, log.saved.durable_start))


def is_unsaved(log: Log) -> bool:
    """Whether a save would make a higher start durable."""
    return savable(log) > log.saved.durable_start
