"""Envelope (key 58), v0."""

from skidway.ports import Buffer
from skidway.wire.message import Message, blob, int16


class EnvelopeRequest(Message, key=58, versions="0", flexible="0+"):
    request_data: Buffer = blob("0+")
    request_principal: Buffer | None = blob("0+", nullable="0+")
    client_host_address: Buffer = blob("0+")


class EnvelopeResponse(Message, key=58, versions="0", flexible="0+"):
    response_data: Buffer | None = blob("0+", default=None, nullable="0+")
    error_code: int = int16("0+")
