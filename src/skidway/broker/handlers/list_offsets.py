"""ListOffsets (key 2), v1–v11.

Answers the first offset whose timestamp is at least the one asked, or the special positions -1 end (the high
watermark), -2 start, -3 largest timestamp, -4 local start, -5 last tiered, -6 first that waits to be tiered.
Nothing found is offset -1 without an error; as there is no tiered storage, -5 and -6 never find anything.
Who reads committed transactions only finds nothing from the last stable offset on, which is the end then.
A new leader does not know yet how much of what it has is committed: until the high watermark has reached the start of
its epoch, what may lie above is answered with OFFSET_NOT_AVAILABLE (before v5 LEADER_NOT_AVAILABLE): a client must not
see the end go back. To followers (`replica_id`) the end is the end of the log.
A client that asks for the end, or by time, waits for what is about to be committed (`ends`), so that it finds what it
has produced with `acks=1` just before.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from skidway.broker.api.call import answer_later
from skidway.broker.reads.consumers import bound_of
from skidway.broker.reads.ends import when_committed, will_commit
from skidway.errors import ErrorCode, LeaderNotAvailable, OffsetNotAvailable, ProtocolError, UnsupportedVersion
from skidway.log import lookup
from skidway.log.bounds import END, HIGH_WATERMARK, Bound
from skidway.replica.leader import Leader
from skidway.steps import Steps
from skidway.wire.schema.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

if TYPE_CHECKING:
    from skidway.broker.api.call import Call
    from skidway.broker.partitions.partition import Partition
    from skidway.broker.services import Services

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
ANSWERED_AT_ONCE = (EARLIEST, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD)
PER_STEP = 10
"""Partitions. A request for few is over in its first step."""


def handle(node: Services, call: Call, request: ListOffsetsRequest) -> Steps[ListOffsetsResponse | None]:
    if request.replica_id < 0:
        asked = yield from _about_to_commit(node, request)
        if asked and when_committed(
            node.waiting.acknowledgements,
            call,
            asked,
            lambda: answer_later(node.world.slices, call, _answer(node, call, request)),
        ):
            return None
    return (yield from _answer(node, call, request))


def _about_to_commit(node: Services, request: ListOffsetsRequest) -> Steps[Collection[Partition]]:
    """Partitions whose end is asked for while a commit is under way."""
    found: dict[Partition, None] = {}
    count = 0
    for topic in request.topics:
        for asked in topic.partitions:
            count += 1
            if not count % PER_STEP:
                yield None
            if asked.timestamp not in ANSWERED_AT_ONCE:
                try:
                    partition = node.partitions.find(topic.name, asked.partition_index)
                except ProtocolError:
                    continue  # refused when it is answered
                if will_commit(partition):
                    found[partition] = None
    return found


def _answer(node: Services, call: Call, request: ListOffsetsRequest) -> Steps[ListOffsetsResponse]:
    asked: dict[str, set[int]] = {}
    twice: dict[str, set[int]] = {}
    upto = END if request.replica_id >= 0 else bound_of(request.isolation_level)
    count = 0
    for topic in request.topics:
        indexes = asked.setdefault(topic.name, set())
        for partition in topic.partitions:
            if partition.partition_index in indexes:
                twice.setdefault(topic.name, set()).add(partition.partition_index)
            indexes.add(partition.partition_index)
            count += 1
            if not count % PER_STEP:
                yield None
    topics = []
    for topic in request.topics:
        answers = []
        asked_twice = twice.get(topic.name, ())
        for partition in topic.partitions:
            index = partition.partition_index
            count += 1
            if not count % PER_STEP:
                yield None
            if index in asked_twice:
                answers.append(ListOffsetsPartitionResponse(index, ErrorCode.INVALID_REQUEST))
                continue
            try:
                known = _look_up(node, call.version, topic.name, partition, upto)
                answers.append(known or (yield from _look_up_by_time(node, topic.name, partition, upto)))
            except OffsetNotAvailable as error:
                early = call.version < NOT_AVAILABLE_SINCE
                answers.append(ListOffsetsPartitionResponse(index, LeaderNotAvailable.code if early else error.code))
            except ProtocolError as error:
                answers.append(ListOffsetsPartitionResponse(index, error.code))
        topics.append(ListOffsetsTopicResponse(topic.name, answers))
    return ListOffsetsResponse(topics=topics)


def _look_up(
    node: Services, version: int, topic: str, asked: ListOffsetsPartition, upto: Bound
) -> ListOffsetsPartitionResponse | None:
    """None for what has to be searched for by time."""
    partition = node.partitions.find(topic, asked.partition_index)
    partition.leader.check_epoch(asked.current_leader_epoch)
    timestamp, log = asked.timestamp, partition.log
    if timestamp < 0 and version < SINCE_VERSION.get(timestamp, version + 1):
        raise UnsupportedVersion()
    if timestamp >= 0 or timestamp == LARGEST_TIMESTAMP:
        return None
    answer = ListOffsetsPartitionResponse(asked.partition_index)
    if timestamp == LATEST:
        if upto is not END:
            _refuse_unsettled(partition)
        answer.offset = log.bound(upto)
        answer.leader_epoch = partition.leader.epoch
    elif timestamp in (EARLIEST, EARLIEST_LOCAL):
        answer.offset, answer.leader_epoch = log.start_offset, log.epochs.epoch_at(log.start_offset)
        if log.start_offset == log.end_offset:
            # No record has an epoch yet; the one that will be there next has the leader's.
            answer.leader_epoch = partition.leader.epoch
    else:
        assert timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD), "others are not of this version"
    return answer


def _look_up_by_time(
    node: Services, topic: str, asked: ListOffsetsPartition, upto: Bound
) -> Steps[ListOffsetsPartitionResponse]:
    partition = node.partitions.find(topic, asked.partition_index)
    timestamp, log = asked.timestamp, partition.log
    # By time a follower finds what clients find.
    below = HIGH_WATERMARK if upto is END else upto
    found = yield from (
        lookup.offset_of_max_timestamp(log, below)
        if timestamp == LARGEST_TIMESTAMP
        else lookup.offset_for_timestamp(log, timestamp, below)
    )
    # Another node may lead since.
    partition.leader.check_epoch(asked.current_leader_epoch)
    answer = ListOffsetsPartitionResponse(asked.partition_index)
    if found is not None and found[0] < log.bound(below):
        answer.offset, answer.timestamp, answer.leader_epoch = found
    else:
        _refuse_unsettled(partition)
    return answer


def _refuse_unsettled(partition: Partition) -> None:
    leader, high_watermark = partition.leader, partition.log.high_watermark
    if isinstance(leader, Leader) and high_watermark < leader.start_of_epoch_offset:
        raise OffsetNotAvailable(
            f"{high_watermark} is below the start offset of the epoch, {leader.start_of_epoch_offset}"
        )
