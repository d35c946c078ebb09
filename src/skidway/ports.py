"""What a node may ask of the world.

Everything from `wire` to `broker` reaches clocks, disks and randomness through these protocols only,
so the same code runs on a real machine (`server/`) and in a simulated one (`sim/`).
Paths are strings relative to the data directory, with `/` between parts; "" is the data directory itself.
"""

from collections.abc import Callable
from typing import Protocol

import msgspec

Buffer = bytes | bytearray | memoryview


class Clock(Protocol):
    def wall_ms(self) -> int:
        """Milliseconds since 1970: record timestamps and retention only. It may jump."""
        ...

    def monotonic_ms(self) -> int:
        """Never goes back: every timeout and deadline."""
        ...


class Random(Protocol):
    def randbytes(self, size: int) -> bytes: ...

    def randrange(self, stop: int, /) -> int: ...


class Zones(Protocol):
    """What clocks on walls say."""

    def offset_s(self, name: str, utc_s: int) -> int:
        """Seconds that a time zone is ahead of UTC then. Raises LookupError for a name that is not known."""
        ...


LOG_LEVELS = ("TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL")
ROOT_LOGGER = "root"


class Loggers(Protocol):
    """Who writes the operator's log, and from which level on."""

    def levels(self) -> dict[str, str]:
        """By name; the root is among them."""
        ...

    def set_level(self, name: str, level: str | None) -> None:
        """Of a logger that exists; None: like the one above it."""
        ...


class File(Protocol):
    """One open file that grows at its end.

    `sync` may be called from a worker thread while the owner appends; everything else belongs to one thread.
    A file that was removed stays readable through its object; the descriptor goes with the last reference.
    """

    def size(self) -> int: ...

    def append(self, *buffers: Buffer) -> int:
        """Write all the buffers at the end and return the position where they begin.

        All or nothing: when the disk refuses (OSError, e.g. ENOSPC), what was partly written is cut off again
        before the error is raised.
        """
        ...

    def read_at(self, position: int, size: int) -> bytes:
        """Up to `size` bytes; fewer only at the end of the file."""
        ...

    def truncate(self, size: int) -> None: ...

    def sync(self) -> None:
        """fdatasync. An OSError here is final for the data directory: never retried."""
        ...

    def fileno(self) -> int:
        """The descriptor, for sendfile. -1 where there is none (simulation)."""
        ...

    def close(self) -> None: ...


class Directory(Protocol):
    """An open directory: it can be synced however many files are open meanwhile."""

    def sync(self) -> None: ...

    def close(self) -> None: ...


class Disk(Protocol):
    """A data directory. Names become durable by `sync_directory`, contents by `File.sync`."""

    on_sync_failed: Callable[[], None]
    """Called when a sync of whatever kind has failed, before its error is raised, on the thread that asked for it."""

    @property
    def files_short(self) -> bool:
        """Whether so many files are open that those which can be closed should be."""
        ...

    def open(self, path: str, *, create: bool = False) -> File:
        """Raises FileNotFoundError when it is not there and `create` is false, OSError (EMFILE) when too many are
        open."""
        ...

    def read(self, path: str) -> bytes: ...

    def write_atomic(self, path: str, data: Buffer) -> None:
        """Replace the file as a whole and durably: temporary file, sync, rename, directory sync. When too many files
        are open (EMFILE, ENFILE), nothing has changed."""
        ...

    def list(self, path: str) -> list[str]:
        """The names in a directory, sorted."""
        ...

    def exists(self, path: str) -> bool: ...

    def holds(self, path: str, file: File) -> bool:
        """Whether `file` is what a start would find at `path`; False when it was removed or replaced meanwhile."""
        ...

    def size(self, path: str) -> int: ...

    def make_directory(self, path: str) -> None:
        """Also its parents; no error when it is there already."""
        ...

    def rename(self, source: str, target: str) -> None: ...

    def remove(self, path: str) -> None:
        """Remove a file; no error when it is gone already."""
        ...

    def remove_tree(self, path: str) -> None: ...

    def open_directory(self, path: str) -> Directory: ...

    def sync_directory(self, path: str) -> None: ...

    def sync_file(self, path: str) -> None:
        """`File.sync` of a file that need not stay open: works however many are."""
        ...

    def boot_id(self) -> str:
        """Another one whenever the machine may have lost what was written but not synced; "" when nobody can tell."""
        ...

    def usage(self) -> tuple[int, int]:
        """(total bytes, free bytes) of the volume."""
        ...


class FileSlice(msgspec.Struct):
    """Bytes of a file that travel to a socket by sendfile, without passing through Python."""

    file: File
    position: int
    length: int

    def __len__(self) -> int:
        return self.length

    def read(self) -> bytes:
        return self.file.read_at(self.position, self.length)
