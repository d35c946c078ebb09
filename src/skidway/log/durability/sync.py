"""Work on a disk that may take long, packed so that a worker thread can do it without touching a log.

A ticket is begun and finished on the thread that owns the log and run on any other. Its steps are in the order that
makes each of them true: bytes and names first, then the files that vouch for them, the producer snapshot last.
"""

import errno
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

from skidway.log.aborted import AbortedIndex
from skidway.log.durability.checkpoints import DAMAGED
from skidway.log.health import Reason, reason_bytes, reason_of
from skidway.log.index import OffsetIndex, TimeIndex
from skidway.log.producers import Snapshot
from skidway.log.segment import Segment, offset_in_name, segment_name
from skidway.ports import Disk, File

NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)
"""A file or directory could not be opened because too many are open. No sync failed: it can be tried again."""


class Syncable(Protocol):
    def sync(self) -> None: ...


@dataclass(slots=True, eq=False)
class Removal:
    """Files of segments that were given up: first renamed, some time later removed."""

    renamed: list[tuple[str, str]] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    emptied: list[str] = field(default_factory=list)
    """Renamed before, and to be removed later: their names are still needed."""
    done: bool = False

    def run(self, disk: Disk, directory: str) -> None:
        for source, target in self.renamed:
            # Oldest first and each one durable before the next: a crash leaves no hole between segments.
            if disk.exists(source):  # unless an earlier try came that far
                disk.rename(source, target)
                disk.sync_directory(directory)
        for path in self.removed:
            disk.remove(path)
        for path in self.emptied:
            empty(disk, path)
        self.done = True


def empty(disk: Disk, path: str) -> None:
    """Needs no room, unlike anything that would be written instead."""
    if disk.exists(path) and disk.size(path):
        file = disk.open(path)
        file.truncate(0)
        file.close()


class SyncHistory:
    """Of a log's files, shared by its tickets. The kernel tells of a failed write once and takes the pages for clean:
    a sync that succeeds after one that failed proves nothing."""

    __slots__ = ("failed",)

    def __init__(self) -> None:
        self.failed = False


class SyncTicket:
    """Everything below `offset` is durable once `run` returned. An OSError from it is final, unless `synced` is set or
    it is one of `NO_DESCRIPTORS`: then nothing is proven, and the log gives out another ticket.

    A FileNotFoundError says that somebody removed or replaced files of the log. The kernel syncs a file without a name
    as gladly as any other, and no start would ever find what is in it.
    """

    __slots__ = (
        "directories",
        "directory",
        "disk",
        "early",
        "epochs",
        "expected",
        "files",
        "generation",
        "history",
        "indexes",
        "is_checkpoint",
        "late",
        "names",
        "offset",
        "segments",
        "snapshot",
        "snapshots_kept_from",
        "start_offset",
        "synced",
    )

    def __init__(self, disk: Disk, directory: str, offset: int, history: SyncHistory | None = None) -> None:
        self.disk = disk
        self.history = SyncHistory() if history is None else history
        self.directory = directory
        self.offset = offset
        self.generation = 0
        self.names = 0
        self.segments: list[tuple[Segment, int, File]] = []
        self.files: list[Syncable] = []
        self.directories: list[str] = []
        # Early is what an older snapshot covers: on a full disk it makes the room that the new one needs.
        self.early = Removal()
        self.late = Removal()
        self.is_checkpoint = False
        self.expected: list[Segment] = []
        self.indexes: list[tuple[Segment, int, OffsetIndex, TimeIndex, AbortedIndex]] = []
        self.epochs: bytes | None = None
        self.snapshot: Snapshot | None = None
        self.snapshots_kept_from = 0
        self.start_offset = 0
        self.synced = False
        """The promise is kept; what may still fail is housekeeping, which can be tried again."""

    def run(self) -> None:
        try:
            for _, _, file in self.segments:
                file.sync()
            for beside in self.files:
                beside.sync()
            for directory in self.directories:
                self.disk.sync_directory(directory)
            self._find_files()
        except FileNotFoundError as error:
            # No sync has failed, but the next start would take what is left for all there was.
            mark_damaged(self.disk, self.directory, reason_of(error))
            raise
        except OSError as error:
            if error.errno not in NO_DESCRIPTORS:
                self.history.failed = True
            raise
        if self.history.failed:
            raise OSError(errno.EIO, "another sync of these files has failed")
        self.synced = True
        self.early.run(self.disk, self.directory)
        if self.snapshot is not None:
            self._write_checkpoint()
        self.late.run(self.disk, self.directory)

    def _find_files(self) -> None:
        """After the sync: what was removed before it began is noticed now, not a sync later."""
        for segment, _, file in self.segments:
            path = segment.path(".log")
            if not self.disk.holds(path, file) and not segment.given_up:
                raise FileNotFoundError(errno.ENOENT, "removed or replaced while the broker has it open", path)
        names = set(self.disk.list(self.directory)) if self.expected else ()
        for segment in self.expected:
            if segment_name(segment.base_offset, ".log") not in names and not segment.given_up:
                raise FileNotFoundError(errno.ENOENT, "removed while the broker has it open", segment.path(".log"))

    def _write_checkpoint(self) -> None:
        for segment, _, index, times, aborted in self.indexes:
            self.disk.write_atomic(segment.path(".index"), index.to_bytes())
            self.disk.write_atomic(segment.path(".timeindex"), times.to_bytes())
            # Emptied rather than removed: a name that comes back after a crash must not bring old entries.
            if aborted or self.disk.exists(segment.path(".txnindex")):
                self.disk.write_atomic(segment.path(".txnindex"), aborted.to_bytes())
        if self.epochs is not None:
            self.disk.write_atomic(f"{self.directory}/leader-epoch-checkpoint", self.epochs)
        # Its presence proves all of the above: recovery believes everything below its offset.
        assert self.snapshot is not None
        self.disk.write_atomic(snapshot_path(self.directory, self.offset), self.snapshot.to_bytes())
        for name in self.disk.list(self.directory):
            offset = snapshot_offset(name)
            if offset is not None and offset < self.snapshots_kept_from:
                self.disk.remove(f"{self.directory}/{name}")


def mark_damaged(disk: Disk, directory: str, reason: Reason) -> None:
    """Until the log is begun anew, nobody believes it. A disk that refuses leaves it to whoever comes upon the damage
    again."""
    with suppress(OSError):
        write_mark(disk, f"{directory}/{DAMAGED}", reason)


def write_mark(disk: Disk, path: str, reason: Reason) -> None:
    """A full disk may still take an empty file, whose name is enough."""
    try:
        disk.write_atomic(path, reason_bytes(reason))
    except OSError as error:
        if error.errno in NO_DESCRIPTORS:
            raise
        disk.write_atomic(path, b"")


def snapshot_path(directory: str, offset: int) -> str:
    return f"{directory}/{offset:020d}.snapshot"


def snapshot_offset(name: str) -> int | None:
    return offset_in_name(name, ".snapshot")
