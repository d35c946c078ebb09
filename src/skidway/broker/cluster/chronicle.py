"""What happens to the cluster, read from the metadata records that are committed while this node is the controller.

`before` looks at records that are about to be followed, `after` reports what they changed. A controller publishes
everything it decided and nothing that an earlier one did, so each transition is reported by one node, once; one that a
controller decided in its last moment may be reported by none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from skidway.broker.cluster.quorum_host import QuorumHost
from skidway.broker.events import (
    BrokerFenced,
    BrokerRegistered,
    BrokerStopping,
    BrokerUnfenced,
    BrokerUnregistered,
    ConfigsChanged,
    Event,
    LeaderChange,
    LeadersElected,
    PartitionsAdded,
    TooFewReplicas,
    TopicCreated,
    TopicDeleted,
    Why,
)
from skidway.broker.partitions.hosting import Hosting
from skidway.broker.world import World
from skidway.metadata.config_keys import ResourceType
from skidway.metadata.image import Topic
from skidway.metadata.operations import BrokerHeartbeat
from skidway.metadata.topic_names import is_internal
from skidway.runtime.replicated import Operation
from skidway.wire.message import Message
from skidway.wire.schema.metadata_records import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
)

SAME_LEADER = -2
MIN_IN_SYNC = "min.insync.replicas"
FENCED, UNFENCED = 1, -1
STOPS = 1


class Chronicle:
    def __init__(self, world: World, hosting: Hosting, quorum: QuorumHost) -> None:
        self._world = world
        self._hosting = hosting
        self._quorum = quorum
        self._asked: dict[int, Why] = {}
        """Brokers that asked to be fenced or let go, since they were last unfenced."""

    def note(self, operation: Operation[Any]) -> None:
        """An operation that the controller here is asked to decide."""
        if isinstance(operation, BrokerHeartbeat):
            if operation.want_shut_down:
                self._asked[operation.broker_id] = Why.STOPPED
            elif operation.want_fence:
                self._asked[operation.broker_id] = Why.ASKED

    def before(self, records: Sequence[Message]) -> Batch:
        """On the node with the active controller: others report nothing."""
        return Batch(self._world, self._hosting, self._quorum, self._asked, records)


class Batch:
    """Records that are published together, and what was the case before."""

    def __init__(
        self,
        world: World,
        hosting: Hosting,
        quorum: QuorumHost,
        asked: dict[int, Why],
        records: Sequence[Message],
    ) -> None:
        self._world = world
        self._hosting = hosting
        self._image = hosting.image
        self._quorum = quorum
        self._asked = asked
        self._events: list[Event] = []
        self._created: dict[bytes, None] = {}
        self._sizes: dict[bytes, int] = {}
        """Partitions before, of topics that got more."""
        self._leaders: dict[tuple[bytes, int], int] = {}
        self._configs: dict[tuple[int, str], dict[str, str | None]] = {}
        for record in records:
            self._look_at(record)

    def _look_at(self, record: Message) -> None:
        topics = self._image.topics_by_id
        match record:
            case PartitionChangeRecord():
                key = bytes(record.topic_id), record.partition_id
                topic = topics.get(key[0])
                if record.leader != SAME_LEADER and topic is not None and key[1] < len(topic.partitions):
                    self._leaders.setdefault(key, topic.partitions[key[1]].leader)
            case TopicRecord():
                self._created[bytes(record.topic_id)] = None
            case PartitionRecord():
                topic = topics.get(bytes(record.topic_id))
                if topic is not None:
                    self._sizes.setdefault(topic.id, len(topic.partitions))
            case RemoveTopicRecord():
                topic = topics.get(bytes(record.topic_id))
                if topic is not None:
                    self._events.append(TopicDeleted(topic.name, len(topic.partitions)))
            case ConfigRecord():
                changed = self._configs.setdefault((record.resource_type, record.resource_name), {})
                changed[record.name] = record.value
            case _:
                self._look_at_broker(record)

    def _look_at_broker(self, record: Message) -> None:
        match record:
            case RegisterBrokerRecord():
                known = self._image.brokers.get(record.broker_id)
                alone = self._quorum.alone and record.broker_id == self._world.settings.node_id
                if not alone and (known is None or known.epoch != record.broker_epoch):
                    self._asked.pop(record.broker_id, None)
                    point = record.end_points[0] if record.end_points else None
                    address = f"{point.host}:{point.port}" if point is not None else "?"
                    self._events.append(BrokerRegistered(record.broker_id, address, record.rack, known is not None))
            case BrokerRegistrationChangeRecord():
                if record.in_controlled_shutdown == STOPS:
                    self._events.append(BrokerStopping(record.broker_id))
                if record.fenced == FENCED:
                    why = self._asked.get(record.broker_id, Why.SILENT)
                    timeout_ms = self._world.settings.session_timeout_ms
                    self._events.append(BrokerFenced(record.broker_id, why, timeout_ms))
                elif record.fenced == UNFENCED:
                    self._asked.pop(record.broker_id, None)
                    self._events.append(BrokerUnfenced(record.broker_id))
            case UnregisterBrokerRecord():
                self._asked.pop(record.broker_id, None)
                self._events.append(BrokerUnregistered(record.broker_id))

    def after(self) -> None:
        """They were followed."""
        topics = self._image.topics_by_id
        created = [topics[topic_id] for topic_id in self._created if topic_id in topics]
        for event in self._events:
            self._world.report(event)
        for topic in created:
            self._report_created(topic)
        for topic_id, before in self._sizes.items():
            if topic_id in topics:
                self._world.report(PartitionsAdded(topics[topic_id].name, before, len(topics[topic_id].partitions)))
        names = {topic.name for topic in created}
        for (kind, resource), settings in self._configs.items():
            if kind == ResourceType.TOPIC and resource in names:
                continue
            self._world.report(ConfigsChanged(ResourceType(kind), resource, list(settings.items())))
            if kind == ResourceType.TOPIC and MIN_IN_SYNC in settings and resource in self._image.topics:
                self._check_replicas(self._image.topics[resource])
        if changes := self._leader_changes():
            self._world.report(LeadersElected(changes))

    def _report_created(self, topic: Topic) -> None:
        self._world.report(TopicCreated(topic.name, len(topic.partitions), _replicas(topic)))
        if not is_internal(topic.name):
            # Nobody chose how many replicas the broker's own topics have: as many as there can be.
            self._check_replicas(topic)

    def _check_replicas(self, topic: Topic) -> None:
        replicas = _replicas(topic)
        min_in_sync = self._hosting.topic_settings.of(topic.name).min_insync_replicas
        if replicas < min_in_sync:
            self._world.report(TooFewReplicas(topic.name, replicas, min_in_sync))

    def _leader_changes(self) -> list[LeaderChange]:
        changes = []
        for (topic_id, index), before in self._leaders.items():
            topic = self._image.topics_by_id.get(topic_id)
            if topic is None:
                continue
            now = topic.partitions[index]
            if now.leader != before:
                changes.append(LeaderChange(f"{topic.name}-{index}", before, now.leader, now.leader_epoch))
        return changes


def _replicas(topic: Topic) -> int:
    return min([len(partition.replicas) for partition in topic.partitions], default=0)
