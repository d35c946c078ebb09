"""Small files that decide something: created once and for all, or replaced as a whole.

`create` is the one operation that decides between several who try: exactly one of them gets True. What lies in a store
is read by name; `names` tells what to look at and decides nothing.

`FolderStore` keeps them in a folder of a local or mounted file system. There a file gets its name by a hard link, so
it is whole before it has a name. Where the file system knows no hard links, it is created first and filled then: a
loss of power in between leaves a torn file.
"""

import errno
import os
import secrets
from pathlib import Path
from typing import Protocol

NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}
UNFINISHED = ".new-"


class Store(Protocol):
    def create(self, name: str, content: bytes) -> bool:
        """False, and nothing is changed, if there is one of this name."""
        ...

    def replace(self, name: str, content: bytes) -> None:
        """Whatever is there; a reader finds the old content or the new."""
        ...

    def read(self, name: str) -> bytes | None:
        """None if there is none."""
        ...

    def names(self, folder: str) -> list[str]:
        """Of what lies directly in the folder, in order."""
        ...

    def remove(self, name: str) -> None:
        """Whether it is there or not."""
        ...


class FolderStore:
    def __init__(self, root: Path) -> None:
        self.root = root

    def create(self, name: str, content: bytes) -> bool:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = self._written(path, content)
        try:
            os.link(fresh, path)
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno not in NO_LINKS:
                raise
            return self._create_then_fill(path, content)
        finally:
            fresh.unlink(missing_ok=True)
        sync_path(path.parent)
        return True

    def replace(self, name: str, content: bytes) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        self._written(path, content).replace(path)
        sync_path(path.parent)

    def read(self, name: str) -> bytes | None:
        try:
            return (self.root / name).read_bytes()
        except FileNotFoundError:
            return None

    def names(self, folder: str) -> list[str]:
        try:
            found = os.listdir(self.root / folder)
        except FileNotFoundError:
            return []
        return sorted(name for name in found if not name.startswith(UNFINISHED))

    def remove(self, name: str) -> None:
        (self.root / name).unlink(missing_ok=True)

    def _written(self, path: Path, content: bytes) -> Path:
        fresh = path.with_name(f"{UNFINISHED}{secrets.token_hex(8)}")
        with fresh.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        return fresh

    def _create_then_fill(self, path: Path, content: bytes) -> bool:
        try:
            with path.open("xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        except FileExistsError:
            return False
        sync_path(path.parent)
        return True


def sync_path(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
