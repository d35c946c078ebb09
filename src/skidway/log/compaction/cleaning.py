"""When a log is compacted, and how what compaction wrote takes the place of what it read.

A `Compaction` is a chain of tickets for threads or processes, with a short step on the owner's thread between them:
first a `CleanTicket` (the long work, on files nobody else touches), then a `SwapTicket` for each new segment, oldest
first. Readers go on with the old segments until the new one takes their place between two tickets.

On disk, as in Kafka: `.cleaned` files mean nothing. Renaming one to `.swap`, durably, decides: from then on a crash
leads to the new segment. The segments it replaces are removed, then it gets its final name. They follow each other
because a tombstone may leave a later one only when all that it deleted has left the earlier ones.

Only segments below a producer snapshot are touched, which remembers what their batches told of producers.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from skidway.errors import StorageError
from skidway.limits import INT64_MAX
from skidway.log import retention
from skidway.log.compaction import compaction
from skidway.log.compaction.compaction import (
    Cleaned,
    CompactionResult,
    CompactionTask,
    Source,
    cleaned_path,
)
from skidway.log.compaction.swapping import ABORTED_SWAP, REBUILT_SUFFIXES, SWAP, place
from skidway.log.health import SOUND
from skidway.log.log import Log
from skidway.log.segment import Segment, segment_name
from skidway.ports import Disk

_INDEX_ENTRY_BYTES = 8


class Compactor(Protocol):
    """Who does the long work, away from the event loop."""

    def run(self, task: CompactionTask) -> CompactionResult:
        """Called on a worker thread. OSError when the disk refuses or `stop` was called, StorageError on damage."""
        ...

    def stop(self) -> None:
        """Give up what is being done. Called on any thread."""
        ...


class DirectCompactor:
    """Does it on the calling thread: for simulations and tools."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def run(self, task: CompactionTask) -> CompactionResult:
        return compaction.compact(self._disk, task)

    def stop(self) -> None:
        pass


class Candidate(msgspec.Struct):
    """What speaks for compacting a log now."""

    dirty_bytes: int
    dirty_ratio: float
    overdue: bool
    """A record has waited for longer than `max.compaction.lag.ms`."""


def dirty_offset(log: Log) -> int:
    """Where the part begins that was never compacted."""
    cleaned = log.cleaned_offset
    return cleaned if log.start_offset <= cleaned <= log.segments[-1].base_offset else log.start_offset


def _cleanable(log: Log, now_ms: int) -> int:
    """How many segments from the first on may be compacted: how open transactions end is not known yet."""
    bound = min(log.saved.vouched(log.high_watermark), log.last_stable_offset)
    dirty = dirty_offset(log)
    lag_ms = log.settings.min_compaction_lag_ms
    segments = log.segments
    for number, segment in enumerate(segments[:-1]):
        end_offset = segments[number + 1].base_offset
        if end_offset > bound:
            return number
        if lag_ms > 0 and end_offset > dirty and segment.load_max_timestamp() > now_ms - lag_ms:
            return number
    return len(segments) - 1


def candidate(log: Log, now_ms: int) -> Candidate | None:
    """None when there is nothing to compact, or not enough of it yet."""
    settings = log.settings
    if not settings.compact or log.health is not SOUND or log.compaction is not None:
        return None
    dirty = dirty_offset(log)
    clean_bytes = dirty_bytes = 0
    oldest: Segment | None = None
    for number in range(_cleanable(log, now_ms)):
        segment = log.segments[number]
        if log.segments[number + 1].base_offset <= dirty:
            clean_bytes += segment.size
        else:
            dirty_bytes += segment.size
            oldest = oldest or segment
    if oldest is None:
        return None
    ratio = dirty_bytes / (clean_bytes + dirty_bytes)
    overdue = _waited(oldest, now_ms) > settings.max_compaction_lag_ms
    if not overdue and ratio <= settings.min_cleanable_dirty_ratio:
        return None
    return Candidate(dirty_bytes, ratio, overdue)


def _waited(segment: Segment, now_ms: int) -> int:
    if segment.first_timestamp < 0 and segment.size:
        segment.first_timestamp = next(segment.batches(0, segment.size))[4]
    return now_ms - segment.first_timestamp if segment.first_timestamp >= 0 else 0


def roll_overdue(log: Log, now_ms: int) -> None:
    """The active segment is never compacted: records that must be soon have to leave it."""
    settings = log.settings
    active = log.segments[-1]
    lag_ms = settings.max_compaction_lag_ms
    if settings.compact and lag_ms < INT64_MAX and active.size and _waited(active, now_ms) > lag_ms:
        log.roll(now_ms)


def begin(log: Log, now_ms: int, token: str) -> Compaction | None:
    """One at a time; `token` makes the names of its files unique. None while a checkpoint is under way: it may be
    writing the indexes that will be replaced."""
    if log.compaction is not None or log.health is not SOUND or log.saved.begun:
        return None
    count = _cleanable(log, now_ms)
    if not count or log.segments[count].base_offset <= dirty_offset(log):
        return None
    log.compaction = begun = Compaction(log, count, now_ms, token)
    return begun


class CleanTicket:
    """The long part: reads segments and writes `.cleaned` files."""

    __slots__ = ("_compactor", "_disk", "damage", "result", "task")

    def __init__(self, disk: Disk, compactor: Compactor, task: CompactionTask) -> None:
        self._disk = disk
        self._compactor = compactor
        self.task = task
        self.result: CompactionResult | None = None
        self.damage: str | None = None
        """Why this log cannot be compacted, now or later."""

    def run(self) -> None:
        try:
            self.result = self._compactor.run(self.task)
        except StorageError as error:
            self.damage = str(error)
        finally:
            if self.result is None:
                compaction.remove_cleaned(self._disk, self.task.directory, self.task.token)


class SwapTicket:
    """Puts one new segment in place for good and makes the next one ready. An OSError is final."""

    __slots__ = ("_directory", "_disk", "_now_ms", "_placed", "_ready", "_token", "segment")

    def __init__(self, disk: Disk, task: CompactionTask, placed: Cleaned | None, ready: Cleaned | None) -> None:
        self._disk = disk
        self._directory = task.directory
        self._token = task.token
        self._now_ms = task.now_ms
        self._placed = placed
        self._ready = ready
        self.segment: Segment | None = None
        """The next one, under its `.swap` name."""

    def run(self) -> None:
        disk, directory = self._disk, self._directory
        if self._placed is not None:
            base_offset = self._placed.base_offset
            place(disk, directory, base_offset, self._placed.replaced)
            # Only now: an index beside a log it does not belong to must not exist at any time.
            for suffix in REBUILT_SUFFIXES:
                cleaned = cleaned_path(directory, base_offset, suffix, self._token)
                disk.rename(cleaned, f"{directory}/{segment_name(base_offset, suffix)}")
        if self._ready is not None:
            self.segment = self._make_ready(self._ready)
        else:
            compaction.remove_cleaned(disk, directory, self._token)

    def _make_ready(self, ready: Cleaned) -> Segment:
        disk, directory, base_offset = self._disk, self._directory, ready.base_offset
        path = f"{directory}/{segment_name(base_offset, SWAP)}"
        aborted = b""
        if ready.had_aborted:
            # Durable before the decision: a start that completes it has to find both.
            aborted_path = f"{directory}/{segment_name(base_offset, ABORTED_SWAP)}"
            disk.rename(cleaned_path(directory, base_offset, ".txnindex", self._token), aborted_path)
            disk.sync_directory(directory)
            aborted = disk.read(aborted_path)
        disk.rename(cleaned_path(directory, base_offset, ".log", self._token), path)
        disk.sync_directory(directory)
        segment = Segment(disk, directory, base_offset, ready.size, self._now_ms)
        segment.adopt(
            disk.open(path),
            disk.read(cleaned_path(directory, base_offset, ".index", self._token)),
            disk.read(cleaned_path(directory, base_offset, ".timeindex", self._token)),
            aborted,
        )
        segment.max_timestamp = ready.max_timestamp
        segment.max_timestamp_offset = ready.max_timestamp_offset
        return segment


class Compaction:
    """One compaction of one log, from begin to end. Belongs to the log's owner."""

    __slots__ = ("_cleaned", "_log", "_placing", "_ready", "abandoned", "result", "segments", "task")

    def __init__(self, log: Log, count: int, now_ms: int, token: str) -> None:
        self._log = log
        self.segments = frozenset(log.segments[:count])
        """Those that may be replaced: nobody else may change their files."""
        self.task = _task(log, count, now_ms, token)
        self.result: CompactionResult | None = None
        self._cleaned: list[Cleaned] = []
        self._ready: Cleaned | None = None
        self._placing: Cleaned | None = None
        self.abandoned = False
        """The log was cut below what this was about: whatever comes of its tickets is dropped."""

    @property
    def end_offset(self) -> int:
        return self.task.sources[-1].end_offset

    @property
    def is_swapping(self) -> bool:
        """Whether new files may be on their way into place: from there on only the end is an end."""
        return self._ready is not None or self._placing is not None

    def abandon(self) -> None:
        assert not self.is_swapping
        self.abandoned = True
        self._log.compaction = None

    def clean(self, compactor: Compactor) -> CleanTicket:
        return CleanTicket(self._log.disk, compactor, self.task)

    def on_cleaned(self, result: CompactionResult) -> SwapTicket | None:
        """The long part is done. Returns the next ticket, None when all is done."""
        if self.abandoned:
            return SwapTicket(self._log.disk, self.task, None, None)
        self.result = result
        self._cleaned = list(result.cleaned)
        return self._next(None)

    def on_swapped(self, ticket: SwapTicket, *, stopping: bool = False) -> SwapTicket | None:
        """A swap ticket ran. With `stopping`, only what is decided is completed."""
        log = self._log
        if self.abandoned:
            return None
        if self._placing is not None:
            placed = next(s for s in log.segments if s.base_offset == self._placing.base_offset)
            placed.pinned = False
            placed.unload()
            self._placing = None
        if self._ready is None:
            self.end()
            return None
        assert ticket.segment is not None
        replaced = set(self._ready.replaced)
        log.replace_segments([s for s in log.segments if s.base_offset in replaced], ticket.segment)
        self._placing = self._ready
        if stopping:
            self._cleaned = []
            self.result = None
        return self._next(self._placing)

    def _next(self, placed: Cleaned | None) -> SwapTicket | None:
        self._ready = self._cleaned.pop(0) if self._cleaned else None
        if placed is None and self._ready is None:
            self.end()
            return None
        return SwapTicket(self._log.disk, self.task, placed, self._ready)

    def end(self) -> None:
        """It is over; what had to wait for it goes on."""
        log = self._log
        if self.abandoned:
            return
        log.compaction = None
        if self.result is not None:
            log.cleaned_offset = max(log.cleaned_offset, self.result.end_offset)
        retention.give_up_below_start(log, self.task.now_ms)


def _task(log: Log, count: int, now_ms: int, token: str) -> CompactionTask:
    settings = log.settings
    ends = [segment.base_offset for segment in log.segments[1 : count + 1]]
    segment_bytes = settings.segment_bytes
    if settings.index_interval_bytes:
        entries_max = settings.segment_index_bytes // _INDEX_ENTRY_BYTES
        segment_bytes = min(segment_bytes, entries_max * settings.index_interval_bytes)
    return CompactionTask(
        directory=log.directory,
        token=token,
        sources=[
            Source(segment.base_offset, end, segment.size)
            for segment, end in zip(log.segments[:count], ends, strict=True)
        ],
        segment_bytes=segment_bytes,
        dirty_offset=dirty_offset(log),
        now_ms=now_ms,
        delete_retention_ms=settings.delete_retention_ms,
        index_interval_bytes=settings.index_interval_bytes,
        aborted=[entry for segment in log.segments for entry in segment.aborted.entries if entry[1] < ends[-1]],
        producers={
            producer.producer_id: producer.batches[-1][2]
            for producer in log.producers.entries.values()
            if producer.batches and producer.batches[-1][2] < ends[-1]
        },
        marked={pid: producer.epoch for pid, producer in log.producers.entries.items() if not producer.batches},
        map_bytes_max=log.limits.compaction_bytes_max,
        decompressed_bytes_max=log.limits.decompressed_bytes_max,
    )
