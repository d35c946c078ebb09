"""DescribeTopicPartitions (key 75), v0."""

from skidway.wire.message import Message, array, boolean, int16, int32, nested, string, uuid


class TopicRequest(Message):
    name: str = string("0+")


class Cursor(Message):
    topic_name: str = string("0+")
    partition_index: int = int32("0+")


class DescribeTopicPartitionsRequest(Message, key=75, versions="0", flexible="0+"):
    topics: list[TopicRequest] = array(TopicRequest, "0+")
    response_partition_limit: int = int32("0+", default=2000)
    cursor: Cursor | None = nested(Cursor, "0+", default=None, nullable="0+")


class DescribeTopicPartitionsResponsePartition(Message):
    error_code: int = int16("0+")
    partition_index: int = int32("0+")
    leader_id: int = int32("0+")
    leader_epoch: int = int32("0+", default=-1)
    replica_nodes: list[int] = array("int32", "0+")
    isr_nodes: list[int] = array("int32", "0+")
    eligible_leader_replicas: list[int] | None = array("int32", "0+", default=None, nullable="0+")
    last_known_elr: list[int] | None = array("int32", "0+", default=None, nullable="0+")
    offline_replicas: list[int] = array("int32", "0+")


class DescribeTopicPartitionsResponseTopic(Message):
    error_code: int = int16("0+")
    name: str | None = string("0+", nullable="0+")
    topic_id: bytes = uuid("0+")
    is_internal: bool = boolean("0+")
    partitions: list[DescribeTopicPartitionsResponsePartition] = array(DescribeTopicPartitionsResponsePartition, "0+")
    topic_authorized_operations: int = int32("0+", default=-2147483648)


class DescribeTopicPartitionsResponse(Message, key=75, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    topics: list[DescribeTopicPartitionsResponseTopic] = array(DescribeTopicPartitionsResponseTopic, "0+")
    next_cursor: Cursor | None = nested(Cursor, "0+", default=None, nullable="0+")
