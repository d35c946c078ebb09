"""DescribeProducers (key 61), v0: the idempotent and transactional producers a partition remembers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skidway.errors import ProtocolError
from skidway.steps import Steps
from skidway.wire.schema.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)

if TYPE_CHECKING:
    from skidway.broker.api.call import Call
    from skidway.broker.services import Services

ANY_EPOCH = -1


def handle(node: Services, call: Call, request: DescribeProducersRequest) -> Steps[DescribeProducersResponse]:
    # Each once: a partition named in four bytes may have a hundred thousand producers.
    once: dict[str, dict[int, None]] = {}
    for topic in request.topics:
        once.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
        yield None
    response = DescribeProducersResponse()
    for name, indexes in once.items():
        topic_response = TopicResponse(name)
        response.topics.append(topic_response)
        for index in indexes:
            topic_response.partitions.append((yield from _describe(node, name, index)))
            yield None
    return response


def _describe(node: Services, topic: str, index: int) -> Steps[PartitionResponse]:
    try:
        partition = node.partitions.find(topic, index)
        partition.leader.check_epoch(ANY_EPOCH)
        producers = partition.log.producers
    except ProtocolError as error:
        return PartitionResponse(index, error.code, error.message)
    response = PartitionResponse(index)
    # A copy: producers come and go while this one waits for its next turn.
    for producer in list(producers.entries.values()):
        response.active_producers.append(
            ProducerState(
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                last_sequence=producer.last_sequence,
                last_timestamp=producer.last_timestamp,
                coordinator_epoch=producer.coordinator_epoch,
                current_txn_start_offset=producer.transaction_start,
            )
        )
        yield None
    return response
