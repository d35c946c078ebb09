"""SyncGroup (key 14), v0–v5."""

from skidway.ports import Buffer
from skidway.wire.message import Message, array, blob, int16, int32, string


class SyncGroupRequestAssignment(Message):
    member_id: str = string("0+")
    assignment: Buffer = blob("0+")


class SyncGroupRequest(Message, key=14, versions="0-5", flexible="4+"):
    group_id: str = string("0+")
    generation_id: int = int32("0+")
    member_id: str = string("0+")
    group_instance_id: str | None = string("3+", default=None, nullable="3+")
    protocol_type: str | None = string("5+", default=None, nullable="5+")
    protocol_name: str | None = string("5+", default=None, nullable="5+")
    assignments: list[SyncGroupRequestAssignment] = array(SyncGroupRequestAssignment, "0+")


class SyncGroupResponse(Message, key=14, versions="0-5", flexible="4+"):
    throttle_time_ms: int = int32("1+")
    error_code: int = int16("0+")
    protocol_type: str | None = string("5+", default=None, nullable="5+")
    protocol_name: str | None = string("5+", default=None, nullable="5+")
    assignment: Buffer = blob("0+")
