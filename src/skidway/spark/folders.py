"""A folder that a pipeline will write to, checked before Spark starts.

`writable` answers the folder, or raises BadFolder: what happened, what was expected, what to do. It tries for real:
it writes a file into a folder with a name of its own, in what exists of the path, and removes both. So permissions,
read-only mounts and limits of the file system are found whatever their cause, and the folder itself is not made.
"""

import errno
import os
import shutil
import stat
import tempfile
from pathlib import Path

PROBE = ".skidway-probe-"
PATH_BYTES_MAX = 3_072
"""Linux takes 4,096. Spark and tables put some hundred bytes behind a folder: numbers, attempts, partitions."""

REASONS = {
    errno.EACCES: ("this user may not write there", "give this user the permission, or choose another path"),
    errno.EPERM: ("this user may not write there", "give this user the permission, or choose another path"),
    errno.EROFS: ("its file system is mounted read-only", "mount it for writing, or choose another path"),
    errno.ENAMETOOLONG: ("a name in it is too long for the file system", "choose shorter names"),
    errno.ELOOP: ("its symbolic links lead in a circle", "correct the links, or choose another path"),
    errno.ENOSPC: ("the disk is full", "free some space, or choose another path"),
}


class BadFolder(ValueError):
    """Nothing can be written there; the text says why, and what to do."""


def writable(path: str) -> Path:
    """The absolute folder of a path or file:// URL, which need not exist; BadFolder if nothing can be written to it."""
    _check_text(path)
    folder = Path(path.removeprefix("file://")).absolute()
    if len(os.fsencode(folder)) > PATH_BYTES_MAX:
        raise _refused(path, f"it is longer than {PATH_BYTES_MAX:,} bytes", "choose a shorter path")
    try:
        there = _nearest(folder, path)
        missing = folder.relative_to(there)
        if ".." in missing.parts:
            raise _refused(path, "it goes up (..) from a folder that does not exist", "write the path without ..")
        _try_to_write(there, missing)
    except OSError as error:
        other = (error.strerror or str(error), "correct that, or choose another path")
        what, remedy = REASONS.get(error.errno or 0, other)
        raise _refused(path, what, remedy) from None
    return folder


def _check_text(path: str) -> None:
    if not path.removeprefix("file://").strip():
        raise _refused(path, "it is empty", "name a folder")
    if any(ord(character) < 32 or ord(character) == 127 for character in path):
        raise _refused(path, "it has a control character in it, such as a line break", "choose a path without")
    try:
        path.encode()
    except UnicodeEncodeError:
        raise _refused(path, "it is not UTF-8, which Spark's file names are", "choose a path in UTF-8") from None


def _nearest(folder: Path, path: str) -> Path:
    """The folder itself or the nearest one above it that exists."""
    for candidate in (folder, *folder.parents):
        try:
            found = candidate.stat()
        except (FileNotFoundError, NotADirectoryError):
            if candidate.is_symlink():
                what = f"{str(candidate)!r} is a symbolic link to something that does not exist"
                raise _refused(path, what, "correct the link, or choose another path") from None
            continue
        if stat.S_ISDIR(found.st_mode):
            return candidate
        raise _refused(path, f"{str(candidate)!r} is a file", "remove the file, or choose another path")
    raise AssertionError("there is always a root directory")


def _try_to_write(there: Path, missing: Path) -> None:
    probe = Path(tempfile.mkdtemp(prefix=PROBE, dir=there))
    try:
        (probe / missing).mkdir(parents=True, exist_ok=True)
        (probe / missing / "file").write_bytes(b"written")
    finally:
        shutil.rmtree(probe, ignore_errors=True)


def _refused(path: str, what: str, remedy: str) -> BadFolder:
    expected = "expected a folder that this user can make and write to"
    return BadFolder(f"cannot write to {path!r}: {what}; {expected}; {remedy}")
