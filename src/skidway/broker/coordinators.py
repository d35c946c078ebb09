"""The group coordinators of this node: one for each partition of `__consumer_offsets` that it leads.

The topic is made when a group is first asked for. A coordinator is loaded from its partition's log before it answers:
when the node takes the lead and there is something to load, otherwise on first use. It goes when the lead is lost;
whoever still waits for it is told to look for the new one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from skidway.broker.partition import Journal, Partition
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
from skidway.groups.consumer import Consumer
from skidway.groups.coordinator import GroupCoordinator
from skidway.groups.operations import MetadataChanged, Tick
from skidway.groups.partition import partition_of
from skidway.groups.patterns import Patterns
from skidway.groups.records import FORMAT, GroupRecord
from skidway.groups.settings import GroupSettings
from skidway.metadata import group_configs
from skidway.metadata.config_keys import ResourceType
from skidway.metadata.image import Broker, Image, Topic
from skidway.runtime.log_store import LogStore
from skidway.runtime.replicated import Operation, Replicated
from skidway.runtime.timers import Timer
from skidway.wire.schema.create_topics import CreatableTopic, CreatableTopicConfig

if TYPE_CHECKING:
    from skidway.broker.node import Node

Reply = TypeVar("Reply")
OFFSETS_TOPIC = "__consumer_offsets"
AS_SAFE_AS_CAN_BE = -1
"""How many replicas that are, the controller says: it knows all brokers."""
TICK_RETRY_MS = 1_000
TOO_FEW = "too few replicas of the group's partition are in sync: ask again"
OFFSETS_CONFIGS: list[tuple[str, str | None]] = [
    ("cleanup.policy", "compact"),
    ("segment.bytes", str(100 * 1024 * 1024)),
]


class TopicsView:
    """What coordinators may know of the cluster's topics."""

    __slots__ = ("_image", "_node")

    def __init__(self, node: Node, image: Image) -> None:
        self._node = node
        self._image = image

    def partition_count(self, name: str) -> int | None:
        topic = self._image.topics.get(name)
        return None if topic is None else len(topic.partitions)

    def id_of(self, name: str) -> bytes | None:
        topic = self._image.topics.get(name)
        return None if topic is None else topic.id

    def name_of(self, topic_id: bytes) -> str | None:
        topic = self._image.topics_by_id.get(topic_id)
        return None if topic is None else topic.name

    def names(self) -> Iterable[str]:
        return self._image.topics

    @property
    def epoch(self) -> int:
        return self._node.metadata_offset


class Coordinator:
    """One partition's machine, its host, and its timer."""

    __slots__ = ("host", "partition", "timer")

    def __init__(self, partition: Partition, host: Replicated[GroupCoordinator, GroupRecord]) -> None:
        self.partition = partition
        self.host = host
        self.timer: Timer | None = None


class Coordinators:
    def __init__(self, node: Node, settings: GroupSettings) -> None:
        self._node = node
        members_max = node.limits.group_members_max
        self._settings = replace(
            settings,
            size_max=min(settings.size_max, members_max),
            consumer_size_max=min(settings.consumer_size_max, members_max),
        )
        self._patterns = Patterns()
        self._loaded: dict[Partition, Coordinator] = {}
        self._unloadable: dict[Partition, str] = {}
        """Why, until a restart: clients ask again and again, and damage does not go away."""
        self._loading: dict[Partition, Coordinator | None] = {}
        """Those that have something to load, as far as they are; None: not begun."""
        self._started = False
        self._told = ""

    @property
    def groups(self) -> int:
        """Of all coordinators, as is `bytes`."""
        return sum([len(each.host.machine.groups) for each in self._loaded.values()])

    @property
    def bytes(self) -> int:
        machines = [each.host.machine for each in self._loaded.values()]
        return sum([machine.group_bytes + machine.offsets.bytes for machine in machines])

    def start(self) -> None:
        """Load whatever has something to load: sessions and offsets run out whether somebody asks or not."""
        self._started = True
        for partition in self._node.partitions.of_topic(OFFSETS_TOPIC):
            self.on_role_changed(partition)

    def on_role_changed(self, partition: Partition) -> None:
        """Load it before long, or let it go. Where a node fails many are loaded elsewhere, one after the other."""
        if partition.topic != OFFSETS_TOPIC or not self._started:
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

        self._node.hosting.later(go_on)

    @staticmethod
    def _has_something(partition: Partition) -> bool:
        log = partition.log
        return log.end_offset > log.start_offset and not log.quarantined

    def prepare(self, now_ms: int, respond: Callable[[ProtocolError | None], None]) -> None:
        """Answer when there is a topic to keep groups in."""
        if OFFSETS_TOPIC in self._node.image.topics:
            respond(None)
            return

        def answer(failed: dict[str, tuple[ErrorCode, str]]) -> None:
            if not failed:
                respond(None)
                return
            ((code, why),) = failed.values()
            reason = f"the topic for groups cannot be created: {why or code.name}"
            if code != ErrorCode.LEADER_NOT_AVAILABLE and reason != self._told:
                # Clients show nothing of it, and ask again and again.
                self._told = reason
                self._node.on_trouble(reason)
            respond(CoordinatorNotAvailable(reason))

        configs = [CreatableTopicConfig(name, value) for name, value in OFFSETS_CONFIGS]
        topic = CreatableTopic(OFFSETS_TOPIC, self._settings.offsets_partitions, AS_SAFE_AS_CAN_BE, [], configs)
        self._node.create_missing_topics([topic], now_ms, answer)

    def find(self, group_id: str) -> Broker:
        """Who coordinates a group, as far as this node knows."""
        topic = self._topic()
        leader = topic.partitions[partition_of(group_id, len(topic.partitions))].leader
        broker = self._node.image.brokers.get(leader)
        if broker is None or broker.fenced:
            raise CoordinatorNotAvailable("nobody leads the partition of this group now: ask again")
        return broker

    def submit(
        self, group_id: str, operation: Operation[Reply], now_ms: int, respond: Callable[[Reply | ProtocolError], None]
    ) -> None:
        """Ask the coordinator of a group."""
        try:
            coordinator = self._coordinator_of(group_id)
        except ProtocolError as error:
            respond(error)
            return

        if coordinator.partition.is_stuck:
            # An answer would have to wait for what was written before, and so would all that come after it.
            respond(CoordinatorNotAvailable(TOO_FEW))
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
            self._node.room.on_refused(coordinator.partition, reply, now_ms)

        self._submit(coordinator, operation, now_ms, answer)

    def submit_to_all(
        self,
        make: Callable[[], Operation[Reply]],
        now_ms: int,
        respond: Callable[[list[Reply | ProtocolError]], None],
    ) -> None:
        """Ask all coordinators that have any groups; answers when all have."""
        for partition in list(self._loading):
            with suppress(CoordinatorNotAvailable, CoordinatorLoadInProgress):
                self._load(partition)
        coordinators = list(self._loaded.values())
        replies: list[Reply | ProtocolError] = []
        if self._loading:
            respond([CoordinatorLoadInProgress("groups are being loaded: ask again")])
            return

        def answer(reply: Reply | ProtocolError) -> None:
            replies.append(reply)
            if len(replies) == len(coordinators):
                respond(replies)

        if not coordinators:
            respond(replies)
        for coordinator in coordinators:
            if coordinator.partition.is_stuck:
                answer(CoordinatorNotAvailable(TOO_FEW))
            else:
                self._submit(coordinator, make(), now_ms, answer)

    def on_committed(self, partition: Partition) -> None:
        coordinator = self._loaded.get(partition)
        if coordinator is not None:
            coordinator.host.on_committed(partition.log.high_watermark)
            self._arm(coordinator)

    def on_removed(self, partition: Partition) -> None:
        self._unloadable.pop(partition, None)
        self._loading.pop(partition, None)
        coordinator = self._loaded.pop(partition, None)
        if coordinator is not None:
            coordinator.host.close(NotCoordinator())
            if coordinator.timer is not None:
                coordinator.timer.cancel()

    def on_topics_changed(self, deleted: list[str], now_ms: int) -> None:
        for coordinator in list(self._loaded.values()):
            self._submit(coordinator, MetadataChanged(deleted), now_ms, lambda reply: None)

    def fail(self, error: StorageError) -> None:
        """The data directory takes no more writes: nothing that waits will be committed."""
        for coordinator in self._loaded.values():
            coordinator.host.on_lost(error)

    def _topic(self) -> Topic:
        topic = self._node.image.topics.get(OFFSETS_TOPIC)
        if topic is None:
            raise CoordinatorNotAvailable("there is no topic for groups yet: find the coordinator first")
        return topic

    def _coordinator_of(self, group_id: str) -> Coordinator:
        topic = self._topic()
        if self._node.failure is not None:
            raise CoordinatorNotAvailable(self._node.failure)
        try:
            partition = self._node.partitions.find(OFFSETS_TOPIC, partition_of(group_id, len(topic.partitions)))
        except NotLeaderOrFollower as error:
            raise NotCoordinator(str(error)) from None
        except ProtocolError as error:
            raise CoordinatorNotAvailable(str(error)) from None
        if not partition.leads:
            raise NotCoordinator(f"{partition} is led by node {partition.role.leader}")
        if partition in self._unloadable:
            raise CoordinatorNotAvailable(self._unloadable[partition])
        return self._loaded.get(partition) or self._load(partition)

    def _load(self, partition: Partition) -> Coordinator:
        """At once if it is little. Otherwise the rest is loaded bit by bit, and whoever asks has to come back."""
        if self._loading.get(partition) is not None:
            raise CoordinatorLoadInProgress("the group is being loaded: ask again")
        is_queued = partition in self._loading
        self._loading[partition] = None
        try:
            return self._load_some(partition)
        except CoordinatorLoadInProgress:
            if not is_queued:
                self._go_on_later(partition)
            raise

    def _load_some(self, partition: Partition) -> Coordinator:
        coordinator = self._loading[partition]
        try:
            if partition.log.quarantined:
                # Also where nothing was proven: that it shows no records does not mean that there are no groups.
                raise StorageError(partition.log.failure or "")
            if coordinator is None:
                coordinator = self._loading[partition] = Coordinator(partition, self._new_host(partition))
            loaded = coordinator.host.load_some()
        except StorageError as error:
            del self._loading[partition]
            self._unloadable[partition] = str(error)
            self._node.on_trouble(f"{partition}: groups cannot be loaded: {error}")
            if isinstance(error, DamagedLog):
                self._node.damaged.found(partition, str(error))
            raise CoordinatorNotAvailable(str(error)) from error
        if not loaded:
            raise CoordinatorLoadInProgress("the group is being loaded: ask again")
        del self._loading[partition]
        self._loaded[partition] = coordinator
        self._arm(coordinator)
        return coordinator

    def _new_host(self, partition: Partition) -> Replicated[GroupCoordinator, GroupRecord]:
        node = self._node
        return Replicated(
            lambda: GroupCoordinator(
                self._settings,
                TopicsView(node, node.image),
                node.random,
                node.clock,
                lambda context: Consumer(context, self._patterns),
                node.limits,
                self,
                timeouts=self._timeouts,
            ),
            LogStore(Journal(partition), node.clock, FORMAT, partition.leader.epoch, compacted=True),
            whole=False,
        )

    def _timeouts(self, group_id: str) -> tuple[int, int]:
        overrides = self._node.image.config(ResourceType.GROUP, group_id)
        if not overrides:
            return self._settings.consumer_session_timeout_ms, self._settings.consumer_heartbeat_interval_ms
        return group_configs.timeouts(overrides, self._node.hosting.static)

    def _submit(
        self,
        coordinator: Coordinator,
        operation: Operation[Reply],
        now_ms: int,
        respond: Callable[[Reply | ProtocolError], None],
    ) -> None:
        coordinator.host.submit(operation, now_ms, respond)
        self._arm(coordinator)

    def _arm(self, coordinator: Coordinator) -> None:
        """Have it ticked when something of it is over. A tick too early does no harm, so a timer only moves down."""
        if coordinator.host.is_unusable:
            self._load_again(coordinator)
            return
        deadline_ms = coordinator.host.machine.deadline_ms
        timer = coordinator.timer
        if timer is not None and timer.armed:
            if timer.deadline_ms <= deadline_ms:
                return
            timer.cancel()
        coordinator.timer = self._node.timers.at(deadline_ms, lambda: self._tick(coordinator))

    def _load_again(self, coordinator: Coordinator) -> None:
        """A write failed, and then what is stored could not be read. If it still cannot, that is told."""
        partition = coordinator.partition
        if self._loaded.get(partition) is coordinator:
            self.on_removed(partition)
            self.on_role_changed(partition)

    def _tick(self, coordinator: Coordinator) -> None:
        if self._node.failure is not None:
            return
        now_ms = self._node.clock.monotonic_ms()
        replies: list[object] = []
        coordinator.host.submit(Tick(), now_ms, replies.append)
        if any(isinstance(reply, NotEnoughReplicas) for reply in replies):
            # What is over stays over; it is due, but nothing can be written about it for now.
            coordinator.timer = self._node.timers.at(now_ms + TICK_RETRY_MS, lambda: self._tick(coordinator))
        else:
            self._arm(coordinator)
