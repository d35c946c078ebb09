"""A data directory on a real disk: `ports.Disk` and `ports.File` over descriptors.

Appends go to a tracked end by position, never by O_APPEND: whatever a failed append left behind lies past that end,
is cut off at once, and would be overwritten by the next append even if cutting failed.
One broker per data directory: exclusive locks on `.lock` and on the directory itself are held until `close`. The file
says who has it; the directory cannot be removed as easily as the file.
Other users of the machine may not read what is stored: new directories are 0750 and new files 0640, less what the umask
takes. Where the data directory itself is closed to the group, so is everything in it. What exists keeps its mode.
"""

import errno
import fcntl
import os
import stat
import sys
import threading
from collections.abc import Callable
from contextlib import closing

from skidway.ports import Buffer, File

LOCK_NAME = ".lock"
TEMPORARY_SUFFIX = ".tmp"
BUFFERS_PER_WRITE_MAX = 1024  # IOV_MAX of Linux and macOS
SMALL_FILE_BYTES = 1 << 12
LARGE_READ_BYTES = 1 << 20
IN_USE = (errno.EWOULDBLOCK, errno.EACCES)
FILES_SPARE = 8
"""Files are short when less than this fraction of what may be open is left."""
READ_CHUNK_MAX = 1 << 30  # one read system call moves less than 2 GiB
DIRECTORY_MODE = 0o750
FILE_MODE = 0o640

# Held for a few instructions only: it keeps `close` from taking a descriptor away under a running `sync`.
_sync_lock = threading.Lock()

# macOS has no fdatasync.
_datasync = getattr(os, "fdatasync", os.fsync)


class DataDirectoryInUse(Exception):
    """Another process holds the lock of the data directory."""


class RealFile:
    __slots__ = ("_closing", "_disk", "_fd", "_size", "_sync_failure", "_sync_turn", "_syncs")

    def __init__(self, fd: int, disk: "RealDisk") -> None:
        self._fd = fd
        self._disk = disk
        disk.open_files.add(fd)
        self._size = os.fstat(fd).st_size
        self._syncs = 0
        # The kernel tells a failed write-back once, to whoever syncs first; everybody after it must hear of it too.
        self._sync_turn = threading.Lock()
        self._sync_failure: OSError | None = None
        self._closing = False

    def size(self) -> int:
        return self._size

    def append(self, *buffers: Buffer) -> int:
        start = self._size
        if len(buffers) == 1:
            buffer = buffers[0]
            try:
                written = os.pwrite(self._fd, buffer, start)
            except OSError:
                self._cut_off(start)
                raise
            if written == len(buffer):
                self._size = start + written
                return start
            buffers = (memoryview(buffer)[written:],)
            self._append_rest(buffers, start, start + written)
            return start
        self._append_rest(buffers, start, start)
        return start

    def _append_rest(self, buffers: tuple[Buffer, ...], start: int, position: int) -> None:
        rest = [memoryview(buffer).cast("B") for buffer in buffers if len(buffer)]
        try:
            while rest:
                written = os.pwritev(self._fd, rest[:BUFFERS_PER_WRITE_MAX], position)
                if written == 0:
                    raise OSError(errno.EIO, "the file accepts no more bytes")
                position += written
                rest = _after(rest, written)
        except OSError:
            self._cut_off(start)
            raise
        self._size = position

    def _cut_off(self, size: int) -> None:
        try:
            os.ftruncate(self._fd, size)
        except OSError:
            # The bytes past `_size` are never served, and the next append writes over them.
            pass

    def read_at(self, position: int, size: int) -> bytes:
        data = os.pread(self._fd, min(size, READ_CHUNK_MAX), position)
        if len(data) == size or not data:
            return data
        pieces = [data]
        missing = size - len(data)
        while missing and data:
            position += len(data)
            data = os.pread(self._fd, min(missing, READ_CHUNK_MAX), position)
            pieces.append(data)
            missing -= len(data)
        return b"".join(pieces)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)
        self._size = size

    def sync(self) -> None:
        with _sync_lock:
            if self._closing:
                raise OSError(errno.EBADF, "sync of a closed file")
            self._syncs += 1
        try:
            with self._sync_turn:
                if self._sync_failure is not None:
                    raise OSError(self._sync_failure.errno, f"an earlier sync failed: {self._sync_failure.strerror}")
                try:
                    _datasync(self._fd)
                except OSError as error:
                    self._sync_failure = error
                    self._disk.on_sync_failed()
                    raise
        finally:
            with _sync_lock:
                self._syncs -= 1
                last = self._closing and self._syncs == 0
            if last:
                self._release()

    def fileno(self) -> int:
        return -1 if self._closing else self._fd

    def close(self) -> None:
        with _sync_lock:
            if self._closing:
                return
            self._closing = True
            busy = self._syncs > 0
        if not busy:
            self._release()

    def _release(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            self._disk.open_files.discard(fd)
            os.close(fd)

    def __del__(self) -> None:
        # Nobody holds a reference any more, so no sync can be running. No lock: finalisers may run anywhere.
        fd = getattr(self, "_fd", -1)
        if fd >= 0:
            self._fd = -1
            self._disk.open_files.discard(fd)
            os.close(fd)


class RealDirectory:
    __slots__ = ("_disk", "_fd")

    def __init__(self, path: str, disk: "RealDisk") -> None:
        self._disk = disk
        self._fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def sync(self) -> None:
        self._disk._sync(self._fd)

    def close(self) -> None:
        os.close(self._fd)


BOOT_ID = "/proc/sys/kernel/random/boot_id"
"""Linux draws it when it starts."""


class RealDisk:
    def __init__(self, root: str, *, lock: bool = True, files_max: int = sys.maxsize) -> None:
        """Without `lock`, for a child of the broker that has it. `files_max` bounds the files of `open`: the rest of
        the process's descriptors is left for sockets, and for files that are read or replaced as a whole."""
        self.root = os.path.abspath(root)
        try:
            os.makedirs(self.root, DIRECTORY_MODE, exist_ok=True)
        except FileExistsError:
            what = (
                "it is a symbolic link that does not lead to a directory"
                if os.path.islink(self.root)
                else "not a directory"
            )
            raise NotADirectoryError(errno.ENOTDIR, what, self.root) from None
        allowed = os.stat(self.root).st_mode | stat.S_IRWXU
        self._directory_mode = DIRECTORY_MODE & allowed
        self._file_mode = FILE_MODE & allowed
        self.on_sync_failed: Callable[[], None] = _nobody_asks
        self._lock_fds = _lock(self.root, self._file_mode) if lock else []
        self.files_max = files_max
        self.open_files: set[int] = set()
        """Descriptors. A set, because finalisers of any thread change it: adding and discarding need no lock."""

    def close(self) -> None:
        """Let another broker have the directory."""
        fds, self._lock_fds = self._lock_fds, []
        for fd in fds:
            os.close(fd)

    @property
    def files_short(self) -> bool:
        return len(self.open_files) > self.files_max - self.files_max // FILES_SPARE

    def open(self, path: str, *, create: bool = False) -> RealFile:
        if len(self.open_files) >= self.files_max:
            raise OSError(
                errno.EMFILE, f"{self.files_max} files are open, as many as the descriptor limit leaves room for"
            )
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return RealFile(os.open(self._locate(path), flags, self._file_mode), self)

    def read(self, path: str) -> bytes:
        # Not by `open`: a start reads a handful of small files for every partition.
        fd = os.open(self._locate(path), os.O_RDONLY | os.O_CLOEXEC)
        try:
            data = os.read(fd, SMALL_FILE_BYTES)
            pieces = [data]
            while data:
                data = os.read(fd, LARGE_READ_BYTES)
                pieces.append(data)
        finally:
            os.close(fd)
        return b"".join(pieces)

    def write_atomic(self, path: str, data: Buffer) -> None:
        target = self._locate(path)
        temporary = target + TEMPORARY_SUFFIX
        # First: without a descriptor for it, nobody could say after the rename what is durable.
        with closing(RealDirectory(os.path.dirname(target), self)) as directory:
            fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, self._file_mode)
            try:
                try:
                    rest = memoryview(data).cast("B")
                    while rest:
                        rest = rest[os.write(fd, rest) :]
                    self._sync(fd)
                finally:
                    os.close(fd)
                os.rename(temporary, target)
            except OSError:
                _remove_if_there(temporary)
                raise
            directory.sync()

    def list(self, path: str) -> list[str]:
        return sorted(os.listdir(self._locate(path)))

    def exists(self, path: str) -> bool:
        return os.path.exists(self._locate(path))

    def holds(self, path: str, file: File) -> bool:
        try:
            found = os.stat(self._locate(path))
        except (FileNotFoundError, NotADirectoryError):
            return False
        return os.path.samestat(found, os.fstat(file.fileno()))

    def size(self, path: str) -> int:
        return os.stat(self._locate(path)).st_size

    def make_directory(self, path: str) -> None:
        os.makedirs(self._locate(path), self._directory_mode, exist_ok=True)

    def rename(self, source: str, target: str) -> None:
        os.rename(self._locate(source), self._locate(target))

    def remove(self, path: str) -> None:
        _remove_if_there(self._locate(path))

    def remove_tree(self, path: str) -> None:
        if not path:
            raise ValueError("the data directory itself is never removed")
        _remove_tree(self._locate(path))

    def open_directory(self, path: str) -> RealDirectory:
        return RealDirectory(self._locate(path), self)

    def sync_directory(self, path: str) -> None:
        with closing(self.open_directory(path)) as directory:
            directory.sync()

    def sync_file(self, path: str) -> None:
        fd = os.open(self._locate(path), os.O_RDWR | os.O_CLOEXEC)
        try:
            self._sync(fd)
        finally:
            os.close(fd)

    def boot_id(self) -> str:
        try:
            with open(BOOT_ID, encoding="ascii") as file:
                return file.read().strip()
        except (OSError, ValueError):
            return ""

    def usage(self) -> tuple[int, int]:
        volume = os.statvfs(self.root)
        return volume.f_blocks * volume.f_frsize, volume.f_bavail * volume.f_frsize

    def _sync(self, fd: int) -> None:
        try:
            os.fsync(fd)
        except OSError:
            self.on_sync_failed()
            raise

    def _locate(self, path: str) -> str:
        """Topic names reach paths: nothing may lead out of the data directory."""
        if not path:
            return self.root
        framed = f"/{path}/"
        if "//" in framed or "/./" in framed or "/../" in framed or "\0" in framed:
            raise ValueError(f"not a path inside the data directory: {path!r}")
        return f"{self.root}/{path}"


def _after(buffers: list[memoryview], written: int) -> list[memoryview]:
    for index, buffer in enumerate(buffers):
        if written < len(buffer):
            return [buffer[written:], *buffers[index + 1 :]]
        written -= len(buffer)
    return []


def _lock(root: str, mode: int) -> list[int]:
    """Open descriptors that keep other processes out."""
    fd = os.open(f"{root}/{LOCK_NAME}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, mode)
    directory = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _lock_directory(directory)
    except OSError as error:
        owner = os.pread(fd, 32, 0).decode("ascii", "replace").strip()
        os.close(fd)
        os.close(directory)
        if error.errno not in IN_USE:
            raise
        by = f" by process {owner}" if owner else ""
        raise DataDirectoryInUse(f"the data directory {root} is in use{by}: give each broker its own") from None
    os.ftruncate(fd, 0)
    os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
    return [fd, directory]


def _lock_directory(directory: int) -> None:
    try:
        fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in IN_USE:
            raise
        # Some network file systems lock nothing but files that are open for writing: there the file has to do.


def _remove_if_there(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass


def _remove_tree(path: str) -> None:
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(mode):
        os.unlink(path)  # also a link to a directory: what it points to is not ours
        return
    for name in os.listdir(path):
        _remove_tree(f"{path}/{name}")
    os.rmdir(path)


def _nobody_asks() -> None:
    pass
