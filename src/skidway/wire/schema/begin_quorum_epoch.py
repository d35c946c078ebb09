"""BeginQuorumEpoch (key 53), v0–v1."""

from skidway.wire.message import Message, array, int16, int32, string, uint16, uuid


class RequestPartitionData(Message):
    partition_index: int = int32("0+")
    voter_directory_id: bytes = uuid("1+")
    leader_id: int = int32("0+")
    leader_epoch: int = int32("0+")


class RequestTopicData(Message):
    topic_name: str = string("0+")
    partitions: list[RequestPartitionData] = array(RequestPartitionData, "0+")


class LeaderEndpoint(Message):
    name: str = string("1+")
    host: str = string("1+")
    port: int = uint16("1+")


class BeginQuorumEpochRequest(Message, key=53, versions="0-1", flexible="1+"):
    cluster_id: str | None = string("0+", default=None, nullable="0+")
    voter_id: int = int32("1+", default=-1)
    topics: list[RequestTopicData] = array(RequestTopicData, "0+")
    leader_endpoints: list[LeaderEndpoint] = array(LeaderEndpoint, "1+")


class ResponsePartitionData(Message):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    leader_id: int = int32("0+")
    leader_epoch: int = int32("0+")


class ResponseTopicData(Message):
    topic_name: str = string("0+")
    partitions: list[ResponsePartitionData] = array(ResponsePartitionData, "0+")


class NodeEndpoint(Message):
    node_id: int = int32("1+")
    host: str = string("1+")
    port: int = uint16("1+")


class BeginQuorumEpochResponse(Message, key=53, versions="0-1", flexible="1+"):
    error_code: int = int16("0+")
    topics: list[ResponseTopicData] = array(ResponseTopicData, "0+")
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "1+", tag=0)
