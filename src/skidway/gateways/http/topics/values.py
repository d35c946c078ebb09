"""Keys, values and headers between JSON and bytes."""

from __future__ import annotations

import binascii
import re

import msgspec
from msgspec import UNSET, Raw, UnsetType

from skidway.gateways.http.bounds import JSON_DEPTH_MAX
from skidway.gateways.http.problems import Problem
from skidway.gateways.http.topics.shapes import Header, RecordToProduce
from skidway.records.record import Headers

_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[\]{}]', re.DOTALL)
_decode_text = msgspec.json.Decoder(str).decode
HEADERS_MAX = 1_000


def bytes_of(name: str, value: Raw | UnsetType, encoded: str | UnsetType) -> bytes | None:
    """Of a key or a value. Raises Problem."""
    if encoded is not UNSET:
        if value is not UNSET:
            raise Problem(422, "bad_value", f"a record has both {name} and {name}Base64")
        return from_base64(name, encoded)
    if value is UNSET:
        return None
    raw = bytes(value)
    if raw[:1] == b'"':
        return _decode_text(raw).encode()
    if raw == b"null":
        return None
    check_depth(raw)
    return msgspec.json.format(raw, indent=-1)


def from_base64(name: str, encoded: str) -> bytes:
    try:
        return binascii.a2b_base64(encoded.encode("ascii"), strict_mode=True)
    except (binascii.Error, UnicodeEncodeError):
        raise Problem(422, "bad_value", f"{name}Base64 is not base64") from None


def check_depth(raw: bytes) -> None:
    """Readers of what is written are not all as careful as this."""
    if raw.count(b"[") + raw.count(b"{") <= JSON_DEPTH_MAX:
        return
    depth = 0
    for token in _TOKEN.finditer(raw):
        mark = token[0]
        if mark in (b"[", b"{"):
            depth += 1
            if depth > JSON_DEPTH_MAX:
                raise Problem(400, "bad_json", f"the JSON is nested more than {JSON_DEPTH_MAX} deep")
        elif mark in (b"]", b"}"):
            depth -= 1


def headers_of(record: RecordToProduce) -> Headers:
    given = record.headers
    if given is UNSET or not given:
        return ()
    if len(given) > HEADERS_MAX:
        raise Problem(422, "bad_value", f"a record has {len(given)} headers; at most {HEADERS_MAX} are allowed")
    if isinstance(given, dict):
        return [(name, None if value is None else value.encode()) for name, value in given.items()]
    return [(header.name, _header_value(header)) for header in given]


def _header_value(header: Header) -> bytes | None:
    if header.value_base64 is not UNSET:
        if header.value is not UNSET:
            raise Problem(422, "bad_value", "a header has both value and valueBase64")
        return from_base64("value", header.value_base64)
    return None if header.value is UNSET or header.value is None else header.value.encode()


def shown(data: bytes | None) -> tuple[str | UnsetType | None, str | UnsetType]:
    """As text, or in base64 if it is none."""
    if data is None:
        return None, UNSET
    try:
        return data.decode(), UNSET
    except UnicodeDecodeError:
        return UNSET, binascii.b2a_base64(data, newline=False).decode()


def shown_headers(headers: Headers) -> list[Header]:
    # Names that are not UTF-8 have surrogates here, which JSON has no place for.
    return [Header(name.encode("utf-8", "replace").decode(), *shown(value)) for name, value in headers]
