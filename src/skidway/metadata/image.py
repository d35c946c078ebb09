"""What the cluster's metadata is after a prefix of its log.

`apply` is the only mutator; it takes the records in the order of the log, never fails on what the controller wrote,
and depends on nothing else: two images fed the same records are equal. Lists are replaced, not changed in place, so
that a record and an image never share one that changes.
"""

from collections import ChainMap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields

import msgspec

from skidway.metadata.config_keys import Defaults, ResourceType
from skidway.wire.message import Message
from skidway.wire.schema import metadata_records as records

NO_LEADER = -1
NO_CHANGE = -2
"""In PartitionChangeRecord.leader; naming a leader, be it the same one, begins a new leader epoch."""


LOST_DIRECTORY = (1).to_bytes(16, "big")
"""Where a replica is whose broker says that its copy is damaged: as in Kafka, the id of no directory."""


class Partition(msgspec.Struct):
    index: int
    leader: int
    leader_epoch: int
    partition_epoch: int
    replicas: list[int]
    isr: list[int]
    directories: list[bytes]
    removing_replicas: list[int] = msgspec.field(default_factory=list)
    adding_replicas: list[int] = msgspec.field(default_factory=list)
    eligible_leader_replicas: list[int] = msgspec.field(default_factory=list)
    last_known_elr: list[int] = msgspec.field(default_factory=list)
    leader_recovery_state: int = 0


class Topic(msgspec.Struct):
    name: str
    id: bytes
    partitions: list[Partition] = msgspec.field(default_factory=list)


class Endpoint(msgspec.Struct):
    name: str
    host: str
    port: int
    security_protocol: int = 0


class Broker(msgspec.Struct):
    id: int
    epoch: int
    incarnation_id: bytes
    endpoints: list[Endpoint]
    rack: str | None
    fenced: bool
    in_controlled_shutdown: bool
    log_dirs: list[bytes]
    features: dict[str, tuple[int, int]]

    @property
    def active(self) -> bool:
        """May lead and be in sync."""
        return not self.fenced and not self.in_controlled_shutdown

    def endpoint(self, listener: str | None) -> Endpoint | None:
        """Where those who came by a listener of this name reach it; None if it has no such listener."""
        for endpoint in self.endpoints:
            if endpoint.name == listener:
                return endpoint
        return None


@dataclass(slots=True)
class Image:
    brokers: dict[int, Broker] = field(default_factory=dict)
    topics: dict[str, Topic] = field(default_factory=dict)
    topics_by_id: dict[bytes, Topic] = field(default_factory=dict)
    configs: dict[tuple[int, str], dict[str, str]] = field(default_factory=dict)
    features: dict[str, int] = field(default_factory=dict)
    """Levels in use; 0 for none, where somebody has decided that."""
    next_producer_id: int = 0
    next_broker_epoch: int = 1
    replica_counts: dict[int, int] = field(default_factory=dict)
    """Replicas by broker."""
    alike: dict[str, str] = field(default_factory=dict)
    """Topic names with dots made underscores, to the name: metrics cannot tell `a.b` from `a_b`."""

    def become(self, other: "Image") -> None:
        """Hold what the other holds, which is of no more use then: for everybody who keeps this one."""
        for each in fields(self):
            setattr(self, each.name, getattr(other, each.name))

    def brokers_without(self, listener: str | None) -> set[int]:
        """Those that nobody who came by a listener of this name can reach."""
        return {broker.id for broker in self.brokers.values() if broker.endpoint(listener) is None}

    def config(self, resource_type: int, name: str) -> Mapping[str, str]:
        return self.configs.get((resource_type, name), {})

    def topic_config(self, name: str) -> Mapping[str, str]:
        return self.configs.get((ResourceType.TOPIC, name), {})

    def configs_after(self, changes: Iterable[Message]) -> Mapping[tuple[int, str], Mapping[str, str]]:
        """What the settings will be."""
        changed: dict[tuple[int, str], dict[str, str]] = {}
        for record in changes:
            if isinstance(record, records.ConfigRecord):
                resource = (record.resource_type, record.resource_name)
                changed[resource] = _with(changed.get(resource, self.configs.get(resource, {})), record)
        return ChainMap(changed, self.configs)

    def defaults_for(self, node_id: int, static: Mapping[str, str]) -> Defaults:
        """What topics without an override follow on that broker."""
        return Defaults(
            node=self.config(ResourceType.BROKER, str(node_id)),
            cluster=self.config(ResourceType.BROKER, ""),
            static=static,
        )

    def resources(self, resource_type: int) -> list[str]:
        """The names ListConfigResources shows: whatever exists and could be configured, set or not."""
        if resource_type == ResourceType.TOPIC:
            return sorted(self.topics)
        if resource_type in (ResourceType.BROKER, ResourceType.BROKER_LOGGER):
            return [str(broker_id) for broker_id in sorted(self.brokers)]
        return sorted(name for kind, name in self.configs if kind == resource_type)

    def offline(self, replicas: Iterable[int]) -> list[int]:
        """Those whose brokers are not there."""
        brokers = self.brokers
        return [broker_id for broker_id in replicas if broker_id not in brokers or brokers[broker_id].fenced]

    @property
    def partition_count(self) -> int:
        return sum(len(topic.partitions) for topic in self.topics.values())

    def apply(self, record: Message) -> None:
        match record:
            case records.TopicRecord():
                self._add_topic(record)
            case records.PartitionRecord():
                self._set_partition(record)
            case records.PartitionChangeRecord():
                self._change_partition(record)
            case records.RemoveTopicRecord():
                self._remove_topic(record.topic_id)
            case records.ConfigRecord():
                self._set_config(record)
            case records.RegisterBrokerRecord():
                self._register_broker(record)
            case records.UnregisterBrokerRecord():
                self._unregister_broker(record)
            case records.FenceBrokerRecord():
                self.brokers[record.id].fenced = True
            case records.UnfenceBrokerRecord():
                self.brokers[record.id].fenced = False
            case records.BrokerRegistrationChangeRecord():
                self._change_broker(record)
            case records.FeatureLevelRecord():
                self._set_feature(record)
            case records.ProducerIdsRecord():
                self.next_producer_id = record.next_producer_id
            case records.NoOpRecord():
                pass
            case _:
                raise AssertionError(f"the controller does not write {record!r}")

    def _add_topic(self, record: records.TopicRecord) -> None:
        topic = Topic(record.name, bytes(record.topic_id))
        assert topic.name not in self.topics, topic.name
        assert topic.id not in self.topics_by_id, topic.name
        self.topics[topic.name] = self.topics_by_id[topic.id] = topic
        self.alike[topic.name.replace(".", "_")] = topic.name

    def _set_partition(self, record: records.PartitionRecord) -> None:
        partition = Partition(
            index=record.partition_id,
            leader=record.leader,
            leader_epoch=record.leader_epoch,
            partition_epoch=record.partition_epoch,
            replicas=list(record.replicas),
            isr=list(record.isr),
            directories=[bytes(directory) for directory in record.directories],
            removing_replicas=list(record.removing_replicas),
            adding_replicas=list(record.adding_replicas),
            eligible_leader_replicas=list(record.eligible_leader_replicas or ()),
            last_known_elr=list(record.last_known_elr or ()),
            leader_recovery_state=record.leader_recovery_state,
        )
        partitions = self.topics_by_id[record.topic_id].partitions
        assert partition.index == len(partitions), "partitions are added in order"
        partitions.append(partition)
        self._count(partition.replicas, 1)

    def _change_partition(self, record: records.PartitionChangeRecord) -> None:
        partition = self.topics_by_id[record.topic_id].partitions[record.partition_id]
        if record.isr is not None:
            partition.isr = list(record.isr)
        if record.replicas is not None:
            self._count(partition.replicas, -1)
            partition.replicas = list(record.replicas)
            self._count(partition.replicas, 1)
        if record.directories is not None:
            partition.directories = [bytes(directory) for directory in record.directories]
        if record.removing_replicas is not None:
            partition.removing_replicas = list(record.removing_replicas)
        if record.adding_replicas is not None:
            partition.adding_replicas = list(record.adding_replicas)
        if record.eligible_leader_replicas is not None:
            partition.eligible_leader_replicas = list(record.eligible_leader_replicas)
        if record.last_known_elr is not None:
            partition.last_known_elr = list(record.last_known_elr)
        if record.leader_recovery_state >= 0:
            partition.leader_recovery_state = record.leader_recovery_state
        if record.leader != NO_CHANGE:
            partition.leader = record.leader
            partition.leader_epoch += 1
        partition.partition_epoch += 1

    def _remove_topic(self, topic_id: bytes) -> None:
        topic = self.topics_by_id.pop(bytes(topic_id))
        del self.topics[topic.name]
        del self.alike[topic.name.replace(".", "_")]
        self.configs.pop((ResourceType.TOPIC, topic.name), None)
        for partition in topic.partitions:
            self._count(partition.replicas, -1)

    def _count(self, replicas: list[int], change: int) -> None:
        for broker_id in replicas:
            count = self.replica_counts.get(broker_id, 0) + change
            if count:
                self.replica_counts[broker_id] = count
            else:
                del self.replica_counts[broker_id]

    def _set_config(self, record: records.ConfigRecord) -> None:
        resource = (record.resource_type, record.resource_name)
        settings = _with(self.configs.get(resource, {}), record)
        if settings:
            self.configs[resource] = settings
        else:
            self.configs.pop(resource, None)

    def _set_feature(self, record: records.FeatureLevelRecord) -> None:
        # Level 0 too, unlike Kafka: who has lowered it does not want it raised again.
        self.features[record.name] = record.feature_level

    def _register_broker(self, record: records.RegisterBrokerRecord) -> None:
        self.brokers[record.broker_id] = Broker(
            id=record.broker_id,
            epoch=record.broker_epoch,
            incarnation_id=bytes(record.incarnation_id),
            endpoints=[
                Endpoint(point.name, point.host, point.port, point.security_protocol) for point in record.end_points
            ],
            rack=record.rack,
            fenced=record.fenced,
            in_controlled_shutdown=record.in_controlled_shutdown,
            log_dirs=[bytes(directory) for directory in record.log_dirs],
            features={
                feature.name: (feature.min_supported_version, feature.max_supported_version)
                for feature in record.features
            },
        )
        self.next_broker_epoch = max(self.next_broker_epoch, record.broker_epoch + 1)

    def _unregister_broker(self, record: records.UnregisterBrokerRecord) -> None:
        self.brokers.pop(record.broker_id, None)
        self.next_broker_epoch = max(self.next_broker_epoch, record.broker_epoch + 1)

    def _change_broker(self, record: records.BrokerRegistrationChangeRecord) -> None:
        broker = self.brokers[record.broker_id]
        if record.fenced:
            broker.fenced = record.fenced > 0
        if record.in_controlled_shutdown:
            broker.in_controlled_shutdown = record.in_controlled_shutdown > 0
        if record.log_dirs:
            broker.log_dirs = [bytes(directory) for directory in record.log_dirs]


def _with(settings: Mapping[str, str], record: records.ConfigRecord) -> dict[str, str]:
    changed = {name: value for name, value in settings.items() if name != record.name}
    if record.value is not None:
        changed[record.name] = record.value
    return changed
