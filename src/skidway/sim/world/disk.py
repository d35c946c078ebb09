"""A disk in memory that forgets what was not synced.

`SimDisk` implements `ports.Disk`. What a program sees at once, a crash sees only if it was made durable: bytes by
`File.sync`, names by `sync_directory`. `crash(random)` decides for every 512-byte sector that changed since its last
sync whether it is new, old or torn, for every file how long it is, and for every change of a directory whether it
happened; files and directories are independent, so writes are reordered across them.

Faults to order beforehand: a capacity (then writes fail with ENOSPC after a part was written and cut off again),
syncs that fail, and a crash in the middle of the n-th operation (`Crashed`, which no `except Exception` catches).

A sync that fails takes the dirty sectors for clean, as Linux does: they stay in memory and are never written. The next
process sees them, later syncs succeed, a crash loses them, and `evict` may drop them at any time, after which reading
shows what is on the platter. To write to them again helps where the file had such sectors before, and nowhere else:
ext4 goes on taking new blocks for empty once their first write has failed, whatever is written to them later. Names
are another matter: file systems journal them, so those of a failed sync wait for the next one.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass

from skidway.log.durability.checkpoints import TRUNCATED
from skidway.ports import Buffer, File, Random

SECTOR = 512
SHORTENING = ("truncate", "remove")


class Crashed(BaseException):
    """The machine stopped inside a disk operation. Call `SimDisk.crash` to see what is left."""


class _Inode:
    __slots__ = ("data", "dirty", "durable", "lost", "unwritten")

    def __init__(self) -> None:
        self.data = bytearray()
        self.durable = bytearray()
        self.dirty: set[int] = set()
        self.lost: set[int] = set()
        """Sectors that are called written since a sync failed, and are not."""
        self.unwritten: set[int] = set()
        """Those of them that were new: until the machine starts anew, no sync reaches them."""

    def touch(self, start: int, end: int) -> None:
        sectors = range(start // SECTOR, (end + SECTOR - 1) // SECTOR)
        self.dirty.update(sectors)
        self.lost.difference_update(sectors)

    def lose(self) -> None:
        begun, size = len(self.durable), len(self.data)
        self.unwritten.update(sector for sector in self.dirty if begun <= sector * SECTOR < size)
        self.lost |= self.dirty
        self.dirty.clear()

    def give_back(self, size: int) -> None:
        """The file ends here: what lies behind will be new once more."""
        self.unwritten = {sector for sector in self.unwritten if sector * SECTOR < size}

    def evict(self, random: Random) -> None:
        size = len(self.data)
        chance = random.randrange(3) if self.lost else 0
        for sector in sorted(self.lost):
            if random.randrange(4) < chance:
                start, end = min(sector * SECTOR, size), min(sector * SECTOR + SECTOR, size)
                self.data[start:end] = self.durable[start:end].ljust(end - start, b"\0")
                self.lost.remove(sector)

    def write_back(self) -> None:
        size = len(self.data)
        del self.durable[size:]
        self.durable.extend(bytes(size - len(self.durable)))
        for sector in self.dirty - self.unwritten:
            start = sector * SECTOR
            self.durable[start : start + SECTOR] = self.data[start : start + SECTOR]
        self.lost |= self.dirty & self.unwritten
        self.dirty.clear()

    def crash(self, random: Random) -> None:
        """Durable bytes, with an arbitrary part of what was written since."""
        old, new = len(self.durable), len(self.data)
        if self.dirty or old != new:
            low, high = min(old, new), max(old, new)
            size = (old, new, low + random.randrange(high - low + 1))[random.randrange(3)]
            left = bytearray(self.durable[:size])
            left.extend(bytes(size - len(left)))
            for sector in sorted(self.dirty):
                start = sector * SECTOR
                fresh = self.data[start : min(start + SECTOR, size)]
                fate = random.randrange(3)
                if fate == 2:
                    fresh = fresh[: random.randrange(len(fresh) + 1)]
                if fate and sector not in self.unwritten:
                    left[start : start + len(fresh)] = fresh
            self.durable = left
        self.data = bytearray(self.durable)
        self.dirty.clear()
        self.lost.clear()
        self.unwritten.clear()


class _Directory:
    __slots__ = ("changes", "durable", "entries")

    def __init__(self) -> None:
        self.entries: dict[str, _Node] = {}
        self.durable: dict[str, _Node] = {}
        self.changes: list[dict[str, _Node | None]] = []

    def change(self, **names: _Node | None) -> None:
        self.changes.append(names)
        _apply(self.entries, names)

    def sync(self) -> None:
        self.durable = dict(self.entries)
        self.changes.clear()

    def lose(self, name: str) -> None:
        self.entries.pop(name, None)
        self.durable.pop(name, None)
        for names in self.changes:
            names.pop(name, None)

    def evict(self, random: Random) -> None:
        for name in sorted(self.entries):
            self.entries[name].evict(random)

    def crash(self, random: Random) -> None:
        for names in self.changes:
            if random.randrange(2):
                _apply(self.durable, names)
        self.entries = dict(self.durable)
        self.changes.clear()
        for name in sorted(self.entries):
            self.entries[name].crash(random)


_Node = _Inode | _Directory


def _apply(entries: dict[str, _Node], names: dict[str, _Node | None]) -> None:
    for name, node in names.items():
        if node is None:
            entries.pop(name, None)
        else:
            entries[name] = node


@dataclass(frozen=True)
class Tree:
    """A directory as somebody has copied it."""

    files: tuple[tuple[str, bytes], ...]


class SimFile:
    """One open file. It dies with the crash after which it is used."""

    __slots__ = ("_disk", "_era", "_inode")

    def __init__(self, disk: SimDisk, inode: _Inode) -> None:
        self._disk = disk
        self._inode = inode
        self._era = disk.era

    def _alive(self) -> None:
        assert self._era == self._disk.era, "a file that was open before the crash"

    def size(self) -> int:
        self._alive()
        return len(self._inode.data)

    def append(self, *buffers: Buffer) -> int:
        self._alive()
        data = b"".join(buffers)
        inode = self._inode
        position = len(inode.data)
        partial = self._disk.operation("append", len(data))
        room = self._disk.room()
        if partial is not None or len(data) > room:
            part = data[: min(room, len(data) if partial is None else partial)]
            inode.data += part
            inode.touch(position, position + len(part))
            if partial is not None:
                raise Crashed
            del inode.data[position:]
            self._disk.refusals += 1
            raise OSError(errno.ENOSPC, "No space left on device")
        inode.data += data
        inode.touch(position, position + len(data))
        return position

    def read_at(self, position: int, size: int) -> bytes:
        self._alive()
        return bytes(self._inode.data[position : position + size])

    def truncate(self, size: int) -> None:
        self._alive()
        self._disk.step("truncate")
        inode = self._inode
        before = len(inode.data)
        del inode.data[size:]
        inode.data.extend(bytes(size - len(inode.data)))
        inode.touch(min(size, before), max(size, before))
        inode.give_back(size)

    def sync(self) -> None:
        self._alive()
        self._disk.step("sync")
        if self._disk.sync_fails():
            self._inode.lose()
            self._disk.on_sync_failed()
            raise OSError(errno.EIO, "Input/output error")
        self._inode.write_back()

    def is_named(self, entry: object) -> bool:
        """Whether this entry of a directory is the file."""
        return entry is self._inode

    def fileno(self) -> int:
        return -1

    def close(self) -> None:
        pass


class SimDirectory:
    __slots__ = ("_directory", "_disk")

    def __init__(self, disk: SimDisk, directory: _Directory) -> None:
        self._disk = disk
        self._directory = directory

    def sync(self) -> None:
        disk = self._disk
        disk.step("sync_directory")
        if disk.sync_fails():
            disk.on_sync_failed()
            raise OSError(errno.EIO, "Input/output error")
        self._directory.sync()

    def close(self) -> None:
        pass


class SimDisk:
    def __init__(self, *, capacity: int | None = None) -> None:
        self.capacity = capacity
        self.era = 0
        """How many crashes there were."""
        self.boots = 0
        """How many of them took the power with them."""
        self.operations = 0
        """Operations so far that change something."""
        self.crash_at: int | None = None
        """The number of the operation in which the machine stops."""
        self.failing_syncs: set[int] | None = None
        """Numbers of the syncs that fail, counted from 0; None: none."""
        self.syncs = 0
        self.shortened = 0
        """How often a file was truncated or removed, or a log said to be: it may have no files."""
        self.refusals = 0
        """How often this process was refused a write or a sync."""
        self.on_sync_failed: Callable[[], None] = _nobody_asks
        self.files_short = False
        """A process here may have any number of files open, unless a test says that they are short."""
        self._root = _Directory()

    # Faults.

    def operation(self, kind: str, size: int = 0) -> int | None:
        """Count an operation. When the machine stops in it: how many of its `size` bytes get through."""
        self.operations += 1
        if kind in SHORTENING:
            self.shortened += 1
        if self.crash_at is None or self.operations < self.crash_at:
            return None
        return (self.operations * 7919) % (size + 1)

    def step(self, kind: str) -> None:
        """Count an operation that happens wholly or not at all."""
        if self.operation(kind) is not None:
            raise Crashed

    def sync_fails(self) -> bool:
        number = self.syncs
        self.syncs += 1
        fails = self.failing_syncs is not None and number in self.failing_syncs
        self.refusals += fails
        return fails

    def crash(self, random: Random) -> None:
        """Power is lost and comes back."""
        self.era += 1
        self.boots += 1
        self.crash_at = None
        self.refusals = 0
        self._root.crash(random)

    def kill(self) -> None:
        """The process ends and the machine goes on: files keep what was written, synced or not."""
        self.era += 1
        self.crash_at = None
        self.refusals = 0

    def evict(self, random: Random) -> None:
        """Memory is short: some of the pages that only seem to be written are dropped."""
        self._root.evict(random)

    def used(self) -> int:
        return _bytes_below(self._root)

    def room(self) -> int:
        return 1 << 62 if self.capacity is None else max(0, self.capacity - self.used())

    def corrupt(self, path: str, position: int, mask: int = 0xFF) -> None:
        """Flip bits of a byte, in memory and on the platter: the disk's own lie."""
        inode = self._inode(path)
        inode.data[position] ^= mask
        if position < len(inode.durable):
            inode.durable[position] ^= mask

    def lose(self, path: str) -> None:
        """A file or directory is gone, also from the platter."""
        directory, name = self._parent(path)
        directory.lose(name)

    def wipe(self) -> None:
        """Another disk, with nothing on it, in the place of this one."""
        self._root = _Directory()

    def is_directory(self, path: str) -> bool:
        return isinstance(self._find(path), _Directory)

    def copy_of(self, path: str) -> Tree:
        """The files of a directory as a program sees them."""
        entries = self._directory(path).entries
        return Tree(tuple((name, bytes(node.data)) for name, node in entries.items() if isinstance(node, _Inode)))

    def put(self, path: str, tree: Tree) -> None:
        """The copy takes the place of the directory, and is on the platter."""
        directory, name = self._parent(path)
        directory.lose(name)
        restored = _Directory()
        for file_name, data in tree.files:
            inode = _Inode()
            inode.data, inode.durable = bytearray(data), bytearray(data)
            restored.entries[file_name] = restored.durable[file_name] = inode
        directory.entries[name] = directory.durable[name] = restored

    # ports.Disk.

    def open(self, path: str, *, create: bool = False) -> SimFile:
        directory, name = self._parent(path)
        node = directory.entries.get(name)
        if node is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
            self.step("create")
            node = _Inode()
            directory.change(**{name: node})
        assert isinstance(node, _Inode), path
        return SimFile(self, node)

    def read(self, path: str) -> bytes:
        return bytes(self._inode(path).data)

    def write_atomic(self, path: str, data: Buffer) -> None:
        temporary = f"{path}.tmp"
        directory = self.open_directory(path.rpartition("/")[0])
        self.remove(temporary)
        file = self.open(temporary, create=True)
        try:
            file.append(data)
        except OSError:
            self.remove(temporary)
            raise
        file.sync()
        self.rename(temporary, path)
        self.shortened += path.endswith(f"/{TRUNCATED}")
        directory.sync()

    def list(self, path: str) -> list[str]:
        return sorted(self._directory(path).entries)

    def exists(self, path: str) -> bool:
        return path == "" or self._find(path) is not None

    def holds(self, path: str, file: File) -> bool:
        assert isinstance(file, SimFile)
        return file.is_named(self._find(path))

    def size(self, path: str) -> int:
        return len(self._inode(path).data)

    def make_directory(self, path: str) -> None:
        directory = self._root
        for name in path.split("/"):
            node = directory.entries.get(name)
            if node is None:
                self.step("make_directory")
                node = _Directory()
                directory.change(**{name: node})
            assert isinstance(node, _Directory), path
            directory = node

    def rename(self, source: str, target: str) -> None:
        directory, name = self._parent(source)
        to_directory, to_name = self._parent(target)
        assert directory is to_directory, "renames stay inside a directory"
        node = directory.entries.get(name)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", source)
        self.step("rename")
        directory.change(**{name: None, to_name: node})

    def remove(self, path: str) -> None:
        directory, name = self._parent(path)
        node = directory.entries.get(name)
        if node is not None:
            assert isinstance(node, _Inode), path
            self.step("remove")
            directory.change(**{name: None})

    def remove_tree(self, path: str) -> None:
        directory, name = self._parent(path)
        if name in directory.entries:
            self.step("remove_tree")
            directory.change(**{name: None})

    def open_directory(self, path: str) -> SimDirectory:
        return SimDirectory(self, self._directory(path))

    def sync_directory(self, path: str) -> None:
        self.open_directory(path).sync()

    def sync_file(self, path: str) -> None:
        self.open(path).sync()

    def boot_id(self) -> str:
        return f"boot-{self.boots}"

    def usage(self) -> tuple[int, int]:
        total = 1 << 40 if self.capacity is None else self.capacity
        return total, max(0, total - self.used())

    # Paths.

    def _find(self, path: str) -> _Node | None:
        node: _Node = self._root
        for name in path.split("/") if path else []:
            if not isinstance(node, _Directory) or name not in node.entries:
                return None
            node = node.entries[name]
        return node

    def _directory(self, path: str) -> _Directory:
        node = self._find(path)
        if not isinstance(node, _Directory):
            raise FileNotFoundError(errno.ENOENT, "No such directory", path)
        return node

    def _inode(self, path: str) -> _Inode:
        node = self._find(path)
        if not isinstance(node, _Inode):
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        return node

    def _parent(self, path: str) -> tuple[_Directory, str]:
        parent, _, name = path.rpartition("/")
        return self._directory(parent), name


def _nobody_asks() -> None:
    pass


def _bytes_below(directory: _Directory) -> int:
    return sum(
        len(node.data) if isinstance(node, _Inode) else _bytes_below(node) for node in directory.entries.values()
    )
