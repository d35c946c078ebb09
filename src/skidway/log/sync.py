"""Work on a disk that may take long, packed so that a worker thread can do it without touching a log.

A ticket is begun and finished on the thread that owns the log and run on any other. Its steps are in the order that
makes each of them true: bytes and names first, then the files that vouch for them, the producer snapshot last.
"""

import errno
from dataclasses import dataclass, field
from typing import Protocol

from skidway.log.index import OffsetIndex, TimeIndex
from skidway.log.segment import Segment, offset_in_name
from skidway.ports import Disk


class Syncable(Protocol):
    def sync(self) -> None: ...


@dataclass(slots=True, eq=False)
class Removal:
    """Files of segments that were given up: first renamed, some time later removed."""

    renamed: list[tuple[str, str]] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    done: bool = False

    def run(self, disk: Disk, directory: str) -> None:
        for source, target in self.renamed:
            # Oldest first and each one durable before the next: a crash leaves no hole between segments.
            if disk.exists(source):  # unless an earlier try came that far
                disk.rename(source, target)
                disk.sync_directory(directory)
        for path in self.removed:
            disk.remove(path)
        self.done = True


class Health:
    """Of a log's files, shared by its tickets. The kernel tells of a failed write once and takes the pages for clean:
    a sync that succeeds after one that failed proves nothing."""

    __slots__ = ("broken",)

    def __init__(self) -> None:
        self.broken = False


class SyncTicket:
    """Everything below `offset` is durable once `run` returned. An OSError from it is final, unless `synced` is set."""

    __slots__ = (
        "directories",
        "directory",
        "disk",
        "early",
        "epochs",
        "files",
        "generation",
        "health",
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

    def __init__(self, disk: Disk, directory: str, offset: int, health: Health | None = None) -> None:
        self.disk = disk
        self.health = Health() if health is None else health
        self.directory = directory
        self.offset = offset
        self.generation = 0
        self.names = 0
        self.segments: list[tuple[Segment, int]] = []
        self.files: list[Syncable] = []
        self.directories: list[str] = []
        # Early is what an older snapshot covers: on a full disk it makes the room that the new one needs.
        self.early = Removal()
        self.late = Removal()
        self.is_checkpoint = False
        self.indexes: list[tuple[Segment, int, OffsetIndex, TimeIndex]] = []
        self.epochs: bytes | None = None
        self.snapshot = b""
        self.snapshots_kept_from = 0
        self.start_offset = 0
        self.synced = False
        """The promise is kept; what may still fail is housekeeping, which can be tried again."""

    @property
    def maintenance(self) -> bool:
        """Nobody waits for it: a thread of its own runs it."""
        return self.is_checkpoint

    def run(self) -> None:
        try:
            for file in self.files:
                file.sync()
            for directory in self.directories:
                self.disk.sync_directory(directory)
        except OSError:
            self.health.broken = True
            raise
        if self.health.broken:
            raise OSError(errno.EIO, "another sync of these files has failed")
        self.synced = True
        self.early.run(self.disk, self.directory)
        if self.snapshot:
            self._write_checkpoint()
        self.late.run(self.disk, self.directory)

    def _write_checkpoint(self) -> None:
        for segment, _, index, times in self.indexes:
            self.disk.write_atomic(segment.path(".index"), index.to_bytes())
            self.disk.write_atomic(segment.path(".timeindex"), times.to_bytes())
        if self.epochs is not None:
            self.disk.write_atomic(f"{self.directory}/leader-epoch-checkpoint", self.epochs)
        # Its presence proves all of the above: recovery believes everything below its offset.
        self.disk.write_atomic(snapshot_path(self.directory, self.offset), self.snapshot)
        for name in self.disk.list(self.directory):
            offset = snapshot_offset(name)
            if offset is not None and offset < self.snapshots_kept_from:
                self.disk.remove(f"{self.directory}/{name}")


def snapshot_path(directory: str, offset: int) -> str:
    return f"{directory}/{offset:020d}.snapshot"


def snapshot_offset(name: str) -> int | None:
    return offset_in_name(name, ".snapshot")
