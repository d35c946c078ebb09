"""What members of the quorum say to each other, as plain values; the broker turns them into Kafka's messages.

An `Ask` in the machine's outbox is a request to one member. Whoever carries it calls `on_<request>` there and brings
the answer back to `on_<request>_answer` here, or `on_unanswered` when there is none. Answers of other epochs than the
current one are recognised by what they carry, so it does no harm when they come late or twice.
"""

from msgspec import Struct, field

from skidway.errors import ErrorCode
from skidway.ports import Buffer
from skidway.quorum.voters import Member

NO_LEADER = -1


class Vote(Struct, frozen=True):
    to: Member
    """Whom the candidate takes the receiver for: a voter with a new directory is another voter."""
    candidate: Member
    epoch: int
    last_epoch: int
    end_offset: int
    pre_vote: bool


class VoteAnswer(Struct, frozen=True):
    epoch: int
    leader: int
    granted: bool
    error: ErrorCode = ErrorCode.NONE


class BeginEpoch(Struct, frozen=True):
    """A new leader makes itself known."""

    to: Member
    leader: int
    epoch: int


class EndEpoch(Struct, frozen=True):
    """A leader steps down; whoever comes first among the candidates should stand at once."""

    leader: int
    epoch: int
    candidates: tuple[Member, ...]


class EpochAnswer(Struct, frozen=True):
    """To BeginEpoch and EndEpoch."""

    epoch: int
    leader: int
    error: ErrorCode = ErrorCode.NONE


class Fetch(Struct, frozen=True):
    replica: Member
    epoch: int
    offset: int
    last_epoch: int
    """Of the record before `offset`: tells the leader whether the logs agree up to there."""
    high_watermark: int


class EpochEnd(Struct, frozen=True):
    epoch: int
    end_offset: int


class FetchAnswer(Struct, frozen=True):
    epoch: int
    leader: int
    high_watermark: int = -1
    records: Buffer = b""
    diverging: EpochEnd | None = None
    """Where the leader's log ends for the epoch asked for: the follower's goes on differently."""
    snapshot: EpochEnd | None = None
    """What the follower lacks is no longer in the log: it has to fetch this snapshot."""
    error: ErrorCode = ErrorCode.NONE


class FetchSnapshot(Struct, frozen=True):
    replica: Member
    epoch: int
    snapshot: EpochEnd
    position: int


class SnapshotAnswer(Struct, frozen=True):
    epoch: int
    leader: int
    snapshot: EpochEnd = field(default_factory=lambda: EpochEnd(-1, -1))
    size: int = 0
    position: int = 0
    data: Buffer = b""
    error: ErrorCode = ErrorCode.NONE


Request = Vote | BeginEpoch | EndEpoch | Fetch | FetchSnapshot
Answer = VoteAnswer | EpochAnswer | FetchAnswer | SnapshotAnswer


class Ask(Struct, frozen=True):
    to: int
    request: Request
