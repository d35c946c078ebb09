"""Opening a partition's directory: which segments there are, where the log ends, and whether it can be believed.

A producer snapshot of this code is written last in a checkpoint, so the highest one is the proof that everything below
its offset was synced, indexes included. Only what lies behind it is read again: checked batch by batch after a crash,
by headers after a clean stop. What is not proven may be in memory only: `Loaded.unsynced` has to be synced.

A log that ends below its proven part, or below what this node knew to be committed, is damaged: it is quarantined,
never served and never cut. So is one that begins above the start that the newest snapshot tells, where no file that was
given up explains it (see `retention`). So is one with a bad batch that no crash explains: `intact` says that nothing
was lost of what was written, because the last run ended cleanly or was killed while the machine ran on; then only an
unfinished append at the very end can be torn. Any other bad batch behind the proven part is a torn write and is cut.
Damage that only `intact` tells from a torn write is remembered by a file `was-damaged`: with it a log is read as if it
were intact, whatever has happened to the machine since, and a start that can read the log removes the file. A clean
stop writes it for every quarantined log, so that the next start reads what it would otherwise believe.
`Loaded.cuts` tells what was cut. A file `accept-loss` beside the segments is an operator's word that the log shall be
served up to where it can be read, whatever was known of it.
"""

from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise

from skidway.errors import StorageError
from skidway.limits import INT64_MAX
from skidway.log import markers
from skidway.log.compaction.swapping import INDEX_SUFFIXES, REBUILT_SUFFIXES, SEGMENT_SUFFIXES, finish_swaps
from skidway.log.durability.checkpoints import (
    ACCEPT_LOSS,
    DAMAGED,
    LEADER_EPOCHS,
    NEVER_TRUNCATED,
    TRUNCATED,
    WAS_DAMAGED,
    CorruptCheckpoint,
    Truncated,
    read_epochs,
    read_truncated,
)
from skidway.log.durability.sync import empty, snapshot_offset, snapshot_path
from skidway.log.epochs import LeaderEpochs
from skidway.log.producers import CorruptSnapshot, Producers
from skidway.log.recovery.replay import Replay
from skidway.log.recovery.unfinished import is_unfinished_append
from skidway.log.segment import Segment, find_segments, offset_in_name
from skidway.log.settings import LogSettings
from skidway.log.truncation import begin_anew
from skidway.ports import Disk

# Beyond these, compaction's `.log.swap` files are completed (see `swapping`).
_LEFTOVERS = (".deleted", ".tmp", ".cleaned", ".swap")
_GIVEN_UP = ".log.deleted"


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
    cuts: list[str] = field(default_factory=list)
    """What was cut off and why, for the operator."""
    quarantine: str | None = None
    saved_start: int = 0
    """The start offset that the files tell, which may be below the first file's."""


class Loader:
    __slots__ = (
        "clean",
        "committed",
        "cuts",
        "directory",
        "disk",
        "given_up",
        "intact",
        "made_segment",
        "names",
        "now_ms",
        "producers",
        "proven",
        "saved_epochs",
        "settings",
        "truncated",
        "vouched",
        "vouched_from",
    )

    def __init__(
        self,
        disk: Disk,
        directory: str,
        settings: LogSettings,
        producers: Producers,
        *,
        clean: bool,
        intact: bool,
        now_ms: int,
    ) -> None:
        self.disk = disk
        self.directory = directory
        self.settings = settings
        self.producers = producers
        self.clean = clean
        self.intact = clean or intact
        self.now_ms = now_ms
        # Below `proven` nothing may be wrong; below `vouched` a snapshot of this code remembers the producers.
        self.proven = 0
        self.vouched = 0
        # Where the log began when that snapshot was taken: segments before it may never have been synced.
        self.vouched_from = 0
        # Below `committed` nothing may be missing, whatever was synced.
        self.committed = 0
        self.cuts: list[str] = []
        self.names: list[str] = []
        # Names of files that retention or a deletion has given up.
        self.given_up: list[str] = []
        self.made_segment = False
        self.truncated = NEVER_TRUNCATED
        self.saved_epochs: list[tuple[int, int]] = []

    @property
    def known(self) -> int:
        """Up to where the log is known to have been."""
        return max(self.proven, self.committed)

    def load(self, recovery_point: int, start_offset: int | None, committed: int = 0) -> Loaded:
        self.committed = committed
        try:
            if self.disk.exists(f"{self.directory}/{ACCEPT_LOSS}"):
                return self._accept_loss(recovery_point, start_offset)
            try:
                return self._load(recovery_point, start_offset)
            except _NotClean:
                self.clean = False
                self.cuts.clear()
                self.producers.clear()
                return self._load(recovery_point, start_offset)
        except OSError as error:
            # One unreadable directory must not keep the others from being served.
            return self._quarantined([], start_offset or 0, str(error))

    def _accept_loss(self, recovery_point: int, start_offset: int | None) -> Loaded:
        """Believe nothing but the batches: everything is read, and cut where it cannot be read any further."""
        names = self.disk.list(self.directory)
        proven = (offset for name in names if (offset := snapshot_offset(name)) is not None)
        was_known = max(self.committed, recovery_point, *proven)
        for name in names:
            if name in (DAMAGED, WAS_DAMAGED) or snapshot_offset(name) is not None:
                self.disk.remove(f"{self.directory}/{name}")
        self.clean = self.intact = False
        self.committed = 0
        bases = [offset for name in names if (offset := offset_in_name(name, ".log")) is not None]
        loaded = self._load(0, max(start_offset or 0, min(bases, default=was_known)))
        if loaded.quarantine is None:
            end = loaded.end_offset if bases else start_offset or 0
            given_up = f"offsets {end} to {was_known}" if end < was_known else "nothing more"
            loaded.cuts.append(
                f"{self.directory}: an operator accepted the loss of what cannot be read. Given up: {given_up}; "
                f"served: offsets {loaded.start_offset} to {loaded.end_offset}"
            )
            self.disk.remove(f"{self.directory}/{ACCEPT_LOSS}")
        return loaded

    def _load(self, recovery_point: int, start_offset: int | None) -> Loaded:
        names = self.disk.list(self.directory)
        if TRUNCATED in names:
            names = self._read_truncated(names)
            recovery_point = min(recovery_point, self.truncated.offset)
            self.committed = min(self.committed, self.truncated.offset)
            start_offset = max(min(start_offset or 0, self.truncated.offset), self.truncated.start_offset)
        self._follow_damage(WAS_DAMAGED in names)
        try:
            names = finish_swaps(self.disk, self.directory, names, self.now_ms)
        except StorageError as error:
            self.names = self.disk.list(self.directory)
            return self._quarantined(self._find_segments(), start_offset or 0, str(error))
        self.names = self._tidy(names)
        snapshot, snapshot_start = self._restore_snapshot(recovery_point)
        start_offset = max(start_offset or 0, snapshot_start)
        segments = self._find_segments()
        if damage := self._visible_damage(segments, start_offset):
            return self._quarantined(segments, start_offset, damage)
        self._tidy_given_up(segments, start_offset)
        self._distrust_indexes(segments)
        if segments and self._lost_beginning(segments[0].base_offset, start_offset):
            if self.intact or self.committed > 0:
                reason = f"it starts at {segments[0].base_offset}"
                self._remember_damage(reason)
                return self._quarantined(segments, start_offset, reason)
            self._note_cut(start_offset, segments, 0, "the file of its first segment never became durable")
            self._drop(segments)
            segments = []
        if not segments:
            if self.known > 0:
                return self._quarantined(segments, start_offset, "its segment files are missing")
            segments = [self._new_segment(start_offset)]
        try:
            epochs = self._read_epochs(segments, snapshot)
            end_offset, scanned = self._replay(segments, snapshot, epochs)
        except (Unproven, StorageError) as error:
            return self._quarantined(segments, start_offset, str(error))
        self._add_unwritten(epochs, end_offset)
        start, segments, end_offset = self._place_start(start_offset, segments, end_offset)
        epochs.forget_before(start)
        recovery_point = min(self.vouched, end_offset)
        unsynced = [segment for segment in segments if segment.synced_size < segment.size]
        epochs_saved = epochs.entries() == self.saved_epochs
        if WAS_DAMAGED in names:
            self.disk.remove(f"{self.directory}/{WAS_DAMAGED}")
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
            self.cuts,
            saved_start=start_offset,
        )

    def _follow_damage(self, was_damaged: bool) -> None:
        """What was damaged is read, also after a clean stop, and no loss of power explains what is wrong with it."""
        self.intact, self.clean = self.intact or was_damaged, self.clean and not was_damaged

    def _visible_damage(self, segments: list[Segment], start_offset: int) -> str:
        """What is wrong with it, before any of it is read."""
        if DAMAGED in self.names:
            reason = self.disk.read(f"{self.directory}/{DAMAGED}").decode(errors="replace")
            return f"it was found damaged before: {reason}"
        if segments and self._lost_first_file(segments[0].base_offset, start_offset):
            missing = f"offsets {start_offset} to {segments[0].base_offset} are missing, and nobody deleted them"
            return f"{missing}: its first file is gone"
        return ""

    def _lost_first_file(self, base_offset: int, start_offset: int) -> bool:
        """`start_offset` is what was saved. Only a snapshot of this code, and the newest, is known to have been written
        before files were removed."""
        if base_offset <= start_offset or self.vouched == 0 or self.truncated.is_marked:
            return False
        newest = max(offset for name in self.names if (offset := snapshot_offset(name)) is not None)
        given_up = [offset for name in self.given_up if (offset := offset_in_name(name, _GIVEN_UP)) is not None]
        return newest == self.vouched and min(given_up, default=base_offset) > start_offset

    def _tidy_given_up(self, segments: list[Segment], start_offset: int) -> None:
        """What explains where the log begins stays, empty, until a start finds that saved."""
        is_saved = not segments or segments[0].base_offset <= start_offset
        for name in self.given_up:
            if is_saved:
                self.disk.remove(f"{self.directory}/{name}")
            else:
                empty(self.disk, f"{self.directory}/{name}")

    def _place_start(
        self, start_offset: int, segments: list[Segment], end_offset: int
    ) -> tuple[int, list[Segment], int]:
        """Where the log begins, its segments, and where it ends."""
        start = max(start_offset, segments[0].base_offset)
        if start <= end_offset:
            return start, segments, end_offset
        if any(segment.size for segment in segments):
            # Whatever the checkpoint file speaks about, it is not this log: believing it would delete all of it.
            return segments[0].base_offset, segments, end_offset
        # The deletion outlived the records it was about.
        self.cuts.append(
            f"{self.directory}: starts empty at offset {start}: records below it were deleted, and a crash "
            f"removed what followed; the log ended at {end_offset}"
        )
        new = [self._new_segment(start)]
        for segment in segments:
            # The new one first and the oldest next: a crash in between must leave neither a hole nor nothing.
            self.disk.sync_directory(self.directory)
            self._drop([segment])
        return start, new, start

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
        why = f"{self.directory} below offset {self.known}: {reason}"
        return Loaded(
            segments, self.producers, LeaderEpochs(), start, end, self.proven, 0, self.truncated, quarantine=why
        )

    def _tidy(self, names: list[str]) -> list[str]:
        self.given_up = []
        bases = {name[:-4] for name in names if name.endswith(".log")}
        kept = []
        for name in names:
            stem, dot, suffix = name.rpartition(".")
            indexes = dot + suffix in INDEX_SUFFIXES and offset_in_name(name, dot + suffix) is not None
            orphan = indexes and stem not in bases
            if name.endswith(_GIVEN_UP):
                self.given_up.append(name)
            elif name.endswith(_LEFTOVERS) or orphan:
                self.disk.remove(f"{self.directory}/{name}")
            else:
                kept.append(name)
        return kept

    def _find_segments(self) -> list[Segment]:
        return find_segments(self.disk, self.directory, self.names, self.now_ms)

    def _distrust_indexes(self, segments: list[Segment]) -> None:
        """From the first cut on, a checkpoint that was begun before may have left the indexes of what is gone."""
        if not self.truncated.is_marked:
            return
        for number, segment in enumerate(segments):
            if number + 1 == len(segments) or segments[number + 1].base_offset >= self.truncated.offset:
                for suffix in REBUILT_SUFFIXES:
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
                self.vouched_from = start_offset or 0
                return offset, self.vouched_from
            self.producers.clear()
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
            epochs = _epochs_of_batches(self._without_given_up(segments), snapshot)
        # What the replay will see, it sees from the batches.
        epochs.truncate_to(snapshot)
        return epochs

    def _replay(self, segments: list[Segment], snapshot: int, epochs: LeaderEpochs) -> tuple[int, int]:
        """Read what lies behind the snapshot, cut a torn tail. Returns the end offset and how much was read."""
        interval = self.settings.index_interval_bytes
        first = max((i for i, segment in enumerate(segments) if segment.base_offset <= snapshot), default=0)
        self._check_joined(self._without_given_up(segments[: first + 1]))
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
        # Unlike the others these indexes are believed after a cut. A checkpoint that was begun before it may have
        # written them, but then none was begun after it, and above the last snapshot they are made again.
        aborted_known = True
        for number in range(first, len(segments)):
            segment = segments[number]
            if segment.base_offset != replay.next_offset and segment.base_offset > self.proven:
                # The end of the segment before never reached the disk, so this one is no continuation.
                before = segments[number - 1].size
                self._cut(segments, number - 1, before, replay.next_offset, f"the next file is {segment.path('.log')}")
                break
            replay.next_offset = max(replay.next_offset, segment.base_offset)
            upto = snapshot if number == first else segment.base_offset
            aborted_known &= markers.keep_aborted(segment, upto)
            position = self._open_indexes(segment, upto)
            end = replay.read(segment, position)
            segment.index_saved = False
            scanned += end - position
            if end != segment.size:
                self._cut(segments, number, end, replay.next_offset, "the batch there is damaged")
                break
        if replay.next_offset < self.known:
            raise Unproven(f"it ends at {replay.next_offset}")
        if not self.clean and replay.next_offset > self.proven:
            _distrust_memory(segments[first:])
        if not aborted_known:
            markers.rebuild_aborted(self._without_given_up(segments))
        active = segments[-1]
        if active.size:
            active.first_timestamp = next(active.batches(0, active.size))[4]
        for segment in segments:
            segment.unload()
        return replay.next_offset, scanned

    def _without_given_up(self, segments: list[Segment]) -> list[Segment]:
        """Leave out segments that retention or a deletion had given up before the snapshot was taken. Their files stay
        until a later checkpoint removes them, and a loss of power may tear them, because no sync includes them."""
        first = max((i for i, segment in enumerate(segments) if segment.base_offset <= self.vouched_from), default=0)
        return segments[first:]

    def _check_joined(self, segments: list[Segment]) -> None:
        """No file is missing between those that are not read again. Topics that Kafka compacted may have gaps."""
        if self.settings.compact:
            return
        for segment, following in pairwise(segments):
            end_offset = segment.end_offset()
            segment.unload()
            if end_offset != following.base_offset:
                raise Unproven(f"offsets {end_offset} to {following.base_offset} are missing: a file is gone or short")

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

    def _cut(self, segments: list[Segment], number: int, size: int, end_offset: int, why: str) -> None:
        if end_offset < self.known:
            raise Unproven(f"from offset {end_offset} on it cannot be read: {why}")
        if self.clean:
            raise _NotClean
        segment = segments[number]
        later = segments[number + 1 :]
        if self.intact and (later or not is_unfinished_append(segment, size, end_offset)):
            reason = f"from offset {end_offset} on it cannot be read, and no crash explains it: {why}"
            self._remember_damage(reason)
            raise Unproven(reason)
        self._note_cut(end_offset, segments[number:], size, "an append that a kill or a loss of power interrupted")
        if later:
            self._drop(later)
            del segments[number + 1 :]
            # Before the tail is cut: a crash in between must not leave a good end and a later segment.
            self.disk.sync_directory(self.directory)
        if size != segment.size:
            segment.file.truncate(size)
            segment.size = segment.synced_size = size
            segment.file.sync()

    def _remember_damage(self, reason: str) -> None:
        """The next start may come after a loss of power, which would explain a bad batch. It does not explain this one.
        A disk that refuses the file leaves the log quarantined in this run all the same."""
        if self.intact:
            with suppress(OSError):
                self.disk.write_atomic(f"{self.directory}/{WAS_DAMAGED}", reason.encode())

    def _note_cut(self, end_offset: int, segments: list[Segment], size: int, why: str) -> None:
        """From `size` on in the first of these segments everything goes."""
        gone = sum(segment.size for segment in segments) - size
        if gone:
            first, last = segments[0], segments[-1]
            self.cuts.append(
                f"{self.directory}: cut at offset {end_offset}, from byte {size} of {first.path('.log')} to byte "
                f"{last.size} of {last.path('.log')} ({gone} bytes): {why}"
            )


def _distrust_memory(segments: list[Segment]) -> None:
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
