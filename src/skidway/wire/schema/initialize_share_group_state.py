"""InitializeShareGroupState (key 83), v0."""

from skidway.wire.message import Message, array, int16, int32, int64, string, uuid


class PartitionData(Message):
    partition: int = int32("0+")
    state_epoch: int = int32("0+")
    start_offset: int = int64("0+")


class InitializeStateData(Message):
    topic_id: bytes = uuid("0+")
    partitions: list[PartitionData] = array(PartitionData, "0+")


class InitializeShareGroupStateRequest(Message, key=83, versions="0", flexible="0+"):
    group_id: str = string("0+")
    topics: list[InitializeStateData] = array(InitializeStateData, "0+")


class PartitionResult(Message):
    partition: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", default=None, nullable="0+")


class InitializeStateResult(Message):
    topic_id: bytes = uuid("0+")
    partitions: list[PartitionResult] = array(PartitionResult, "0+")


class InitializeShareGroupStateResponse(Message, key=83, versions="0", flexible="0+"):
    results: list[InitializeStateResult] = array(InitializeStateResult, "0+")
