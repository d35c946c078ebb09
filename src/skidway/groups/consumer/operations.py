"""What a coordinator can be asked about groups of the consumer protocol, and what it answers.

Partitions are named by topic id here, as in the protocol.
"""

from msgspec import Struct, field

from skidway.runtime.replicated import Operation

TopicPartitions = list[tuple[bytes, list[int]]]
"""Topic id and partitions, each topic once."""

JOINING = 0
LEAVING = -1
LEAVING_FOR_A_WHILE = -2
"""Epochs that are no epochs: a static member that leaves with the last one keeps its partitions until its session is
over or its instance comes back."""


class ConsumerHeartbeatReply(Struct):
    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int = 0
    """0 in the answer to a leaving member."""
    assignment: TopicPartitions | None = None
    """None when it is what the member already knows."""


class ConsumerHeartbeat(Operation[ConsumerHeartbeatReply]):
    """None (and -1 for the timeout) stands for "as before".

    Refusals: InvalidRequest, UnsupportedAssignor, InvalidRegularExpression, GroupIdNotFound (not a consumer group and
    cannot become one), UnknownMemberId, FencedMemberEpoch, UnreleasedInstanceId, FencedInstanceId,
    GroupMaxSizeReached.
    """

    group_id: str
    member_id: str
    """Chosen by the client; up to version 0 empty in a first join."""
    member_epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    client_id: str = ""
    client_host: str = ""
    topics: list[str] | None = None
    regex: str | None = None
    """In RE2's syntax; empty for none any more."""
    assignor: str | None = None
    owned: TopicPartitions | None = None
    """What the member has right now: how it says that it gave partitions up."""
    version: int = 1


class DescribedConsumer(Struct):
    member_id: str
    instance_id: str | None
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    topics: list[str]
    regex: str | None
    assignment: list[tuple[bytes, str, list[int]]] = field(default_factory=list)
    """Topic id, name, partitions; topics that are gone are left out."""
    target_assignment: list[tuple[bytes, str, list[int]]] = field(default_factory=list)
    is_classic: bool = False
    """Member type 0 in version 1; 1 for the others."""


class DescribedConsumerGroup(Struct):
    group_id: str
    state: str
    group_epoch: int
    assignment_epoch: int
    assignor: str
    members: list[DescribedConsumer] = field(default_factory=list)


class ConsumerDescribe(Operation[DescribedConsumerGroup]):
    """A group of the consumer protocol; GroupIdNotFound for every other."""

    group_id: str
