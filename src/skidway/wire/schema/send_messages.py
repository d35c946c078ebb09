"""SendMessages (key 30004), v0: Skidway's own: messages for a FIFO queue, each once for its id."""

from skidway.wire.message import Message, Records, array, batches, boolean, int16, int32, int64, string, uuid


class PartitionToSend(Message):
    partition_index: int = int32("0+")
    records: Records | None = batches("0+", nullable="0")


class SendMessagesRequest(Message, key=30004, versions="0", flexible="0+"):
    topic_id: bytes = uuid("0+")
    timeout_ms: int = int32("0+")
    partitions: list[PartitionToSend] = array(PartitionToSend, "0+")


class SentMessage(Message):
    offset: int = int64("0+")
    duplicate: bool = boolean("0+")


class SentPartition(Message):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", default=None, nullable="0+")
    messages: list[SentMessage] = array(SentMessage, "0+")


class SendMessagesResponse(Message, key=30004, versions="0", flexible="0+"):
    error_code: int = int16("0+")
    partitions: list[SentPartition] = array(SentPartition, "0+")
