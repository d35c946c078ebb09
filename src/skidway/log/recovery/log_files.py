"""The files of one log as a start finds them: tidied, completed where a crash interrupted, cut where they are torn."""

from skidway.errors import StorageError
from skidway.log.compaction.swapping import INDEX_SUFFIXES, REBUILT_SUFFIXES, SEGMENT_SUFFIXES, finish_swaps
from skidway.log.durability.checkpoints import NEVER_TRUNCATED, TRUNCATED, WAS_DAMAGED, read_truncated
from skidway.log.durability.sync import NO_DESCRIPTORS, empty, snapshot_offset, snapshot_path, write_mark
from skidway.log.durability.truncation_file import begin_anew
from skidway.log.health import Damage
from skidway.log.producers import CorruptSnapshot, Producers
from skidway.log.segment import Segment, find_segments, offset_in_name
from skidway.ports import Disk

# Beyond these, compaction's `.log.swap` files are completed (see `swapping`).
_LEFTOVERS = (".deleted", ".tmp", ".cleaned", ".swap")
_GIVEN_UP = ".log.deleted"


class LogFiles:
    __slots__ = ("_given_up", "cuts", "directory", "disk", "made_segment", "names", "now_ms", "truncated")

    def __init__(self, disk: Disk, directory: str, now_ms: int) -> None:
        self.disk = disk
        self.directory = directory
        self.now_ms = now_ms
        self.names: list[str] = []
        self.truncated = NEVER_TRUNCATED
        self.cuts: list[str] = []
        """What was cut off and why, for the operator."""
        self.made_segment = False
        # Names of files that retention or a deletion has given up.
        self._given_up: list[str] = []

    def look(self) -> None:
        """See what there is, and complete a truncation that a crash interrupted."""
        self.names = self.disk.list(self.directory)
        if TRUNCATED not in self.names:
            return
        self.truncated = read_truncated(self.disk.read(f"{self.directory}/{TRUNCATED}"))
        if self.truncated.restart_at >= 0:
            self.truncated = begin_anew(self.disk, self.directory, self.truncated)
            self.names = self.disk.list(self.directory)

    def finish_swaps(self) -> None:
        """Complete a compaction that a crash interrupted. StorageError when it cannot be."""
        try:
            self.names = finish_swaps(self.disk, self.directory, self.names, self.now_ms)
        except StorageError:
            self.names = self.disk.list(self.directory)
            raise

    def tidy(self) -> None:
        """Remove what means nothing any more."""
        self._given_up = []
        bases = {name[:-4] for name in self.names if name.endswith(".log")}
        kept = []
        for name in self.names:
            stem, dot, suffix = name.rpartition(".")
            indexes = dot + suffix in INDEX_SUFFIXES and offset_in_name(name, dot + suffix) is not None
            orphan = indexes and stem not in bases
            if name.endswith(_GIVEN_UP):
                self._given_up.append(name)
            elif name.endswith(_LEFTOVERS) or orphan:
                self.disk.remove(f"{self.directory}/{name}")
            else:
                kept.append(name)
        self.names = kept

    def tidy_given_up(self, segments: list[Segment], start_offset: int) -> None:
        """What explains where the log begins stays, empty, until a start finds that saved."""
        is_saved = not segments or segments[0].base_offset <= start_offset
        for name in self._given_up:
            if is_saved:
                self.disk.remove(f"{self.directory}/{name}")
            else:
                empty(self.disk, f"{self.directory}/{name}")

    def first_given_up(self, default: int) -> int:
        """The base offset of the oldest segment that was given up and is still there."""
        offsets = (offset for name in self._given_up if (offset := offset_in_name(name, _GIVEN_UP)) is not None)
        return min(offsets, default=default)

    def snapshots(self) -> list[int]:
        return sorted(offset for name in self.names if (offset := snapshot_offset(name)) is not None)

    def remove_void_snapshots(self) -> None:
        """Those that a truncation made void."""
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

    def remember_damage(self, reason: Damage) -> None:
        """The next start may come after a loss of power, which would explain a bad batch. It does not explain this one.
        A disk that refuses the file leaves the log quarantined in this run all the same. OSError when too many files
        are open."""
        try:
            write_mark(self.disk, f"{self.directory}/{WAS_DAMAGED}", reason)
        except OSError as error:
            if error.errno in NO_DESCRIPTORS:
                raise

    # Segments.

    def find_segments(self) -> list[Segment]:
        return find_segments(self.disk, self.directory, self.names, self.now_ms)

    def new_segment(self, base_offset: int, index_interval_bytes: int) -> Segment:
        segment = Segment(self.disk, self.directory, base_offset, 0, self.now_ms)
        segment.create_file(index_interval_bytes)
        self.made_segment = True
        return segment

    def drop(self, segments: list[Segment]) -> None:
        for segment in segments:
            for suffix in SEGMENT_SUFFIXES:
                self.disk.remove(segment.path(suffix))

    def cut(self, segments: list[Segment], number: int, size: int) -> None:
        """Everything goes from this place in this segment on."""
        later = segments[number + 1 :]
        if later:
            self.drop(later)
            del segments[number + 1 :]
            # Before the tail is cut: a crash in between must not leave a good end and a later segment.
            self.disk.sync_directory(self.directory)
        segment = segments[number]
        if size != segment.size:
            segment.file.truncate(size)
            segment.size = segment.synced_size = size
            segment.file.sync()

    def note_cut(self, end_offset: int, segments: list[Segment], size: int, why: str) -> None:
        """From `size` on in the first of these segments everything goes."""
        gone = sum(segment.size for segment in segments) - size
        if gone:
            first, last = segments[0], segments[-1]
            self.cuts.append(
                f"{self.directory}: cut at offset {end_offset}, from byte {size} of {first.path('.log')} to byte "
                f"{last.size} of {last.path('.log')} ({gone} bytes): {why}"
            )

    def distrust_indexes(self, segments: list[Segment]) -> None:
        """From the first cut on, a checkpoint that was begun before may have left the indexes of what is gone."""
        if not self.truncated.is_marked:
            return
        for number, segment in enumerate(segments):
            if number + 1 == len(segments) or segments[number + 1].base_offset >= self.truncated.offset:
                for suffix in REBUILT_SUFFIXES:
                    self.disk.remove(segment.path(suffix))
