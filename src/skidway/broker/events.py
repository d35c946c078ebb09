"""What operators want to know: one type for each state transition, with ids and no prose. Those of the cluster and of
the node as a whole are here, the others in the `news` of their rooms.

A node passes them to `report`. The level and how often a kind is logged are in `server.events`, the text in
`server.event_text`; laws of the simulator and tests ask for types. Transitions of the whole cluster are reported by the
node with the active controller (see `chronicle`), those of groups by their coordinator, those of in-sync sets by the
leader.
"""

from collections.abc import Callable, Sequence
from enum import Enum

from msgspec import Struct

from skidway.broker.coordinators.news import ScheduleNews, TransactionNews
from skidway.broker.partitions.news import PartitionNews
from skidway.broker.shares.news import LetterNews
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


class BrokerRegistered(Struct, frozen=True):
    broker_id: int
    address: str
    rack: str | None
    again: bool
    """It was registered before: it restarted."""


class BrokerFenced(Struct, frozen=True):
    broker_id: int
    why: Why
    session_timeout_ms: int


class BrokerUnfenced(Struct, frozen=True):
    broker_id: int


class BrokerStopping(Struct, frozen=True):
    """It asked to be let go: others lead in its place now."""

    broker_id: int


class BrokerUnregistered(Struct, frozen=True):
    broker_id: int


class LeaderChange(Struct, frozen=True):
    partition: str
    before: int
    now: int
    epoch: int


class LeadersElected(Struct, frozen=True):
    changes: Sequence[LeaderChange]


class InSyncChange(Struct, frozen=True):
    partition: str
    before: Sequence[int]
    now: Sequence[int]


class InSyncChanged(Struct, frozen=True):
    changes: Sequence[InSyncChange]


class TopicCreated(Struct, frozen=True):
    topic: str
    partitions: int
    replicas: int


class TooFewReplicas(Struct, frozen=True):
    """A topic has fewer replicas than min.insync.replicas asks for: acks=all can never be answered."""

    topic: str
    replicas: int
    min_in_sync: int


class TopicDeleted(Struct, frozen=True):
    topic: str
    partitions: int


class PartitionsAdded(Struct, frozen=True):
    topic: str
    before: int
    now: int


class ConfigsChanged(Struct, frozen=True):
    kind: ResourceType
    resource: str
    settings: Sequence[tuple[str, str | None]]
    """None: it was taken back."""


class ControllerChanged(Struct, frozen=True):
    node_id: int
    epoch: int
    here: bool


class ControllerLost(Struct, frozen=True):
    """This node is no longer the active controller."""


class FirstStart(Struct, frozen=True):
    """The data directory was empty: this node is new."""

    node_id: int
    cluster_id: str
    alone: bool
    """No voters were named, so it is a cluster of its own."""


class JoinedCluster(Struct, frozen=True):
    """This node was unfenced."""


class FencedHere(Struct, frozen=True):
    """The controller fenced this node."""


class VoterLost(Struct, frozen=True):
    node_id: int
    silent_ms: int
    left: int
    """Voters that are heard from, the leader included."""
    voters: int


class VoterReturned(Struct, frozen=True):
    node_id: int


class VotersChanged(Struct, frozen=True):
    added: Sequence[int]
    removed: Sequence[int]


class VoterWiped(Struct, frozen=True):
    """A voter came back with another directory: it lost its copy of the metadata and does not vote."""

    node_id: int
    here: bool


class DoubtAtStart(Struct, frozen=True):
    """Files of the data directory that could not be read or believed."""

    what: str
    """Which, and what was done: a whole sentence."""


class UnsyncedRewritten(Struct, frozen=True):
    """The last run may have had a failed sync."""

    written_bytes: int


class WritesStopped(Struct, frozen=True):
    """Nothing is written to the data directory any more until a restart."""

    why: str


class LastRunNotRemoved(Struct, frozen=True):
    """The file last-run says that all is well, which is not true any more."""


class LogLevelChanged(Struct, frozen=True):
    logger: str
    level: str | None
    """None: it follows the logger above it."""


class RegistrationRefused(Struct, frozen=True):
    """The controller has not registered this broker. It asks again and again."""

    code: ErrorCode


class ListenerMissing(Struct, frozen=True):
    """A broker that is up lacks the listener by which this node speaks to others, so it is never asked anything."""

    node_id: int
    listener: str


class PeerHungUpOn(Struct, frozen=True):
    """What another node sent makes no sense, so this one closed the connection."""

    node_id: int
    link: str
    why: str


class OutsiderAsked(Struct, frozen=True):
    """A node that this one took for a member of its quorum answered as none. It is asked again and again."""

    node_id: int
    why: str


class QuorumLeft(Struct, frozen=True):
    """The disk did not take what a member of the quorum must remember."""

    why: str


class QuorumTroubled(Struct, frozen=True):
    why: str


class MetadataLogCut(Struct, frozen=True):
    """The leader of the quorum has another metadata log than this node had."""

    cut: MetadataCut
    leader_id: int
    epoch: int


class MetadataSnapshotNotSaved(Struct, frozen=True):
    why: str


class CoordinatorTopicNotCreated(Struct, frozen=True):
    """The topic in which coordinators of one kind keep their state. Clients ask again and again."""

    noun: str
    why: str


class CoordinatorNotLoaded(Struct, frozen=True):
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
    | ScheduleNews
    | TransactionNews
    | UpkeepNews
    | GroupNews
    | LetterNews
    | ReplicaNews
    | RuntimeNews
)
Report = Callable[[Event], None]
