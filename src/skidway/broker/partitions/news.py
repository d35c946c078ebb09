"""What a node reports of the partitions stored here: for the operators' log."""

from dataclasses import dataclass


@dataclass(slots=True, frozen=True)
class PartitionOffline:
    """It should be here, and its log could not be opened."""

    partition: str
    why: str


@dataclass(slots=True, frozen=True)
class PartitionQuarantined:
    """Its log cannot be believed."""

    partition: str
    why: str
    alone: bool
    """There is no other replica."""


@dataclass(slots=True, frozen=True)
class PartitionUnavailable:
    """The copy here is damaged, and no other replica may lead."""

    partition: str


@dataclass(slots=True, frozen=True)
class CopyRestored:
    """A damaged copy was fetched from the leader, and is in sync."""

    partition: str


@dataclass(slots=True, frozen=True)
class FilesChanged:
    """Another program removed files of a partition that is open."""

    partition: str
    why: str


@dataclass(slots=True, frozen=True)
class BatchRejected:
    """The disk refused a batch. Producers retry, so there are many of these."""

    partition: str
    why: str


@dataclass(slots=True, frozen=True)
class StrayLogKept:
    """A log belongs to no topic, and could not be renamed."""

    directory: str
    why: str


@dataclass(slots=True, frozen=True)
class PartitionMetadataRewritten:
    """The file partition.metadata was damaged or missing."""

    directory: str
    damage: str


PartitionNews = (
    PartitionOffline
    | PartitionQuarantined
    | PartitionUnavailable
    | CopyRestored
    | FilesChanged
    | BatchRejected
    | StrayLogKept
    | PartitionMetadataRewritten
)
