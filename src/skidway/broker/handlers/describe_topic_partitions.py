"""DescribeTopicPartitions (key 75), v0: topics and their partitions, page by page.

Topics come in the order of their names; without a list all of them. A page holds at most as many partitions as
asked for and as the broker allows; where it ends, the cursor says where to go on. LISTENER_NOT_FOUND and no leader:
the one that leads lacks the listener by which the client came. Replicas of such brokers count as offline.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from skidway.broker.api.authorized import TOPIC_OPERATIONS
from skidway.errors import ErrorCode
from skidway.metadata import image as metadata
from skidway.metadata.topic_names import is_internal, is_legal
from skidway.steps import Steps, sorted_names
from skidway.wire.schema.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)

if TYPE_CHECKING:
    from skidway.broker.api.call import Call
    from skidway.broker.services import Services

PAGE_PARTITIONS_MAX = 2000


def handle(
    node: Services, call: Call, request: DescribeTopicPartitionsRequest
) -> Steps[DescribeTopicPartitionsResponse]:
    asked = (topic.name for topic in request.topics) if request.topics else list(node.image.topics)
    names = yield from sorted_names(asked)
    start_topic, start_index = "", 0
    if request.cursor is not None:
        start_topic, start_index = request.cursor.topic_name, request.cursor.partition_index
    room = max(1, min(request.response_partition_limit, PAGE_PARTITIONS_MAX))
    response = DescribeTopicPartitionsResponse()
    for number, name in enumerate(names):
        yield None
        if name < start_topic:
            continue
        topic = node.image.topics.get(name)
        if topic is None:
            response.topics.append(_missing(name))
            continue
        first = start_index if name == start_topic else 0
        page = topic.partitions[first : first + room]
        if page or not topic.partitions:
            response.topics.append(_topic(node, call, topic, page))
        room -= len(page)
        if first + len(page) < len(topic.partitions):
            response.next_cursor = Cursor(name, first + len(page))
            break
        if room == 0 and name != names[-1]:
            response.next_cursor = Cursor(names[number + 1], 0)
            break
    return response


def _missing(name: str) -> DescribeTopicPartitionsResponseTopic:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_legal(name) else ErrorCode.INVALID_TOPIC_EXCEPTION
    return DescribeTopicPartitionsResponseTopic(code, name, topic_authorized_operations=TOPIC_OPERATIONS)


def _topic(
    node: Services, call: Call, topic: metadata.Topic, partitions: list[metadata.Partition]
) -> DescribeTopicPartitionsResponseTopic:
    hidden = node.image.brokers_without(call.caller.listener)
    return DescribeTopicPartitionsResponseTopic(
        0,
        topic.name,
        topic.id,
        is_internal(topic.name),
        [_partition(node, topic, partition, hidden) for partition in partitions],
        TOPIC_OPERATIONS,
    )


def _partition(
    node: Services, topic: metadata.Topic, partition: metadata.Partition, hidden: set[int]
) -> DescribeTopicPartitionsResponsePartition:
    leader = node.hosting.whereabouts.leader_of(topic, partition.index)
    error = ErrorCode.LEADER_NOT_AVAILABLE if leader == metadata.NO_LEADER else ErrorCode.NONE
    offline = node.hosting.whereabouts.offline_replicas_of(topic, partition.index)
    if hidden:
        offline += [replica for replica in partition.replicas if replica in hidden and replica not in offline]
    if leader in hidden:
        leader, error = metadata.NO_LEADER, ErrorCode.LISTENER_NOT_FOUND
    return DescribeTopicPartitionsResponsePartition(
        error,
        partition.index,
        leader,
        partition.leader_epoch,
        partition.replicas,
        partition.isr,
        partition.eligible_leader_replicas,
        partition.last_known_elr,
        offline,
    )
