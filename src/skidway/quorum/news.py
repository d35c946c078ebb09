"""What became shorter of the metadata log, as a leader of the quorum had it: for the operators' log."""

from dataclasses import dataclass


@dataclass(slots=True, frozen=True)
class TailDropped:
    """The leader has another log from `offset` on."""

    offset: int
    end_before: int


@dataclass(slots=True, frozen=True)
class SnapshotTaken:
    """The leader sent a snapshot in the place of everything that was here."""

    offset: int
    start_before: int
    end_before: int


MetadataCut = TailDropped | SnapshotTaken
