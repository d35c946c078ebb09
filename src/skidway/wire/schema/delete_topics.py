"""DeleteTopics (key 20), v1–v6."""

from skidway.wire.message import Message, array, int16, int32, string, uuid


class DeleteTopicState(Message):
    name: str | None = string("6+", default=None, nullable="6+")
    topic_id: bytes = uuid("6+")


class DeleteTopicsRequest(Message, key=20, versions="1-6", flexible="4+"):
    topics: list[DeleteTopicState] = array(DeleteTopicState, "6+")
    topic_names: list[str] = array("string", "0-5")
    timeout_ms: int = int32("0+")


class DeletableTopicResult(Message):
    name: str | None = string("0+", nullable="6+")
    topic_id: bytes = uuid("6+")
    error_code: int = int16("0+")
    error_message: str | None = string("5+", default=None, nullable="5+")


class DeleteTopicsResponse(Message, key=20, versions="1-6", flexible="4+"):
    throttle_time_ms: int = int32("1+")
    responses: list[DeletableTopicResult] = array(DeletableTopicResult, "0+")
