"""PushTelemetry (key 72), v0."""

from skidway.ports import Buffer
from skidway.wire.message import Message, blob, boolean, int8, int16, int32, uuid


class PushTelemetryRequest(Message, key=72, versions="0", flexible="0+"):
    client_instance_id: bytes = uuid("0+")
    subscription_id: int = int32("0+")
    terminating: bool = boolean("0+")
    compression_type: int = int8("0+")
    metrics: Buffer = blob("0+")


class PushTelemetryResponse(Message, key=72, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
