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

import msgspec

from skidway.errors import StorageError
from skidway.log.durability.checkpoints import ACCEPT_LOSS, DAMAGED, TRUNCATED, WAS_DAMAGED, Truncated
from skidway.log.durability.sync import NO_DESCRIPTORS, snapshot_offset
from skidway.log.epochs import LeaderEpochs
from skidway.log.health import Damage, Reason, at, reason_from_bytes, reason_of
from skidway.log.producers import Producers
from skidway.log.recovery.log_files import LogFiles
from skidway.log.recovery.proof import Proof
from skidway.log.recovery.tail import NotClean, Tail, Unproven
from skidway.log.segment import Segment, offset_in_name
from skidway.log.settings import LogSettings
from skidway.ports import Disk


class Loaded(msgspec.Struct):
    segments: list[Segment]
    producers: Producers
    epochs: LeaderEpochs
    start_offset: int
    end_offset: int
    recovery_point: int
    scanned_bytes: int
    truncated: Truncated
    unsynced: list[Segment] = msgspec.field(default_factory=list)
    """Segments that may be in memory only: nothing of the log may be served before they are synced."""
    epochs_saved: bool = False
    """Whether the file says the same."""
    cuts: list[str] = msgspec.field(default_factory=list)
    """What was cut off and why, for the operator."""
    quarantine: Reason | None = None
    saved_start: int = 0
    """The start offset that the files tell, which may be below the first file's."""


class Loader:
    __slots__ = ("_files", "_producers", "_proof", "_settings", "clean", "intact")

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
        self._files = LogFiles(disk, directory, now_ms)
        self._proof = Proof(0)
        self._settings = settings
        self._producers = producers
        self.clean = clean
        self.intact = clean or intact

    @property
    def made_segment(self) -> bool:
        return self._files.made_segment

    def load(self, recovery_point: int, start_offset: int | None, committed: int = 0) -> Loaded:
        """OSError when too many files are open: nothing is known of the log, and it can be loaded another time."""
        files = self._files
        self._proof.committed = committed
        try:
            if files.disk.exists(f"{files.directory}/{ACCEPT_LOSS}"):
                return self._accept_loss(recovery_point, start_offset)
            try:
                return self._load(recovery_point, start_offset)
            except NotClean:
                self.clean = False
                files.cuts.clear()
                self._producers.clear()
                return self._load(recovery_point, start_offset)
        except OSError as error:
            if error.errno in NO_DESCRIPTORS:
                raise
            # One unreadable directory must not keep the others from being served.
            return self._quarantined([], start_offset or 0, reason_of(error))

    def _accept_loss(self, recovery_point: int, start_offset: int | None) -> Loaded:
        """Believe nothing but the batches: everything is read, and cut where it cannot be read any further."""
        names = self._files.disk.list(self._files.directory)
        proven = (offset for name in names if (offset := snapshot_offset(name)) is not None)
        was_known = max(self._proof.committed, recovery_point, *proven)
        for name in names:
            if name in (DAMAGED, WAS_DAMAGED) or snapshot_offset(name) is not None:
                self._files.disk.remove(f"{self._files.directory}/{name}")
        self.clean = self.intact = False
        self._proof.committed = 0
        bases = [offset for name in names if (offset := offset_in_name(name, ".log")) is not None]
        loaded = self._load(0, max(start_offset or 0, min(bases, default=was_known)))
        if loaded.quarantine is None:
            end = loaded.end_offset if bases else start_offset or 0
            given_up = f"offsets {end} to {was_known}" if end < was_known else "nothing more"
            loaded.cuts.append(
                f"{self._files.directory}: an operator accepted the loss of what cannot be read. Given up: {given_up}; "
                f"served: offsets {loaded.start_offset} to {loaded.end_offset}"
            )
            self._files.disk.remove(f"{self._files.directory}/{ACCEPT_LOSS}")
        return loaded

    def _load(self, recovery_point: int, start_offset: int | None) -> Loaded:
        files, proof, settings = self._files, self._proof, self._settings
        files.look()
        truncated = files.truncated
        if TRUNCATED in files.names:
            recovery_point = min(recovery_point, truncated.offset)
            proof.committed = min(proof.committed, truncated.offset)
            start_offset = max(min(start_offset or 0, truncated.offset), truncated.start_offset)
        self._follow_damage(WAS_DAMAGED in files.names)
        try:
            files.finish_swaps()
        except StorageError as error:
            return self._quarantined(files.find_segments(), start_offset or 0, reason_of(error))
        files.tidy()
        snapshot, snapshot_start = proof.restore_snapshot(files, self._producers, recovery_point)
        start_offset = max(start_offset or 0, snapshot_start)
        segments = files.find_segments()
        if damage := self._visible_damage(segments, start_offset):
            return self._quarantined(segments, start_offset, damage)
        files.tidy_given_up(segments, start_offset)
        files.distrust_indexes(segments)
        if segments and proof.lost_beginning(files, segments[0].base_offset, start_offset):
            if self.intact or proof.committed > 0:
                return self._quarantined(segments, start_offset, self._missing_beginning(segments))
            files.note_cut(start_offset, segments, 0, "the file of its first segment never became durable")
            files.drop(segments)
            segments = []
        if not segments:
            if proof.known > 0:
                return self._quarantined(segments, start_offset, Damage("its segment files are missing"))
            segments = [files.new_segment(start_offset, settings.index_interval_bytes)]
        tail = Tail(files, proof, settings, self._producers, snapshot, clean=self.clean, intact=self.intact)
        try:
            epochs = tail.read_epochs(segments)
            end_offset, scanned = tail.replay(segments, epochs)
        except Unproven as error:
            return self._quarantined(segments, start_offset, Damage(str(error)))
        except StorageError as error:
            return self._quarantined(segments, start_offset, reason_of(error))
        _add_unwritten(epochs, tail.saved_epochs, end_offset, truncated)
        start, segments, end_offset = self._place_start(start_offset, segments, end_offset)
        epochs.forget_before(start)
        if WAS_DAMAGED in files.names:
            files.disk.remove(f"{files.directory}/{WAS_DAMAGED}")
        return Loaded(
            segments,
            self._producers,
            epochs,
            start,
            end_offset,
            min(proof.vouched, end_offset),
            scanned,
            truncated,
            [segment for segment in segments if segment.synced_size < segment.size],
            epochs.entries() == tail.saved_epochs,
            files.cuts,
            saved_start=start_offset,
        )

    def _follow_damage(self, was_damaged: bool) -> None:
        """What was damaged is read, also after a clean stop, and no loss of power explains what is wrong with it."""
        self.intact, self.clean = self.intact or was_damaged, self.clean and not was_damaged

    def _visible_damage(self, segments: list[Segment], start_offset: int) -> Reason | None:
        """What is wrong with it, before any of it is read."""
        if DAMAGED in self._files.names:
            reason = reason_from_bytes(self._files.disk.read(f"{self._files.directory}/{DAMAGED}"))
            return at("it was found damaged before", reason)
        if segments and self._proof.lost_first_file(self._files, segments[0].base_offset, start_offset):
            missing = f"offsets {start_offset} to {segments[0].base_offset} are missing, and nobody deleted them"
            return Damage(f"{missing}: its first file is gone")
        return None

    def _missing_beginning(self, segments: list[Segment]) -> Reason:
        reason = Damage(f"it starts at {segments[0].base_offset}")
        if self.intact:
            self._files.remember_damage(reason)
        return reason

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
        self._files.cuts.append(
            f"{self._files.directory}: starts empty at offset {start}: records below it were deleted, and a crash "
            f"removed what followed; the log ended at {end_offset}"
        )
        new = [self._files.new_segment(start, self._settings.index_interval_bytes)]
        for segment in segments:
            # The new one first and the oldest next: a crash in between must leave neither a hole nor nothing.
            self._files.disk.sync_directory(self._files.directory)
            self._files.drop([segment])
        return start, new, start

    def _quarantined(self, segments: list[Segment], start_offset: int, reason: Reason) -> Loaded:
        files, proof = self._files, self._proof
        base = segments[0].base_offset if segments else 0
        start = max(start_offset, base)
        end = max(proof.proven, start)
        if not segments:
            segments = [Segment(files.disk, files.directory, end, 0, files.now_ms)]
        why = at(f"{files.directory} below offset {proof.known}", reason)
        return Loaded(
            segments, self._producers, LeaderEpochs(), start, end, proof.proven, 0, files.truncated, quarantine=why
        )


def _add_unwritten(epochs: LeaderEpochs, saved: list[tuple[int, int]], end_offset: int, truncated: Truncated) -> None:
    """Epochs that began and nobody wrote in: no batch tells. Nor does any tell a file from before a cut."""
    for epoch, begin in saved:
        if begin == end_offset and not truncated.is_marked:
            epochs.assign(epoch, begin)
