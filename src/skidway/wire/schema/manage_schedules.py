"""ManageSchedules (key 30005), v0: Skidway's own: messages for a queue at a later time, or again and again."""

from skidway.wire.message import Message, array, blob, boolean, int16, int32, int64, string, uuid


class MessageHeader(Message):
    name: str = string("0+")
    content: bytes | None = blob("0+", nullable="0+")


class ScheduleToCreate(Message):
    id: str = string("0+")
    due_ms: int = int64("0+")
    """Without a cron expression."""
    cron: str = string("0+")
    zone: str = string("0+")
    key_hash: int = int32("0+", default=-1)
    """By which clients choose the partition of the key; -1 without one."""
    message_key: bytes | None = blob("0+", default=None, nullable="0+")
    body: bytes | None = blob("0+", default=None, nullable="0+")
    headers: list[MessageHeader] = array(MessageHeader, "0+")


class ManageSchedulesRequest(Message, key=30005, versions="0", flexible="0+"):
    topic_id: bytes = uuid("0+")
    create: list[ScheduleToCreate] = array(ScheduleToCreate, "0+")
    cancel: list[str] = array("string", "0+")
    list_after: str | None = string("0+", default=None, nullable="0+")
    """None: nothing is listed."""
    list_max: int = int32("0+")


class CreatedSchedule(Message):
    error_code: int = int16("0+")
    error_message: str | None = string("0+", default=None, nullable="0+")
    due_ms: int = int64("0+")
    existed: bool = boolean("0+")


class CancelledSchedule(Message):
    error_code: int = int16("0+")
    error_message: str | None = string("0+", default=None, nullable="0+")
    on_its_way: bool = boolean("0+")


class ListedSchedule(Message):
    id: str = string("0+")
    due_ms: int = int64("0+")
    cron: str = string("0+")
    zone: str = string("0+")
    created_ms: int = int64("0+")
    size: int = int32("0+")


class ManageSchedulesResponse(Message, key=30005, versions="0", flexible="0+"):
    error_code: int = int16("0+")
    error_message: str | None = string("0+", default=None, nullable="0+")
    created: list[CreatedSchedule] = array(CreatedSchedule, "0+")
    cancelled: list[CancelledSchedule] = array(CancelledSchedule, "0+")
    schedules: list[ListedSchedule] = array(ListedSchedule, "0+")
