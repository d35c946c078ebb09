"""DescribeShareDelivery (key 30010), v0: Skidway's own, which Kafka does not have.

What the leaders of partitions know of a share group's deliveries: how much is locked, how often it was delivered.
"""

from skidway.wire.message import Message, array, boolean, int16, int32, int64, string, uuid


class DeliveryTopic(Message):
    topic_id: bytes = uuid("0+")
    partitions: list[int] = array("int32", "0+")


class DescribeShareDeliveryRequest(Message, key=30010, versions="0", flexible="0+"):
    group_id: str = string("0+")
    topics: list[DeliveryTopic] = array(DeliveryTopic, "0+")


class DeliveryCount(Message):
    count: int = int16("0+")
    records: int = int32("0+")


class DeliveryPartition(Message):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", default=None, nullable="0+")
    in_use: bool = boolean("0+")
    start_offset: int = int64("0+", default=-1)
    end_offset: int = int64("0+", default=-1)
    locked: int = int32("0+")
    settling: int = int32("0+")
    waiting: int = int32("0+")
    counts: list[DeliveryCount] = array(DeliveryCount, "0+")


class DeliveryTopicResponse(Message):
    topic_id: bytes = uuid("0+")
    partitions: list[DeliveryPartition] = array(DeliveryPartition, "0+")


class DescribeShareDeliveryResponse(Message, key=30010, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", default=None, nullable="0+")
    topics: list[DeliveryTopicResponse] = array(DeliveryTopicResponse, "0+")
