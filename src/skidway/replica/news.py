"""What is wrong with a copy of a partition and what becomes of it, as its node reports it: for the operators' log and
the laws of the simulator."""

from dataclasses import dataclass
from enum import Enum


class Remedy(Enum):
    """What becomes of a damaged copy."""

    FETCH = "fetch"
    """It is fetched again from the leader."""
    FETCH_LATER = "fetch later"
    """It is served until another replica leads, and then fetched again."""
    RESTORE = "restore"
    """No other replica has it: an operator has to restore it."""


@dataclass(slots=True, frozen=True)
class CopyDamaged:
    partition: str
    why: str
    remedy: Remedy
    by_failed_cut: bool = False
    """The disk failed in the middle of a truncation."""


@dataclass(slots=True, frozen=True)
class BadBatchFetched:
    """A leader sent a batch that is not what it was. It is fetched again."""

    partition: str
    leader_id: int
    why: str


@dataclass(slots=True, frozen=True)
class LogCut:
    """A start made a log shorter."""

    directory: str
    what: str
    """From where to where, and why: a whole sentence."""


@dataclass(slots=True, frozen=True)
class LogSetAside:
    """A log that was found belongs to no topic. Its files stay under another name."""

    directory: str
    kept: str


@dataclass(slots=True, frozen=True)
class DirectoryMissing:
    """A partition that should be here has no directory. It starts empty."""

    directory: str


@dataclass(slots=True, frozen=True)
class TailCut:
    """The leader has another log from `offset` on: what was here behind it is gone."""

    partition: str
    leader_id: int
    offset: int
    end_offset: int
    end_before: int


@dataclass(slots=True, frozen=True)
class CopyBegunAnew:
    """What was here is gone, and it is fetched from `offset` on."""

    partition: str
    offset: int
    start_before: int
    end_before: int
    why: str


@dataclass(slots=True, frozen=True)
class CutRefused:
    """The leader lacks what was committed: it is not followed in this epoch."""

    partition: str
    leader_id: int
    offset: int
    high_watermark: int


@dataclass(slots=True, frozen=True)
class CutMeaningless:
    """The leader says that the logs part where the one here ends."""

    partition: str
    leader_id: int
    offset: int


@dataclass(slots=True, frozen=True)
class OffsetRefused:
    """The leader refused the end of the log here, and yet its own log could continue it."""

    partition: str
    leader_id: int
    end_offset: int
    leader_start: int


@dataclass(slots=True, frozen=True)
class FollowerOffline:
    """Its log accepts no writes."""

    partition: str
    why: str


@dataclass(slots=True, frozen=True)
class FetchedNotStored:
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
