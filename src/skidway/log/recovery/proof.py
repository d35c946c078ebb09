"""What is known of a log before its batches are read: how far it was synced, how far it was committed.

A producer snapshot of this code is written last in a checkpoint, so the highest one is the proof that everything below
its offset was synced, indexes included.
"""

from skidway.log.durability.sync import snapshot_path
from skidway.log.producers import CorruptSnapshot, Producers
from skidway.log.recovery.log_files import LogFiles
from skidway.log.segment import Segment


class Proof:
    __slots__ = ("committed", "proven", "vouched", "vouched_from")

    def __init__(self, committed: int) -> None:
        self.committed = committed
        """Below it nothing may be missing, whatever was synced."""
        self.proven = 0
        """Below it nothing may be wrong."""
        self.vouched = 0
        """Below it a snapshot of this code remembers the producers."""
        self.vouched_from = 0
        """Where the log began when that snapshot was taken: segments before it may never have been synced."""

    @property
    def known(self) -> int:
        """Up to where the log is known to have been."""
        return max(self.proven, self.committed)

    def restore_snapshot(self, files: LogFiles, producers: Producers, recovery_point: int) -> tuple[int, int]:
        """Load the highest snapshot that can be believed; returns its offset and the start offset it tells."""
        self.proven = recovery_point
        files.remove_void_snapshots()
        for offset in reversed(files.snapshots()):
            path = snapshot_path(files.directory, offset)
            try:
                start_offset = producers.load_snapshot(files.disk.read(path), files.now_ms).start_offset
            except CorruptSnapshot:
                continue
            if start_offset is not None or offset <= recovery_point:
                self.proven = max(recovery_point, offset)
                self.vouched = offset if start_offset is not None else 0
                self.vouched_from = start_offset or 0
                return offset, self.vouched_from
            producers.clear()
        return 0, 0

    def lost_first_file(self, files: LogFiles, base_offset: int, start_offset: int) -> bool:
        """`start_offset` is what was saved. Only a snapshot of this code, and the newest, is known to have been written
        before files were removed."""
        if base_offset <= start_offset or self.vouched == 0 or files.truncated.is_marked:
            return False
        return files.snapshots()[-1] == self.vouched and files.first_given_up(base_offset) > start_offset

    def lost_beginning(self, files: LogFiles, base_offset: int, start_offset: int) -> bool:
        # Segments are given up only below a snapshot, which a truncation may have taken away. Without any, the first
        # one's name never became durable, and what is there continues nothing.
        known = bool(files.snapshots()) or files.truncated.is_marked
        return base_offset > max(start_offset, self.proven) and not known

    def without_given_up(self, segments: list[Segment]) -> list[Segment]:
        """Leave out segments that retention or a deletion had given up before the snapshot was taken. Their files stay
        until a later checkpoint removes them, and a loss of power may tear them, because no sync includes them."""
        first = max((i for i, segment in enumerate(segments) if segment.base_offset <= self.vouched_from), default=0)
        return segments[first:]
