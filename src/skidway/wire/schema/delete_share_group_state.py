"""DeleteShareGroupState (key 86), v0."""

from skidway.wire.message import Message, array, int16, int32, string, uuid


class PartitionData(Message):
    partition: int = int32("0+")


class DeleteStateData(Message):
    topic_id: bytes = uuid("0+")
    partitions: list[PartitionData] = array(PartitionData, "0+")


class DeleteShareGroupStateRequest(Message, key=86, versions="0", flexible="0+"):
    group_id: str = string("0+")
    topics: list[DeleteStateData] = array(DeleteStateData, "0+")


class PartitionResult(Message):
    partition: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", default=None, nullable="0+")


class DeleteStateResult(Message):
    topic_id: bytes = uuid("0+")
    partitions: list[PartitionResult] = array(PartitionResult, "0+")


class DeleteShareGroupStateResponse(Message, key=86, versions="0", flexible="0+"):
    results: list[DeleteStateResult] = array(DeleteStateResult, "0+")
