"""What a coordinator can be asked, and what it answers.

A refusal of the whole operation is a ProtocolError in place of the reply, whether at once or later. JoinGroup and
SyncGroup may be answered much later: when the others have joined, when the leader has assigned. Members and
partitions that fail alone have an ErrorCode in the reply. An empty group id is InvalidGroupId to those who would be
members; the offsets of a group named "" are an old habit: committing, fetching, describing and deleting stay legal.
"""

from enum import StrEnum

from msgspec import Struct, field

from skidway.errors import ErrorCode
from skidway.groups.records import GroupRecord
from skidway.ports import Buffer
from skidway.runtime.log_store import Marker, Producer
from skidway.runtime.replicated import Operation

NO_GENERATION = -1


class JoinedMember(Struct):
    member_id: str
    instance_id: str | None
    metadata: Buffer


class JoinReply(Struct):
    member_id: str
    generation: int
    protocol_type: str
    protocol_name: str
    leader: str
    members: list[JoinedMember] = field(default_factory=list)
    """Everyone, for the leader; empty for the others."""
    skip_assignment: bool = False


class JoinGroup(Operation[JoinReply]):
    """MemberIdRequired carries the id to join with; every other refusal echoes the caller's id."""

    group_id: str
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    """Version 0 has none: the session timeout."""
    protocol_type: str
    protocols: list[tuple[str, Buffer]]
    member_id_required: bool = True
    """From version 4 a new dynamic member is first sent away with an id."""
    can_skip_assignment: bool = True
    """From version 9 a static leader that comes back may be told to leave the assignment as it is."""


class SyncReply(Struct):
    protocol_type: str
    protocol_name: str
    assignment: Buffer


class SyncGroup(Operation[SyncReply]):
    group_id: str
    member_id: str
    instance_id: str | None
    generation: int
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: list[tuple[str, Buffer]] = field(default_factory=list)
    """Member id and assignment; only the leader's are read."""


class Heartbeat(Operation[None]):
    """RebalanceInProgress tells the member to join again."""

    group_id: str
    member_id: str
    instance_id: str | None
    generation: int


class Leaving(Struct):
    member_id: str = ""
    """Empty when an operator removes a static member by its instance id."""
    instance_id: str | None = None


class LeaveGroup(Operation[list[ErrorCode]]):
    """One code for each member, in their order. Versions before 3 name one member and show its code on top."""

    group_id: str
    members: list[Leaving]


class OffsetToCommit(Struct):
    topic: str
    partition: int
    offset: int
    leader_epoch: int = -1
    metadata: str = ""


class CommitOffsets(Operation[list[ErrorCode]]):
    """One code for each offset, in their order. Whether the topics exist is the caller's to check."""

    group_id: str
    offsets: list[OffsetToCommit]
    member_id: str = ""
    instance_id: str | None = None
    generation: int = NO_GENERATION
    """Or the epoch of the member of a consumer group."""
    retention_ms: int = -1
    """Versions 2 to 4: how long to keep these offsets."""
    version: int = 9
    """Of the API: before 9 an unknown group is IllegalGeneration, from 9 on GroupIdNotFound."""


class CommitOffsetsInTransaction(Operation[list[ErrorCode]]):
    """The same within a producer's transaction: they count when its marker says so. That the transaction covers the
    group's partition is the caller's to make sure of, beforehand."""

    group_id: str
    offsets: list[OffsetToCommit]
    producer: Producer
    member_id: str = ""
    instance_id: str | None = None
    generation: int = NO_GENERATION
    """Or the epoch of the member of a consumer group. Nothing is checked of a producer that names none of the three."""
    version: int = 6
    """Of the API: before 6 an unknown group and an old epoch are IllegalGeneration."""


class EndOffsetsTransaction(Operation[None]):
    """What a producer has committed in its transaction counts from now on, or never. Answered when that is so, and
    will stay so. Refused like any marker in a partition."""

    marker: Marker


class PreparedCommit(Operation[list[ErrorCode]]):
    """A commit with all done that does not depend on the group (`groups.offsets.prepare`): a commit of thousands
    of offsets is decided in one go, so little must be left to decide."""

    asked: CommitOffsets | CommitOffsetsInTransaction
    commits: dict[tuple[str, int], OffsetToCommit]
    """What is to be committed: the last word on each partition."""
    codes: list[ErrorCode]
    records: list[GroupRecord]
    bytes: int
    """Of the record batch, at most."""


class FetchedOffset(Struct):
    topic: str
    partition: int
    offset: int = -1
    leader_epoch: int = -1
    metadata: str = ""
    error: ErrorCode = ErrorCode.NONE


class FetchOffsets(Operation[list[FetchedOffset]]):
    """In the order asked, or all of the group's by topic and partition. An unknown group has no offsets; that is
    no error."""

    group_id: str
    partitions: list[tuple[str, int]] | None = None
    """Topic and partition; None for all that are committed."""
    member_id: str | None = None
    member_epoch: int = -1
    """Checked in consumer groups when it is not negative (from version 9 on)."""
    require_stable: bool = False


class DeleteOffsets(Operation[list[ErrorCode]]):
    """One code for each partition, in their order. GroupIdNotFound, NonEmptyGroup for the whole."""

    group_id: str
    partitions: list[tuple[str, int]]


class GroupType(StrEnum):
    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"


class ListedGroup(Struct):
    group_id: str
    protocol_type: str
    state: str
    type: GroupType


class ListGroups(Operation[list[ListedGroup]]):
    """The groups of this coordinator. Filters do not look at upper and lower case; what they do not know
    matches nothing."""

    states: list[str] = field(default_factory=list)
    types: list[str] = field(default_factory=list)


class DescribedMember(Struct):
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: Buffer = b""
    """Only of a stable group."""
    assignment: Buffer = b""


class DescribedGroup(Struct):
    group_id: str
    state: str
    protocol_type: str
    protocol_name: str
    members: list[DescribedMember]


class DescribeGroup(Operation[DescribedGroup]):
    """A classic group. GroupIdNotFound also for groups of other types: versions before 6 show that as state Dead."""

    group_id: str


class DeleteGroup(Operation[None]):
    """With its offsets. GroupIdNotFound, NonEmptyGroup."""

    group_id: str


class MetadataChanged(Operation[None]):
    """Topics came, grew or went. The offsets of those that went are forgotten; consumer groups look again."""

    deleted_topics: list[str] = field(default_factory=list)


class Tick(Operation[None]):
    """It is `deadline_ms`: sessions, joins, syncs and offsets that are over."""

    age_ms: int | None = None
    """The wall clock by which offsets grow old, where that is not the one of the decision: see `runtime.age_clock`."""
