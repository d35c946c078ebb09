"""What a node reports of the partitions stored here: for the operators' log."""

from msgspec import Struct


class PartitionOffline(Struct, frozen=True):
    """It should be here, and its log could not be opened."""

    partition: str
    why: str


class PartitionOpened(Struct, frozen=True):
    """It was offline, and its log could be opened now."""

    partition: str


class PartitionQuarantined(Struct, frozen=True):
    """Its log cannot be believed."""

    partition: str
    why: str
    alone: bool
    """There is no other replica."""


class PartitionUnavailable(Struct, frozen=True):
    """The copy here is damaged, and no other replica may lead."""

    partition: str


class CopyRestored(Struct, frozen=True):
    """A damaged copy was fetched from the leader, and is in sync."""

    partition: str


class FilesChanged(Struct, frozen=True):
    """Another program removed files of a partition that is open."""

    partition: str
    why: str


class BatchRejected(Struct, frozen=True):
    """The disk refused a batch. Producers retry, so there are many of these."""

    partition: str
    why: str


class StrayLogKept(Struct, frozen=True):
    """A log belongs to no topic, and could not be renamed."""

    directory: str
    why: str


class PartitionMetadataRewritten(Struct, frozen=True):
    """The file partition.metadata was damaged or missing."""

    directory: str
    damage: str


PartitionNews = (
    PartitionOffline
    | PartitionOpened
    | PartitionQuarantined
    | PartitionUnavailable
    | CopyRestored
    | FilesChanged
    | BatchRejected
    | StrayLogKept
    | PartitionMetadataRewritten
)
