"""One node: the machines, composed. It owns no socket, no thread and no clock of its own.

The shell calls in: `connect` for a new peer, `take_sync` at the end of a turn in which work was done, `on_synced` when
a worker has synced files, `on_time` when `deadline_ms` has come. The node calls out only through `on_work` (there is
something for `take_sync`), a connection's `on_ready` (there is something to send) and `on_event` (a line for the log).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from skidway.broker.compactions import Compactions
from skidway.broker.connection import Connection
from skidway.broker.controller_host import ControllerHost
from skidway.broker.coordinators import OFFSETS_TOPIC, Coordinators
from skidway.broker.damaged import DamagedCopies
from skidway.broker.fetch_sessions import FetchSessions
from skidway.broker.followers import Followers
from skidway.broker.forwarding import ask_here
from skidway.broker.hosting import Hosting
from skidway.broker.identity import load_identity
from skidway.broker.in_sync import InSync
from skidway.broker.last_run import LastRun
from skidway.broker.partition import Partition
from skidway.broker.partitions import Partitions
from skidway.broker.peers import Peers
from skidway.broker.producer_ids import ProducerIds, blocks_from_controller
from skidway.broker.quorum_host import QuorumHost
from skidway.broker.registration import Registration
from skidway.broker.replica_polls import ReplicaPolls
from skidway.broker.room import NO_ROOM, Room
from skidway.broker.router import Routes
from skidway.broker.scrubbing import Scrubbing
from skidway.broker.settings import NodeSettings
from skidway.broker.start import Run, Start
from skidway.broker.turn import Turn
from skidway.broker.upkeep import Upkeep
from skidway.errors import (
    ErrorCode,
    NotLeaderOrFollower,
    ProtocolError,
    StorageError,
)
from skidway.limits import DEFAULT_LIMITS, Limits
from skidway.log.cleaning import CleanTicket, Compactor, DirectCompactor, SwapTicket
from skidway.log.logs import FilesTicket
from skidway.log.scrubbing import CheckTicket
from skidway.log.sync import SyncTicket
from skidway.metadata.image import Image
from skidway.ports import Clock, Disk, Random
from skidway.quorum.snapshots import SnapshotTicket
from skidway.runtime.parking import BytesParking, OffsetParking
from skidway.runtime.replicated import Operation
from skidway.runtime.timers import Timers
from skidway.wire.message import Message
from skidway.wire.schema.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse

Reply = TypeVar("Reply")
Ticket = SyncTicket | FilesTicket | CleanTicket | SwapTicket | SnapshotTicket | CheckTicket
Key = Partition | QuorumHost | Upkeep | Compactions | Scrubbing
"""Whose ticket it is."""
CONTROLLER_TIMEOUT_MS = 5_000
SYNC_RETRY_MS = 100
NO_CONTROLLER = "no controller answers now: ask again"


def _no_shell() -> None:
    pass


class Node:
    def __init__(
        self,
        settings: NodeSettings,
        disk: Disk,
        clock: Clock,
        random: Random,
        limits: Limits = DEFAULT_LIMITS,
        on_event: Callable[[str], None] = lambda line: None,
        on_trouble: Callable[[str], None] = lambda line: None,
        compactor: Compactor | None = None,
    ) -> None:
        """`on_event` gets a line for the operator's log, `on_trouble` one that somebody should look at."""
        self.settings = settings
        self.disk = disk
        self.clock = clock
        self.random = random
        self.limits = limits
        self.on_event = on_event
        self.on_trouble = on_trouble
        self.on_work: Callable[[], None] = _no_shell
        self.routes = Routes(limits.request_elements_max)
        self.timers = Timers()
        self.peers = Peers(f"node-{settings.node_id}", self.timers, limits)
        self.peers.on_trouble = on_trouble
        self.turn = Turn(lambda: self.on_work())
        self.acknowledgements: OffsetParking[Partition] = OffsetParking(self.timers)
        self.deletions: OffsetParking[Partition] = OffsetParking(self.timers)
        self.polls: BytesParking[Partition] = BytesParking(self.timers)
        self.fetch_sessions = FetchSessions(limits, random)
        self.replica_polls = ReplicaPolls(self)
        self.in_sync = InSync(self, self.ask_controller, settings.replica_lag_ms)
        self.damaged = DamagedCopies(self, self.ask_controller)
        self.followers = Followers(self)
        self.producer_ids = ProducerIds(blocks_from_controller(self))
        self.upkeep = Upkeep(self)
        self.controllers = ControllerHost(self)
        self.groups = Coordinators(self, settings.groups)
        self.compactions = Compactions(self, compactor or DirectCompactor(disk))
        self.room = Room(self)
        self.start = Start(self)
        self.scrubbing = Scrubbing(self)
        self.waiting_bytes = 0
        """Replies of all connections that an older request of theirs holds back."""
        self.failure: str | None = None
        """Why nothing is written any more: a sync of the data directory failed."""

    # --- life ---

    def open(self, now_ms: int, wall_ms: int, run: Run | None = None) -> None:
        """Recover what is on the disk, take part in the cluster; `run` may do the jobs it gets side by side.

        A node that is a quorum of its own serves when this returns; any other as soon as the cluster has taken it in.
        """
        settings = self.settings
        self.last_run = LastRun(self.disk)
        identity = load_identity(
            self.disk, self.random, settings.node_id, settings.cluster_id, settings.initial_cluster_id
        )
        self.cluster_id = identity.cluster_id
        self.logs = self.start.open_logs()
        self.hosting = Hosting(
            settings,
            self.limits,
            self.logs,
            self.turn,
            self.clock,
            self._on_removed,
            self.on_role_changed,
            self.in_sync.on_metadata,
            self._on_brokers_changed,
            self._on_topics_changed,
            self.on_trouble,
        )
        self.hosting.on_started = self._on_started
        self.image: Image = self.hosting.image
        self.partitions: Partitions = self.hosting.partitions
        previous_epoch = self.logs.clean_epoch if self.logs.clean else self.last_run.broker_epoch
        self.registration = Registration(self, identity.directory_id, previous_epoch)
        self.quorum = self.start.open_quorum(identity, wall_ms)
        if self.quorum.alone:
            self.start.open_alone(identity, now_ms, run)
        self.upkeep.start(now_ms)
        self.scrubbing.start(now_ms)
        self.in_sync.start(now_ms)
        if settings.is_broker:
            self.registration.start()

    def _on_started(self) -> None:
        """All partitions are open."""
        self.groups.start()
        self.registration.tell()

    def maintain(self, now_ms: int, wall_ms: int) -> None:
        """Called now and then: compaction, retention and checkpoints, if they are due."""
        self.compactions.run(now_ms, wall_ms)
        self.upkeep.run(now_ms, wall_ms)

    def leave(self, now_ms: int) -> None:
        """About to stop: have others lead what this node leads. It serves on until `departed`."""
        self.registration.leave()

    @property
    def departed(self) -> bool:
        return self.registration.departed

    def begin_stop(self, now_ms: int) -> None:
        """Nobody waits any longer for what may come: long polls are answered with what there is."""
        self.quorum.resign(now_ms)
        self.hosting.stop()
        self.compactions.stop()
        self.scrubbing.stop()
        self.followers.stop()
        for partition in self.partitions:
            self.polls.disturb(partition)
            self.replica_polls.disturb(partition)

    def close(self, clean: bool, run: Run | None = None) -> None:
        """Stop for good. `clean`: with everything on the disk and the marker that says so; `run` may do the jobs it
        gets side by side."""
        # Logs that were not opened were not recovered either: after a crash nobody may believe them yet.
        known = self.serving or self.logs.clean
        sound = self.failure is None and not self.last_run.sync_failed
        broker_epoch = self.broker_epoch if self.broker_epoch >= 0 else self.logs.clean_epoch
        self.logs.close(clean=clean and known and sound, run=run, broker_epoch=broker_epoch)

    # --- what handlers use ---

    @property
    def metadata_offset(self) -> int:
        """Up to where metadata is known here."""
        return self.quorum.published_offset

    @property
    def controls(self) -> bool:
        """Whether the active controller is here."""
        return self.controllers.active is not None

    @property
    def controller_id(self) -> int:
        return self.quorum.leader_id

    @property
    def broker_epoch(self) -> int:
        return self.registration.epoch

    @property
    def opening(self) -> bool:
        """Whether partitions are being opened."""
        return self.hosting.begun and not self.hosting.started

    @property
    def serving(self) -> bool:
        """Whether clients may come: metadata is known and partitions are open."""
        return self.hosting.started or not self.settings.is_broker

    def submit(
        self, operation: Operation[Reply], now_ms: int, respond: Callable[[Reply | ProtocolError], None]
    ) -> None:
        """Ask the controller of this node; the answer comes when what it decided is committed, and done here."""
        self.decide(operation, now_ms, lambda reply: self.hosting.when_done(lambda: respond(reply)))

    def decide(
        self, operation: Operation[Reply], now_ms: int, respond: Callable[[Reply | ProtocolError], None]
    ) -> None:
        """The same, answered when it is committed: for brokers, which must not wait for each other's files."""
        if self.failure is not None:
            # What it would decide on may never be committed, so the answer might wait for ever.
            respond(StorageError(self.failure))
            return
        self.controllers.submit(operation, now_ms, respond)

    def ask_controller(
        self,
        request: Message,
        respond: Callable[[Message | None], None],
        now_ms: int,
        timeout_ms: int = CONTROLLER_TIMEOUT_MS,
        channel: str = "control",
    ) -> None:
        """Ask the active controller, wherever it is; None when it cannot be asked."""
        leader = self.controller_id
        if self.controls or self.quorum.alone:
            ask_here(self, request, now_ms, respond)
        elif leader in (-1, self.settings.node_id):
            self.timers.at(now_ms, lambda: respond(None))
        else:
            self.peers.ask(leader, channel, request, now_ms, timeout_ms, respond)

    def create_missing_topics(
        self, topics: list[CreatableTopic], now_ms: int, respond: Callable[[dict[str, tuple[ErrorCode, str]]], None]
    ) -> None:
        """For clients that just begin to use a topic; answers with those that could not be created, and why."""

        def answer(response: Message | None) -> None:
            if not isinstance(response, CreateTopicsResponse):
                respond({topic.name: (ErrorCode.LEADER_NOT_AVAILABLE, NO_CONTROLLER) for topic in topics})
                return
            # Another client may have been quicker: then it exists, which is all that was wanted.
            fine = (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
            respond(
                {
                    created.name: (ErrorCode(created.error_code), created.error_message or "")
                    for created in response.topics
                    if created.error_code not in fine
                }
            )

        self.ask_controller(CreateTopicsRequest(topics), answer, now_ms)

    # --- what the shell calls ---

    def connect(self, peer: str) -> Connection:
        return Connection(self, peer)

    @property
    def deadline_ms(self) -> int | None:
        return self.timers.deadline_ms

    def on_time(self, now_ms: int) -> None:
        self.timers.fire(now_ms)

    def take_sync(self) -> list[tuple[Key, Ticket]]:
        """The end of a turn: answer who waited for what has moved, and hand out the work that is for a thread."""
        while moved := self.turn.take_moved():
            for key, added_bytes in moved:
                self._wake(key, added_bytes)
        self.replica_polls.wake(self.turn.take_grown())
        if self.hosting.work(self.clock):
            self.on_work()
        if self.failure is not None:
            self.turn.take_unsynced()
            return []
        tickets: list[tuple[Key, Ticket]] = [*self.upkeep.take_tickets(), *self.compactions.take_tickets()]
        tickets += self.scrubbing.take_tickets()
        for hosted in self.turn.take_unsynced():
            try:
                ticket = hosted.begin_sync()
                if ticket is not None:
                    tickets.append((hosted, ticket))
                due = hosted.log.checkpoint_due and not self._settles(hosted)
                if due and (ticket := hosted.begin_checkpoint()) is not None:
                    tickets.append((hosted, ticket))
            except OSError as error:
                # A file could not be opened: there may be too many open ones for now.
                self.on_trouble(f"{hosted}: not synced yet, tried again: {error}")
                self.timers.at(self.clock.monotonic_ms() + SYNC_RETRY_MS, partial(self.turn.wants_sync, hosted))
        return tickets

    def _settles(self, key: Key) -> bool:
        """Until it has, nothing else of it is saved."""
        return isinstance(key, Partition) and self.hosting.is_settling(key)

    def on_synced(self, key: Key, ticket: Ticket, error: OSError | None, now_ms: int) -> None:
        if isinstance(key, Compactions):
            # Most of its failures harm nothing but files that nobody uses yet.
            assert isinstance(ticket, CleanTicket | SwapTicket)
            key.on_done(ticket, error, now_ms)
            return
        if isinstance(key, Scrubbing):
            assert isinstance(ticket, CheckTicket)
            key.on_done(ticket, error, now_ms)
            return
        if self._settles(key):
            assert isinstance(key, Partition)
            assert isinstance(ticket, SyncTicket)
            self.hosting.on_synced(key, ticket, error)
            self.start.open_more_soon()
            return
        if isinstance(ticket, SnapshotTicket) and (error is None or error.errno in NO_ROOM):
            self.quorum.finish_snapshot(ticket, error)
            return
        if error is not None and error.errno not in NO_ROOM and not (isinstance(key, Partition) and key.removed):
            self.fail(f"a sync of {key} failed: {error}")
            return
        if isinstance(key, Upkeep):
            key.on_saved(error)
            return
        assert isinstance(ticket, SyncTicket)
        if key.removed:
            assert isinstance(key, Partition)
            key.finish_sync(ticket)
            self.hosting.finish_removal(key, self.clock.wall_ms())
        elif error is None:
            key.finish_sync(ticket)
        elif ticket.synced:
            self.on_trouble(f"{key}: synced, but not all was saved; tried again later: {error}")
            key.finish_sync(ticket, housekept=False)
        else:
            self.fail(f"a sync of {key} failed: {error}")
        if isinstance(key, Partition):
            self.followers.on_stored(key)

    # --- inside ---

    def locate(self, node_id: int, host: str, port: int) -> None:
        if node_id != self.settings.node_id:
            self.peers.locate(node_id, *self.settings.peer_addresses.get(node_id, (host, port)))

    def on_metadata(self, records: Sequence[Message]) -> None:
        """Metadata that is committed."""
        self.hosting.publish(records, self.clock.wall_ms())
        self.registration.on_metadata()

    def on_metadata_replaced(self, image: Image) -> None:
        """A snapshot of committed metadata, in the place of all that came before."""
        self.hosting.replace(image, self.clock.wall_ms())
        self.registration.on_metadata()

    def _wake(self, moved: Partition | QuorumHost, added_bytes: int) -> None:
        if isinstance(moved, QuorumHost):
            moved.work(self.clock.monotonic_ms())
            return
        if moved.topic == OFFSETS_TOPIC:
            self.groups.on_committed(moved)
        self.acknowledgements.wake(moved, moved.log.high_watermark)
        self.polls.wake(moved, added_bytes)
        self.replica_polls.note(moved)

    def on_role_changed(self, partition: Partition) -> None:
        """It has another leader, or its leader a new epoch."""
        if not partition.leads:
            moved = NotLeaderOrFollower(f"{partition} is led by node {partition.role.leader} now")
            self.acknowledgements.fail(partition, moved)
            self.deletions.fail(partition, moved)
        self.polls.disturb(partition)
        self.replica_polls.disturb(partition)
        self.groups.on_role_changed(partition)
        self.damaged.on_role_changed(partition)
        self.followers.on_role_changed(partition)

    def _on_brokers_changed(self) -> None:
        for partition in self.deletions.keys:
            self.deletions.wake(partition, partition.low_watermark)
        for broker in self.image.brokers.values():
            if broker.endpoints:
                self.locate(broker.id, broker.endpoints[0].host, broker.endpoints[0].port)

    def _on_removed(self, partition: Partition, why: ProtocolError) -> None:
        self.acknowledgements.fail(partition, why)
        self.deletions.fail(partition, why)
        self.polls.disturb(partition)
        self.replica_polls.forget(partition)
        self.followers.on_removed(partition)
        self.damaged.on_removed(partition)
        self.groups.on_removed(partition)
        self.compactions.on_removed(partition)

    def _on_topics_changed(self, deleted: list[str]) -> None:
        self.groups.on_topics_changed(deleted, self.clock.monotonic_ms())

    def fail(self, reason: str) -> None:
        """A failed sync is final: what the kernel did with the pages, nobody can tell. Reads go on."""
        if self.failure is not None:
            return
        self.failure = reason
        self.last_run.forget()
        self.on_trouble(f"the data directory takes no more writes until a restart: {reason}")
        self.followers.stop()
        error = StorageError(reason)
        self.quorum.fail(reason)
        self.hosting.fail(reason)
        for partition in self.partitions:
            self.acknowledgements.fail(partition, error)
            self.deletions.fail(partition, error)
        self.controllers.lose(error)
        self.groups.fail(error)
