"""ShareGroupHeartbeat (key 76), v1."""

from skidway.wire.message import Message, array, int16, int32, nested, string, uuid


class ShareGroupHeartbeatRequest(Message, key=76, versions="1", flexible="0+"):
    group_id: str = string("0+")
    member_id: str = string("0+")
    member_epoch: int = int32("0+")
    rack_id: str | None = string("0+", default=None, nullable="0+")
    subscribed_topic_names: list[str] | None = array("string", "0+", default=None, nullable="0+")


class TopicPartitions(Message):
    topic_id: bytes = uuid("0+")
    partitions: list[int] = array("int32", "0+")


class Assignment(Message):
    topic_partitions: list[TopicPartitions] = array(TopicPartitions, "0+")


class ShareGroupHeartbeatResponse(Message, key=76, versions="1", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", default=None, nullable="0+")
    member_id: str | None = string("0+", default=None, nullable="0+")
    member_epoch: int = int32("0+")
    heartbeat_interval_ms: int = int32("0+")
    assignment: Assignment | None = nested(Assignment, "0+", default=None, nullable="0+")
