"""What stands before the body of every request and response.

Flexible versions carry tagged fields after the header, with two exceptions that the protocol's history left:
the client id is never compact, and the response to ApiVersions never has tagged fields, because a client reads
it before it knows what the broker speaks.
"""

from struct import Struct
from typing import NamedTuple

from skidway.limits import DEFAULT_LIMITS
from skidway.ports import Buffer
from skidway.wire.apis import FACTS
from skidway.wire.primitives import MALFORMED, DecodeError, skip_tags

API_VERSIONS_KEY = 18

_NEVER = 2**15
_FLEXIBLE_FROM = {facts.key: _NEVER if facts.flexible_from is None else facts.flexible_from for facts in FACTS}
_REQUEST = Struct(">hhih")
_RESPONSE = Struct(">i")
_RESPONSE_FLEXIBLE = Struct(">ix")


class RequestHeader(NamedTuple):
    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    body_position: int


def read_request_header(frame: Buffer) -> RequestHeader:
    """`frame` begins after the length. Of an unknown key only the fields every header has are read."""
    try:
        api_key, version, correlation_id, size = _REQUEST.unpack_from(frame)
        position = 10
        client_id = None
        if size >= 0:
            position += size
            if position > len(frame):
                raise DecodeError("the client id is longer than the request")
            client_id = str(memoryview(frame)[10:position], "utf-8")
        if version >= _FLEXIBLE_FROM.get(api_key, _NEVER):
            tags = frame[position]
            position += 1
            if tags:
                position, _ = skip_tags(frame, position, len(frame), tags, DEFAULT_LIMITS.request_elements_max)
    except MALFORMED as error:
        raise DecodeError(f"request header: {error}") from error
    # Past the Python-level constructor of the named tuple: this runs for every request.
    return tuple.__new__(RequestHeader, (api_key, version, correlation_id, client_id, position))


def write_request_header(api_key: int, version: int, correlation_id: int, client_id: str | None) -> bytes:
    name = b"" if client_id is None else client_id.encode()
    size = -1 if client_id is None else len(name)
    tags = b"\0" if version >= _FLEXIBLE_FROM[api_key] else b""
    return _REQUEST.pack(api_key, version, correlation_id, size) + name + tags


def _response_is_flexible(api_key: int, version: int) -> bool:
    return version >= _FLEXIBLE_FROM.get(api_key, _NEVER) and api_key != API_VERSIONS_KEY


def response_header(api_key: int, version: int, correlation_id: int) -> bytes:
    if _response_is_flexible(api_key, version):
        return _RESPONSE_FLEXIBLE.pack(correlation_id)
    return _RESPONSE.pack(correlation_id)


def read_response_header(api_key: int, version: int, frame: Buffer) -> tuple[int, int]:
    """(correlation id, position of the body)"""
    try:
        (correlation_id,) = _RESPONSE.unpack_from(frame)
        position = 4
        if _response_is_flexible(api_key, version):
            tags = frame[position]
            position, _ = skip_tags(frame, position + 1, len(frame), tags, DEFAULT_LIMITS.request_elements_max)
    except MALFORMED as error:
        raise DecodeError(f"response header: {error}") from error
    return correlation_id, position
