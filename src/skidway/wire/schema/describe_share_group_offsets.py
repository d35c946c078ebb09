"""DescribeShareGroupOffsets (key 90), v0–v1."""

from skidway.wire.message import Message, array, int16, int32, int64, string, uuid


class DescribeShareGroupOffsetsRequestTopic(Message):
    topic_name: str = string("0+")
    partitions: list[int] = array("int32", "0+")


class DescribeShareGroupOffsetsRequestGroup(Message):
    group_id: str = string("0+")
    topics: list[DescribeShareGroupOffsetsRequestTopic] | None = array(
        DescribeShareGroupOffsetsRequestTopic, "0+", nullable="0+"
    )


class DescribeShareGroupOffsetsRequest(Message, key=90, versions="0-1", flexible="0+"):
    groups: list[DescribeShareGroupOffsetsRequestGroup] = array(DescribeShareGroupOffsetsRequestGroup, "0+")


class DescribeShareGroupOffsetsResponsePartition(Message):
    partition_index: int = int32("0+")
    start_offset: int = int64("0+")
    leader_epoch: int = int32("0+")
    lag: int = int64("1+", default=-1)
    error_code: int = int16("0+")
    error_message: str | None = string("0+", default=None, nullable="0+")


class DescribeShareGroupOffsetsResponseTopic(Message):
    topic_name: str = string("0+")
    topic_id: bytes = uuid("0+")
    partitions: list[DescribeShareGroupOffsetsResponsePartition] = array(
        DescribeShareGroupOffsetsResponsePartition, "0+"
    )


class DescribeShareGroupOffsetsResponseGroup(Message):
    group_id: str = string("0+")
    topics: list[DescribeShareGroupOffsetsResponseTopic] = array(DescribeShareGroupOffsetsResponseTopic, "0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", default=None, nullable="0+")


class DescribeShareGroupOffsetsResponse(Message, key=90, versions="0-1", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    groups: list[DescribeShareGroupOffsetsResponseGroup] = array(DescribeShareGroupOffsetsResponseGroup, "0+")
