"""What committed metadata means for this node: which partitions it hosts, in which role, and with which settings.

The image follows the committed records. A partition is opened when this node becomes one of its replicas, leads or
follows as its leader changes, and is closed when its topic is removed or this node is no replica of it any more; then
its files are removed. `on_role_changed` is told of every new leader or leader epoch. A log on disk that no topic knows
is set aside, never deleted: metadata that was lost must not take the data with it.

Making and removing files takes about a millisecond for each partition, and a topic may have thousands. So that is
queued, done a little in every turn, and whoever asked for it is answered when it is done. So is opening what is here at
the start (`broker.opening`); metadata is followed meanwhile. A log that a crash left in memory only is synced by a
worker before it has any part in anything.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from skidway.broker.opening import Opening
from skidway.broker.partition import Partition, log_settings
from skidway.broker.partitions import Partitions
from skidway.broker.settings import NodeSettings
from skidway.broker.turn import Turn
from skidway.errors import NotLeaderOrFollower, ProtocolError, StorageError, UnknownTopicOrPartition
from skidway.limits import Limits
from skidway.log import settling
from skidway.log.log import Log
from skidway.log.logs import Logs
from skidway.log.settings import LogSettings
from skidway.log.sync import SyncTicket
from skidway.metadata import image as metadata
from skidway.metadata.broker_configs import rate
from skidway.metadata.config_keys import Defaults, ResourceType
from skidway.metadata.image import NO_LEADER, Image
from skidway.metadata.topic_configs import TopicConfig, resolve
from skidway.ports import Clock
from skidway.replica.role import PartitionRole
from skidway.replica.throttle import Throttle
from skidway.wire.message import Message
from skidway.wire.schema.metadata_records import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    FenceBrokerRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
)

TURN_MS_MAX = 20
"""So long a turn may be busy with files of partitions that come and go."""
ABOUT_BROKERS = (
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
    FenceBrokerRecord,
    UnfenceBrokerRecord,
    BrokerRegistrationChangeRecord,
)
RECOVERING = 1
Key = tuple[bytes, int]
"""A partition: the id of its topic, and its index."""


class Hosting:
    def __init__(
        self,
        settings: NodeSettings,
        limits: Limits,
        logs: Logs,
        turn: Turn,
        clock: Clock,
        on_removed: Callable[[Partition, ProtocolError], None],
        on_role_changed: Callable[[Partition], None],
        on_replicas_changed: Callable[[Partition, PartitionRole], None],
        on_brokers_changed: Callable[[], None],
        on_topics_changed: Callable[[list[str]], None],
        on_trouble: Callable[[str], None],
    ) -> None:
        self.settings = settings
        self.static = settings.static_configs(limits)
        self._node_id = settings.node_id
        self.logs = logs
        self.turn = turn
        self.clock = clock
        self.on_removed = on_removed
        self.on_role_changed = on_role_changed
        self.on_replicas_changed = on_replicas_changed
        self.on_brokers_changed = on_brokers_changed
        self.on_topics_changed = on_topics_changed
        self.on_trouble = on_trouble
        self.image = Image()
        self.partitions = Partitions(self.image)
        self.leader_throttle = Throttle()
        self.follower_throttle = Throttle()
        self.eligible: dict[int, int] = {}
        """Brokers that may join in-sync sets, with their epochs."""
        self.online: frozenset[int] = frozenset()
        """Brokers that are not fenced."""
        self.missing: dict[Key, str] = {}
        """Partitions that should be here but could not be opened, and why."""
        self.removing: dict[tuple[str, int], Partition] = {}
        """Partitions deleted or given up whose directories still have their names."""
        self._configs: dict[str, TopicConfig] = {}
        """Resolved once for all partitions of a topic; forgotten when a setting changes."""
        self.opening: Opening | None = None
        """Since `start`."""
        self.on_started: Callable[[], None] = lambda: None
        self.failure: str | None = None
        """Why nothing is written any more."""
        self._queue: deque[Callable[[], None]] = deque()
        self._opening: dict[Key, None] = {}
        """Partitions that are going to be opened."""
        self._settling: dict[tuple[str, int], tuple[Partition, TopicConfig]] = {}
        """Those whose logs are being synced after a crash, with the settings they were opened with."""

    @property
    def begun(self) -> bool:
        """Whether partitions are opened; metadata is followed by them."""
        return self.opening is not None

    @property
    def started(self) -> bool:
        """Whether everything that was here at the start is open."""
        return self.opening is not None and self.opening.done

    def publish(self, records: Sequence[Message], wall_ms: int) -> None:
        """Follow records that are committed. Before `start` only what is known does."""
        if not self.begun:
            for record in records:
                self.image.apply(record)
            if any(isinstance(record, ABOUT_BROKERS) for record in records):
                self._follow_brokers()
            return
        deleted: list[str] = []
        changed: dict[Key, bool] = {}
        """Whether one of its leaders was elected uncleanly."""
        for record in records:
            if isinstance(record, RemoveTopicRecord):
                deleted.append(self.image.topics_by_id[record.topic_id].name)
            self.image.apply(record)
            if isinstance(record, RemoveTopicRecord):
                self._remove(record.topic_id, wall_ms)
            elif isinstance(record, PartitionRecord | PartitionChangeRecord):
                key = bytes(record.topic_id), record.partition_id
                unclean = record.leader_recovery_state == RECOVERING
                changed[key] = unclean or changed.get(key, False)
            elif isinstance(record, ConfigRecord):
                # In their order: a leader that was replaced must not commit by a min.insync.replicas of later.
                self._follow_changes(changed, wall_ms)
                changed = {}
                self._reconfigure(record)
            elif isinstance(record, ABOUT_BROKERS):
                self._follow_brokers()
        self._follow_changes(changed, wall_ms)
        if deleted or any(isinstance(record, PartitionRecord) for record in records):
            self.on_topics_changed(deleted)

    def _follow_changes(self, changed: Mapping[Key, bool], wall_ms: int) -> None:
        for (topic_id, index), unclean in changed.items():
            topic = self.image.topics_by_id.get(topic_id)
            if topic is not None:
                self._follow_change(topic, index, unclean, wall_ms)

    def replace(self, image: Image, wall_ms: int) -> None:
        """A snapshot says what is committed by now; what happened on the way there is not told."""
        deleted = [topic for topic in self.image.topics_by_id.values() if topic.id not in image.topics_by_id]
        self.image.become(image)
        if not self.begun:
            return
        self._configs.clear()
        self._follow_rates()
        for topic in deleted:
            self._remove(topic.id, wall_ms)
        self._follow_brokers()
        for topic in image.topics.values():
            config = self.config_of(topic.name)
            for partition in self.partitions.of_topic(topic.name):
                partition.await_role(config)
            for index in range(len(topic.partitions)):
                self._follow_change(topic, index, True, wall_ms)
            for partition in self.partitions.of_topic(topic.name):
                partition.configure(config)
        self.on_topics_changed([topic.name for topic in deleted])

    def _follow_brokers(self) -> None:
        # In place: all roles share it.
        self.eligible.clear()
        self.eligible.update({broker.id: broker.epoch for broker in self.image.brokers.values() if broker.active})
        self.online = frozenset(broker.id for broker in self.image.brokers.values() if not broker.fenced)
        self.on_brokers_changed()

    def when_done(self, step: Callable[[], None]) -> None:
        """Call it when everything published so far can be used."""
        if self._queue:
            self._queue.append(step)
        else:
            step()

    def later(self, step: Callable[[], None]) -> None:
        """Work that takes its time, and that nobody waits for: done when its turn comes."""
        self._queue.append(step)
        self.turn.on_work()

    def work(self, clock: Clock) -> bool:
        """Do some of what is queued; true if there is more."""
        queue = self._queue
        until_ms = clock.monotonic_ms() + TURN_MS_MAX
        while queue:
            queue.popleft()()
            if clock.monotonic_ms() >= until_ms:
                break
        return bool(queue)

    def start(self) -> None:
        """Begin to open everything the image says is here; `open_some` goes on with it until `started`."""
        self._follow_rates()
        self._opening = dict.fromkeys(
            (topic.id, partition.index)
            for topic in self.image.topics.values()
            for partition in topic.partitions
            if self._node_id in partition.replicas
        )
        self.opening = Opening(self, list(self._opening))

    def open_some(self) -> bool:
        """Open partitions for a while; true if there are more that wait for nothing but a turn."""
        return self.opening is not None and self.opening.go_on()

    def stop(self) -> None:
        """Open nothing more."""
        if self.opening is not None:
            self.opening.stopped = True

    @property
    def settling_count(self) -> int:
        return len(self._settling)

    def is_replica(self, topic: metadata.Topic, index: int) -> bool:
        return self._node_id in topic.partitions[index].replicas

    def fail(self, reason: str) -> None:
        """The data directory takes no more writes: what is not synced yet never will be."""
        self.failure = reason
        for partition in self.partitions:
            partition.fail(reason)
        for partition, _ in list(self._settling.values()):
            self._settled(partition, reason)

    def retry(self, wall_ms: int) -> None:
        """Try again what the disk refused."""
        for partition in list(self.removing.values()):
            self.finish_removal(partition, wall_ms)
        for topic_id, index in list(self.missing):
            self._open_later(topic_id, index, wall_ms)

    def finish_removal(self, partition: Partition, wall_ms: int) -> None:
        """No worker is in its directory any more: it can be renamed, and a topic of the same name take its place."""
        key = (partition.topic, partition.index)
        if partition.in_flight or self.removing.get(key) is not partition:
            return
        try:
            self.logs.delete(*key, wall_ms)
        except OSError:
            return  # tried again now and then; until then its name is taken
        del self.removing[key]
        heir = self.image.topics.get(partition.topic)
        if heir is not None and (heir.id, partition.index) in self.missing:
            self._open(heir, partition.index, wall_ms)

    @property
    def defaults(self) -> Defaults:
        """What topics without a setting of their own follow."""
        return self.image.defaults_for(self._node_id, self.static)

    def is_offline(self, topic: metadata.Topic, index: int) -> bool:
        """Whether this node should serve the partition and cannot."""
        if self._node_id not in topic.partitions[index].replicas:
            return False
        partition = self.partitions.get(topic.id, index)
        return partition is None or partition.log.quarantined

    def leader_of(self, topic: metadata.Topic, index: int) -> int:
        """Who can be asked for it; -1 when nobody can."""
        leader = topic.partitions[index].leader
        if leader == self._node_id:
            return NO_LEADER if self.is_offline(topic, index) else leader
        return leader if leader in self.online else NO_LEADER

    def offline_replicas_of(self, topic: metadata.Topic, index: int) -> list[int]:
        here, online = self._node_id, self.online
        return [
            replica
            for replica in topic.partitions[index].replicas
            if (self.is_offline(topic, index) if replica == here else replica not in online)
        ]

    def role_of(self, topic: metadata.Topic, index: int, unclean: bool = False) -> PartitionRole:
        described = topic.partitions[index]
        return PartitionRole(
            described.leader,
            described.leader_epoch,
            described.partition_epoch,
            described.replicas,
            described.isr,
            self.eligible,
            unclean or described.leader_recovery_state == RECOVERING,
            described.eligible_leader_replicas,
        )

    def config_of(self, topic: str) -> TopicConfig:
        config = self._configs.get(topic)
        if config is None:
            config = self._configs[topic] = resolve(self.image.topic_config(topic), self.defaults)
        return config

    def _open_later(self, topic_id: bytes, index: int, wall_ms: int) -> None:
        self._opening[topic_id, index] = None
        self.later(lambda: self.open_now(topic_id, index, wall_ms))

    def open_now(self, topic_id: bytes, index: int, wall_ms: int, *, expected: bool = False) -> None:
        """If it still should be. `expected`: it was here before."""
        self._opening.pop((topic_id, index), None)
        topic = self.image.topics_by_id.get(topic_id)
        if topic is None:
            self.missing.pop((topic_id, index), None)
        elif (topic_id, index) not in self.partitions and not self._is_settling(topic, index):
            self._open(topic, index, wall_ms, expected=expected)

    def _open(self, topic: metadata.Topic, index: int, wall_ms: int, *, expected: bool = False) -> None:
        described = topic.partitions[index]
        if self._node_id not in described.replicas:
            self.missing.pop((topic.id, index), None)
            return
        config = self.config_of(topic.name)
        is_gone = expected and self._is_gone(topic, described)
        try:
            log = self._open_log(topic, index, log_settings(config), wall_ms, expected=expected)
        except (StorageError, OSError) as error:
            if (topic.id, index) not in self.missing:
                self.on_trouble(f"{topic.name}-{index} is offline: {error}")
            self.missing[topic.id, index] = str(error)
            return
        if is_gone:
            settling.give_up(log, "its directory is gone, and records in it were committed")
        if not log.quarantined and described.replicas != [self._node_id]:
            try:
                # What came after may be on no other replica; the leader will tell.
                log.begin_at(self.logs.saved_watermarks.get((topic.name, index), 0))
            except (StorageError, OSError) as error:
                settling.give_up(log, str(error))
        if log.quarantined:
            self.on_trouble(f"quarantined, neither served nor cut: {log.failure}")
        self.missing.pop((topic.id, index), None)
        partition = Partition(
            topic.name, topic.id, index, log, config, self.turn, self._node_id, self.settings.replica_lag_ms
        )
        partition.follower_throttle = self.follower_throttle
        if settling.is_settled(log):
            self._admit(partition, topic)
            return
        self._settling[topic.name, index] = partition, config
        self.turn.wants_sync(partition)
        if self.failure is not None:
            self._settled(partition, self.failure)

    def _is_gone(self, topic: metadata.Topic, described: metadata.Partition) -> bool:
        """Whether others may elect this node for records that somebody took away: an empty log would lead, and all
        others be cut to nothing. A topic that is just being created has no committed records."""
        key = (topic.name, described.index)
        if key in self.logs.found or described.replicas == [self._node_id]:
            return False
        is_counted_on = self._node_id in (*described.isr, *described.eligible_leader_replicas)
        return is_counted_on and self.logs.saved_watermarks.get(key, 0) > 0

    def _admit(self, partition: Partition, topic: metadata.Topic) -> None:
        self.partitions.add(partition)
        if self.failure is not None:
            partition.fail(self.failure)
        # Nobody can say any more how its leader came to lead while it was closed.
        self._take_role(partition, self.role_of(topic, partition.index, unclean=True))

    def _is_settling(self, topic: metadata.Topic, index: int) -> bool:
        settled = self._settling.get((topic.name, index))
        return settled is not None and settled[0].topic_id == topic.id

    def is_settling(self, partition: Partition) -> bool:
        """Whether a sync of it is awaited before it can have any part in anything."""
        settled = self._settling.get((partition.topic, partition.index))
        return settled is not None and settled[0] is partition

    def on_synced(self, partition: Partition, ticket: SyncTicket, error: OSError | None) -> None:
        """Of a partition that is settling."""
        if error is not None and not ticket.synced:
            partition.give_up_sync(ticket)
            self._settled(partition, str(error))
            return
        partition.finish_sync(ticket, housekept=error is None)
        if settling.is_settled(partition.log):
            self._settled(partition)

    def _settled(self, partition: Partition, failure: str | None = None) -> None:
        """What a crash left in memory is on the disk, or never will be. The metadata may have gone on meanwhile."""
        _, config = self._settling.pop((partition.topic, partition.index))
        if failure is not None:
            settling.give_up(partition.log, failure)
            self.on_trouble(f"quarantined, neither served nor cut: {partition.log.failure}")
        topic, index = self.image.topics_by_id.get(partition.topic_id), partition.index
        wall_ms = self.clock.wall_ms()
        if topic is None:
            self._close(partition, UnknownTopicOrPartition(f"{partition} was deleted"), wall_ms)
        elif self._node_id not in topic.partitions[index].replicas:
            self._close(partition, NotLeaderOrFollower(f"{partition} has moved to other nodes"), wall_ms)
        else:
            if self.config_of(topic.name) is not config:
                partition.configure(self.config_of(topic.name))
            self._admit(partition, topic)
        if self.opening is not None:
            self.opening.check_done()

    def _take_role(self, partition: Partition, role: PartitionRole) -> None:
        before, now_ms = partition.role, self.clock.monotonic_ms()
        if role.leader == self._node_id:
            partition.lead(role, now_ms)
        else:
            partition.follow(role, now_ms)
        if (role.leader, role.leader_epoch) != (before.leader, before.leader_epoch) or partition.log.quarantined:
            self.on_role_changed(partition)
        elif partition.leads and role.partition_epoch != before.partition_epoch:
            self.on_replicas_changed(partition, before)

    def _open_log(
        self, topic: metadata.Topic, index: int, settings: LogSettings, wall_ms: int, *, expected: bool
    ) -> Log:
        key = (topic.name, index)
        if key in self.removing or key in self._settling:
            raise StorageError("a deleted topic of the same name is still being removed")
        if self.opening is not None and key in self.logs.found:
            self.opening.sort_out(*key)
        if expected and key not in self.logs.found and self._node_id in topic.partitions[index].isr:
            self.on_trouble(f"{topic.name}-{index}: its directory is missing; it begins empty")
        return self.logs.load_or_create(topic.name, index, topic.id, settings, wall_ms, sync=False)

    def _follow_change(self, topic: metadata.Topic, index: int, unclean: bool, wall_ms: int) -> None:
        partition = self.partitions.get(topic.id, index)
        here = self._node_id in topic.partitions[index].replicas
        if partition is None:
            if here and (topic.id, index) not in self._opening:
                self._open_later(topic.id, index, wall_ms)
        elif here:
            self._take_role(partition, self.role_of(topic, index, unclean))
        else:
            self.partitions.remove(partition)
            self._close(partition, NotLeaderOrFollower(f"{partition} has moved to other nodes"), wall_ms)

    def _follow_rates(self) -> None:
        self.leader_throttle.rate = rate("leader.replication.throttled.rate", self.defaults)
        self.follower_throttle.rate = rate("follower.replication.throttled.rate", self.defaults)

    def _reconfigure(self, record: ConfigRecord) -> None:
        self._configs.clear()
        self._follow_rates()
        topics = [record.resource_name] if record.resource_type == ResourceType.TOPIC else list(self.image.topics)
        for topic in topics:
            partitions = self.partitions.of_topic(topic)
            config = self.config_of(topic) if partitions else None
            for partition in partitions:
                assert config is not None
                partition.configure(config)

    def _remove(self, topic_id: bytes, wall_ms: int) -> None:
        self._configs.clear()
        if self.opening is not None:
            self.opening.on_removed(bytes(topic_id))
        for partition in self.partitions.remove_topic(bytes(topic_id)):
            self._close(partition, UnknownTopicOrPartition(f"{partition} was deleted"), wall_ms)

    def _close(self, partition: Partition, why: ProtocolError, wall_ms: int) -> None:
        """Take it out of service; its files go when no worker is at them."""
        partition.removed = True
        self.removing[partition.topic, partition.index] = partition
        self.on_removed(partition, why)
        self.later(partial(self.finish_removal, partition, wall_ms))
