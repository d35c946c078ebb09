"""DescribeGroups (key 15), v0–v6."""

from skidway.ports import Buffer
from skidway.wire.message import Message, array, blob, boolean, int16, int32, string


class DescribeGroupsRequest(Message, key=15, versions="0-6", flexible="5+"):
    groups: list[str] = array("string", "0+")
    include_authorized_operations: bool = boolean("3+")


class DescribedGroupMember(Message):
    member_id: str = string("0+")
    group_instance_id: str | None = string("4+", default=None, nullable="4+")
    client_id: str = string("0+")
    client_host: str = string("0+")
    member_metadata: Buffer = blob("0+")
    member_assignment: Buffer = blob("0+")


class DescribedGroup(Message):
    error_code: int = int16("0+")
    error_message: str | None = string("6+", default=None, nullable="6+")
    group_id: str = string("0+")
    group_state: str = string("0+")
    protocol_type: str = string("0+")
    protocol_data: str = string("0+")
    members: list[DescribedGroupMember] = array(DescribedGroupMember, "0+")
    authorized_operations: int = int32("3+", default=-2147483648)


class DescribeGroupsResponse(Message, key=15, versions="0-6", flexible="5+"):
    throttle_time_ms: int = int32("1+")
    groups: list[DescribedGroup] = array(DescribedGroup, "0+")
