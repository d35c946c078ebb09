"""What handlers may use of their node: the rooms they ask, and nothing of how the node is composed.

Handlers and connections call it `node`.
"""

from __future__ import annotations

from typing import Any

import msgspec

from skidway.broker.api.call import RouteTable
from skidway.broker.cluster.controller_access import ControllerAccess
from skidway.broker.cluster.peers import Peers
from skidway.broker.cluster.producer_ids import ProducerIds
from skidway.broker.cluster.quorum_host import QuorumHost
from skidway.broker.cluster.registration import Registration
from skidway.broker.coordinators.groups import GroupCoordinators, TopicsView
from skidway.broker.coordinators.host import Coordinators
from skidway.broker.coordinators.schedules import SCHEDULES_TOPIC
from skidway.broker.coordinators.share_states import ShareStates
from skidway.broker.coordinators.transaction_questions import TransactionQuestions
from skidway.broker.coordinators.transactions import TransactionCoordinators
from skidway.broker.counts import Counts
from skidway.broker.partitions.catalog import Partitions
from skidway.broker.partitions.hosting import Hosting
from skidway.broker.partitions.partition import Partition
from skidway.broker.partitions.room import Room
from skidway.broker.partitions.waiting import Waiting
from skidway.broker.queues.host import Queues
from skidway.broker.reads.consumers import ConsumerFetches
from skidway.broker.replication.follower_fetches import FollowerFetches
from skidway.broker.shares.fetches import ShareFetches
from skidway.broker.upkeep.upkeep import Upkeep
from skidway.broker.world import World
from skidway.metadata.image import Image
from skidway.ports import Loggers
from skidway.runtime.turn import TurnNotes


class Services(msgspec.Struct, kw_only=True, eq=False):
    world: World
    counts: Counts
    turn: TurnNotes[Partition]
    cluster_id: str
    routes: RouteTable
    loggers: Loggers | None
    topics: TopicsView
    partitions: Partitions
    hosting: Hosting
    quorum: QuorumHost
    controller: ControllerAccess
    registration: Registration
    peers: Peers
    producer_ids: ProducerIds
    upkeep: Upkeep
    waiting: Waiting
    consumer_fetches: ConsumerFetches
    replica_polls: FollowerFetches
    groups: GroupCoordinators
    transactions: TransactionCoordinators
    questions: TransactionQuestions
    """To coordinators of transactions, on whatever node."""
    queues: Queues
    coordinators: dict[str, Coordinators[Any, Any]]
    """Of every kind that clients may see, by the topic they are kept in."""
    waiting_bytes: int = 0
    """Replies of all connections that an older request of theirs holds back."""

    @property
    def share_fetches(self) -> ShareFetches:
        return self.queues.share_fetches

    @property
    def share_states(self) -> ShareStates:
        """Questions to coordinators of share-partitions, on whatever node."""
        return self.share_fetches.states

    @property
    def schedules(self) -> Coordinators[Any, Any]:
        """Coordinators of the schedules of queues."""
        return self.coordinators[SCHEDULES_TOPIC]

    @property
    def image(self) -> Image:
        return self.hosting.image

    @property
    def room(self) -> Room:
        return self.groups.surroundings.room

    @property
    def serving(self) -> bool:
        return self.world.serving

    def coordinators_of(self, key_type: int) -> Coordinators[Any, Any] | None:
        """By FindCoordinator's number of the kind."""
        for coordinators in self.coordinators.values():
            if coordinators.kind.key_type == key_type:
                return coordinators
        return None
