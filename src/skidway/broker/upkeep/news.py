"""What a node reports of its upkeep: syncs, checkpoints, retention, compaction and the check of what is stored.

`hosted` is a partition or the metadata log. For the operators' log.
"""

from msgspec import Struct


class SyncPutOff(Struct, frozen=True):
    """Files could not be opened for a sync. It is tried again."""

    hosted: str
    why: str


class SyncWithoutCheckpoint(Struct, frozen=True):
    hosted: str
    why: str


class CheckpointNotSaved(Struct, frozen=True):
    hosted: str
    why: str


class OffsetsNotSaved(Struct, frozen=True):
    why: str


class FilesNotRemoved(Struct, frozen=True):
    """Of deleted partitions."""

    why: str


class FilesNotClosed(Struct, frozen=True):
    partition: str
    why: str


class SegmentNotRolled(Struct, frozen=True):
    partition: str
    why: str


class RetentionFailed(Struct, frozen=True):
    partition: str
    why: str


class SegmentsDeleted(Struct, frozen=True):
    """By retention."""

    partition: str
    segments: int
    start_offset: int


class LogCompacted(Struct, frozen=True):
    partition: str
    end_offset: int
    dropped: int
    kept: int


class CompactionFailed(Struct, frozen=True):
    partition: str
    why: str
    retried: bool
    """Before a restart."""


class SegmentUnread(Struct, frozen=True):
    """The check could not read it, nor will it read the others of this log in this round."""

    hosted: str
    path: str
    why: str


class MetadataDamaged(Struct, frozen=True):
    """The check found it."""

    damage: str


class BatchesChecked(Struct, frozen=True):
    """A round of the check is over."""

    bytes_read: int
    segments: int
    damaged: int
    unread: int


UpkeepNews = (
    SyncPutOff
    | SyncWithoutCheckpoint
    | CheckpointNotSaved
    | OffsetsNotSaved
    | FilesNotRemoved
    | FilesNotClosed
    | SegmentNotRolled
    | RetentionFailed
    | SegmentsDeleted
    | LogCompacted
    | CompactionFailed
    | SegmentUnread
    | MetadataDamaged
    | BatchesChecked
)
