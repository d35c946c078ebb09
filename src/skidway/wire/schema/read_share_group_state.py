"""ReadShareGroupState (key 84), v0."""

from skidway.wire.message import Message, array, int8, int16, int32, int64, string, uuid
from skidway.wire.schema.share_records import LetterNotes, TermNotes


class PartitionData(Message):
    partition: int = int32("0+")
    leader_epoch: int = int32("0+")


class ReadStateData(Message):
    topic_id: bytes = uuid("0+")
    partitions: list[PartitionData] = array(PartitionData, "0+")


class ReadShareGroupStateRequest(Message, key=84, versions="0", flexible="0+"):
    group_id: str = string("0+")
    topics: list[ReadStateData] = array(ReadStateData, "0+")


class StateBatch(Message):
    first_offset: int = int64("0+")
    last_offset: int = int64("0+")
    delivery_state: int = int8("0+")
    delivery_count: int = int16("0+")


class PartitionResult(Message):
    partition: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", default=None, nullable="0+")
    state_epoch: int = int32("0+")
    start_offset: int = int64("0+")
    state_batches: list[StateBatch] = array(StateBatch, "0+")
    letters: list[LetterNotes] = array(LetterNotes, "0+", tag=1000)
    terms: list[TermNotes] = array(TermNotes, "0+", tag=1001)
    """Both are Skidway's own."""


class ReadStateResult(Message):
    topic_id: bytes = uuid("0+")
    partitions: list[PartitionResult] = array(PartitionResult, "0+")


class ReadShareGroupStateResponse(Message, key=84, versions="0", flexible="0+"):
    results: list[ReadStateResult] = array(ReadStateResult, "0+")
