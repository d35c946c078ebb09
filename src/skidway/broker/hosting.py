"""What committed metadata means for this node: which partitions it hosts, and with which settings.

The image follows the committed records. A partition is opened when its record is published and closed when its topic
is removed. A log on disk that no topic knows is set aside, never deleted: metadata that was lost must not take the
data with it.

Making and removing files takes about a millisecond for each partition, and a topic may have thousands. So that is
queued, done a little in every turn, and whoever asked for it is answered when it is done.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from skidway.broker.partition import Partition, log_settings
from skidway.broker.partitions import Partitions
from skidway.broker.settings import NodeSettings
from skidway.broker.turn import Turn
from skidway.errors import StorageError
from skidway.limits import Limits
from skidway.log.log import Log
from skidway.log.logs import Logs
from skidway.log.settings import LogSettings
from skidway.metadata import image as metadata
from skidway.metadata.config_keys import Defaults, ResourceType
from skidway.metadata.image import Image
from skidway.metadata.topic_configs import TopicConfig, resolve
from skidway.ports import Clock
from skidway.replica.leader import Leader
from skidway.replica.role import PartitionRole
from skidway.wire.message import Message
from skidway.wire.schema.metadata_records import (
    ConfigRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
)

REPLICA_LAG_MS = 30_000
TURN_MS_MAX = 20
"""So long a turn may be busy with files of partitions that come and go."""


class Hosting:
    def __init__(
        self,
        settings: NodeSettings,
        limits: Limits,
        logs: Logs,
        turn: Turn,
        on_removed: Callable[[Partition], None],
        on_topics_changed: Callable[[list[str]], None],
        on_trouble: Callable[[str], None],
    ) -> None:
        self.settings = settings
        self.static = settings.static_configs(limits)
        self.logs = logs
        self.turn = turn
        self.on_removed = on_removed
        self.on_topics_changed = on_topics_changed
        self.on_trouble = on_trouble
        self.image = Image()
        self.partitions = Partitions()
        self.missing: dict[tuple[bytes, int], str] = {}
        """Partitions that should be here but could not be opened, and why."""
        self.removing: dict[tuple[str, int], Partition] = {}
        """Deleted partitions whose directories still have their names."""
        self._configs: dict[str, TopicConfig] = {}
        """Resolved once for all partitions of a topic; forgotten when a setting changes."""
        self.started = False
        self._queue: deque[Callable[[], None]] = deque()
        self._opening: dict[tuple[bytes, int], None] = {}

    def publish(self, records: Sequence[Message], wall_ms: int) -> None:
        """Follow records that are committed. Before `start` only the image does."""
        deleted: list[str] = []
        for record in records:
            if isinstance(record, RemoveTopicRecord) and self.started:
                deleted.append(self.image.topics_by_id[record.topic_id].name)
                self._remove(record.topic_id, wall_ms)
            self.image.apply(record)
            if not self.started:
                continue
            if isinstance(record, PartitionRecord):
                self._open_later(bytes(record.topic_id), record.partition_id, wall_ms)
            elif isinstance(record, PartitionChangeRecord):
                self._follow_change(self.image.topics_by_id[record.topic_id], record.partition_id)
            elif isinstance(record, ConfigRecord):
                self._reconfigure(record)
        if self.started and (deleted or any(isinstance(record, PartitionRecord) for record in records)):
            self.on_topics_changed(deleted)

    def when_done(self, step: Callable[[], None]) -> None:
        """Call it when everything published so far can be used."""
        if self._queue:
            self._queue.append(step)
        else:
            step()

    def work(self, clock: Clock) -> bool:
        """Do some of what is queued; true if there is more."""
        queue = self._queue
        until_ms = clock.monotonic_ms() + TURN_MS_MAX
        while queue:
            queue.popleft()()
            if clock.monotonic_ms() >= until_ms:
                break
        return bool(queue)

    def start(self, wall_ms: int) -> None:
        """Open everything the image says is here; set aside what it does not know."""
        self.started = True
        for (name, index), topic_id in list(self.logs.found.items()):
            topic = self.image.topics.get(name)
            unborn = self.logs.is_unborn(name, index)
            if unborn and self.logs.is_empty(name, index):
                self.logs.discard(name, index, wall_ms)
            elif unborn or topic is None or index >= len(topic.partitions) or topic_id not in (None, topic.id):
                kept = self.logs.set_aside(name, index)
                self.on_trouble(f"{name}-{index}: no topic knows this log; kept as {kept}, not deleted")
        for topic in self.image.topics.values():
            for partition in topic.partitions:
                if (topic.name, partition.index) not in self.logs.found:
                    self.on_trouble(f"{topic.name}-{partition.index}: its directory is missing; it begins empty")
                self._open(topic, partition.index, wall_ms)

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
        return self.image.defaults_for(self.settings.node_id, self.static)

    def is_offline(self, topic: metadata.Topic, index: int) -> bool:
        """Whether this node should serve the partition and cannot."""
        if (topic.id, index) in self.missing or (topic.id, index) in self._opening:
            return True
        return self.partitions.find_by_id(topic.id, index).log.quarantined

    def config_of(self, topic: str) -> TopicConfig:
        config = self._configs.get(topic)
        if config is None:
            config = self._configs[topic] = resolve(self.image.topic_config(topic), self.defaults)
        return config

    def _open_later(self, topic_id: bytes, index: int, wall_ms: int) -> None:
        def open_now() -> None:
            self._opening.pop((topic_id, index), None)
            topic = self.image.topics_by_id.get(topic_id)
            if topic is None:
                self.missing.pop((topic_id, index), None)
            elif (topic_id, index) not in self.partitions:
                self._open(topic, index, wall_ms)

        self._opening[topic_id, index] = None
        self._queue.append(open_now)
        self.turn.on_work()

    def _open(self, topic: metadata.Topic, index: int, wall_ms: int) -> None:
        described = topic.partitions[index]
        if self.settings.node_id not in described.replicas:
            return
        config = self.config_of(topic.name)
        try:
            log = self._open_log(topic, index, log_settings(config), wall_ms)
        except (StorageError, OSError) as error:
            if (topic.id, index) not in self.missing:
                self.on_trouble(f"{topic.name}-{index} is offline: {error}")
            self.missing[topic.id, index] = str(error)
            return
        if log.quarantined:
            self.on_trouble(f"quarantined, neither served nor cut: {log.failure}")
        self.missing.pop((topic.id, index), None)
        end = log.end_offset
        leader = Leader(self.settings.node_id, self._role(described), end, end, 0, REPLICA_LAG_MS)
        self.partitions.add(Partition(topic.name, topic.id, index, log, leader, config, self.turn))

    def _open_log(self, topic: metadata.Topic, index: int, settings: LogSettings, wall_ms: int) -> Log:
        if (topic.name, index) in self.removing:
            raise StorageError("a deleted topic of the same name is still being removed")
        return self.logs.load_or_create(topic.name, index, topic.id, settings, wall_ms)

    def _follow_change(self, topic: metadata.Topic, index: int) -> None:
        if (topic.id, index) in self.missing or (topic.id, index) in self._opening:
            return
        partition = self.partitions.find_by_id(topic.id, index)
        assert isinstance(partition.leader, Leader)
        partition.leader.on_metadata(self._role(topic.partitions[index]), partition.log.end_offset, 0)

    def _role(self, described: metadata.Partition) -> PartitionRole:
        eligible = {broker.id: broker.epoch for broker in self.image.brokers.values() if broker.active}
        return PartitionRole(
            described.leader,
            described.leader_epoch,
            described.partition_epoch,
            described.replicas,
            described.isr,
            eligible,
        )

    def _reconfigure(self, record: ConfigRecord) -> None:
        self._configs.clear()
        topics = [record.resource_name] if record.resource_type == ResourceType.TOPIC else list(self.image.topics)
        for topic in topics:
            partitions = self.partitions.of_topic(topic)
            config = self.config_of(topic) if partitions else None
            for partition in partitions:
                assert config is not None
                partition.configure(config)

    def _remove(self, topic_id: bytes, wall_ms: int) -> None:
        self._configs.clear()
        for partition in self.partitions.remove_topic(bytes(topic_id)):
            partition.removed = True
            self.removing[partition.topic, partition.index] = partition
            self.on_removed(partition)
            self._queue.append(partial(self.finish_removal, partition, wall_ms))
            self.turn.on_work()
