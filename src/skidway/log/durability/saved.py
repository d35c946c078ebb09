"""What the files beside a log say about it, and what they do not say yet.

A producer snapshot vouches for everything below its offset. One at or below the high watermark is always kept: a
truncation goes no deeper, and needs the producers as they were. For the same reason compaction ends at `vouched`, and
the files of given-up segments stay until it covers them.
"""

from skidway.log.compaction.swapping import REBUILT_SUFFIXES
from skidway.log.durability.checkpoints import Truncated, write_epochs
from skidway.log.durability.sync import SyncTicket, snapshot_path
from skidway.log.epochs import LeaderEpochs
from skidway.log.segment import Segment
from skidway.ports import Disk

SEGMENTS_DUE = 64
"""With so many closed segments since the last checkpoint another one is due, however few bytes they have."""
SEGMENTS_MAX = 1_000
"""With so many no further segment is begun: a stop has to save the indexes of all of them."""


class Saved:
    __slots__ = (
        "begun",
        "bytes_since",
        "durable_start",
        "epochs_changed",
        "recovery_point",
        "snapshots",
        "start_offset",
        "truncated",
        "unsaved_segments",
    )

    def __init__(self, recovery_point: int, start_offset: int, durable_start: int, truncated: Truncated) -> None:
        self.recovery_point = recovery_point
        """Below it a crash leaves nothing to scan."""
        self.snapshots = [recovery_point] if recovery_point else []
        """Offsets of the producer snapshots."""
        self.start_offset = start_offset
        """Where the log begins by what its newest snapshot says."""
        self.durable_start = durable_start
        """The same by whatever file says most."""
        self.truncated = truncated
        self.epochs_changed = False
        """Since their file was written."""
        self.bytes_since = 0
        """Appended since the last checkpoint was begun."""
        self.begun = 0
        """Checkpoints under way."""
        self.unsaved_segments = 0
        """Closed segments whose indexes no checkpoint has saved."""

    def is_due(self, checkpoint_bytes: int) -> bool:
        return self.bytes_since >= checkpoint_bytes or self.unsaved_segments >= SEGMENTS_DUE

    @property
    def is_full(self) -> bool:
        return self.unsaved_segments >= SEGMENTS_MAX

    def vouched(self, high_watermark: int) -> int:
        """The highest offset at or below the watermark that has a snapshot."""
        return max((offset for offset in self.snapshots if offset <= high_watermark), default=0)

    def finish(self, ticket: SyncTicket, segments: list[Segment], epochs: LeaderEpochs) -> None:
        """The checkpoint ran, and the log was not cut meanwhile."""
        if ticket.snapshot is None:
            return
        self.recovery_point = max(self.recovery_point, ticket.offset)
        self.snapshots = sorted({ticket.offset, *(s for s in self.snapshots if s >= ticket.snapshots_kept_from)})
        self.start_offset = max(self.start_offset, ticket.start_offset)
        self.durable_start = max(self.durable_start, ticket.start_offset)
        if ticket.epochs is not None and ticket.epochs == write_epochs(epochs.entries()):
            self.epochs_changed = False
        # Not earlier: until now a crash may take the start offset back.
        epochs.forget_before(ticket.start_offset)
        for segment, size, *_ in ticket.indexes:
            # A segment may have grown since its indexes were copied.
            segment.index_saved = segment is not segments[-1] and segment.size == size
        self.count_unsaved(segments)

    def void(self, ticket: SyncTicket, disk: Disk, directory: str) -> None:
        """The log was cut after the ticket had begun: its files may have replaced better ones, so all are written
        again."""
        if ticket.snapshot is None:
            return
        disk.remove(snapshot_path(directory, ticket.offset))
        for segment, *_ in ticket.indexes:
            for suffix in REBUILT_SUFFIXES:
                disk.remove(segment.path(suffix))
        self.recovery_point = 0
        self.snapshots = []
        self.epochs_changed = True

    def give_up(self) -> None:
        """A checkpoint could not save what it should: another has to."""
        self.begun -= 1
        self.epochs_changed = True

    def cut(self, recovery_point: int, start_offset: int, segments: list[Segment]) -> None:
        """The log ends earlier now and has these segments left. The file that decided the cut names its start."""
        self.epochs_changed = True
        self.recovery_point = recovery_point
        self.snapshots = [recovery_point] if recovery_point else []
        self.start_offset = min(self.start_offset, start_offset)
        self.durable_start = start_offset
        self.count_unsaved(segments)

    def count_unsaved(self, segments: list[Segment]) -> None:
        self.unsaved_segments = sum(not segment.index_saved for segment in segments[:-1])
