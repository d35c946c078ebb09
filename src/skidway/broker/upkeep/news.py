"""What a node reports of its upkeep: syncs, checkpoints, retention, compaction and the check of what is stored.

`hosted` is a partition or the metadata log. For the operators' log.
"""

from dataclasses import dataclass


@dataclass(slots=True, frozen=True)
class SyncPutOff:
    """Files could not be opened for a sync. It is tried again."""

    hosted: str
    why: str


@dataclass(slots=True, frozen=True)
class SyncWithoutCheckpoint:
    hosted: str
    why: str


@dataclass(slots=True, frozen=True)
class CheckpointNotSaved:
    hosted: str
    why: str


@dataclass(slots=True, frozen=True)
class OffsetsNotSaved:
    why: str


@dataclass(slots=True, frozen=True)
class FilesNotRemoved:
    """Of deleted partitions."""

    why: str


@dataclass(slots=True, frozen=True)
class FilesNotClosed:
    partition: str
    why: str


@dataclass(slots=True, frozen=True)
class SegmentNotRolled:
    partition: str
    why: str


@dataclass(slots=True, frozen=True)
class RetentionFailed:
    partition: str
    why: str


@dataclass(slots=True, frozen=True)
class SegmentsDeleted:
    """By retention."""

    partition: str
    segments: int
    start_offset: int


@dataclass(slots=True, frozen=True)
class LogCompacted:
    partition: str
    end_offset: int
    dropped: int
    kept: int


@dataclass(slots=True, frozen=True)
class CompactionFailed:
    partition: str
    why: str
    retried: bool
    """Before a restart."""


@dataclass(slots=True, frozen=True)
class SegmentUnread:
    """The check could not read it, nor will it read the others of this log in this round."""

    hosted: str
    path: str
    why: str


@dataclass(slots=True, frozen=True)
class MetadataDamaged:
    """The check found it."""

    damage: str


@dataclass(slots=True, frozen=True)
class BatchesChecked:
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
