"""The head of a request: its line and its headers, as bytes on the wire and as a value.

llhttp (by httptools) reads the grammar. Where one request ends and the next begins is decided here, from a head that
leaves no choice: lines end in CR LF and in nothing else, no line continues another, and there is one length or one
`Transfer-Encoding: chunked`, never both. Whoever reads such bytes differently than we do could smuggle a request past
the other, so anything else is refused and the connection ends. `Reader` also gives llhttp what is behind the head:
where both do not agree on the end, the request is refused.
"""

from __future__ import annotations

import re
from urllib.parse import unquote_to_bytes

import httptools

from skidway.gateways.http.bounds import HEAD_BYTES_MAX, HEADERS_BYTES_MAX, HEADERS_MAX, REQUEST_LINE_BYTES_MAX
from skidway.gateways.http.problems import Fatal, Problem

_HEAD_END = re.compile(rb"\r\n\r\n")
_LENGTH = re.compile(rb"[0-9]{1,18}")
_SINGLE = frozenset(
    (
        b"host",
        b"content-length",
        b"transfer-encoding",
        b"content-type",
        b"content-encoding",
        b"authorization",
        b"expect",
        b"idempotency-key",
    )
)
"""Headers that mean nothing, or something dangerous, when there are two of them."""
CHUNKED = -1
FIRST_BYTE_MIN = 0x20
"""No request of HTTP begins with a control character."""
FIRST_BYTE_OF_TLS = 0x16
FIRST_BYTE_OF_KAFKA = 0x00
"""Of the length of a request that is smaller than 16 MiB."""


class Head:
    __slots__ = ("body_bytes", "headers", "keep_alive", "method", "minor", "size", "target", "upgrades")

    def __init__(
        self, method: str, target: bytes, minor: int, headers: dict[bytes, bytes], size: int, *, keep_alive: bool
    ) -> None:
        self.method = method
        self.target = target
        self.minor = minor
        """Of the version: 1.0 or 1.1."""
        self.headers = headers
        """By names in small letters."""
        self.size = size
        """Bytes of the head."""
        self.keep_alive = keep_alive
        self.upgrades = False
        self.body_bytes = _body_bytes(headers, minor)
        """CHUNKED: only the body itself tells."""

    @property
    def expects_continue(self) -> bool:
        return self.minor == 1 and b"expect" in self.headers

    def path(self) -> list[str]:
        """The segments, decoded one by one: a slash that was encoded does not divide."""
        path = self.target.partition(b"?")[0]
        try:
            return [unquote_to_bytes(segment).decode() for segment in path.split(b"/")[1:]]
        except UnicodeDecodeError:
            raise Problem(400, "bad_path", "the path is not UTF-8 after decoding its % sequences") from None

    def query(self) -> dict[str, str]:
        """Each name once."""
        _, mark, query = self.target.partition(b"?")
        found: dict[str, str] = {}
        if not mark:
            return found
        for pair in query.split(b"&"):
            name, _, value = pair.replace(b"+", b" ").partition(b"=")
            try:
                decoded = unquote_to_bytes(name).decode()
                if decoded in found:
                    raise Problem(400, "bad_query", f"the parameter {decoded!r} is there twice")
                found[decoded] = unquote_to_bytes(value).decode()
            except UnicodeDecodeError:
                raise Problem(400, "bad_query", "the query is not UTF-8 after decoding its % sequences") from None
        found.pop("", None)
        return found


class Reader:
    """Heads of one connection, one after another."""

    __slots__ = ("_complete", "_parser", "_scanned", "_target", "_twice", "_values", "pipelined")

    def __init__(self) -> None:
        self._parser: httptools.HttpRequestParser | None = None
        self._scanned = 0
        self.pipelined = False
        """A request came before the one in front of it was answered. While that one waits nothing is read, not even
        the end of the connection."""
        self._begin()

    def _begin(self) -> None:
        self._values: dict[bytes, bytes] = {}
        self._target = b""
        self._twice = b""
        self._complete = False
        self._scanned = 0

    # --- what llhttp calls ---

    def on_url(self, url: bytes) -> None:
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        if name in self._values:
            if name in _SINGLE:
                self._twice = name
            value = self._values[name] + b", " + value
        self._values[name] = value

    def on_message_complete(self) -> None:
        self._complete = True

    # --- what the connection calls ---

    def read(self, data: memoryview) -> Head | None:
        """The head at the beginning of `data`, which grows from call to call; None: it is not whole yet."""
        if not self._scanned:
            _check_first_byte(data[0])
        found = _HEAD_END.search(data, max(0, self._scanned - 3), HEAD_BYTES_MAX + 4)
        if found is None:
            self._scanned = min(len(data), HEAD_BYTES_MAX)
            if len(data) > HEAD_BYTES_MAX:
                raise Fatal(431, "head_too_large", f"the head of a request has more than {HEAD_BYTES_MAX} bytes")
            _check_line_length(bytes(data[: REQUEST_LINE_BYTES_MAX + 1]))
            return None
        size = found.end()
        raw = bytes(data[:size])
        _check_lines(raw)
        self._begin()
        if self._parser is None:
            self._parser = httptools.HttpRequestParser(self)
        upgrades = self._feed(raw)
        head = self._head(size)
        head.upgrades = upgrades
        return head

    def finish(self, head: Head, body: memoryview) -> None:
        """All bytes behind the head that belong to this request: llhttp has to agree that they are the rest of it."""
        assert self._parser is not None
        if head.upgrades:
            # It reads nothing behind an Upgrade, and would take what follows for another protocol.
            self._parser = None
            return
        if len(body):
            if self._complete:
                raise Fatal(400, "bad_framing", "the request ends before its body")
            if self._feed(body):
                self._parser = None
        if not self._complete:
            raise Fatal(400, "bad_framing", "the request does not end where its length says")
        if not head.keep_alive:
            self._parser = None

    def _feed(self, data: bytes | memoryview) -> bool:
        """True: the peer would like another protocol from here on."""
        assert self._parser is not None
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            return True
        except httptools.HttpParserError as error:
            raise Fatal(400, "bad_request", f"this is not HTTP: {_reason(error)}") from None
        return False

    def _head(self, size: int) -> Head:
        assert self._parser is not None
        if self._twice:
            raise Fatal(400, "bad_header", f"the header {self._twice.decode('latin-1')} is there twice")
        version = self._parser.get_http_version()
        if version not in ("1.0", "1.1"):
            raise Fatal(505, "bad_version", f"HTTP/{version} is not spoken here, HTTP/1.1 is")
        minor = int(version[2])
        if minor and b"host" not in self._values:
            raise Fatal(400, "no_host", "a request of HTTP/1.1 needs the header Host")
        expected = self._values.get(b"expect")
        if expected is not None and expected.lower() != b"100-continue":
            raise Fatal(417, "bad_expectation", "Expect may be 100-continue")
        target = _origin_form(self._target)
        method = self._parser.get_method().decode("latin-1")
        keep_alive = bool(self._parser.should_keep_alive()) if minor else _asks_to_stay(self._values)
        keep_alive = keep_alive and b"close" not in self._values.get(b"connection", b"").lower()
        return Head(method, target, minor, self._values, size, keep_alive=keep_alive)


def _check_first_byte(first: int) -> None:
    """Who speaks another protocol waits for an answer, and never sends the end of a head."""
    if first >= FIRST_BYTE_MIN or first in b"\r\n":
        return
    text = "this port speaks HTTP, and what came is not HTTP"
    if first == FIRST_BYTE_OF_TLS:
        text = "this port speaks HTTP without TLS: begin the address with http://"
    elif first == FIRST_BYTE_OF_KAFKA:
        text = "this port speaks HTTP: Kafka's protocol has another port, 9092 if nobody chose one"
    raise Fatal(400, "bad_request", text)


def _check_line_length(raw: bytes) -> None:
    if len(raw) > REQUEST_LINE_BYTES_MAX and b"\r\n" not in raw:
        text = f"the first line of a request has more than {REQUEST_LINE_BYTES_MAX} bytes"
        raise Fatal(414, "request_line_too_long", text)


def _check_lines(raw: bytes) -> None:
    lines = raw.count(b"\r\n")
    if raw.count(b"\n") != lines or raw.count(b"\r") != lines:
        raise Fatal(400, "bad_line", "a line of the head ends in something else than CR LF")
    if b"\r\n " in raw or b"\r\n\t" in raw:
        raise Fatal(400, "bad_line", "a line of the head continues the one before it")
    _check_line_length(raw[: REQUEST_LINE_BYTES_MAX + 1])
    if lines - 2 > HEADERS_MAX:
        raise Fatal(431, "too_many_headers", f"a request has {lines - 2} headers; at most {HEADERS_MAX} are allowed")
    if len(raw) - raw.index(b"\r\n") > HEADERS_BYTES_MAX + 4:
        raise Fatal(431, "head_too_large", f"the headers of a request have more than {HEADERS_BYTES_MAX} bytes")


def _reason(error: Exception) -> str:
    return str(error).replace("\r", "\\r").replace("\n", "\\n")[:200] or type(error).__name__


def _origin_form(target: bytes) -> bytes:
    """A proxy may name the whole address."""
    if target[:7].lower() == b"http://":
        slash = target.find(b"/", 7)
        target = target[slash:] if slash >= 0 else b"/"
    if not target.startswith(b"/") or b"#" in target:
        raise Fatal(400, "bad_target", "the target of a request must be a path")
    return target


def _asks_to_stay(headers: dict[bytes, bytes]) -> bool:
    return b"keep-alive" in headers.get(b"connection", b"").lower()


def _body_bytes(headers: dict[bytes, bytes], minor: int) -> int:
    coding, length = headers.get(b"transfer-encoding"), headers.get(b"content-length")
    if coding is not None:
        if length is not None:
            raise Fatal(400, "bad_framing", "a request has both Content-Length and Transfer-Encoding")
        if not minor:
            raise Fatal(400, "bad_framing", "HTTP/1.0 has no Transfer-Encoding")
        if coding.strip().lower() != b"chunked":
            raise Fatal(501, "bad_framing", "Transfer-Encoding may be chunked")
        return CHUNKED
    if length is None:
        return 0
    if not _LENGTH.fullmatch(length):
        raise Fatal(400, "bad_framing", "Content-Length must be one number")
    return int(length)
