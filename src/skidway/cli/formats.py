"""Messages as text, JSON lines (`json_lines`), raw bytes, hex, or by a template (`templates`)."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from skidway.cli.json_lines import iso_time, to_json
from skidway.cli.templates import compile_template, headers_text

if TYPE_CHECKING:
    from skidway.blocking_client.reader import Consumed


class Format(StrEnum):
    TEXT = "text"
    JSON = "json"
    RAW = "raw"
    HEX = "hex"


@dataclass(slots=True, frozen=True)
class Template:
    """Letters of kcat, e.g. `%k: %s\\n`."""

    text: str


FORMATS = ", ".join(Format)


def parse_format(text: str) -> Format | Template:
    """ValueError if it is neither a format nor a template."""
    if text in list(Format):
        return Format(text)
    if "%" in text or "\\" in text:
        return Template(text)
    hint = "; to wait for more messages use --follow (-w)" if text.startswith("-") else ""
    raise ValueError(f"{text!r} is not a format; expected {FORMATS}, or a template such as '%k: %s\\n'{hint}")


@dataclass(slots=True)
class Shown:
    """What `text` and `hex` show before the value."""

    topic: bool = False
    offset: bool = False
    timestamp: bool = False
    key: bool = False
    headers: bool = False


Writer = Callable[["Consumed"], bytes]


def writer(form: Format | Template, shown: Shown, *, terminal: bool, null: bytes | None = None) -> Writer:
    """`terminal`: control characters in messages are made harmless, because they could command the terminal. `null`:
    what stands for it; None: `null` in columns, nothing in templates. `BadTemplate` if the template is none."""
    plain = _harmless if terminal else _as_is
    if isinstance(form, Template):
        return compile_template(form.text, plain=plain, null=null or b"")
    if form is Format.JSON:
        return lambda message: json.dumps(to_json(message), ensure_ascii=False).encode() + b"\n"
    if form is Format.RAW:
        return lambda message: (null or b"") if message.value is None else message.value
    shape = _hex if form is Format.HEX else plain
    instead = b"null" if null is None else null
    return lambda message: b"\t".join(_columns(message, shown, shape, instead)) + b"\n"


def _columns(message: "Consumed", shown: Shown, plain: Callable[[bytes], bytes], null: bytes) -> list[bytes]:
    columns: list[bytes] = []
    if shown.topic:
        columns.append(message.topic.encode())
    if shown.offset:
        columns += [str(message.partition).encode(), str(message.offset).encode()]
    if shown.timestamp:
        columns.append((iso_time(message.timestamp) or "-").encode())
    if shown.headers:
        columns.append(plain(headers_text(message)))
    if shown.key:
        columns.append(null if message.key is None else plain(message.key))
    columns.append(null if message.value is None else plain(message.value))
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
