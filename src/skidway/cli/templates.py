r"""Templates for `consume --format`, with the letters of kcat: `'%t %p %o: %k=%s\n'`.

Unknown letters are refused: a template that prints half of what was meant is worse than none.
"""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skidway.blocking_client.reader import Consumed

Piece = Callable[["Consumed"], bytes]
Plain = Callable[[bytes], bytes]

LETTERS = {
    "t": "topic",
    "p": "partition",
    "o": "offset",
    "k": "key",
    "s": "value",
    "K": "bytes of the key, -1 for null",
    "S": "bytes of the value, -1 for null",
    "T": "timestamp in milliseconds since 1970",
    "h": "headers as name=value,name=value",
    "%": "a percent sign",
}
ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}
_TOKEN = re.compile(r"%(?P<letter>.?)|\\x(?P<hex>[0-9a-fA-F]{2})|\\(?P<escape>.?)|(?P<text>[^%\\]+)", re.DOTALL)
HELP = (
    "%t topic, %p partition, %o offset, %k key, %s value, %K and %S their lengths (-1: null), %T timestamp in ms, "
    r"%h headers, %% a percent sign; \n, \t, \r, \0, \\ and \xNN for a byte. Nothing is added between messages"
)


class BadTemplate(ValueError):
    """A letter or an escape that there is not."""


def compile_template(text: str, *, plain: Plain, null: bytes) -> Piece:
    """A function that writes a message. `plain`: what becomes of bytes of messages; `null`: what stands for null."""
    pieces = [_piece(token, plain, null) for token in _TOKEN.finditer(text)]
    return lambda message: b"".join([piece(message) for piece in pieces])


def _piece(token: re.Match[str], plain: Plain, null: bytes) -> Piece:
    if token["text"] is not None:
        return _constant(token["text"].encode("utf-8", "surrogateescape"))
    if token["hex"] is not None:
        return _constant(bytes.fromhex(token["hex"]))
    if token["escape"] is not None:
        if token["escape"] not in ESCAPES:
            raise BadTemplate(rf"\{token['escape']} is not known; there are \n, \t, \r, \0, \\ and \xNN")
        return _constant(ESCAPES[token["escape"]])
    return _field(token["letter"], plain, null)


def _constant(content: bytes) -> Piece:
    return lambda message: content


def _field(letter: str, plain: Plain, null: bytes) -> Piece:
    fields: dict[str, Piece] = {
        "t": lambda message: message.topic.encode(),
        "p": lambda message: b"%d" % message.partition,
        "o": lambda message: b"%d" % message.offset,
        "k": lambda message: null if message.key is None else plain(message.key),
        "s": lambda message: null if message.value is None else plain(message.value),
        "K": lambda message: b"%d" % (-1 if message.key is None else len(message.key)),
        "S": lambda message: b"%d" % (-1 if message.value is None else len(message.value)),
        "T": lambda message: b"%d" % message.timestamp,
        "h": lambda message: plain(headers_text(message)),
        "%": _constant(b"%"),
    }
    if letter not in fields:
        known = ", ".join(f"%{each} ({meaning})" for each, meaning in LETTERS.items())
        raise BadTemplate(f"%{letter} is not known; there are {known}")
    return fields[letter]


def headers_text(message: "Consumed") -> bytes:
    """name=value,name=value; as kcat prints them."""
    pairs = [name.encode("utf-8", "surrogateescape") + b"=" + (value or b"") for name, value in message.headers]
    return b",".join(pairs)
