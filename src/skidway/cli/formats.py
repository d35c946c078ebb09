"""Messages as text, JSON lines, raw bytes or hex, and JSON lines back into messages.

JSON keeps everything: bytes that are UTF-8 stand as strings; others as `value_base64` (`key_base64`) instead of
`value` (`key`). What `consume --format json` prints, `produce --format json` takes.
"""

import base64
import binascii
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from skidway.client.consumer import Consumed
    from skidway.records.record import Headers


class Format(StrEnum):
    TEXT = "text"
    JSON = "json"
    RAW = "raw"
    HEX = "hex"


@dataclass(slots=True)
class Shown:
    """What `text` and `hex` show before the value."""

    offset: bool = False
    timestamp: bool = False
    key: bool = False
    headers: bool = False


Writer = Callable[["Consumed"], bytes]


def writer(form: Format, shown: Shown, *, terminal: bool, delimiter: bytes = b"\n") -> Writer:
    """`terminal`: control characters in messages are made harmless, because they could command the terminal."""
    if form is Format.JSON:
        return lambda message: json.dumps(to_json(message), ensure_ascii=False).encode() + b"\n"
    if form is Format.RAW:
        return lambda message: message.value or b""
    if form is Format.HEX:
        return lambda message: b"\t".join(_columns(message, shown, _hex)) + delimiter
    plain = _harmless if terminal else _as_is
    return lambda message: b"\t".join(_columns(message, shown, plain)) + delimiter


def to_json(message: "Consumed") -> dict[str, Any]:
    return {
        "topic": message.topic,
        "partition": message.partition,
        "offset": message.offset,
        "timestamp": message.timestamp,
        "time": iso_time(message.timestamp),
        **_named("key", message.key),
        **_named("value", message.value),
        "headers": [{"name": _text(name), **_named("value", content)} for name, content in message.headers],
    }


@dataclass(slots=True)
class Draft:
    """A message to be produced."""

    value: bytes | None
    key: bytes | None = None
    headers: "Headers" = ()
    timestamp: int | None = None


def from_json(line: bytes) -> Draft:
    """ValueError when the line is no JSON object of the form above. Unknown fields are passed over."""
    document = json.loads(line)
    if not isinstance(document, dict):
        raise ValueError("expected a JSON object")
    headers = document.get("headers") or []
    if isinstance(headers, dict):
        headers = [{"name": name, "value": content} for name, content in headers.items()]
    if not all(isinstance(header, dict) and isinstance(header.get("name"), str) for header in headers):
        raise ValueError('expected headers as [{"name": …, "value": …}]')
    timestamp = document.get("timestamp")
    if timestamp is not None and not isinstance(timestamp, int):
        raise ValueError("expected the timestamp in milliseconds")
    return Draft(
        value=_unnamed("value", document),
        key=_unnamed("key", document),
        headers=[(header["name"], _unnamed("value", header)) for header in headers],
        timestamp=timestamp,
    )


def iso_time(timestamp_ms: int) -> str | None:
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return None
    return None if timestamp_ms < 0 else moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _columns(message: "Consumed", shown: Shown, plain: Callable[[bytes], bytes]) -> list[bytes]:
    columns: list[bytes] = []
    if shown.offset:
        columns += [str(message.partition).encode(), str(message.offset).encode()]
    if shown.timestamp:
        columns.append((iso_time(message.timestamp) or "-").encode())
    if shown.headers:
        pairs = [name.encode("utf-8", "surrogateescape") + b"=" + (value or b"") for name, value in message.headers]
        columns.append(plain(b",".join(pairs)))
    if shown.key:
        columns.append(b"null" if message.key is None else plain(message.key))
    columns.append(b"null" if message.value is None else plain(message.value))
    return columns


def _as_is(content: bytes) -> bytes:
    return content


def _hex(content: bytes) -> bytes:
    return content.hex().encode()


def _harmless(content: bytes) -> bytes:
    text = content.decode("utf-8", "backslashreplace")
    if text.isprintable():
        return text.encode()
    return "".join(
        character if character.isprintable() or character in "\t\n" else _escaped(character) for character in text
    ).encode()


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()


def _text(name: str) -> str:
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _named(name: str, content: bytes | None) -> dict[str, Any]:
    if content is None:
        return {name: None}
    try:
        return {name: content.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(content).decode()}


def _unnamed(name: str, document: dict[str, Any]) -> bytes | None:
    packed = document.get(f"{name}_base64")
    if packed is not None:
        try:
            return base64.b64decode(packed, validate=True)
        except (TypeError, ValueError, binascii.Error):
            raise ValueError(f"{name}_base64 is not base64") from None
    content = document.get(name)
    if content is None or isinstance(content, str):
        return None if content is None else content.encode()
    # A number, list or object as a value: its JSON is the message.
    return json.dumps(content, ensure_ascii=False).encode()
