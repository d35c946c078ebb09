"""CountMessages (key 30003), v0: Skidway's own: how many messages of a queue wait, and which."""

from skidway.wire.message import Message, array, int8, int16, int32, int64, string, uuid


class CountMessagesRequest(Message, key=30003, versions="0", flexible="0+"):
    topic_id: bytes = uuid("0+")
    partitions: list[int] = array("int32", "0+")
    max_shown: int = int32("0+")
    from_offset: int = int64("0+", default=0, tag=0)
    """Nothing before it is shown."""


class ShownRange(Message):
    first_offset: int = int64("0+")
    last_offset: int = int64("0+")
    state: int = int8("0+")
    delivery_count: int = int16("0+")


class CountedPartition(Message):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", default=None, nullable="0+")
    visible: int = int64("0+")
    in_flight: int = int64("0+")
    delayed: int = int64("0+")
    shown: list[ShownRange] = array(ShownRange, "0+")
    dead: int = int64("0+")
    letter_trouble: str | None = string("0+", default=None, nullable="0+")
    held_up: int = int8("0+")
    start_offset: int = int64("0+")
    blocked: int = int64("0+", default=0, tag=0)
    """Of the visible, those that wait for an earlier message of their group."""


class CountMessagesResponse(Message, key=30003, versions="0", flexible="0+"):
    error_code: int = int16("0+")
    partitions: list[CountedPartition] = array(CountedPartition, "0+")
