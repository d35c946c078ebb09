"""DeleteShareGroupOffsets (key 92), v0."""

from skidway.wire.message import Message, array, int16, int32, string, uuid


class DeleteShareGroupOffsetsRequestTopic(Message):
    topic_name: str = string("0+")


class DeleteShareGroupOffsetsRequest(Message, key=92, versions="0", flexible="0+"):
    group_id: str = string("0+")
    topics: list[DeleteShareGroupOffsetsRequestTopic] = array(DeleteShareGroupOffsetsRequestTopic, "0+")


class DeleteShareGroupOffsetsResponseTopic(Message):
    topic_name: str = string("0+")
    topic_id: bytes = uuid("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", default=None, nullable="0+")


class DeleteShareGroupOffsetsResponse(Message, key=92, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", default=None, nullable="0+")
    responses: list[DeleteShareGroupOffsetsResponseTopic] = array(DeleteShareGroupOffsetsResponseTopic, "0+")
