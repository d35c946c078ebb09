"""Opening a partition's directory: which segments there are, where the log ends, and whether it can be believed.

A producer snapshot of this code is written last in a checkpoint, so the highest one is the proof that everything below
its offset was synced, indexes included. Only what lies behind it is read again: checked batch by batch after a crash,
by headers after a clean stop. A bad batch behind the proven part is a torn write and is cut; inside it the log is
quarantined: never served and never cut. What is not proven may be in memory only: `Loaded.unsynced` has to be synced.
"""

from dataclasses import dataclass, field

from skidway.errors import StorageError
from skidway.limits import INT64_MAX
from skidway.log.checkpoints import (
    DAMAGED,
    LEADER_EPOCHS,
    NEVER_TRUNCATED,
    TRUNCATED,
    CorruptCheckpoint,
    Truncated,
    read_epochs,
    read_truncated,
)
from skidway.log.epochs import LeaderEpochs
from skidway.log.producers import CorruptSnapshot, Producers
from skidway.log.recovery import Replay
from skidway.log.segment import Segment, offset_in_name
from skidway.log.settings import LogSettings
from skidway.log.swapping import INDEX_SUFFIXES, SEGMENT_SUFFIXES, finish_swaps
from skidway.log.sync import snapshot_offset, snapshot_path
from skidway.log.truncation import begin_anew
from skidway.ports import Disk

# Beyond these, compaction's `.log.swap` files are completed (see `swapping`).
_LEFTOVERS = (".deleted", ".tmp", ".cleaned", ".swap")


class Unproven(Exception):
    """The part of a log that was synced is not what it was."""


class _NotClean(Exception):
    """A log that was said to be cleanly closed does not look so."""


@dataclass(slots=True)
class Loaded:
    segments: list[Segment]
    producers: Producers
    epochs: LeaderEpochs
    start_offset: int
    end_offset: int
    recovery_point: int
    scanned_bytes: int
    truncated: Truncated
    unsynced: list[Segment] = field(default_factory=list)
    """Segments that may be in memory only: nothing of the log may be served before they are synced."""
    epochs_saved: bool = False
    """Whether the file says the same."""
    quarantine: str | None = None


class Loader:
    __slots__ = (
        "clean",
        "directory",
        "disk",
        "made_segment",
        "names",
        "now_ms",
        "producers",
        "proven",
        "saved_epochs",
        "settings",
        "truncated",
        "vouched",
    )

    def __init__(
        self, disk: Disk, directory: str, settings: LogSettings, producers: Producers, *, clean: bool, now_ms: int
    ) -> None:
        self.disk = disk
        self.directory = directory
        self.settings = settings
        self.producers = producers
        self.clean = clean
        self.now_ms = now_ms
        # Below `proven` nothing may be wrong; below `vouched` a snapshot of this code remembers the producers.
        self.proven = 0
        self.vouched = 0
        self.names: list[str] = []
        self.made_segment = False
        self.truncated = NEVER_TRUNCATED
        self.saved_epochs: list[tuple[int, int]] = []

    def load(self, recovery_point: int, start_offset: int | None) -> Loaded:
        try:
            try:
                return self._load(recovery_point, start_offset)
            except _NotClean:
                self.clean = False
                self.producers.entries = {}
                return self._load(recovery_point, start_offset)
        except OSError as error:
            # One unreadable directory must not keep the others from being served.
            return self._quarantined([], start_offset or 0, str(error))

    def _load(self, recovery_point: int, start_offset: int | None) -> Loaded:
        names = self.disk.list(self.directory)
        if TRUNCATED in names:
            names = self._read_truncated(names)
            recovery_point = min(recovery_point, self.truncated.offset)
            start_offset = max(min(start_offset or 0, self.truncated.offset), self.truncated.start_offset)
        damaged = DAMAGED in names
        try:
            names = finish_swaps(self.disk, self.directory, names, self.now_ms)
        except StorageError as error:
            self.names = self.disk.list(self.directory)
            return self._quarantined(self._find_segments(), start_offset or 0, str(error))
        self.names = self._tidy(names)
        snapshot, snapshot_start = self._restore_snapshot(recovery_point)
        start_offset = max(start_offset or 0, snapshot_start)
        segments = self._find_segments()
        if damaged:
            return self._quarantined(segments, start_offset, "it was found damaged, and is to be fetched anew")
        self._distrust_indexes(segments)
        if segments and self._lost_beginning(segments[0].base_offset, start_offset):
            self._drop(segments)
            segments = []
        if not segments:
            if self.proven > 0:
                return self._quarantined(segments, start_offset, "its segment files are missing")
            segments = [self._new_segment(start_offset)]
        try:
            epochs = self._read_epochs(segments, snapshot)
            end_offset, scanned = self._replay(segments, snapshot, epochs)
        except (Unproven, StorageError) as error:
            return self._quarantined(segments, start_offset, str(error))
        self._add_unwritten(epochs, end_offset)
        start = max(start_offset, segments[0].base_offset)
        if start > end_offset and any(segment.size for segment in segments):
            # Whatever the checkpoint file speaks about, it is not this log: believing it would delete all of it.
            start = segments[0].base_offset
        elif start > end_offset:
            # The deletion outlived the records it was about.
            outlived, segments = segments, [self._new_segment(start)]
            for segment in outlived:
                # The new one first and the oldest next: a crash in between must leave neither a hole nor nothing.
                self.disk.sync_directory(self.directory)
                self._drop([segment])
            end_offset = start
        epochs.forget_before(start)
        recovery_point = min(self.vouched, end_offset)
        unsynced = [segment for segment in segments if segment.synced_size < segment.size]
        epochs_saved = epochs.entries() == self.saved_epochs
        return Loaded(
            segments,
            self.producers,
            epochs,
            start,
            end_offset,
            recovery_point,
            scanned,
            self.truncated,
            unsynced,
            epochs_saved,
        )

    def _add_unwritten(self, epochs: LeaderEpochs, end_offset: int) -> None:
        """Epochs that began and nobody wrote in: no batch tells. Nor does any tell a file from before a cut."""
        for epoch, begin in self.saved_epochs:
            if begin == end_offset and not self.truncated.is_marked:
                epochs.assign(epoch, begin)

    def _read_truncated(self, names: list[str]) -> list[str]:
        """Complete what a crash interrupted; returns the names in the directory."""
        self.truncated = read_truncated(self.disk.read(f"{self.directory}/{TRUNCATED}"))
        if self.truncated.restart_at < 0:
            return names
        self.truncated = begin_anew(self.disk, self.directory, self.truncated)
        return self.disk.list(self.directory)

    def _quarantined(self, segments: list[Segment], start_offset: int, reason: str) -> Loaded:
        base = segments[0].base_offset if segments else 0
        start = max(start_offset, base)
        end = max(self.proven, start)
        if not segments:
            segments = [Segment(self.disk, self.directory, end, 0, self.now_ms)]
        why = f"{self.directory} below offset {self.proven}: {reason}"
        return Loaded(
            segments, self.producers, LeaderEpochs(), start, end, self.proven, 0, self.truncated, quarantine=why
        )

    def _tidy(self, names: list[str]) -> list[str]:
        bases = {name[:-4] for name in names if name.endswith(".log")}
        kept = []
        for name in names:
            stem, dot, suffix = name.rpartition(".")
            indexes = dot + suffix in INDEX_SUFFIXES and offset_in_name(name, dot + suffix) is not None
            orphan = indexes and stem not in bases
            if name.endswith(_LEFTOVERS) or orphan:
                self.disk.remove(f"{self.directory}/{name}")
            else:
                kept.append(name)
        return kept

    def _find_segments(self) -> list[Segment]:
        bases = sorted(offset for name in self.names if (offset := offset_in_name(name, ".log")) is not None)
        sizes = {base: self.disk.size(f"{self.directory}/{base:020d}.log") for base in bases}
        return [Segment(self.disk, self.directory, base, sizes[base], self.now_ms) for base in bases]

    def _distrust_indexes(self, segments: list[Segment]) -> None:
        """From the first cut on, a checkpoint that was begun before may have left the indexes of what is gone."""
        if not self.truncated.is_marked:
            return
        for number, segment in enumerate(segments):
            if number + 1 == len(segments) or segments[number + 1].base_offset >= self.truncated.offset:
                for suffix in INDEX_SUFFIXES:
                    self.disk.remove(segment.path(suffix))

    def _lost_beginning(self, base_offset: int, start_offset: int) -> bool:
        # Segments are given up only below a snapshot, which a truncation may have taken away. Without any, the first
        # one's name never became durable, and what is there continues nothing.
        any_snapshot = any(snapshot_offset(name) is not None for name in self.names)
        known = any_snapshot or self.truncated.is_marked
        return base_offset > max(start_offset, self.proven) and not known

    def _new_segment(self, base_offset: int) -> Segment:
        segment = Segment(self.disk, self.directory, base_offset, 0, self.now_ms)
        segment.create_file(self.settings.index_interval_bytes)
        self.made_segment = True
        return segment

    def _drop(self, segments: list[Segment]) -> None:
        for segment in segments:
            for suffix in SEGMENT_SUFFIXES:
                self.disk.remove(segment.path(suffix))

    def _restore_snapshot(self, recovery_point: int) -> tuple[int, int]:
        """Load the highest snapshot that can be believed; returns its offset and the start offset it tells."""
        self.proven = recovery_point
        self._remove_void_snapshots()
        offsets = sorted(offset for name in self.names if (offset := snapshot_offset(name)) is not None)
        for offset in reversed(offsets):
            path = snapshot_path(self.directory, offset)
            try:
                start_offset = self.producers.load_snapshot(self.disk.read(path), self.now_ms).start_offset
            except CorruptSnapshot:
                continue
            if start_offset is not None or offset <= recovery_point:
                self.proven = max(recovery_point, offset)
                self.vouched = offset if start_offset is not None else 0
                return offset, start_offset or 0
            self.producers.entries = {}
        return 0, 0

    def _remove_void_snapshots(self) -> None:
        if not self.truncated.is_marked:
            return
        for name in list(self.names):
            offset = snapshot_offset(name)
            if offset is None:
                continue
            path = snapshot_path(self.directory, offset)
            try:
                void = self.truncated.voids(offset, Producers().load_snapshot(self.disk.read(path), 0).truncations)
            except CorruptSnapshot:
                void = True
            if void:
                self.names.remove(name)
                self.disk.remove(path)

    def _read_epochs(self, segments: list[Segment], snapshot: int) -> LeaderEpochs:
        try:
            names = self.names
            saved = read_epochs(self.disk.read(f"{self.directory}/{LEADER_EPOCHS}")) if LEADER_EPOCHS in names else []
        except CorruptCheckpoint:
            saved = []
        epochs = LeaderEpochs(saved)
        if saved and epochs.entries() == saved:
            self.saved_epochs = saved
        else:
            # A replica that does not know them would never notice that its log parts from its leader's.
            epochs = _epochs_of_batches(segments, snapshot)
        # What the replay will see, it sees from the batches.
        epochs.truncate_to(snapshot)
        return epochs

    def _replay(self, segments: list[Segment], snapshot: int, epochs: LeaderEpochs) -> tuple[int, int]:
        """Read what lies behind the snapshot, cut a torn tail. Returns the end offset and how much was read."""
        interval = self.settings.index_interval_bytes
        first = max((i for i, segment in enumerate(segments) if segment.base_offset <= snapshot), default=0)
        replay = Replay(
            next_offset=segments[first].base_offset,
            proven=INT64_MAX if self.clean else self.proven,
            producers=self.producers,
            producers_from=snapshot,
            epochs=epochs,
            interval=interval,
            now_ms=self.now_ms,
        )
        scanned = 0
        for number in range(first, len(segments)):
            segment = segments[number]
            if segment.base_offset != replay.next_offset and segment.base_offset > self.proven:
                # The end of the segment before never reached the disk, so this one is no continuation.
                self._cut(segments, number - 1, segments[number - 1].size, replay.next_offset)
                break
            replay.next_offset = max(replay.next_offset, segment.base_offset)
            position = self._open_indexes(segment, snapshot if number == first else segment.base_offset)
            end = replay.read(segment, position)
            segment.index_saved = False
            scanned += end - position
            if end != segment.size:
                self._cut(segments, number, end, replay.next_offset)
                break
        if replay.next_offset < self.proven:
            raise Unproven(f"it ends at {replay.next_offset}")
        if not self.clean and replay.next_offset > self.proven:
            self._distrust_memory(segments[first:])
        active = segments[-1]
        if active.size:
            active.first_timestamp = next(active.batches(0, active.size))[4]
        for segment in segments:
            segment.unload()
        return replay.next_offset, scanned

    def _open_indexes(self, segment: Segment, upto: int) -> int:
        """Keep what the index files say below offset `upto`; returns the position to go on from."""
        interval = self.settings.index_interval_bytes
        # A segment so short has no entries.
        if upto <= segment.base_offset or segment.size <= interval or not segment.read_index_files():
            segment.begin_indexes(interval)
            return 0
        segment.index.cut(segment.index.entries_below(upto - segment.base_offset))
        segment.times.cut(segment.times.entries_below(upto - segment.base_offset))
        segment.note_index_ends(interval)
        return segment.index.positions[-1] if len(segment.index) else 0

    def _cut(self, segments: list[Segment], number: int, size: int, end_offset: int) -> None:
        if end_offset < self.proven:
            raise Unproven(f"the batch at offset {end_offset} is damaged")
        if self.clean:
            raise _NotClean
        later = segments[number + 1 :]
        if later:
            self._drop(later)
            del segments[number + 1 :]
            # Before the tail is cut: a crash in between must not leave a good end and a later segment.
            self.disk.sync_directory(self.directory)
        segment = segments[number]
        if size != segment.size:
            segment.file.truncate(size)
            segment.size = segment.synced_size = size
            segment.file.sync()

    def _distrust_memory(self, segments: list[Segment]) -> None:
        # After a crash of the process alone the bytes may still be in memory only; what is served must be durable.
        for segment in segments:
            segment.synced_size = 0


def _epochs_of_batches(segments: list[Segment], end_offset: int) -> LeaderEpochs:
    epochs = LeaderEpochs()
    for segment in segments:
        if segment.base_offset >= end_offset:
            break
        for _, base_offset, last_offset, _, _, epoch in segment.batches(0, segment.size):
            epochs.assign(epoch, base_offset)
            if last_offset + 1 >= end_offset:
                return epochs  # what follows may be torn
    return epochs
