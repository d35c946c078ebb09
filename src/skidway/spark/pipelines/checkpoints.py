"""The folder in which Spark keeps how far a query has come, and we since which batch it delivers exactly once.

A query that began with another delivery has no mark at its brokers. So the batch with which exactly-once delivery
begins is written down here, before it runs: it may be written without the mark of a batch before it, and no other may.
"""

import json
import re
from contextlib import suppress
from pathlib import Path

from skidway.spark.folders import writable

LOGS = ("offsets", "commits")
BATCH = re.compile(r"\d+")
UNFINISHED = re.compile(r"\.+\d+\.[0-9a-f-]{36}\.tmp(\.crc)?")
"""As Spark names a file of its logs until it is whole."""


DELIVERY_FILE = "delivery.json"
EXACTLY_ONCE_SINCE = "exactly_once_since_batch"


def local_folder(checkpoint: str) -> Path | None:
    """Nothing where it is on another file system than ours."""
    path = checkpoint.removeprefix("file://")
    return None if "://" in path else Path(path).absolute()


def check_local(checkpoint: str) -> None:
    """BadFolder if it is on a file system of ours and cannot be written."""
    if local_folder(checkpoint) is not None:
        writable(checkpoint)


def location(checkpoint: str) -> str:
    """As Spark wants it told: without a scheme it would be where Hadoop's settings say."""
    folder = local_folder(checkpoint)
    return checkpoint if folder is None else f"file://{folder}"


def clear_unfinished(checkpoint: str) -> None:
    """Let a query begin that was killed while it wrote down its first batch.

    Spark leaves an unfinished file then, and the next time refuses the folder (offsets should be empty on batch 0).
    Once a batch was planned it passes such files over by itself.
    """
    folder = local_folder(checkpoint)
    if folder is None:
        return
    found = [path for log in LOGS for path in (folder / log).glob("*")]
    if any(BATCH.fullmatch(path.name) for path in found):
        return
    for path in found:
        if UNFINISHED.fullmatch(path.name):
            with suppress(FileNotFoundError):
                path.unlink()


def next_batch(folder: Path) -> int:
    """The number of the batch that the query runs next: the last one that was planned, unless it is done."""
    planned, done = (_newest(folder / log) for log in LOGS)
    return planned if planned > done else done + 1


def has_begun(folder: Path) -> bool:
    """Whether a batch was planned: Spark goes on there, and does not ask where to begin."""
    return _newest(folder / LOGS[0]) >= 0


def exactly_once_since(folder: Path) -> int:
    """With which batch exactly-once delivery began; now, if it did not yet, and then it is written down."""
    path = folder / DELIVERY_FILE
    with suppress(OSError, ValueError, KeyError, TypeError):
        return int(json.loads(path.read_text())[EXACTLY_ONCE_SINCE])
    since = next_batch(folder)
    folder.mkdir(parents=True, exist_ok=True)
    fresh = folder / f".{DELIVERY_FILE}.new"
    fresh.write_text(json.dumps({EXACTLY_ONCE_SINCE: since}))
    fresh.replace(path)
    return since


def at_least_once_from_now_on(folder: Path) -> None:
    """Should exactly-once delivery come back, it begins anew."""
    (folder / DELIVERY_FILE).unlink(missing_ok=True)


def _newest(log: Path) -> int:
    names = [path.name for path in log.iterdir()] if log.is_dir() else []
    return max((int(name) for name in names if BATCH.fullmatch(name)), default=-1)
