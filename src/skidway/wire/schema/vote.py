"""Vote (key 52), v0–v2."""

from skidway.wire.message import Message, array, boolean, int16, int32, int64, string, uint16, uuid


class RequestPartitionData(Message):
    partition_index: int = int32("0+")
    replica_epoch: int = int32("0+")
    replica_id: int = int32("0+")
    replica_directory_id: bytes = uuid("1+")
    voter_directory_id: bytes = uuid("1+")
    last_offset_epoch: int = int32("0+")
    last_offset: int = int64("0+")
    pre_vote: bool = boolean("2+")


class RequestTopicData(Message):
    topic_name: str = string("0+")
    partitions: list[RequestPartitionData] = array(RequestPartitionData, "0+")


class VoteRequest(Message, key=52, versions="0-2", flexible="0+"):
    cluster_id: str | None = string("0+", default=None, nullable="0+")
    voter_id: int = int32("1+", default=-1)
    topics: list[RequestTopicData] = array(RequestTopicData, "0+")


class ResponsePartitionData(Message):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    leader_id: int = int32("0+")
    leader_epoch: int = int32("0+")
    vote_granted: bool = boolean("0+")


class ResponseTopicData(Message):
    topic_name: str = string("0+")
    partitions: list[ResponsePartitionData] = array(ResponsePartitionData, "0+")


class NodeEndpoint(Message):
    node_id: int = int32("1+")
    host: str = string("1+")
    port: int = uint16("1+")


class VoteResponse(Message, key=52, versions="0-2", flexible="0+"):
    error_code: int = int16("0+")
    topics: list[ResponseTopicData] = array(ResponseTopicData, "0+")
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "1+", tag=0)
