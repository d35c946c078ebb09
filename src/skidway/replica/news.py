"""What is wrong with a copy of a partition and what becomes of it, as its node reports it: for the operators' log and
the laws of the simulator."""

from enum import Enum

from msgspec import Struct


class Remedy(Enum):
    """What becomes of a damaged copy."""

    FETCH = "fetch"
    """It is fetched again from the leader."""
    FETCH_LATER = "fetch later"
    """It is served until another replica leads, and then fetched again."""
    RESTORE = "restore"
    """No other replica has it: an operator has to restore it."""


class CopyDamaged(Struct, frozen=True):
    partition: str
    why: str
    remedy: Remedy
    by_failed_cut: bool = False
    """The disk failed in the middle of a truncation."""


class BadBatchFetched(Struct, frozen=True):
    """A leader sent a batch that is not what it was. It is fetched again."""

    partition: str
    leader_id: int
    why: str


class LogCut(Struct, frozen=True):
    """A start made a log shorter."""

    directory: str
    what: str
    """From where to where, and why: a whole sentence."""


class LogSetAside(Struct, frozen=True):
    """A log that was found belongs to no topic. Its files stay under another name."""

    directory: str
    kept: str


class DirectoryMissing(Struct, frozen=True):
    """A partition that should be here has no directory. It starts empty."""

    directory: str


class TailCut(Struct, frozen=True):
    """The leader has another log from `offset` on: what was here behind it is gone."""

    partition: str
    leader_id: int
    offset: int
    end_offset: int
    end_before: int


class CopyBegunAnew(Struct, frozen=True):
    """What was here is gone, and it is fetched from `offset` on."""

    partition: str
    offset: int
    start_before: int
    end_before: int
    why: str


class CutRefused(Struct, frozen=True):
    """The leader lacks what was committed: it is not followed in this epoch."""

    partition: str
    leader_id: int
    offset: int
    high_watermark: int


class CutMeaningless(Struct, frozen=True):
    """The leader says that the logs part where the one here ends."""

    partition: str
    leader_id: int
    offset: int


class OffsetRefused(Struct, frozen=True):
    """The leader refused the end of the log here, and yet its own log could continue it."""

    partition: str
    leader_id: int
    end_offset: int
    leader_start: int


class FollowerOffline(Struct, frozen=True):
    """Its log accepts no writes."""

    partition: str
    why: str


class FetchedNotStored(Struct, frozen=True):
    partition: str
    leader_id: int
    why: str


ReplicaNews = (
    CopyDamaged
    | BadBatchFetched
    | LogCut
    | LogSetAside
    | DirectoryMissing
    | TailCut
    | CopyBegunAnew
    | CutRefused
    | CutMeaningless
    | OffsetRefused
    | FollowerOffline
    | FetchedNotStored
)
