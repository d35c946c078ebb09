"""An image as the shortest log that leads to it: what a snapshot holds.

Applied to an empty image these records give an equal one, in any version that can read them.
"""

from collections.abc import Iterator

from skidway.metadata.image import Broker, Image, Partition
from skidway.wire.message import Message
from skidway.wire.schema import metadata_records as records

NOBODY = -1


def records_of(image: Image) -> Iterator[Message]:
    for name, level in sorted(image.features.items()):
        yield records.FeatureLevelRecord(name=name, feature_level=level)
    for _, broker in sorted(image.brokers.items()):
        yield _broker_record(broker)
    epochs = [broker.epoch for broker in image.brokers.values()]
    if image.next_broker_epoch > max(epochs, default=0) + 1:
        # The newest run was unregistered; no other may get its epoch all the same.
        yield records.UnregisterBrokerRecord(broker_id=NOBODY, broker_epoch=image.next_broker_epoch - 1)
    if image.next_producer_id:
        yield records.ProducerIdsRecord(broker_id=NOBODY, next_producer_id=image.next_producer_id)
    for _, topic in sorted(image.topics.items()):
        yield records.TopicRecord(name=topic.name, topic_id=topic.id)
        for partition in topic.partitions:
            yield _partition_record(topic.id, partition)
    for (resource_type, resource_name), settings in sorted(image.configs.items()):
        for name, value in sorted(settings.items()):
            yield records.ConfigRecord(resource_type=resource_type, resource_name=resource_name, name=name, value=value)


def _broker_record(broker: Broker) -> records.RegisterBrokerRecord:
    return records.RegisterBrokerRecord(
        broker_id=broker.id,
        incarnation_id=broker.incarnation_id,
        broker_epoch=broker.epoch,
        end_points=[
            records.BrokerEndpoint(point.name, point.host, point.port, point.security_protocol)
            for point in broker.endpoints
        ],
        features=[records.BrokerFeature(name, *levels) for name, levels in sorted(broker.features.items())],
        rack=broker.rack,
        fenced=broker.fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
        log_dirs=list(broker.log_dirs),
    )


def _partition_record(topic_id: bytes, partition: Partition) -> records.PartitionRecord:
    return records.PartitionRecord(
        partition_id=partition.index,
        topic_id=topic_id,
        replicas=list(partition.replicas),
        isr=list(partition.isr),
        removing_replicas=list(partition.removing_replicas),
        adding_replicas=list(partition.adding_replicas),
        leader=partition.leader,
        leader_recovery_state=partition.leader_recovery_state,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        directories=list(partition.directories),
        eligible_leader_replicas=list(partition.eligible_leader_replicas) or None,
        last_known_elr=list(partition.last_known_elr) or None,
    )
