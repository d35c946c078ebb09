"""What a coordinator can be asked about share groups, what it answers, and what it has done elsewhere.

Partitions are named by topic id here, as in the protocol.
"""

from msgspec import Struct, field

from skidway.errors import ErrorCode
from skidway.groups.consumer.operations import TopicPartitions
from skidway.runtime.replicated import Operation

JOINING = 0
LEAVING = -1
BY_RESET = -1
"""A start offset that is yet to be found, by the group's `share.auto.offset.reset`."""
FIRST_STATE_EPOCH = 0
"""The same however often it is tried: what was initialised stays. When offsets are altered the group's epoch counts,
which is always higher."""


class ShareHeartbeatReply(Struct):
    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int = 0
    """0 in the answer to a leaving member."""
    assignment: TopicPartitions | None = None
    """None when it is what the member already knows."""


class ShareHeartbeat(Operation[ShareHeartbeatReply]):
    """None stands for "as before".

    Refusals: InvalidRequest, GroupIdNotFound (not a share group), UnknownMemberId, FencedMemberEpoch,
    GroupMaxSizeReached.
    """

    group_id: str
    member_id: str
    member_epoch: int
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: list[str] | None = None


class DescribedShareMember(Struct):
    member_id: str
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    topics: list[str]
    assignment: list[tuple[bytes, str, list[int]]] = field(default_factory=list)
    """Topic id, name, partitions; topics that are gone are left out."""


class DescribedShareGroup(Struct):
    group_id: str
    state: str
    group_epoch: int
    assignment_epoch: int
    members: list[DescribedShareMember] = field(default_factory=list)


class ShareDescribe(Operation[DescribedShareGroup]):
    """GroupIdNotFound for a group of any other type."""

    group_id: str


class StateItem(Struct, frozen=True):
    """One share-partition."""

    topic_id: bytes
    partition: int
    start_offset: int = BY_RESET
    """Where it is to begin; not looked at when it is deleted."""


class InitializeStates(Struct, frozen=True):
    """An effect: share-partitions get a state. StatesChanged follows, with the same number."""

    group_id: str
    number: int
    state_epoch: int
    items: tuple[StateItem, ...]


class DeleteStates(Struct, frozen=True):
    """An effect: share-partitions have a state no more. StatesChanged follows."""

    group_id: str
    number: int
    items: tuple[StateItem, ...]


StateEffect = InitializeStates | DeleteStates


class StatesChanged(Operation[None]):
    """What became of an effect: a code for each of its items."""

    group_id: str
    number: int
    codes: list[ErrorCode]


class KnownShares(Operation[list[tuple[bytes, str, list[int]]]]):
    """The share-partitions of a group that have a state: topic id, name, partitions. GroupIdNotFound."""

    group_id: str


class AlterShareOffsets(Operation[list[ErrorCode]]):
    """A group without members is to begin at other offsets: a code for each item, when all of it is stored. The group
    is made if it is not there. Whether the partitions exist is the caller's to check. NonEmptyGroup, GroupIdNotFound
    (of another type)."""

    group_id: str
    items: list[StateItem]


class DeleteShareOffsets(Operation[list[ErrorCode]]):
    """A group without members forgets topics: a code for each, when all of it is stored. NonEmptyGroup,
    GroupIdNotFound."""

    group_id: str
    topic_ids: list[bytes]
