"""temp"""
from skidway.wire.schema import metadata_records as r
def records_of(image):
    for name, level in sorted(image.features.items()):
        yield r.FeatureLevelRecord(name, level)
    for b in image.brokers.values():
        yield r.RegisterBrokerRecord(broker_id=b.id, incarnation_id=b.incarnation_id, broker_epoch=b.epoch, end_points=[r.BrokerEndpoint(e.name,e.host,e.port,e.security_protocol) for e in b.endpoints], features=[], rack=b.rack, fenced=b.fenced, in_controlled_shutdown=b.in_controlled_shutdown, log_dirs=b.log_dirs)
    for t in image.topics.values():
        yield r.TopicRecord(t.name, t.id)
        for p in t.partitions:
            yield r.PartitionRecord(partition_id=p.index, topic_id=t.id, replicas=p.replicas, isr=p.isr, leader=p.leader, leader_epoch=p.leader_epoch, partition_epoch=p.partition_epoch, directories=p.directories)
    for (kind, n), c in image.configs.items():
        for k, v in c.items():
            yield r.ConfigRecord(kind, n, k, v)
    if image.next_producer_id:
        yield r.ProducerIdsRecord(0, 0, image.next_producer_id)
