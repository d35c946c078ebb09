"""What operators want to know: one type for each state transition, with ids and no prose. Those of the cluster and of
the node as a whole are here, the others in the `news` of their rooms.

A node passes them to `report`. The level and how often a kind is logged are in `server.events`, the text in
`server.event_text`; laws of the simulator and tests ask for types. Transitions of the whole cluster are reported by the
node with the active controller (see `chronicle`), those of groups by their coordinator, those of in-sync sets by the
leader.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from skidway.broker.coordinators.news import TransactionNews
from skidway.broker.partitions.news import PartitionNews
from skidway.broker.upkeep.news import UpkeepNews
from skidway.errors import ErrorCode
from skidway.groups.news import GroupNews
from skidway.metadata.config_keys import ResourceType
from skidway.quorum.news import MetadataCut
from skidway.replica.news import ReplicaNews
from skidway.runtime.news import RuntimeNews

NO_LEADER = -1


class Why(Enum):
    """Why a broker was fenced."""

    SILENT = "silent"
    ASKED = "asked"
    STOPPED = "stopped"


@dataclass(slots=True, frozen=True)
class BrokerRegistered:
    broker_id: int
    address: str
    rack: str | None
    again: bool
    """It was registered before: it restarted."""


@dataclass(slots=True, frozen=True)
class BrokerFenced:
    broker_id: int
    why: Why
    session_timeout_ms: int


@dataclass(slots=True, frozen=True)
class BrokerUnfenced:
    broker_id: int


@dataclass(slots=True, frozen=True)
class BrokerStopping:
    """It asked to be let go: others lead in its place now."""

    broker_id: int


@dataclass(slots=True, frozen=True)
class BrokerUnregistered:
    broker_id: int


@dataclass(slots=True, frozen=True)
class LeaderChange:
    partition: str
    before: int
    now: int
    epoch: int


@dataclass(slots=True, frozen=True)
class LeadersElected:
    changes: Sequence[LeaderChange]


@dataclass(slots=True, frozen=True)
class InSyncChange:
    partition: str
    before: Sequence[int]
    now: Sequence[int]


@dataclass(slots=True, frozen=True)
class InSyncChanged:
    changes: Sequence[InSyncChange]


@dataclass(slots=True, frozen=True)
class TopicCreated:
    topic: str
    partitions: int
    replicas: int


@dataclass(slots=True, frozen=True)
class TooFewReplicas:
    """A topic has fewer replicas than min.insync.replicas asks for: acks=all can never be answered."""

    topic: str
    replicas: int
    min_in_sync: int


@dataclass(slots=True, frozen=True)
class TopicDeleted:
    topic: str
    partitions: int


@dataclass(slots=True, frozen=True)
class PartitionsAdded:
    topic: str
    before: int
    now: int


@dataclass(slots=True, frozen=True)
class ConfigsChanged:
    kind: ResourceType
    resource: str
    settings: Sequence[tuple[str, str | None]]
    """None: it was taken back."""


@dataclass(slots=True, frozen=True)
class ControllerChanged:
    node_id: int
    epoch: int
    here: bool


@dataclass(slots=True, frozen=True)
class ControllerLost:
    """This node is no longer the active controller."""


@dataclass(slots=True, frozen=True)
class FirstStart:
    """The data directory was empty: this node is new."""

    node_id: int
    cluster_id: str
    alone: bool
    """No voters were named, so it is a cluster of its own."""


@dataclass(slots=True, frozen=True)
class JoinedCluster:
    """This node was unfenced."""


@dataclass(slots=True, frozen=True)
class FencedHere:
    """The controller fenced this node."""


@dataclass(slots=True, frozen=True)
class VoterLost:
    node_id: int
    silent_ms: int
    left: int
    """Voters that are heard from, the leader included."""
    voters: int


@dataclass(slots=True, frozen=True)
class VoterReturned:
    node_id: int


@dataclass(slots=True, frozen=True)
class VotersChanged:
    added: Sequence[int]
    removed: Sequence[int]


@dataclass(slots=True, frozen=True)
class VoterWiped:
    """A voter came back with another directory: it lost its copy of the metadata and does not vote."""

    node_id: int
    here: bool


@dataclass(slots=True, frozen=True)
class DoubtAtStart:
    """Files of the data directory that could not be read or believed."""

    what: str
    """Which, and what was done: a whole sentence."""


@dataclass(slots=True, frozen=True)
class UnsyncedRewritten:
    """The last run may have had a failed sync."""

    written_bytes: int


@dataclass(slots=True, frozen=True)
class WritesStopped:
    """Nothing is written to the data directory any more until a restart."""

    why: str


@dataclass(slots=True, frozen=True)
class LastRunNotRemoved:
    """The file last-run says that all is well, which is not true any more."""


@dataclass(slots=True, frozen=True)
class LogLevelChanged:
    logger: str
    level: str | None
    """None: it follows the logger above it."""


@dataclass(slots=True, frozen=True)
class RegistrationRefused:
    """The controller has not registered this broker. It asks again and again."""

    code: ErrorCode


@dataclass(slots=True, frozen=True)
class ListenerMissing:
    """A broker that is up lacks the listener by which this node speaks to others, so it is never asked anything."""

    node_id: int
    listener: str


@dataclass(slots=True, frozen=True)
class PeerHungUpOn:
    """What another node sent makes no sense, so this one closed the connection."""

    node_id: int
    link: str
    why: str


@dataclass(slots=True, frozen=True)
class OutsiderAsked:
    """A node that this one took for a member of its quorum answered as none. It is asked again and again."""

    node_id: int
    why: str


@dataclass(slots=True, frozen=True)
class QuorumLeft:
    """The disk did not take what a member of the quorum must remember."""

    why: str


@dataclass(slots=True, frozen=True)
class QuorumTroubled:
    why: str


@dataclass(slots=True, frozen=True)
class MetadataLogCut:
    """The leader of the quorum has another metadata log than this node had."""

    cut: MetadataCut
    leader_id: int
    epoch: int


@dataclass(slots=True, frozen=True)
class MetadataSnapshotNotSaved:
    why: str


@dataclass(slots=True, frozen=True)
class CoordinatorTopicNotCreated:
    """The topic in which coordinators of one kind keep their state. Clients ask again and again."""

    noun: str
    why: str


@dataclass(slots=True, frozen=True)
class CoordinatorNotLoaded:
    partition: str
    noun: str
    why: str


Event = (
    BrokerRegistered
    | BrokerFenced
    | BrokerUnfenced
    | BrokerStopping
    | BrokerUnregistered
    | LeadersElected
    | InSyncChanged
    | TopicCreated
    | TooFewReplicas
    | TopicDeleted
    | PartitionsAdded
    | ConfigsChanged
    | ControllerChanged
    | ControllerLost
    | FirstStart
    | JoinedCluster
    | FencedHere
    | VoterLost
    | VoterReturned
    | VotersChanged
    | VoterWiped
    | DoubtAtStart
    | UnsyncedRewritten
    | WritesStopped
    | LastRunNotRemoved
    | LogLevelChanged
    | RegistrationRefused
    | ListenerMissing
    | PeerHungUpOn
    | OutsiderAsked
    | QuorumLeft
    | QuorumTroubled
    | MetadataLogCut
    | MetadataSnapshotNotSaved
    | CoordinatorTopicNotCreated
    | CoordinatorNotLoaded
    | PartitionNews
    | TransactionNews
    | UpkeepNews
    | GroupNews
    | ReplicaNews
    | RuntimeNews
)
Report = Callable[[Event], None]
