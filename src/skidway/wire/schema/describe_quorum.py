"""DescribeQuorum (key 55), v0–v2."""

from skidway.wire.message import Message, array, int16, int32, int64, string, uint16, uuid


class RequestPartitionData(Message):
    partition_index: int = int32("0+")


class RequestTopicData(Message):
    topic_name: str = string("0+")
    partitions: list[RequestPartitionData] = array(RequestPartitionData, "0+")


class DescribeQuorumRequest(Message, key=55, versions="0-2", flexible="0+"):
    topics: list[RequestTopicData] = array(RequestTopicData, "0+")


class ReplicaState(Message):
    replica_id: int = int32("0+")
    replica_directory_id: bytes = uuid("2+")
    log_end_offset: int = int64("0+")
    last_fetch_timestamp: int = int64("1+", default=-1)
    last_caught_up_timestamp: int = int64("1+", default=-1)


class ResponsePartitionData(Message):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("2+", nullable="2+")
    leader_id: int = int32("0+")
    leader_epoch: int = int32("0+")
    high_watermark: int = int64("0+")
    current_voters: list[ReplicaState] = array(ReplicaState, "0+")
    observers: list[ReplicaState] = array(ReplicaState, "0+")


class ResponseTopicData(Message):
    topic_name: str = string("0+")
    partitions: list[ResponsePartitionData] = array(ResponsePartitionData, "0+")


class Listener(Message):
    name: str = string("2+")
    host: str = string("2+")
    port: int = uint16("2+")


class Node(Message):
    node_id: int = int32("2+")
    listeners: list[Listener] = array(Listener, "2+")


class DescribeQuorumResponse(Message, key=55, versions="0-2", flexible="0+"):
    error_code: int = int16("0+")
    error_message: str | None = string("2+", nullable="2+")
    topics: list[ResponseTopicData] = array(ResponseTopicData, "0+")
    nodes: list[Node] = array(Node, "2+")
