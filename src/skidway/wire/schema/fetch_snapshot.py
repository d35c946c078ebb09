"""FetchSnapshot (key 59), v0–v1."""

from skidway.wire.message import Message, Records, array, batches, int16, int32, int64, nested, string, uint16, uuid


class SnapshotId(Message):
    end_offset: int = int64("0+")
    epoch: int = int32("0+")


class RequestPartitionSnapshot(Message):
    partition: int = int32("0+")
    current_leader_epoch: int = int32("0+")
    snapshot_id: SnapshotId = nested(SnapshotId, "0+")
    position: int = int64("0+")
    replica_directory_id: bytes = uuid("1+", tag=0)


class RequestTopicSnapshot(Message):
    name: str = string("0+")
    partitions: list[RequestPartitionSnapshot] = array(RequestPartitionSnapshot, "0+")


class FetchSnapshotRequest(Message, key=59, versions="0-1", flexible="0+"):
    cluster_id: str | None = string("0+", default=None, nullable="0+", tag=0)
    replica_id: int = int32("0+", default=-1)
    max_bytes: int = int32("0+", default=2147483647)
    topics: list[RequestTopicSnapshot] = array(RequestTopicSnapshot, "0+")


class LeaderIdAndEpoch(Message):
    leader_id: int = int32("0+")
    leader_epoch: int = int32("0+")


class ResponsePartitionSnapshot(Message):
    index: int = int32("0+")
    error_code: int = int16("0+")
    snapshot_id: SnapshotId = nested(SnapshotId, "0+")
    current_leader: LeaderIdAndEpoch = nested(LeaderIdAndEpoch, "0+", tag=0)
    size: int = int64("0+")
    position: int = int64("0+")
    unaligned_records: Records = batches("0+")


class ResponseTopicSnapshot(Message):
    name: str = string("0+")
    partitions: list[ResponsePartitionSnapshot] = array(ResponsePartitionSnapshot, "0+")


class NodeEndpoint(Message):
    node_id: int = int32("1+")
    host: str = string("1+")
    port: int = uint16("1+")


class FetchSnapshotResponse(Message, key=59, versions="0-1", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    topics: list[ResponseTopicSnapshot] = array(ResponseTopicSnapshot, "0+")
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "1+", tag=0)
