"""RenewDelegationToken (key 39), v1–v2."""

from skidway.ports import Buffer
from skidway.wire.message import Message, blob, int16, int32, int64


class RenewDelegationTokenRequest(Message, key=39, versions="1-2", flexible="2+"):
    hmac: Buffer = blob("0+")
    renew_period_ms: int = int64("0+")


class RenewDelegationTokenResponse(Message, key=39, versions="1-2", flexible="2+"):
    error_code: int = int16("0+")
    expiry_timestamp_ms: int = int64("0+")
    throttle_time_ms: int = int32("0+")
