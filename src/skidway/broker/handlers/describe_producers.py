"""DescribeProducers (key 61), v0: the idempotent producers a partition remembers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skidway.errors import ProtocolError
from skidway.wire.schema.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)

if TYPE_CHECKING:
    from skidway.broker.call import Call
    from skidway.broker.node import Node

ANY_EPOCH = -1


def handle(node: Node, call: Call, request: DescribeProducersRequest) -> DescribeProducersResponse:
    # Each once: a partition named in four bytes may have a hundred thousand producers.
    once: dict[str, dict[int, None]] = {}
    for topic in request.topics:
        once.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    return DescribeProducersResponse(
        topics=[TopicResponse(name, [_describe(node, name, index) for index in once[name]]) for name in once]
    )


def _describe(node: Node, topic: str, index: int) -> PartitionResponse:
    try:
        partition = node.partitions.find(topic, index)
        partition.leader.check_epoch(ANY_EPOCH)
        producers = partition.log.producers
    except ProtocolError as error:
        return PartitionResponse(index, error.code, error.message)
    return PartitionResponse(
        index,
        active_producers=[
            ProducerState(
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                last_sequence=producer.last_sequence,
                last_timestamp=producer.last_timestamp,
                coordinator_epoch=-1,
                current_txn_start_offset=-1,
            )
            for producer in producers.entries.values()
        ],
    )
