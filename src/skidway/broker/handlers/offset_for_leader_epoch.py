"""OffsetForLeaderEpoch (key 23), v2–v4.

Where an epoch ends in the leader's log: what a client that saw an older leader compares its position with.
An epoch that is not known is answered with epoch -1, offset -1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from skidway.errors import ProtocolError
from skidway.steps import Steps
from skidway.wire.schema.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)

if TYPE_CHECKING:
    from skidway.broker.api.call import Call
    from skidway.broker.services import Services


def handle(node: Services, call: Call, request: OffsetForLeaderEpochRequest) -> Steps[OffsetForLeaderEpochResponse]:
    response = OffsetForLeaderEpochResponse()
    for topic in request.topics:
        result = OffsetForLeaderTopicResult(topic.topic, [])
        response.topics.append(result)
        for asked in topic.partitions:
            result.partitions.append(_end_of(node, topic.topic, asked))
            yield None
    return response


def _end_of(node: Services, topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    try:
        partition = node.partitions.find(topic, asked.partition)
        partition.leader.check_epoch(asked.current_leader_epoch)
    except ProtocolError as error:
        return EpochEndOffset(error.code, asked.partition)
    epoch, end_offset = partition.log.end_offset_for_epoch(asked.leader_epoch)
    return EpochEndOffset(0, asked.partition, epoch, end_offset)
