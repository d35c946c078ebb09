"""AssignReplicasToDirs (key 73), v0."""

from skidway.wire.message import Message, array, int16, int32, int64, uuid


class RequestPartitionData(Message):
    partition_index: int = int32("0+")


class RequestTopicData(Message):
    topic_id: bytes = uuid("0+")
    partitions: list[RequestPartitionData] = array(RequestPartitionData, "0+")


class RequestDirectoryData(Message):
    id: bytes = uuid("0+")
    topics: list[RequestTopicData] = array(RequestTopicData, "0+")


class AssignReplicasToDirsRequest(Message, key=73, versions="0", flexible="0+"):
    broker_id: int = int32("0+")
    broker_epoch: int = int64("0+", default=-1)
    directories: list[RequestDirectoryData] = array(RequestDirectoryData, "0+")


class ResponsePartitionData(Message):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")


class ResponseTopicData(Message):
    topic_id: bytes = uuid("0+")
    partitions: list[ResponsePartitionData] = array(ResponsePartitionData, "0+")


class ResponseDirectoryData(Message):
    id: bytes = uuid("0+")
    topics: list[ResponseTopicData] = array(ResponseTopicData, "0+")


class AssignReplicasToDirsResponse(Message, key=73, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    directories: list[ResponseDirectoryData] = array(ResponseDirectoryData, "0+")
