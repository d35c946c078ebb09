"""ListConfigResources (key 74), v0–v1."""

from skidway.wire.message import Message, array, int8, int16, int32, string


class ListConfigResourcesRequest(Message, key=74, versions="0-1", flexible="0+"):
    resource_types: list[int] = array("int8", "1+")


class ConfigResource(Message):
    resource_name: str = string("0+")
    resource_type: int = int8("1+", default=16)


class ListConfigResourcesResponse(Message, key=74, versions="0-1", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    config_resources: list[ConfigResource] = array(ConfigResource, "0+")
