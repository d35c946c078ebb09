"""The controller: a decide/apply machine over the cluster's metadata.

`decide` reads the image and answers with records and a reply; only `apply` changes it. Randomness (topic ids, where
placement begins) goes into the records, so that a log replays to the same image everywhere.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from skidway.errors import UnknownServerError
from skidway.limits import DEFAULT_LIMITS, INT64_MAX, Limits
from skidway.metadata import configs, topics
from skidway.metadata.image import Image
from skidway.metadata.operations import (
    AllocateProducerIds,
    AlterConfigs,
    Bootstrap,
    BrokerRegistered,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    IncrementalAlterConfigs,
    ProducerIdBlock,
    RegisterBroker,
)
from skidway.ports import Random
from skidway.runtime.replicated import Decision, Operation
from skidway.wire.message import Message
from skidway.wire.schema.metadata_records import (
    BrokerEndpoint,
    BrokerFeature,
    FeatureLevelRecord,
    PartitionChangeRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
)

PRODUCER_IDS_PER_BLOCK = 1000


@dataclass(slots=True)
class ControllerSettings:
    """What the node that runs the controller was configured with."""

    node_id: int = 0
    partitions: int = 1
    replication_factor: int = 1
    static: Mapping[str, str] = field(default_factory=dict)
    """Broker settings by their Kafka names: the defaults of topics. Checked by broker_configs.validate_static."""


class Controller:
    def __init__(
        self, random: Random, limits: Limits = DEFAULT_LIMITS, settings: ControllerSettings | None = None
    ) -> None:
        self.image = Image()
        self._random = random
        self._limits = limits
        self._settings = settings or ControllerSettings()

    def apply(self, record: Message) -> None:
        self.image.apply(record)

    def decide(self, operation: Operation[Any], now_ms: int) -> Decision[Message, Any]:
        match operation:
            case CreateTopics():
                return topics.decide_create(self._draft(), operation, self._topic_defaults())
            case DeleteTopics():
                return topics.decide_delete(self._draft(), operation)
            case CreatePartitions():
                return topics.decide_more_partitions(self._draft(), operation)
            case AlterConfigs():
                return configs.decide_alter(self.image, self._settings.static, operation)
            case IncrementalAlterConfigs():
                return configs.decide_incremental(self.image, self._settings.static, operation)
            case AllocateProducerIds():
                return self._allocate_producer_ids(operation)
            case RegisterBroker():
                return self._register_broker(operation)
            case Bootstrap():
                return self._bootstrap(operation)
        raise AssertionError(f"not an operation of the controller: {operation!r}")

    def _draft(self) -> topics.Draft:
        return topics.Draft(self.image, self._limits, self._random)

    def _topic_defaults(self) -> topics.TopicDefaults:
        settings = self._settings
        return topics.TopicDefaults(
            settings.partitions,
            settings.replication_factor,
            self.image.defaults_for(settings.node_id, settings.static),
        )

    def _bootstrap(self, operation: Bootstrap) -> Decision[Message, Mapping[str, int]]:
        missing = {name: level for name, level in operation.features.items() if name not in self.image.features}
        records: list[Message] = [FeatureLevelRecord(name, level) for name, level in sorted(missing.items())]
        return Decision(records, {**self.image.features, **missing})

    def _register_broker(self, operation: RegisterBroker) -> Decision[Message, BrokerRegistered]:
        epoch = self.image.next_broker_epoch
        records: list[Message] = [
            RegisterBrokerRecord(
                broker_id=operation.broker_id,
                incarnation_id=operation.incarnation_id,
                broker_epoch=epoch,
                end_points=[
                    BrokerEndpoint(point.name, point.host, point.port, point.security_protocol)
                    for point in operation.endpoints
                ],
                features=[BrokerFeature(name, *levels) for name, levels in sorted(operation.features.items())],
                rack=operation.rack,
                fenced=operation.fenced,
                log_dirs=operation.log_dirs,
            )
        ]
        if operation.new_leader_epochs:
            records.extend(self._lead_anew(operation.broker_id))
        return Decision(records, BrokerRegistered(epoch))

    def _lead_anew(self, broker_id: int) -> list[PartitionChangeRecord]:
        return [
            PartitionChangeRecord(partition_id=partition.index, topic_id=topic.id, leader=broker_id)
            for topic in self.image.topics.values()
            for partition in topic.partitions
            if partition.leader == broker_id
        ]

    def _allocate_producer_ids(self, operation: AllocateProducerIds) -> Decision[Message, ProducerIdBlock]:
        first = self.image.next_producer_id
        if first > INT64_MAX - PRODUCER_IDS_PER_BLOCK:
            raise UnknownServerError("There are no producer ids left.")
        record = ProducerIdsRecord(operation.broker_id, operation.broker_epoch, first + PRODUCER_IDS_PER_BLOCK)
        return Decision([record], ProducerIdBlock(first, PRODUCER_IDS_PER_BLOCK))
