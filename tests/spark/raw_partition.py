"""The bytes of a partition as a fetch reply holds them, and batches sent as they are."""

from skidway.blocking_client.cluster import Cluster
from skidway.wire.schema.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from skidway.wire.schema.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData

REPLY_BYTES = 1 << 24


def fetch(bootstrap: str, topic: str, partition: int = 0, offset: int = 0) -> bytes:
    with Cluster(bootstrap) as cluster:
        wanted = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=REPLY_BYTES)
        asked = FetchTopic(topic=topic, topic_id=cluster.look_up(topic).id, partitions=[wanted])
        reply = cluster.leader(topic, partition).call(FetchRequest(max_wait_ms=100, topics=[asked]), FetchResponse)
        (answered,) = reply.responses
        (data,) = answered.partitions
        assert data.error_code == 0
        records = data.records or b""
        assert isinstance(records, bytes | bytearray | memoryview)
        return bytes(records)


def produce(bootstrap: str, topic: str, batches: list[bytearray], partition: int = 0) -> list[int]:
    """The base offset each batch was given."""
    given = []
    with Cluster(bootstrap) as cluster:
        topic_id = cluster.look_up(topic).id
        for batch in batches:
            data = PartitionProduceData(index=partition, records=batch)
            sent = TopicProduceData(name=topic, topic_id=topic_id, partition_data=[data])
            request = ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[sent])
            reply = cluster.leader(topic, partition).call(request, ProduceResponse)
            answer = reply.responses[0].partition_responses[0]
            assert answer.error_code == 0, answer.error_message
            given.append(answer.base_offset)
    return given
