"""Schedules of queues: keys and values in `__queue_schedule`, which Kafka does not have."""

from skidway.wire.message import Message, array, blob, int32, int64, string, uuid


class ScheduleKey(Message, versions="0"):
    topic_id: bytes = uuid("0")
    id: str = string("0")


class ScheduledHeader(Message):
    name: str = string("0+")
    value: bytes | None = blob("0+", nullable="0+")


class ScheduleValue(Message, versions="0", flexible="0+"):
    created_ms: int = int64("0+")
    due_ms: int = int64("0+")
    cron: str = string("0+")
    zone: str = string("0+")
    key_hash: int = int32("0+")
    key: bytes | None = blob("0+", nullable="0+")
    value: bytes | None = blob("0+", nullable="0+")
    headers: list[ScheduledHeader] = array(ScheduledHeader, "0+")


class ScheduleProgressKey(Message, versions="1"):
    topic_id: bytes = uuid("1")
    id: str = string("1")


class ScheduleProgressValue(Message, versions="0", flexible="0+"):
    due_ms: int = int64("0+")


class SchedulePlanKey(Message, versions="2"):
    topic_id: bytes = uuid("2")


class PlannedMessage(Message):
    id: str = string("0+")
    due_ms: int = int64("0+")


class SchedulePlanValue(Message, versions="0", flexible="0+"):
    producer_id: int = int64("0+")
    sequence: int = int32("0+")
    partition: int = int32("0+")
    messages: list[PlannedMessage] = array(PlannedMessage, "0+")
