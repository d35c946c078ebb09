"""What became shorter of the metadata log, as a leader of the quorum had it: for the operators' log."""

from msgspec import Struct


class TailDropped(Struct, frozen=True):
    """The leader has another log from `offset` on."""

    offset: int
    end_before: int


class SnapshotTaken(Struct, frozen=True):
    """The leader sent a snapshot in the place of everything that was here."""

    offset: int
    start_before: int
    end_before: int


MetadataCut = TailDropped | SnapshotTaken
