"""What the controller can be asked, and what it answers.

Operations carry plain values, no wire messages; handlers translate. A reply has one result for each item asked, in
the order of the request, with a code and a sentence of its own: one bad item does not spoil the others.
"""

from collections.abc import Mapping
from enum import IntEnum

from msgspec import Struct, field

from skidway.errors import ErrorCode, ProtocolError
from skidway.metadata.config_keys import ConfigEntry
from skidway.metadata.image import Endpoint
from skidway.runtime.replicated import Operation
from skidway.wire.message import ZERO_UUID

METADATA_VERSION = 25
"""metadata.version 4.0-IV3: the level at which Kafka writes the records this controller writes."""


MESSAGE_CHARS_MAX = 1_000


def sentence(refusal: ProtocolError) -> str | None:
    """The refusal's message, short enough for any response: it may quote what a client sent."""
    return refusal.message and refusal.message[:MESSAGE_CHARS_MAX]


# --- the cluster itself ---


class Bootstrap(Operation[Mapping[str, int]]):
    """Finalize the features a fresh log lacks, and those that an older one lacks if all brokers can do them; answers
    all that are finalized. Harmless when repeated."""

    features: Mapping[str, int] = field(default_factory=lambda: {"metadata.version": METADATA_VERSION})


class UpgradeType(IntEnum):
    """Kafka's numbers."""

    UNKNOWN = 0
    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class FeatureUpdate(Struct, frozen=True):
    feature: str
    level: int
    kind: UpgradeType = UpgradeType.UPGRADE


class UpdateFeatures(Operation[None]):
    """All of them or none: the first that is wrong is the refusal."""

    updates: list[FeatureUpdate]
    validate_only: bool = False


class BrokerRegistered(Struct):
    epoch: int


class RegisterBroker(Operation[BrokerRegistered]):
    """A broker begins a run; each gets a new broker epoch. Asked again by the same incarnation it keeps its epoch."""

    broker_id: int
    incarnation_id: bytes
    endpoints: list[Endpoint]
    rack: str | None = None
    log_dirs: list[bytes] = field(default_factory=list)
    features: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    fenced: bool = False
    """Whether it has to heartbeat before it may lead. A quorum of one asks not to: then nobody watches it either."""
    new_leader_epochs: bool = False
    """Begin a new leader epoch in every partition it leads: after an unclean stop its logs may have lost a tail, and
    whoever read that tail must be able to tell."""
    previous_broker_epoch: int = -1
    """What its clean stop left on its disk. Any other than the registered one says that it stopped uncleanly."""
    log_end_offset: int = -1
    """Where the records of this decision will begin: the epoch of a new run."""


class ControllerStarted(Operation[None]):
    """A controller begins its term: whoever is registered counts as heard of just now."""

    suspect: int = -1
    """The controller before this one, which did not hand over: as likely as not it is gone as a broker too."""


class Heartbeat(Struct):
    is_caught_up: bool
    is_fenced: bool
    should_shut_down: bool


class BrokerHeartbeat(Operation[Heartbeat]):
    broker_id: int
    broker_epoch: int
    metadata_offset: int
    """The last offset of the metadata that it follows."""
    want_fence: bool = False
    want_shut_down: bool = False
    log_end_offset: int = 0
    """Where the records of this decision will begin: what others must know before a broker may stop."""


class FenceSilentBrokers(Operation[None]):
    """Those not heard of for a session timeout; and what earlier decisions of this kind left to do."""


class SuspectBroker(Operation[None]):
    """The connection its heartbeats came over was closed: it has little time to be heard over another."""

    broker_id: int
    broker_epoch: int


class UnregisterBroker(Operation[None]):
    broker_id: int


class ProducerIdBlock(Struct):
    first: int
    count: int


class AllocateProducerIds(Operation[ProducerIdBlock]):
    """Ids nobody was given before."""

    broker_id: int
    broker_epoch: int = -1


# --- replicas and leaders ---


class PartitionAlteration(Struct):
    index: int
    leader_epoch: int
    partition_epoch: int
    new_isr: list[tuple[int, int]]
    """(broker, broker epoch); -1 for an epoch that is not known."""
    recovery_state: int = 0


class PartitionAltered(Struct):
    index: int
    error: ErrorCode = ErrorCode.NONE
    leader: int = -1
    leader_epoch: int = -1
    isr: list[int] = field(default_factory=list)
    recovery_state: int = 0
    partition_epoch: int = -1


class AlterPartition(Operation[list[tuple[bytes, list[PartitionAltered]]]]):
    """A leader says who is in sync with it; answers by topic id, in the order of the request."""

    broker_id: int
    broker_epoch: int
    topics: list[tuple[bytes, list[PartitionAlteration]]]


class CopyAssigned(Struct):
    index: int
    error: ErrorCode = ErrorCode.NONE


class AssignDirectories(Operation[list[tuple[bytes, list[tuple[bytes, list[CopyAssigned]]]]]]):
    """A broker says in which of its directories its copies are; answers in the order of the request."""

    broker_id: int
    broker_epoch: int
    directories: list[tuple[bytes, list[tuple[bytes, list[int]]]]]
    """Ids of directories, of topics, and indexes of partitions."""


class ElectionType(IntEnum):
    PREFERRED = 0
    UNCLEAN = 1


class LeaderElected(Struct):
    index: int
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


class ElectLeaders(Operation[list[tuple[str, list[LeaderElected]]]]):
    election_type: int
    topics: list[tuple[str, list[int]]]
    everything: bool = False
    """They are (some of) all that there are: those that need no election, or are gone, are left out of the answer."""


class BalanceLeaders(Operation[None]):
    """Back to the preferred leaders where they are in sync; a bounded number at a time."""


class PartitionReassigned(Struct):
    index: int
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


class AlterReassignments(Operation[list[tuple[str, list[PartitionReassigned]]]]):
    topics: list[tuple[str, list[tuple[int, list[int] | None]]]]
    """(name, [(partition, wanted replicas, or None to cancel)])"""
    allow_replication_factor_change: bool = True


class Reassignment(Struct):
    index: int
    replicas: list[int]
    adding: list[int]
    removing: list[int]


class ListReassignments(Operation[list[tuple[str, list[Reassignment]]]]):
    """Those under way: all (None), or of the partitions named."""

    topics: list[tuple[str, list[int]]] | None = None


# --- topics ---


class NewTopic(Struct):
    name: str
    partitions: int = -1
    replication_factor: int = -1
    assignments: list[tuple[int, list[int]]] = field(default_factory=list)
    """(partition, replicas), when the client chose the brokers itself."""
    configs: list[tuple[str, str | None]] = field(default_factory=list)


class TopicCreated(Struct):
    name: str
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    id: bytes = ZERO_UUID
    partitions: int = -1
    replication_factor: int = -1
    configs: list[ConfigEntry] = field(default_factory=list)


class CreateTopics(Operation[list[TopicCreated]]):
    topics: list[NewTopic]
    validate_only: bool = False


class TopicDeleted(Struct):
    name: str | None
    id: bytes = ZERO_UUID
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


class DeleteTopics(Operation[list[TopicDeleted]]):
    """By name, with a zero id, or by id, with no name."""

    topics: list[tuple[str | None, bytes]]


class MorePartitions(Struct):
    name: str
    count: int
    """The new number of partitions, not the difference."""
    assignments: list[list[int]] | None = None
    """The replicas of each added partition."""


class PartitionsCreated(Struct):
    name: str
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


class CreatePartitions(Operation[list[PartitionsCreated]]):
    topics: list[MorePartitions]
    validate_only: bool = False


# --- configuration ---


class AlterOp(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigReplacement(Struct):
    resource_type: int
    resource_name: str
    configs: list[tuple[str, str | None]]


class ConfigChange(Struct):
    resource_type: int
    resource_name: str
    changes: list[tuple[str, int, str | None]]
    """(name, AlterOp, value)"""


class ConfigsAltered(Struct):
    resource_type: int
    resource_name: str
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


class AlterConfigs(Operation[list[ConfigsAltered]]):
    """Everything not named goes back to its default."""

    resources: list[ConfigReplacement]
    validate_only: bool = False


class IncrementalAlterConfigs(Operation[list[ConfigsAltered]]):
    resources: list[ConfigChange]
    validate_only: bool = False
