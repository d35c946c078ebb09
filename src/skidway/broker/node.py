"""One node: the machines, composed. It owns no socket, no thread and no clock of its own.

The shell calls in: `connect` for a new peer, `take_sync` at the end of a turn in which work was done, `on_synced` when
a worker has synced files, `on_time` when `deadline_ms` has come. The node calls out only through `on_work` (there is
something for `take_sync`), a connection's `on_ready` (there is something to send) and `on_event` (a line for the log).
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import TypeVar

from skidway.broker.compactions import Compactions
from skidway.broker.connection import Connection
from skidway.broker.coordinators import OFFSETS_TOPIC, Coordinators
from skidway.broker.fetch_sessions import FetchSessions
from skidway.broker.followers import Followers
from skidway.broker.hosting import Hosting
from skidway.broker.identity import load_identity
from skidway.broker.partition import Journal, Partition, log_settings
from skidway.broker.partitions import Partitions
from skidway.broker.peers import Peers
from skidway.broker.producer_ids import ProducerIds
from skidway.broker.router import Routes
from skidway.broker.settings import NodeSettings
from skidway.broker.turn import Turn
from skidway.broker.upkeep import Upkeep
from skidway.errors import ErrorCode, NotLeaderOrFollower, ProtocolError, StorageError
from skidway.limits import DEFAULT_LIMITS, Limits
from skidway.log.cleaning import CleanTicket, Compactor, DirectCompactor, SwapTicket
from skidway.log.logs import FilesTicket, Job, Logs
from skidway.log.sync import SyncTicket
from skidway.metadata.controller import Controller, ControllerSettings
from skidway.metadata.image import Endpoint, Image
from skidway.metadata.operations import (
    AllocateProducerIds,
    Bootstrap,
    CreateTopics,
    NewTopic,
    ProducerIdBlock,
    RegisterBroker,
    TopicCreated,
)
from skidway.metadata.records import FORMAT
from skidway.metadata.topic_configs import resolve
from skidway.metadata.topic_names import CLUSTER_METADATA
from skidway.ports import Clock, Disk, Random
from skidway.replica.role import PartitionRole
from skidway.runtime.log_store import LogStore
from skidway.runtime.parking import BytesParking, OffsetParking
from skidway.runtime.replicated import Operation, Replicated
from skidway.runtime.timers import Timers
from skidway.wire.message import Message

Reply = TypeVar("Reply")
Ticket = SyncTicket | FilesTicket | CleanTicket | SwapTicket
Key = Partition | Upkeep | Compactions
"""Whose ticket it is."""
REFUSALS_TOLD_EVERY_MS = 10_000
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE)
"""What a disk says that is full, not broken."""
METADATA_TOPIC_ID = bytes(15) + b"\x01"
METADATA_CONFIG = {"flush": "sync", "retention.ms": "-1", "segment.ms": str(2**62)}


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
        self.turn = Turn(lambda: self.on_work())
        self.acknowledgements: OffsetParking[Partition] = OffsetParking(self.timers)
        self.polls: BytesParking[Partition] = BytesParking(self.timers)
        self.fetch_sessions = FetchSessions(limits, random)
        self.peers = Peers(f"node-{settings.node_id}", self.timers, limits)
        self.broker_epoch = -1
        self.followers = Followers(self)
        self.producer_ids = ProducerIds(self._allocate_producer_ids)
        self.upkeep = Upkeep(self)
        self.groups = Coordinators(self, settings.groups)
        self.compactions = Compactions(self, compactor or DirectCompactor(disk))
        self._refusal_told_ms = -REFUSALS_TOLD_EVERY_MS
        self.waiting_bytes = 0
        """Replies of all connections that an older request of theirs holds back."""
        self.failure: str | None = None
        """Why nothing is written any more: a sync of the data directory failed."""

    # --- life ---

    def open(self, now_ms: int, wall_ms: int) -> None:
        """Recover what is on the disk, take part in the cluster. Runs to the end before anything is served."""
        settings = self.settings
        identity = load_identity(self.disk, self.random, settings.node_id, settings.cluster_id)
        self.cluster_id = identity.cluster_id
        self.logs = Logs.open(self.disk, self.limits)
        self.hosting = Hosting(
            settings,
            self.limits,
            self.logs,
            self.turn,
            self.clock,
            self._on_removed,
            self.on_role_changed,
            self._on_brokers_changed,
            self._on_topics_changed,
            self.on_trouble,
        )
        self.image: Image = self.hosting.image
        self.partitions: Partitions = self.hosting.partitions
        self.metadata = self._open_metadata(wall_ms)
        self.controller: Replicated[Controller, Message] = Replicated(
            self._new_controller,
            LogStore(Journal(self.metadata), self.clock, FORMAT),
            lambda records: self.hosting.publish(records, self.clock.wall_ms()),
        )
        self._submit_now(Bootstrap(), now_ms)
        self._submit_now(
            RegisterBroker(
                settings.node_id,
                self.random.randbytes(16),
                [Endpoint("PLAINTEXT", settings.host, settings.port)],
                None,
                [identity.directory_id],
                new_leader_epochs=not self.logs.clean,
            ),
            now_ms,
        )
        self.hosting.start(wall_ms)
        self.groups.start()
        self.upkeep.start(now_ms)

    def maintain(self, now_ms: int, wall_ms: int) -> None:
        """Called now and then: compaction, retention and checkpoints, if they are due."""
        self.compactions.run(now_ms, wall_ms)
        self.upkeep.run(now_ms, wall_ms)

    def begin_stop(self, now_ms: int) -> None:
        """Nobody waits any longer for what may come: long polls are answered with what there is."""
        self.compactions.stop()
        self.followers.stop()
        for partition in self.partitions:
            self.polls.disturb(partition)

    def close(self, clean: bool, run: Callable[[list[Job]], None] | None = None) -> None:
        """Stop for good. `clean`: with everything on the disk and the marker that says so; `run` may do the jobs it
        gets side by side."""
        self.logs.close(clean=clean and self.failure is None, run=run)

    # --- what handlers use ---

    @property
    def controller_id(self) -> int:
        return self.settings.node_id

    @property
    def metadata_offset(self) -> int:
        return self.metadata.log.high_watermark

    def submit(
        self, operation: Operation[Reply], now_ms: int, respond: Callable[[Reply | ProtocolError], None]
    ) -> None:
        """Ask the controller; the answer comes when what it decided is committed and done."""
        if self.failure is not None:
            # What it would decide on may never be committed, so the answer might wait for ever.
            respond(StorageError(self.failure))
            return
        self.controller.submit(operation, now_ms, lambda reply: self.hosting.when_done(lambda: respond(reply)))

    def create_missing_topics(
        self, names: list[str], now_ms: int, respond: Callable[[dict[str, ErrorCode] | ProtocolError], None]
    ) -> None:
        """For clients that just begin to use a topic; answers with those that could not be created."""

        def answer(reply: list[TopicCreated] | ProtocolError) -> None:
            if isinstance(reply, ProtocolError):
                respond(reply)
                return
            # Another client may have been quicker: then it exists, which is all that was wanted.
            fine = (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
            respond({created.name: created.error for created in reply if created.error not in fine})

        self.submit(CreateTopics([NewTopic(name) for name in names]), now_ms, answer)

    def on_refused(self, partition: Partition, error: StorageError, now_ms: int) -> None:
        """The disk took a batch not. Told now and then, as a producer asks again and again."""
        if now_ms >= self._refusal_told_ms + REFUSALS_TOLD_EVERY_MS:
            self._refusal_told_ms = now_ms
            self.on_trouble(f"{partition}: a batch was refused: {error}")

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
            for partition, added_bytes in moved:
                self._wake(partition, added_bytes)
        if self.hosting.work(self.clock):
            self.on_work()
        if self.failure is not None:
            self.turn.take_unsynced()
            return []
        tickets: list[tuple[Key, Ticket]] = [*self.upkeep.take_tickets(), *self.compactions.take_tickets()]
        for partition in self.turn.take_unsynced():
            ticket = partition.begin_sync()
            if ticket is not None:
                tickets.append((partition, ticket))
            if partition.log.checkpoint_due and (ticket := partition.begin_checkpoint()) is not None:
                tickets.append((partition, ticket))
        return tickets

    def on_synced(self, key: Key, ticket: Ticket, error: OSError | None, now_ms: int) -> None:
        if isinstance(key, Compactions):
            # Most of its failures harm nothing but files that nobody uses yet.
            assert isinstance(ticket, CleanTicket | SwapTicket)
            key.on_done(ticket, error, now_ms)
            return
        if error is not None and error.errno not in NO_ROOM and not (isinstance(key, Partition) and key.removed):
            self.fail(f"a sync of {key} failed: {error}")
            return
        if isinstance(key, Upkeep):
            key.on_saved(error)
            return
        assert isinstance(ticket, SyncTicket)
        if key.removed:
            key.finish_sync(ticket)
            self.hosting.finish_removal(key, self.clock.wall_ms())
        elif error is None:
            key.finish_sync(ticket)
        elif ticket.synced:
            self.on_trouble(f"{key}: synced, but not all was saved; tried again later: {error}")
            key.finish_sync(ticket, housekept=False)
        else:
            self.fail(f"a sync of {key} failed: {error}")
        self.followers.on_stored(key)

    # --- inside ---

    def _new_controller(self) -> Controller:
        settings = self.settings
        return Controller(
            self.random,
            self.limits,
            ControllerSettings(
                settings.node_id,
                settings.default_partitions,
                settings.default_replication_factor,
                settings.static_configs(self.limits),
            ),
        )

    def _open_metadata(self, wall_ms: int) -> Partition:
        config = resolve(METADATA_CONFIG)
        log = self.logs.load_or_create(CLUSTER_METADATA, 0, METADATA_TOPIC_ID, log_settings(config), wall_ms)
        itself = [self.settings.node_id]
        node_id = self.settings.node_id
        partition = Partition(CLUSTER_METADATA, METADATA_TOPIC_ID, 0, log, config, self.turn, node_id)
        partition.lead(PartitionRole(node_id, 0, 0, itself, itself, {}), self.clock.monotonic_ms())
        return partition

    def _submit_now(self, operation: Operation[Reply], now_ms: int) -> Reply:
        """For the start only, when nobody waits but us: syncs on the spot."""
        replies: list[Reply | ProtocolError] = []
        self.submit(operation, now_ms, replies.append)
        for partition, ticket in self.take_sync():
            ticket.run()
            self.on_synced(partition, ticket, None, now_ms)
        self.take_sync()
        (reply,) = replies
        if isinstance(reply, ProtocolError):
            raise reply
        return reply

    def _allocate_producer_ids(self, now_ms: int, respond: Callable[[tuple[int, int] | ProtocolError], None]) -> None:
        def answer(reply: ProducerIdBlock | ProtocolError) -> None:
            respond(reply if isinstance(reply, ProtocolError) else (reply.first, reply.count))

        self.submit(AllocateProducerIds(self.settings.node_id), now_ms, answer)

    def _wake(self, partition: Partition, added_bytes: int) -> None:
        high_watermark = partition.log.high_watermark
        if partition is self.metadata:
            self.controller.on_committed(high_watermark)
            return
        if partition.topic == OFFSETS_TOPIC:
            self.groups.on_committed(partition)
        self.acknowledgements.wake(partition, high_watermark)
        self.polls.wake(partition, added_bytes)

    def on_role_changed(self, partition: Partition) -> None:
        """It has another leader, or its leader a new epoch."""
        if not partition.leads:
            moved = NotLeaderOrFollower(f"{partition} is led by node {partition.role.leader} now")
            self.acknowledgements.fail(partition, moved)
        self.polls.disturb(partition)
        self.groups.on_role_changed(partition)
        self.followers.on_role_changed(partition)

    def _on_brokers_changed(self) -> None:
        for broker in self.image.brokers.values():
            if broker.id != self.settings.node_id and broker.endpoints:
                self.peers.locate(broker.id, broker.endpoints[0].host, broker.endpoints[0].port)

    def _on_removed(self, partition: Partition, why: ProtocolError) -> None:
        self.acknowledgements.fail(partition, why)
        self.polls.disturb(partition)
        self.followers.on_removed(partition)
        self.groups.on_removed(partition)
        self.compactions.on_removed(partition)

    def _on_topics_changed(self, deleted: list[str]) -> None:
        self.groups.on_topics_changed(deleted, self.clock.monotonic_ms())

    def fail(self, reason: str) -> None:
        """A failed sync is final: what the kernel did with the pages, nobody can tell. Reads go on."""
        if self.failure is not None:
            return
        self.failure = reason
        self.on_trouble(f"the data directory takes no more writes until a restart: {reason}")
        self.followers.stop()
        error = StorageError(reason)
        for partition in [self.metadata, *self.partitions]:
            partition.fail(reason)
            self.acknowledgements.fail(partition, error)
        self.controller.on_lost(error)
        self.groups.fail(error)
