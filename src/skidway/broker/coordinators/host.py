"""The coordinators of one kind on this node: one for each partition of the kind's topic that it leads.

A kind (`CoordinatorKind`) says which topic, which records, which partition a key belongs to and which machine decides;
groups (`groups`), transactions (`transactions`), share-partitions (`shares`) and schedules of queues (`schedules`) are
four kinds. The topic is created when a coordinator is first asked for. A coordinator is loaded from its partition's log
before it answers: when the node becomes the leader and there is something to load, otherwise on first use. It is closed
when another node becomes the leader; calls that still wait are answered with NOT_COORDINATOR.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Generic, TypeVar

import msgspec

from skidway.broker.events import CoordinatorNotLoaded, CoordinatorTopicNotCreated
from skidway.broker.partitions.catalog import Partitions
from skidway.broker.partitions.partition import Journal, Partition
from skidway.broker.partitions.room import Room
from skidway.broker.world import World
from skidway.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    DamagedLog,
    ErrorCode,
    NotCoordinator,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    ProtocolError,
    StorageError,
)
from skidway.metadata.image import Broker, Image, Topic
from skidway.ports import Clock
from skidway.runtime.log_store import Format, LogStore
from skidway.runtime.replicated import Now, Operation, Replicated, TimedMachine
from skidway.runtime.timers import Timer
from skidway.steps import Steps
from skidway.wire.schema.create_topics import CreatableTopic, CreatableTopicConfig

Record = TypeVar("Record")
Reply = TypeVar("Reply")
AS_SAFE_AS_CAN_BE = -1
"""How many replicas that are, the controller says: it knows all brokers."""
TICK_RETRY_MS = 1_000
ANSWER_MS = 15_000
"""After so long whoever waits for a commit is told to try again: clients wait for 30 s or longer. A node that is cut
off from all others may lead for as long as that lasts, and what it decides is not committed."""
TOO_FEW = "too few replicas of the coordinator's partition are in sync: retry"
TOO_LATE = "the replicas of the coordinator's partition take too long to commit: retry"


MachineType = TypeVar("MachineType", bound=TimedMachine[Any])
CreateTopics = Callable[[list[CreatableTopic], int, Callable[[dict[str, tuple[ErrorCode, str]]], None]], None]
"""(topics, now_ms, respond): answered with those that could not be created, and why."""


class CoordinatorKind(msgspec.Struct, Generic[MachineType, Record], frozen=True):
    key_type: int
    """How FindCoordinator names the kind."""
    noun: str
    """What is coordinated, in messages to people: "groups"."""
    topic: str
    topic_partitions: int
    topic_configs: list[tuple[str, str | None]]
    format: Format[Record]
    place: Callable[[str, int], int]
    """The partition of a key, in a topic of so many."""
    new_machine: Callable[[], MachineType]
    tick: Callable[[], Operation[None]]
    topics_changed: Callable[[list[str]], Operation[None]]
    """What a machine hears when topics came, changed or (those named) were deleted."""
    perform: Callable[[Coordinator[MachineType, Record], Any], None] | None = None
    """Starts an effect of a committed decision; what comes of it is submitted to that coordinator."""
    check_key: Callable[[str], None] = lambda key: None
    """Raises InvalidRequest for what is no key of this kind."""


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What coordinators of every kind on a node share."""

    world: World
    image: Image
    partitions: Partitions
    room: Room
    later: Callable[[Callable[[], None]], None]
    """Has something done in another turn."""
    create_topics: CreateTopics
    on_damaged: Callable[[Partition, str], None]
    """A log is not what it was when it was stored."""


class Coordinator(Generic[MachineType, Record]):
    """One partition's machine, its host, and its timer."""

    __slots__ = ("host", "partition", "patience", "rests_until_ms", "timer")

    def __init__(self, partition: Partition, host: Replicated[MachineType, Record]) -> None:
        self.partition = partition
        self.host = host
        self.rests_until_ms = 0
        """Not ticked before: the last tick could not write what it decided."""
        self.timer: Timer | None = None
        self.patience: Timer | None = None
        """When the first of those that wait for a commit has waited long enough."""

    def refusal(self) -> CoordinatorNotAvailable | None:
        """An answer would have to wait for what was written before, and so would all that come after it."""
        if self.partition.is_stuck:
            return CoordinatorNotAvailable(TOO_FEW)
        return CoordinatorNotAvailable(TOO_LATE) if self.host.is_late else None

    def watch(self, world: World, now_ms: int) -> None:
        """Somebody waits for a commit, and nobody is to wait for longer than that. One timer for all: nobody's own is
        worth it, commits take milliseconds."""
        if self.patience is None:
            self._give_up_at(world, now_ms + ANSWER_MS)

    def _give_up_at(self, world: World, deadline_ms: int) -> None:
        def give_up() -> None:
            self.patience = None
            since_ms = world.clock.monotonic_ms() - ANSWER_MS
            others_ms = self.host.give_up(since_ms, CoordinatorNotAvailable(TOO_LATE))
            if others_ms is not None and self.patience is None:
                self._give_up_at(world, others_ms + ANSWER_MS)

        self.patience = world.timers.at(deadline_ms, give_up)

    def close(self, error: ProtocolError) -> None:
        self.host.close(error)
        for timer in (self.timer, self.patience):
            if timer is not None:
                timer.cancel()


class Coordinators(Generic[MachineType, Record]):
    def __init__(self, surroundings: Surroundings, kind: CoordinatorKind[MachineType, Record]) -> None:
        self.kind = kind
        self.surroundings = surroundings
        self._world = surroundings.world
        self._image = surroundings.image
        self._partitions = surroundings.partitions
        self._loaded: dict[Partition, Coordinator[MachineType, Record]] = {}
        self._unloadable: dict[Partition, str] = {}
        """Why, until a restart: clients ask again and again, and damage does not go away."""
        self._loading: dict[Partition, Coordinator[MachineType, Record] | None] = {}
        """Those that have something to load, as far as they are; None: not begun."""
        self._started = False

    @property
    def loaded(self) -> Mapping[Partition, Coordinator[MachineType, Record]]:
        return self._loaded

    def start(self) -> None:
        """Load whatever has something to load: sessions and offsets run out whether somebody asks or not."""
        self._started = True
        for partition in self._partitions.of_topic(self.kind.topic):
            self.on_role_changed(partition)

    def on_role_changed(self, partition: Partition) -> None:
        """Load it before long, or let it go. Where a node fails many are loaded elsewhere, one after the other."""
        if partition.topic != self.kind.topic or not self._started:
            return
        if not partition.leads:
            self.on_removed(partition)
        elif self._has_something(partition) and partition not in self._loaded and partition not in self._unloadable:
            self._loading.setdefault(partition, None)
            self._go_on_later(partition)

    def _go_on_later(self, partition: Partition) -> None:
        """Thousands of records take their time, and whoever else is served must not wait for all of them."""

        def go_on() -> None:
            if partition in self._loading:
                # What cannot be loaded is told, and keeps no one else from being served.
                with suppress(CoordinatorNotAvailable, CoordinatorLoadInProgress):
                    self._load_some(partition)
            if partition in self._loading:
                self._go_on_later(partition)

        self.surroundings.later(go_on)

    @staticmethod
    def _has_something(partition: Partition) -> bool:
        log = partition.log
        return log.end_offset > log.start_offset and not log.quarantined

    @property
    def has_topic(self) -> bool:
        return self.kind.topic in self._image.topics

    def prepare(self, now_ms: int, respond: Callable[[ProtocolError | None], None]) -> None:
        """Answer when the topic of this kind is there."""
        kind = self.kind
        if self.has_topic:
            respond(None)
            return

        def answer(failed: dict[str, tuple[ErrorCode, str]]) -> None:
            if not failed:
                respond(None)
                return
            ((code, why),) = failed.values()
            reason = f"cannot create the topic for {kind.noun}: {why or code.name}"
            if code != ErrorCode.LEADER_NOT_AVAILABLE:
                # Clients show nothing of it, and ask again and again.
                self._world.report(CoordinatorTopicNotCreated(kind.noun, why or code.name))
            respond(CoordinatorNotAvailable(reason))

        configs = [CreatableTopicConfig(name, value) for name, value in kind.topic_configs]
        topic = CreatableTopic(kind.topic, kind.topic_partitions, AS_SAFE_AS_CAN_BE, [], configs)
        self.surroundings.create_topics([topic], now_ms, answer)

    def find(self, key: str) -> Broker:
        """Who coordinates a key (a group id), as far as this node knows."""
        topic = self._topic()
        leader = topic.partitions[self.kind.place(key, len(topic.partitions))].leader
        broker = self._image.brokers.get(leader)
        if broker is None or broker.fenced:
            raise CoordinatorNotAvailable(f"the partition for {key} has no leader now: retry")
        return broker

    def place_of(self, key: str) -> int:
        """The partition that keeps a key, as far as this node knows; -1 while there is no topic."""
        topic = self._image.topics.get(self.kind.topic)
        return -1 if topic is None else self.kind.place(key, len(topic.partitions))

    def submit(
        self,
        key: str | Partition,
        operation: Operation[Reply],
        now_ms: int,
        respond: Callable[[Reply | ProtocolError], None],
    ) -> None:
        """Ask the coordinator of a key (a group id), or the one in a partition."""
        try:
            coordinator = self.coordinator_of(key)
        except ProtocolError as error:
            # The traceback refers to `respond`, and what that belongs to may keep the error: a ring.
            respond(error.with_traceback(None))
            return

        if (refusal := coordinator.refusal()) is not None:
            respond(refusal)
            return

        def answer(reply: Reply | ProtocolError) -> None:
            if isinstance(reply, NotEnoughReplicas):
                respond(CoordinatorNotAvailable(TOO_FEW))
                return
            if not isinstance(reply, StorageError):
                respond(reply)
                return
            # Every member takes this for a reason to look for its coordinator again, and to come back. If the disk is
            # full, that should be another node by then.
            respond(NotCoordinator(reply.message or ""))
            self.surroundings.room.on_refused(coordinator.partition, reply)

        self._submit(coordinator, operation, now_ms, answer)

    def submit_to_all(
        self,
        make: Callable[[], Operation[Reply]],
        now_ms: int,
        respond: Callable[[list[Reply | ProtocolError]], None],
    ) -> Steps[None]:
        """Ask all coordinators that have something; answers when all have."""
        for partition in list(self._loading):
            with suppress(CoordinatorNotAvailable, CoordinatorLoadInProgress):
                self._load(partition)
        coordinators = list(self._loaded.values())
        replies: list[Reply | ProtocolError] = []
        if self._loading:
            respond([CoordinatorLoadInProgress(f"{self.kind.noun} are being loaded: retry")])
            return

        def answer(reply: Reply | ProtocolError) -> None:
            replies.append(reply)
            if len(replies) == len(coordinators):
                respond(replies)

        if not coordinators:
            respond(replies)
        for coordinator in coordinators:
            if self._loaded.get(coordinator.partition) is not coordinator:
                answer(NotCoordinator(f"its {self.kind.noun} have moved to another node: retry"))
            elif (refusal := coordinator.refusal()) is not None:
                answer(refusal)
            else:
                self._submit(coordinator, make(), now_ms, answer)
            yield None

    def on_committed(self, partition: Partition) -> None:
        coordinator = self._loaded.get(partition)
        if coordinator is not None and coordinator.host.parked:
            coordinator.host.on_committed(partition.log.high_watermark)
            self._arm(coordinator)

    def on_removed(self, partition: Partition) -> None:
        self._unloadable.pop(partition, None)
        self._loading.pop(partition, None)
        coordinator = self._loaded.pop(partition, None)
        if coordinator is not None:
            coordinator.close(NotCoordinator())

    def on_topics_changed(self, deleted: list[str], now_ms: int) -> None:
        for coordinator in list(self._loaded.values()):
            self._submit(coordinator, self.kind.topics_changed(deleted), now_ms, lambda reply: None)

    def fail(self, error: StorageError) -> None:
        """The data directory takes no more writes: nothing that waits will be committed."""
        for coordinator in self._loaded.values():
            coordinator.host.on_lost(error)

    def _topic(self) -> Topic:
        topic = self._image.topics.get(self.kind.topic)
        if topic is None:
            raise CoordinatorNotAvailable(f"there is no topic for {self.kind.noun} yet: find the coordinator first")
        return topic

    def coordinator_of(self, key: str | Partition) -> Coordinator[MachineType, Record]:
        if self._world.failure is not None:
            raise CoordinatorNotAvailable(self._world.failure)
        partition = self._partition_of(key) if isinstance(key, str) else key
        if partition.removed:
            raise NotCoordinator(f"{partition} is not here any more")
        if not partition.leader.leads:
            raise NotCoordinator(f"{partition} is led by node {partition.role.leader}")
        if partition in self._unloadable:
            raise CoordinatorNotAvailable(self._unloadable[partition])
        return self._loaded.get(partition) or self._load(partition)

    def _partition_of(self, key: str) -> Partition:
        topic = self._topic()
        try:
            return self._partitions.find(topic.name, self.kind.place(key, len(topic.partitions)))
        except NotLeaderOrFollower as error:
            raise NotCoordinator(str(error)) from None
        except ProtocolError as error:
            raise CoordinatorNotAvailable(str(error)) from None

    def _load(self, partition: Partition) -> Coordinator[MachineType, Record]:
        """At once if it is little. Otherwise the rest is loaded bit by bit, and whoever asks has to come back."""
        if self._loading.get(partition) is not None:
            raise CoordinatorLoadInProgress(f"{self.kind.noun} are being loaded: retry")
        is_queued = partition in self._loading
        self._loading[partition] = None
        try:
            return self._load_some(partition)
        except CoordinatorLoadInProgress:
            if not is_queued:
                self._go_on_later(partition)
            raise

    def _load_some(self, partition: Partition) -> Coordinator[MachineType, Record]:
        coordinator = self._loading[partition]
        try:
            if partition.log.quarantined:
                # Also where nothing was proven: that it shows no records does not mean that there are no groups.
                raise partition.log.refusal()
            if coordinator is None:
                coordinator = self._loading[partition] = Coordinator(partition, self._new_host(partition))
            loaded = coordinator.host.load_some()
        except StorageError as error:
            del self._loading[partition]
            self._unloadable[partition] = str(error)
            self._world.report(CoordinatorNotLoaded(str(partition), self.kind.noun, str(error)))
            if isinstance(error, DamagedLog):
                self.surroundings.on_damaged(partition, str(error))
            raise CoordinatorNotAvailable(str(error)) from error
        if not loaded:
            raise CoordinatorLoadInProgress(f"{self.kind.noun} are being loaded: retry")
        del self._loading[partition]
        self._loaded[partition] = coordinator
        self._arm(coordinator)
        return coordinator

    def _new_host(self, partition: Partition) -> Replicated[MachineType, Record]:
        store = _store(partition, self.kind.format, self._world.clock)
        return Replicated(self.kind.new_machine, store, whole=False, perform=partial(self._perform, partition))

    def _perform(self, partition: Partition, effect: Any) -> None:
        perform, coordinator = self.kind.perform, self._loaded.get(partition) or self._loading.get(partition)
        assert perform is not None, f"nobody performs {effect} of {self.kind.noun}"
        assert coordinator is not None, "an effect of a coordinator that is closed"
        perform(coordinator, effect)

    def _submit(
        self,
        coordinator: Coordinator[MachineType, Record],
        operation: Operation[Reply],
        now_ms: int,
        respond: Callable[[Reply | ProtocolError], None],
    ) -> None:
        coordinator.host.submit(operation, Now(now_ms, self._world.clock.wall_ms()), respond)
        if coordinator.host.parked:
            coordinator.watch(self._world, now_ms)
        self._arm(coordinator)

    def _arm(self, coordinator: Coordinator[MachineType, Record]) -> None:
        """Have it ticked when something of it is over. A tick too early does no harm, so a timer only moves down."""
        if coordinator.host.unusable is not None:
            self._load_again(coordinator)
            return
        deadline_ms = max(coordinator.host.machine.deadline_ms, coordinator.rests_until_ms)
        timer = coordinator.timer
        if timer is not None and timer.armed:
            if timer.deadline_ms <= deadline_ms:
                return
            timer.cancel()
        coordinator.timer = self._world.timers.at(deadline_ms, lambda: self._tick(coordinator))

    def _load_again(self, coordinator: Coordinator[MachineType, Record]) -> None:
        """A write failed, and then what is stored could not be read. If it still cannot, that is told."""
        partition = coordinator.partition
        if self._loaded.get(partition) is coordinator:
            self.on_removed(partition)
            self.on_role_changed(partition)

    def _tick(self, coordinator: Coordinator[MachineType, Record]) -> None:
        if self._world.failure is not None:
            return
        now_ms = self._world.clock.monotonic_ms()
        replies: list[object] = []
        now = Now(now_ms, self._world.clock.wall_ms())
        coordinator.host.submit(self.kind.tick(), now, replies.append)
        for reply in replies:
            if isinstance(reply, ProtocolError):
                # What is over stays over; it is due, but nothing can be written about it for now.
                coordinator.rests_until_ms = now_ms + TICK_RETRY_MS
            if isinstance(reply, StorageError):
                self.surroundings.room.on_refused(coordinator.partition, reply)
        self._arm(coordinator)


def _store(partition: Partition, records: Format[Record], clock: Clock) -> LogStore[Record]:
    journal = Journal(partition)
    return LogStore(journal, clock, records, partition.leader.epoch, compacted=True, write_marker=journal.write_marker)
