"""ReceiveMessages (key 30001), v0: Skidway's own: a queue's door asks the leader of partitions."""

from skidway.wire.message import Message, Records, array, batches, int8, int16, int32, int64, string, uuid


class ReceiveMessagesRequest(Message, key=30001, versions="0", flexible="0+"):
    topic_id: bytes = uuid("0+")
    partitions: list[int] = array("int32", "0+")
    max_messages: int = int32("0+")
    max_bytes: int = int32("0+")
    visibility_ms: int = int32("0+")
    max_wait_ms: int = int32("0+")


class DeliveredRange(Message):
    first_offset: int = int64("0+")
    last_offset: int = int64("0+")
    delivery_count: int = int16("0+")


class DeliveredPartition(Message):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", default=None, nullable="0+")
    records: Records | None = batches("0+", nullable="0")
    delivered: list[DeliveredRange] = array(DeliveredRange, "0+")
    first_received: list[int] = array("int64", "0+")
    held_up: int = int8("0+")
    start_offset: int = int64("0+")


class ReceiveMessagesResponse(Message, key=30001, versions="0", flexible="0+"):
    error_code: int = int16("0+")
    error_message: str | None = string("0+", default=None, nullable="0+")
    partitions: list[DeliveredPartition] = array(DeliveredPartition, "0+")
