"""JoinGroup (key 11), v0–v9."""

from skidway.ports import Buffer
from skidway.wire.message import Message, array, blob, boolean, int16, int32, string


class JoinGroupRequestProtocol(Message):
    name: str = string("0+")
    metadata: Buffer = blob("0+")


class JoinGroupRequest(Message, key=11, versions="0-9", flexible="6+"):
    group_id: str = string("0+")
    session_timeout_ms: int = int32("0+")
    rebalance_timeout_ms: int = int32("1+", default=-1)
    member_id: str = string("0+")
    group_instance_id: str | None = string("5+", default=None, nullable="5+")
    protocol_type: str = string("0+")
    protocols: list[JoinGroupRequestProtocol] = array(JoinGroupRequestProtocol, "0+")
    reason: str | None = string("8+", default=None, nullable="8+")


class JoinGroupResponseMember(Message):
    member_id: str = string("0+")
    group_instance_id: str | None = string("5+", default=None, nullable="5+")
    metadata: Buffer = blob("0+")


class JoinGroupResponse(Message, key=11, versions="0-9", flexible="6+"):
    throttle_time_ms: int = int32("2+")
    error_code: int = int16("0+")
    generation_id: int = int32("0+", default=-1)
    protocol_type: str | None = string("7+", default=None, nullable="7+")
    protocol_name: str | None = string("0+", nullable="7+")
    leader: str = string("0+")
    skip_assignment: bool = boolean("9+")
    member_id: str = string("0+")
    members: list[JoinGroupResponseMember] = array(JoinGroupResponseMember, "0+")
