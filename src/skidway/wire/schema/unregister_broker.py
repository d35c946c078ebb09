"""UnregisterBroker (key 64), v0."""

from skidway.wire.message import Message, int16, int32, string


class UnregisterBrokerRequest(Message, key=64, versions="0", flexible="0+"):
    broker_id: int = int32("0+")


class UnregisterBrokerResponse(Message, key=64, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
