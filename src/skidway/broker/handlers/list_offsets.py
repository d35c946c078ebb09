"""ListOffsets (key 2), v1–v11.

Answers the first offset whose timestamp is at least the one asked, or the special positions -1 end (the high
watermark), -2 start, -3 largest timestamp, -4 local start, -5 last tiered, -6 first that waits to be tiered.
Nothing found is offset -1 without an error; as there is no tiered storage, -5 and -6 never find anything.
A new leader does not know yet how much of what it has is committed: until the high watermark has reached the start of
its epoch, what may lie above is answered with OFFSET_NOT_AVAILABLE (before v5 LEADER_NOT_AVAILABLE): a client must not
see the end go back. To followers (`replica_id`) the end is the end of the log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from skidway.errors import ErrorCode, LeaderNotAvailable, OffsetNotAvailable, ProtocolError, UnsupportedVersion
from skidway.replica.leader import Leader
from skidway.wire.schema.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

if TYPE_CHECKING:
    from skidway.broker.call import Call
    from skidway.broker.node import Node
    from skidway.broker.partition import Partition

LATEST = -1
EARLIEST = -2
LARGEST_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
NOT_AVAILABLE_SINCE = 5
SINCE_VERSION = {
    LATEST: 1,
    EARLIEST: 1,
    LARGEST_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}


def handle(node: Node, call: Call, request: ListOffsetsRequest) -> ListOffsetsResponse:
    asked: set[tuple[str, int]] = set()
    twice: set[tuple[str, int]] = set()
    for topic in request.topics:
        for partition in topic.partitions:
            key = (topic.name, partition.partition_index)
            (twice if key in asked else asked).add(key)
    topics = []
    for topic in request.topics:
        answers = []
        for partition in topic.partitions:
            index = partition.partition_index
            if (topic.name, index) in twice:
                answers.append(ListOffsetsPartitionResponse(index, ErrorCode.INVALID_REQUEST))
                continue
            try:
                answers.append(_look_up(node, call.version, topic.name, partition, request.replica_id))
            except OffsetNotAvailable as error:
                early = call.version < NOT_AVAILABLE_SINCE
                answers.append(ListOffsetsPartitionResponse(index, LeaderNotAvailable.code if early else error.code))
            except ProtocolError as error:
                answers.append(ListOffsetsPartitionResponse(index, error.code))
        topics.append(ListOffsetsTopicResponse(topic.name, answers))
    return ListOffsetsResponse(topics=topics)


def _look_up(
    node: Node, version: int, topic: str, asked: ListOffsetsPartition, replica_id: int
) -> ListOffsetsPartitionResponse:
    partition = node.partitions.find(topic, asked.partition_index)
    partition.leader.check_epoch(asked.current_leader_epoch)
    timestamp, log = asked.timestamp, partition.log
    if timestamp < 0 and version < SINCE_VERSION.get(timestamp, version + 1):
        raise UnsupportedVersion()
    answer = ListOffsetsPartitionResponse(asked.partition_index)
    if timestamp == LATEST:
        if replica_id < 0:
            _refuse_unsettled(partition)
        answer.offset = log.high_watermark if replica_id < 0 else log.end_offset
        answer.leader_epoch = partition.leader.epoch
    elif timestamp in (EARLIEST, EARLIEST_LOCAL):
        answer.offset, answer.leader_epoch = log.start_offset, log.epochs.epoch_at(log.start_offset)
        if log.start_offset == log.end_offset:
            # No record has an epoch yet; the one that will be there next has the leader's.
            answer.leader_epoch = partition.leader.epoch
    elif timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return answer
    else:
        found = log.offset_of_max_timestamp() if timestamp == LARGEST_TIMESTAMP else log.offset_for_timestamp(timestamp)
        if found is not None and found[0] < log.high_watermark:
            answer.offset, answer.timestamp, answer.leader_epoch = found
        else:
            _refuse_unsettled(partition)
    return answer


def _refuse_unsettled(partition: Partition) -> None:
    leader, high_watermark = partition.leader, partition.log.high_watermark
    if isinstance(leader, Leader) and high_watermark < leader.start_of_epoch_offset:
        raise OffsetNotAvailable(f"{high_watermark} is below the start of the epoch, {leader.start_of_epoch_offset}")
