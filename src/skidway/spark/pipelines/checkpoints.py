"""The folder in which Spark keeps how far a query has come."""

import re
from contextlib import suppress
from pathlib import Path

from skidway.spark.folders import writable

LOGS = ("offsets", "commits")
BATCH = re.compile(r"\d+")
UNFINISHED = re.compile(r"\.+\d+\.[0-9a-f-]{36}\.tmp(\.crc)?")
"""As Spark names a file of its logs until it is whole."""


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
