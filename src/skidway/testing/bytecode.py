"""Bytecode for brokers that tests start where PYTHONDONTWRITEBYTECODE is set, as in many images.

Compiling its sources is most of what a start would cost. So brokers use the bytecode that stands beside the sources, if
all of it is there and fits; nothing is written then. Otherwise they share a directory in the user's cache
(`$XDG_CACHE_HOME/skidway/bytecode`, or `~/.cache/…`): the first broker on a machine fills it, later ones and later test
runs use it. Nothing is ever left beside the sources. Where that directory cannot be written, one that goes with this
process takes its place.
"""

import functools
import importlib.util
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent
PYTHON_MODULE = Path(os.__file__)
"""Stands for Python's own modules: official images ship them without bytecode."""
NOT_LOADED = ("cli", "client", "sim", "spark", "testing")
"""Parts of the package that a broker does without."""
MAGIC_BYTES = 4
STAMP_BYTES = 16
"""Of a bytecode file: magic number, flags, the source's time and its length."""


def environment(inherited: Mapping[str, str]) -> dict[str, str]:
    """What the broker's process shall inherit."""
    kept = dict(inherited)
    if not kept.get("PYTHONDONTWRITEBYTECODE") or kept.get("PYTHONPYCACHEPREFIX"):
        return kept
    if not _is_compiled():
        del kept["PYTHONDONTWRITEBYTECODE"]
        kept["PYTHONPYCACHEPREFIX"] = _directory()
    return kept


@functools.cache
def _is_compiled() -> bool:
    sources = [source for source in PACKAGE.rglob("*.py") if source.relative_to(PACKAGE).parts[0] not in NOT_LOADED]
    return all(map(_has_bytecode, [PYTHON_MODULE, *sources]))


def _has_bytecode(source: Path) -> bool:
    try:
        with open(importlib.util.cache_from_source(str(source)), "rb") as file:
            head = file.read(STAMP_BYTES)
        status = source.stat()
    except OSError:
        return False
    if head[:MAGIC_BYTES] != importlib.util.MAGIC_NUMBER:
        return False
    if int.from_bytes(head[4:8], "little"):
        return True  # by the source's hash: whoever compiled it so answers for it
    stamp = int.from_bytes(head[8:12], "little"), int.from_bytes(head[12:16], "little")
    return stamp == (int(status.st_mtime) & 0xFFFFFFFF, status.st_size & 0xFFFFFFFF)


@functools.cache
def _directory() -> str:
    base = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
    shared = Path(base, "skidway", "bytecode")
    try:
        shared.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=shared):
            return str(shared)
    except (OSError, RuntimeError):
        return _own_directory().name


@functools.cache
def _own_directory() -> "tempfile.TemporaryDirectory[str]":
    """For all brokers of this process; it goes with it."""
    return tempfile.TemporaryDirectory(prefix="skidway-bytecode-", ignore_cleanup_errors=True)
