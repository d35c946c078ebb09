"""SaslAuthenticate (key 36), v0–v2."""

from skidway.ports import Buffer
from skidway.wire.message import Message, blob, int16, int64, string


class SaslAuthenticateRequest(Message, key=36, versions="0-2", flexible="2+"):
    auth_bytes: Buffer = blob("0+")


class SaslAuthenticateResponse(Message, key=36, versions="0-2", flexible="2+"):
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    auth_bytes: Buffer = blob("0+")
    session_lifetime_ms: int = int64("1+")
