"""Messages as JSON lines: what `consume --format json` prints and `produce --format json` takes.

`to_json` keeps everything. Bytes that are UTF-8 stand as text in `key` and `value`; others in `key_base64` and
`value_base64`. `from_json` refuses what it does not understand, because a misspelt field would be a lost one:
`BadLine` says what was found and what is expected.
"""

import base64
import binascii
import difflib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from skidway.limits import INT32_MAX, INT64_MAX

if TYPE_CHECKING:
    from skidway.blocking_client.consumer import Consumed
    from skidway.records.record import Headers

FIELDS = (
    "key",
    "key_base64",
    "value",
    "value_base64",
    "headers",
    "partition",
    "timestamp",
    "time",
    "topic",
    "offset",
)
HEADER_FIELDS = ("name", "value", "value_base64")
EXPECTED = (
    "a line is a JSON object with value (or value_base64) and, if wanted, key (or key_base64), headers, partition, "
    "timestamp or time"
)
AS_VALUE = "--format json-value sends each line as a value"


class BadLine(ValueError):
    """A line of the input that is no message."""


@dataclass(slots=True)
class Draft:
    """A message to be produced."""

    value: bytes | None
    key: bytes | None = None
    headers: "Headers" = ()
    timestamp: int | None = None
    partition: int | None = None


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


def from_json(line: bytes) -> Draft:
    document = _parse(line)
    if not isinstance(document, dict):
        raise BadLine(f"{_kind(document)} instead of a JSON object; {EXPECTED}; {AS_VALUE}")
    _refuse_unknown(document, FIELDS, EXPECTED)
    _check(document, "topic", "text", lambda found: isinstance(found, str))
    _check(document, "offset", "a number", _is_number)
    _check(document, "partition", "a number, 0 or greater", lambda found: _is_number(found) and 0 <= found <= INT32_MAX)
    return Draft(
        value=_content(document, "value", required="the message; null makes a tombstone"),
        key=_content(document, "key"),
        headers=_headers(document.get("headers")),
        timestamp=_timestamp(document),
        partition=document.get("partition"),
    )


def json_value(line: bytes) -> Draft:
    """The line itself as the value, byte for byte; it has to be JSON."""
    _parse(line)
    return Draft(line)


def iso_time(timestamp_ms: int) -> str | None:
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return None
    return None if timestamp_ms < 0 else moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _parse(line: bytes) -> Any:
    try:
        return json.loads(line, object_pairs_hook=_without_doubles, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise BadLine(f"not JSON: {error.msg} at column {error.colno}") from None
    except UnicodeDecodeError:
        raise BadLine("not JSON: it is not UTF-8") from None
    except RecursionError:
        raise BadLine("not JSON that can be read: it is nested too deeply") from None


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) < len(pairs):
        names = [name for name, _ in pairs]
        raise BadLine(f"the field {next(name for name in names if names.count(name) > 1)!r} is there twice")
    return document


def _refuse_constant(text: str) -> Any:
    raise BadLine(f"not JSON: {text} is not a JSON number")


def _refuse_unknown(document: dict[str, Any], known: Iterable[str], expected: str) -> None:
    unknown = [name for name in document if name not in known]
    if not unknown:
        return
    close = difflib.get_close_matches(unknown[0], known, n=1)
    meant = f", did you mean {close[0]!r}?" if close else ";"
    hint = f"; {AS_VALUE}" if known is FIELDS else ""
    raise BadLine(f"unknown field {unknown[0]!r}{meant} {expected}{hint}")


def _check(document: dict[str, Any], name: str, expected: str, fits: Callable[[Any], bool]) -> None:
    found = document.get(name)
    if found is not None and not fits(found):
        raise BadLine(f"{name} is {_kind(found)}; expected {expected}")


def _timestamp(document: dict[str, Any]) -> int | None:
    expected = "milliseconds since 1970, as a whole number"
    _check(document, "timestamp", expected, lambda found: _is_number(found) and -1 <= found <= INT64_MAX)
    _check(document, "time", "text as 2026-01-31T12:00:00Z", lambda found: isinstance(found, str))
    timestamp, moment = document.get("timestamp"), document.get("time")
    if timestamp is not None or moment is None:
        return timestamp
    try:
        return max(0, round(datetime.fromisoformat(moment).timestamp() * 1000))
    except (ValueError, OverflowError, OSError):
        raise BadLine(f"time is {moment!r}; expected e.g. 2026-01-31T12:00:00Z") from None


def _headers(found: Any) -> "Headers":
    expected = 'expected [{"name": …, "value": …}, …] or {"name": "value", …}'
    if found is None:
        return []
    if isinstance(found, dict):
        found = [{"name": name, "value": content} for name, content in found.items()]
    if not isinstance(found, list):
        raise BadLine(f"headers is {_kind(found)}; {expected}")
    headers: list[tuple[str, bytes | None]] = []
    for header in found:
        if not isinstance(header, dict) or not isinstance(header.get("name"), str):
            raise BadLine(f"a header without a name; {expected}")
        _refuse_unknown(header, HEADER_FIELDS, f"in headers {expected}")
        headers.append((header["name"], _content(header, "value", required=f"of the header {header['name']!r}")))
    return headers


def _content(document: dict[str, Any], name: str, *, required: str = "") -> bytes | None:
    """A key or a value: as text, as JSON, or in base64."""
    packed_name = f"{name}_base64"
    if name in document and packed_name in document:
        raise BadLine(f"both {name} and {packed_name}; expected one of them")
    if packed_name in document:
        try:
            return base64.b64decode(document[packed_name], validate=True)
        except (TypeError, ValueError, binascii.Error):
            raise BadLine(f"{packed_name} is not base64") from None
    if name not in document:
        if required:
            raise BadLine(f"no {name} ({required}); {EXPECTED}")
        return None
    content = document[name]
    if content is None:
        return None
    # A number, list or object: its JSON is the message.
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise BadLine(f"{name} has half of a surrogate pair in it; put its bytes into {packed_name}") from None


def _is_number(found: Any) -> bool:
    return isinstance(found, int) and not isinstance(found, bool)


def _kind(found: Any) -> str:
    """What it is, for a person."""
    if found is None:
        return "null"
    if isinstance(found, dict):
        return "an object"
    if isinstance(found, list):
        return "a list"
    return repr(found)


def _text(name: str) -> str:
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _named(name: str, content: bytes | None) -> dict[str, Any]:
    if content is None:
        return {name: None}
    try:
        return {name: content.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(content).decode()}
