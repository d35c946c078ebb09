"""DeleteRecords (key 21), v0–v2.

Moves the start of a partition up to an offset (-1: the high watermark); whole segments below it are removed.
POLICY_VIOLATION where `cleanup.policy` is `compact` alone: nobody may cut off the newest record of a key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from skidway.errors import OffsetOutOfRange, PolicyViolation, ProtocolError
from skidway.wire.schema.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

if TYPE_CHECKING:
    from skidway.broker.call import Call
    from skidway.broker.node import Node

HIGH_WATERMARK = -1
ANY_EPOCH = -1


def handle(node: Node, call: Call, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    response = DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(topic.name, [_delete(node, topic.name, asked) for asked in topic.partitions])
            for topic in request.topics
        ]
    )
    node.upkeep.save_offsets(node.clock.wall_ms())
    node.on_work()
    return response


def _delete(node: Node, topic: str, asked: DeleteRecordsPartition) -> DeleteRecordsPartitionResult:
    try:
        partition = node.partitions.find(topic, asked.partition_index)
        partition.leader.check_epoch(ANY_EPOCH)
        log = partition.log
        if not log.settings.cleanup_delete:
            raise PolicyViolation()
        offset = log.high_watermark if asked.offset == HIGH_WATERMARK else asked.offset
        if not 0 <= offset <= log.high_watermark:
            raise OffsetOutOfRange()
        log.delete_records_before(offset)
        if log.dirty:
            node.turn.wants_sync(partition)
    except ProtocolError as error:
        return DeleteRecordsPartitionResult(asked.partition_index, -1, error.code)
    return DeleteRecordsPartitionResult(asked.partition_index, log.start_offset, 0)
