"""The rooms of one node, composed: each gets those below it, and a callable where it has something to say to one above.

What happens in one room and concerns several others goes to the node (`Above`), which tells them.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Protocol

import msgspec

from skidway.broker.api.call import RouteTable
from skidway.broker.api.caller import this_node
from skidway.broker.api.forwarding import ask_here, ask_node
from skidway.broker.api.share_requests import share_work
from skidway.broker.cluster.chronicle import Chronicle
from skidway.broker.cluster.controller_access import ControllerAccess
from skidway.broker.cluster.controller_host import ControllerHost
from skidway.broker.cluster.peers import Peers, Respond
from skidway.broker.cluster.producer_ids import ProducerIds, blocks_from_controller
from skidway.broker.cluster.quorum_host import QuorumHost, Subscriber
from skidway.broker.cluster.registration import Registration
from skidway.broker.coordinators.groups import TopicsView, group_coordinators, write_marker
from skidway.broker.coordinators.host import Coordinator, Coordinators, Surroundings
from skidway.broker.coordinators.schedules import ScheduleCoordinators
from skidway.broker.coordinators.share_states import ShareStates
from skidway.broker.coordinators.shares import share_coordinators
from skidway.broker.coordinators.transaction_questions import TransactionQuestions
from skidway.broker.coordinators.transactions import TransactionCoordinators
from skidway.broker.counts import Counts
from skidway.broker.identity import Identity
from skidway.broker.last_run import LastRun
from skidway.broker.partitions.damaged import DamagedCopies
from skidway.broker.partitions.hosting import Hosting, Observer
from skidway.broker.partitions.metadata_follower import MetadataFollower
from skidway.broker.partitions.partition import Partition
from skidway.broker.partitions.room import Room
from skidway.broker.partitions.waiting import Waiting
from skidway.broker.queues.host import Queues
from skidway.broker.queues.rules import QueueRulesOf
from skidway.broker.reads.consumers import ConsumerFetches
from skidway.broker.reads.poll import Reads
from skidway.broker.replication.fetchers import Fetchers
from skidway.broker.replication.follower_fetches import FollowerFetches
from skidway.broker.replication.in_sync import InSync
from skidway.broker.services import Services
from skidway.broker.shares.fetches import ShareFetches
from skidway.broker.shares.group_rules import GroupRulesOf
from skidway.broker.shares.letter_office import LetterOffice
from skidway.broker.shares.share_partitions import SharePartitions
from skidway.broker.shares.stored import CoordinatorStore
from skidway.broker.start import Start, open_quorum
from skidway.broker.upkeep.compactions import Compactions
from skidway.broker.upkeep.scrubbing import Scrubbing
from skidway.broker.upkeep.syncs import Outcomes, Syncs
from skidway.broker.upkeep.upkeep import Upkeep
from skidway.broker.world import World
from skidway.groups.coordinator import GroupCoordinator
from skidway.groups.records import GroupRecord
from skidway.groups.share.operations import StateEffect
from skidway.log.compaction.cleaning import Compactor
from skidway.log.logs import Logs
from skidway.metadata.features import share_version
from skidway.ports import Loggers
from skidway.runtime.turn import TurnNotes
from skidway.wire.message import Message


class Above(Observer, Outcomes, Subscriber, Protocol):
    """Who tells other rooms what one reports."""

    def on_starts_saved(self) -> None:
        """The files that say where logs begin were written."""
        ...


class Ground(msgspec.Struct, kw_only=True, eq=False):
    """What is there before the first room."""

    world: World
    counts: Counts
    turn: TurnNotes[Partition]
    waiting: Waiting
    routes: RouteTable
    peers: Peers
    loggers: Loggers | None
    compactor: Compactor
    identity: Identity
    last_run: LastRun
    logs: Logs
    above: Above


class Rooms:
    """Those that handlers alone use are in `services` only."""

    __slots__ = (
        "chronicle",
        "compactions",
        "controller",
        "controllers",
        "coordinators",
        "damaged",
        "followers",
        "hosting",
        "in_sync",
        "metadata_follower",
        "quorum",
        "reads",
        "registration",
        "replica_polls",
        "room",
        "scrubbing",
        "services",
        "start",
        "syncs",
        "upkeep",
    )

    def __init__(self, ground: Ground, wall_ms: int) -> None:
        incarnation_id = ground.world.random.randbytes(16)
        self._compose_partitions(ground)
        self._compose_quorum(ground, wall_ms)
        self._compose_copies(ground)
        self._compose_registration(ground, incarnation_id)
        self._compose_upkeep(ground)
        self._compose_replication(ground)
        self._compose_services(ground)

    def _compose_partitions(self, ground: Ground) -> None:
        world, above = ground.world, ground.above
        self.hosting = Hosting(
            world.settings,
            world.limits,
            ground.logs,
            ground.turn,
            world.clock,
            above,
            world.report,
        )
        self.metadata_follower = MetadataFollower(self.hosting, above)
        self.start = Start(world, self.hosting)
        self.room = Room(world, above.fail, above.on_files_removed, lambda: self.registration.tell())

    def _compose_quorum(self, ground: Ground, wall_ms: int) -> None:
        world, hosting, peers = ground.world, self.hosting, ground.peers
        caller = this_node(world.settings.node_id)

        def ask_own_services(request: Message, now_ms: int, respond: Respond) -> None:
            ask_here(self.services, caller, request, now_ms, respond)

        self.quorum: QuorumHost = open_quorum(
            world, ground.turn, peers, ground.logs, ground.identity, ground.above, wall_ms
        )
        self.chronicle = Chronicle(world, hosting, self.quorum)
        self.controllers = ControllerHost(
            world, hosting.image, self.quorum, self.chronicle, lambda: self.registration.tell()
        )
        self.controller = ControllerAccess(world, hosting, self.quorum, self.controllers, peers, ask_own_services)

    def _compose_copies(self, ground: Ground) -> None:
        self.damaged = DamagedCopies(
            ground.world,
            self.hosting.image,
            self.controller.ask,
            lambda: self.registration.epoch,
            ground.identity.directory_id,
            lambda partition: self.compactions.on_removed(partition),
        )
        self.compactions = Compactions(
            ground.world, ground.turn, self.hosting, ground.compactor, ground.above.fail, self.damaged.found
        )

    def _compose_registration(self, ground: Ground, incarnation_id: bytes) -> None:
        logs, last_run = ground.logs, ground.last_run
        self.registration = Registration(
            ground.world,
            ground.identity,
            incarnation_id,
            logs.clean_epoch if logs.clean else last_run.broker_epoch,
            last_run,
            self.hosting,
            self.quorum,
            self.controller,
            self.damaged,
            self.room,
            self.start.begin_hosting,
        )

    def _compose_upkeep(self, ground: Ground) -> None:
        world, turn, above, hosting = ground.world, ground.turn, ground.above, self.hosting
        self.syncs = Syncs(turn, world.timers, world.clock, hosting, above, world.report)
        self.upkeep = Upkeep(
            world,
            turn,
            ground.logs,
            hosting,
            self.quorum,
            self.syncs,
            above.fail,
            lambda partition: ground.waiting.shares.on_start_moved(partition),
            above.on_starts_saved,
        )
        self.scrubbing = Scrubbing(
            world, hosting.partitions, self.quorum, lambda: self.services.serving, self.damaged.found
        )

    def _compose_replication(self, ground: Ground) -> None:
        world, hosting = ground.world, self.hosting
        self.followers = Fetchers(
            world,
            ground.turn,
            ground.peers,
            lambda: self.registration.epoch,
            ground.above.on_role_changed,
            self.upkeep.save_offsets,
        )
        polls, stable_polls = ground.waiting.polls, ground.waiting.stable_polls
        self.reads = Reads(hosting.partitions, polls, stable_polls, world.slices, world.limits, self.damaged.found)
        self.replica_polls = FollowerFetches(
            self.reads,
            world.clock,
            world.random,
            hosting.whereabouts.eligible,
            hosting.topic_settings.leader_throttle,
            ground.waiting.deletions,
            lambda partition: self.in_sync.propose(partition),
        )
        self.in_sync = InSync(
            world,
            hosting.image,
            hosting.partitions,
            self.controller.ask,
            self.replica_polls.note,
            self.replica_polls.expire,
        )

    def _compose_services(self, ground: Ground) -> None:
        world, hosting, image = ground.world, self.hosting, self.hosting.image
        surroundings = Surroundings(
            world=world,
            image=image,
            partitions=hosting.partitions,
            room=self.room,
            later=hosting.backlog.later,
            create_topics=self.controller.create_missing_topics,
            on_damaged=self.damaged.found,
        )
        topics = TopicsView(image, lambda: self.quorum.published_offset)
        groups = group_coordinators(surroundings, topics, hosting.topic_settings.static, self._perform)
        node_id = world.settings.node_id

        def broker_epoch() -> int:
            return self.registration.epoch

        producer_ids = ProducerIds(blocks_from_controller(self.controller.ask, node_id, broker_epoch))
        transactions = TransactionCoordinators(
            surroundings, producer_ids.take, ground.peers, ground.waiting, broker_epoch
        )
        transactions.markers.through[groups.kind.topic] = partial(write_marker, groups)
        shares = share_coordinators(surroundings, topics)
        schedules = self._compose_schedules(surroundings, transactions)
        self.coordinators: dict[str, Coordinators[Any, Any]] = {
            groups.kind.topic: groups,
            transactions.kind.topic: transactions,
            shares.kind.topic: shares,
            schedules.kind.topic: schedules,
        }
        """Of every kind, by the topic they are kept in."""
        self.metadata_follower.on_features_changed = self._on_features_changed
        self.services: Services = Services(
            world=world,
            counts=ground.counts,
            turn=ground.turn,
            cluster_id=ground.identity.cluster_id,
            routes=ground.routes,
            loggers=ground.loggers,
            topics=topics,
            partitions=hosting.partitions,
            hosting=hosting,
            quorum=self.quorum,
            controller=self.controller,
            registration=self.registration,
            peers=ground.peers,
            producer_ids=producer_ids,
            upkeep=self.upkeep,
            waiting=ground.waiting,
            consumer_fetches=ConsumerFetches(self.reads, image, node_id, world.random),
            replica_polls=self.replica_polls,
            groups=groups,
            transactions=transactions,
            questions=TransactionQuestions(
                world, ground.peers, transactions, lambda: hosting.topic_settings.verifies_transactions
            ),
            queues=self._compose_queues(ground, ShareStates(world, ground.peers, shares), producer_ids),
            coordinators=self.coordinators,
        )

    def _compose_schedules(
        self, surroundings: Surroundings, transactions: TransactionCoordinators
    ) -> ScheduleCoordinators:
        return ScheduleCoordinators(
            surroundings,
            self.hosting.topic_settings,
            transactions.ids,
            lambda *asked: ask_node(self.services, *asked),
        )

    def _on_features_changed(self) -> None:
        if not share_version(self.hosting.image):
            self.services.share_fetches.stop()

    def _compose_queues(self, ground: Ground, states: ShareStates, producer_ids: ProducerIds) -> Queues:
        """With the share groups that they are made of."""
        world, hosting, image = ground.world, self.hosting, self.hosting.image
        rules = QueueRulesOf(hosting.topic_settings.queue, GroupRulesOf(image, hosting.topic_settings.static))
        office = LetterOffice(
            image,
            hosting.topic_settings,
            lambda *asked: ask_node(self.services, *asked),
            self.controller.create_missing_topics,
            producer_ids.take,
        )
        partitions = SharePartitions(world, ground.turn, hosting.partitions, CoordinatorStore(states), rules, office)
        ground.waiting.shares = partitions
        return Queues(world, ShareFetches(world, states, partitions, rules))

    def _perform(self, coordinator: Coordinator[GroupCoordinator, GroupRecord], effect: StateEffect) -> None:
        share_work(self.services).perform(coordinator, effect)
