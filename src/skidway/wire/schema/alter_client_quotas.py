"""AlterClientQuotas (key 49), v0–v1."""

from skidway.wire.message import Message, array, boolean, float64, int16, int32, string


class EntityData(Message):
    entity_type: str = string("0+")
    entity_name: str | None = string("0+", nullable="0+")


class OpData(Message):
    key: str = string("0+")
    value: float = float64("0+")
    remove: bool = boolean("0+")


class RequestEntryData(Message):
    entity: list[EntityData] = array(EntityData, "0+")
    ops: list[OpData] = array(OpData, "0+")


class AlterClientQuotasRequest(Message, key=49, versions="0-1", flexible="1+"):
    entries: list[RequestEntryData] = array(RequestEntryData, "0+")
    validate_only: bool = boolean("0+")


class ResponseEntryData(Message):
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    entity: list[EntityData] = array(EntityData, "0+")


class AlterClientQuotasResponse(Message, key=49, versions="0-1", flexible="1+"):
    throttle_time_ms: int = int32("0+")
    entries: list[ResponseEntryData] = array(ResponseEntryData, "0+")
