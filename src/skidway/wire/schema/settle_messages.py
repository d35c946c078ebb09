"""SettleMessages (key 30002), v0: Skidway's own: what became of messages of a queue."""

from skidway.wire.message import Message, array, int8, int16, int32, int64, string, uuid


class MessageToSettle(Message):
    offset: int = int64("0+")
    delivery_count: int = int16("0+")
    verb: int = int8("0+")
    time_ms: int = int32("0+")
    reason: str | None = string("0+", default=None, nullable="0+", tag=0)
    """Of a rejection."""


class PartitionToSettle(Message):
    partition_index: int = int32("0+")
    messages: list[MessageToSettle] = array(MessageToSettle, "0+")


class SettleMessagesRequest(Message, key=30002, versions="0", flexible="0+"):
    topic_id: bytes = uuid("0+")
    partitions: list[PartitionToSettle] = array(PartitionToSettle, "0+")


class SettledMessage(Message):
    error_code: int = int16("0+")
    error_message: str | None = string("0+", default=None, nullable="0+")


class SettledPartition(Message):
    partition_index: int = int32("0+")
    messages: list[SettledMessage] = array(SettledMessage, "0+")


class SettleMessagesResponse(Message, key=30002, versions="0", flexible="0+"):
    error_code: int = int16("0+")
    partitions: list[SettledPartition] = array(SettledPartition, "0+")
