"""An image as the records that make it: what a snapshot holds."""

from collections.abc import Iterator

from skidway.metadata.image import Image
from skidway.wire.message import Message
from skidway.wire.schema import metadata_records as records


def records_of(image: Image) -> Iterator[Message]:
    for name, level in sorted(image.features.items()):
        yield records.FeatureLevelRecord(name, level)
    for broker in image.brokers.values():
        yield records.RegisterBrokerRecord(
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
            log_dirs=broker.log_dirs,
        )
    for topic in image.topics.values():
        yield records.TopicRecord(topic.name, topic.id)
        for partition in topic.partitions:
            yield records.PartitionRecord(
                partition_id=partition.index,
                topic_id=topic.id,
                replicas=partition.replicas,
                isr=partition.isr,
                removing_replicas=partition.removing_replicas,
                adding_replicas=partition.adding_replicas,
                leader=partition.leader,
                leader_recovery_state=partition.leader_recovery_state,
                leader_epoch=partition.leader_epoch,
                partition_epoch=partition.partition_epoch,
                directories=partition.directories,
                eligible_leader_replicas=partition.eligible_leader_replicas or None,
                last_known_elr=partition.last_known_elr or None,
            )
    for (kind, name), settings in image.configs.items():
        for key, value in settings.items():
            yield records.ConfigRecord(kind, name, key, value)
    if image.next_producer_id:
        yield records.ProducerIdsRecord(-1, -1, image.next_producer_id)
