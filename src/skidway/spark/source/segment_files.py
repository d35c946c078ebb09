"""Partitions as files of a data directory, read from outside while a broker may be at work on them.

Nothing is ever changed. Only closed segments are trusted to be what they are; the last one is still written to. A
broker deletes files (retention) and replaces several by one (compaction) at any time: an open file stays readable, a
name that is gone means that the directory has to be looked at again.
"""

import os
import re
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from skidway.limits import DEFAULT_LIMITS, MIB
from skidway.log.directories import parse_directory_name, parse_partition_metadata
from skidway.log.durability.checkpoints import (
    LEADER_EPOCHS,
    PARTITION_METADATA,
    START_OFFSETS,
    CorruptCheckpoint,
    read_epochs,
)
from skidway.log.durability.checkpoints import read_offsets as read_checkpoint
from skidway.records.batch import HEADER_BYTES, PREFIX_BYTES, TRANSACTIONAL_BIT
from skidway.spark.source.offsets import NO_ID
from skidway.spark.source.planning import LossReport, OffsetRange
from skidway.spark.source.positions import Place

CHUNK_BYTES = 4 * MIB
SWAP_PATIENCE_S = 10.0
PAUSE_S = 0.05
SMALL_FILE_BYTES_MAX = 64 * MIB

_SEGMENT = re.compile(r"([0-9]{20})\.log")
_SWAP = re.compile(r"[0-9]{20}\.log\.swap")
_HEADER = struct.Struct(">qi9xhi")
"""Base offset, length, attributes and last offset delta of a batch."""


class BackfillFailed(Exception):
    """Files that are not there, cannot be read, or are in a state that only a broker can mend."""


class HasTransactions(BackfillFailed):
    def __init__(self, path: Path) -> None:
        super().__init__(
            f"{path} holds transactions, and which of them were aborted is not known from the file: read through the"
            " brokers (leave out backfill.path), or set option isolation to read_uncommitted"
        )


@dataclass(frozen=True, slots=True)
class FileRange:
    """What one task reads from the files of one partition."""

    wanted: OffsetRange
    directory: str
    active: bool = False
    """The segment that is still written to counts, too."""


@dataclass(slots=True)
class FoundLog:
    """One partition's files, as they were when looked at."""

    place: Place
    directory: Path
    topic_id: bytes
    last_epoch: int
    start: int
    segments: list[tuple[int, int]]
    """Base offset and bytes of each, the last of them active."""

    @property
    def closed_end(self) -> int:
        return self.segments[-1][0]

    def active_end(self) -> int:
        """One past the last whole batch of the active segment."""
        covered = self.closed_end
        with segment_path(self.directory, self.closed_end).open("rb") as file:
            for _, batch in walk(file.fileno(), 0):
                covered = batch.end
        return covered


@dataclass(slots=True)
class Batch:
    base_offset: int
    end: int
    """One past its last offset."""
    bytes: int
    transactional: bool


def find_logs(root: Path) -> list[FoundLog]:
    """All partitions of a data directory."""
    try:
        names = sorted(entry.name for entry in root.iterdir() if entry.is_dir())
    except OSError as error:
        raise BackfillFailed(f"cannot read the data directory {root}: {_reason(error)}") from None
    starts = _start_offsets(root / START_OFFSETS)
    found: list[FoundLog] = []
    for name in names:
        place = parse_directory_name(name)
        if place is not None:
            log = _look_at(root / name, place, starts.get(place, 0))
            found += [log] if log is not None else []
    return found


def list_segments(directory: Path) -> list[int]:
    """Base offsets, in order. Waits while a compaction puts its result in place."""
    deadline = time.monotonic() + SWAP_PATIENCE_S
    while True:
        try:
            names = os.listdir(directory)
        except OSError as error:
            raise BackfillFailed(f"cannot list {directory}: {_reason(error)}; was the topic deleted?") from None
        if not any(_SWAP.fullmatch(name) for name in names):
            return sorted(int(matched[1]) for name in names if (matched := _SEGMENT.fullmatch(name)))
        if time.monotonic() > deadline:
            raise BackfillFailed(
                f"{directory} holds the result of a compaction that was never put in place: start its broker once"
            )
        time.sleep(PAUSE_S)


def segment_path(directory: Path, base_offset: int) -> Path:
    return directory / f"{base_offset:020}.log"


class FileFetch:
    """The batches of a `FileRange`, whatever happens to the files meanwhile. Iterate once over `chunks`."""

    def __init__(self, task: FileRange, report: LossReport, *, committed_only: bool) -> None:
        self.directory = Path(task.directory)
        self.wanted = task.wanted
        self.active = task.active
        self.report = report
        self.committed_only = committed_only
        self.position = task.wanted.start

    def chunks(self) -> Iterator[tuple[bytes, int]]:
        """Whole batches, and the first offset wanted of them."""
        seen_gap = -1
        while self.position < self.wanted.end:
            base, following = self._locate()
            began = self.position
            if base is not None:
                try:
                    with segment_path(self.directory, base).open("rb") as file:
                        yield from self._read(file.fileno(), segment_path(self.directory, base))
                except FileNotFoundError:
                    continue
            if self.position > began or self.position >= self.wanted.end:
                continue
            if seen_gap != self.position:
                # A file may have gone between the look at the directory and the look into it: once more.
                seen_gap = self.position
                continue
            self._skip_to(self.wanted.end if following is None else min(following, self.wanted.end))

    def _locate(self) -> tuple[int | None, int | None]:
        """The segment that has the position, and where the next one begins."""
        bases = list_segments(self.directory)
        closed = bases if self.active else bases[:-1]
        base = max((base for base in closed if base <= self.position), default=None)
        following = min((base for base in closed if base > self.position), default=None)
        return base, following

    def _skip_to(self, offset: int) -> None:
        self.report(
            f"{self.wanted.topic} partition {self.wanted.partition}: offsets {self.position} to {offset} are in no file"
            f" of {self.directory} any more"
        )
        self.position = offset

    def _read(self, descriptor: int, path: Path) -> Iterator[tuple[bytes, int]]:
        pending: tuple[int, int, int] | None = None
        for place, batch in walk(descriptor, 0):
            if batch.end <= self.position:
                continue
            if batch.transactional and self.committed_only:
                raise HasTransactions(path)
            if batch.base_offset >= self.wanted.end:
                if pending is None:
                    self.position = self.wanted.end
                    return
                break
            first, size, _ = pending if pending is not None else (place, 0, 0)
            pending = (first, size + batch.bytes, batch.end)
            if pending[1] >= CHUNK_BYTES:
                yield self._take(descriptor, path, pending)
                pending = None
        if pending is not None:
            yield self._take(descriptor, path, pending)

    def _take(self, descriptor: int, path: Path, pending: tuple[int, int, int]) -> tuple[bytes, int]:
        first, size, end = pending
        data = os.pread(descriptor, size, first)
        if len(data) != size:
            raise BackfillFailed(f"{path} became shorter while it was read: its broker truncated it; read again")
        start, self.position = self.position, end
        return data, start


def walk(descriptor: int, position: int) -> Iterator[tuple[int, Batch]]:
    """The whole batches of a file from a position on, by their headers; a torn one at its end is left out."""
    size = os.fstat(descriptor).st_size
    while size - position >= HEADER_BYTES:
        header = os.pread(descriptor, _HEADER.size, position)
        if len(header) < _HEADER.size:
            return
        base_offset, length, attributes, last_offset_delta = _HEADER.unpack(header)
        whole = length + PREFIX_BYTES
        if not HEADER_BYTES <= whole <= DEFAULT_LIMITS.frame_bytes_max or last_offset_delta < 0:
            raise BackfillFailed(f"no record batch at position {position} of a segment: is it a log of format v2?")
        if whole > size - position:
            return
        end = base_offset + last_offset_delta + 1
        yield position, Batch(base_offset, end, whole, bool(attributes & TRANSACTIONAL_BIT))
        position += whole


def _look_at(directory: Path, place: Place, start: int) -> FoundLog | None:
    """None for a partition that has no files, or was deleted just now."""
    try:
        bases = list_segments(directory)
        segments = [(base, segment_path(directory, base).stat().st_size) for base in bases]
    except (OSError, BackfillFailed):
        if not directory.exists():
            return None
        bases = list_segments(directory)
        segments = [(base, _size(segment_path(directory, base))) for base in bases]
    if not segments:
        return None
    return FoundLog(
        place,
        directory,
        parse_partition_metadata(_small_file(directory / PARTITION_METADATA)) or NO_ID,
        _last_epoch(directory / LEADER_EPOCHS),
        max(start, segments[0][0]),
        segments,
    )


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _small_file(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(SMALL_FILE_BYTES_MAX)
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise BackfillFailed(f"cannot read {path}: {_reason(error)}") from None


def _start_offsets(path: Path) -> dict[Place, int]:
    try:
        return read_checkpoint(_small_file(path))
    except CorruptCheckpoint as error:
        raise BackfillFailed(f"{path} is damaged ({error}): read through the brokers") from None


def _last_epoch(path: Path) -> int:
    try:
        return max((epoch for epoch, _ in read_epochs(_small_file(path))), default=-1)
    except CorruptCheckpoint:
        return -1


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
