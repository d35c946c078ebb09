"""The file `truncated` in a log's directory: the first durable step of every cut (see `truncation`).

A log that begins anew is decided by it alone: `begin_anew` is done again by the next start until it comes to its end.
"""

from skidway.log.compaction.swapping import SEGMENT_SUFFIXES
from skidway.log.durability.checkpoints import (
    DAMAGED,
    LEADER_EPOCHS,
    TRUNCATED,
    WAS_DAMAGED,
    Truncated,
    write_truncated,
)
from skidway.log.segment import segment_name
from skidway.ports import Disk

_DROPPED = (*SEGMENT_SUFFIXES, ".snapshot", ".deleted", ".swap", ".cleaned", LEADER_EPOCHS, DAMAGED, WAS_DAMAGED)


def mark(disk: Disk, directory: str, truncated: Truncated) -> None:
    disk.write_atomic(f"{directory}/{TRUNCATED}", write_truncated(truncated))


def may_be_marked(disk: Disk, directory: str, truncated: Truncated) -> bool:
    """Whether a start would obey the mark, as far as anybody can tell."""
    try:
        return disk.read(f"{directory}/{TRUNCATED}") == write_truncated(truncated)
    except FileNotFoundError:
        return False
    except OSError:
        return True


def begin_anew(disk: Disk, directory: str, truncated: Truncated) -> Truncated:
    """Drop everything and leave an empty segment at `restart_at`. Can be done again after a crash at any point."""
    for name in disk.list(directory):
        if name.endswith(_DROPPED):
            disk.remove(f"{directory}/{name}")
    disk.open(f"{directory}/{segment_name(truncated.restart_at, '.log')}", create=True)
    disk.sync_directory(directory)
    done = Truncated(truncated.count, truncated.cuts, truncated.start_offset)
    mark(disk, directory, done)
    return done
