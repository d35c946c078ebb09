"""One request as its handler sees it, and the place of its reply in its connection's order."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import msgspec

from skidway.broker.api.caller import Caller
from skidway.gateways.http.head import Head
from skidway.gateways.http.problems import Problem
from skidway.gateways.http.replies import JSON, LAST_CHUNK, SWITCHING, Reply, accepts_gzip, problem_reply, stream_head
from skidway.gateways.http.routes import Route
from skidway.gateways.http.site import HttpSite

T = TypeVar("T")
_WHOLE_NUMBER = re.compile(r"-?[0-9]{1,20}")


class Origin(Protocol):
    """The connection by which a request came."""

    site: HttpSite
    caller: Caller

    def on_reply(self, call: HttpCall) -> None:
        """A call that had to wait has its reply."""
        ...

    def on_bug(self, bug: Exception) -> None: ...

    def on_part(self, data: bytes) -> None:
        """A part of a reply that has begun."""
        ...

    def when_sent(self, act: Callable[[Any], None]) -> None:
        """Have something done once when all there is was sent."""
        ...

    def ends_after(self, call: HttpCall) -> bool:
        """Whether nothing follows its reply."""
        ...

    def switch(self, call: HttpCall, session: Switched) -> None:
        """From here on what comes belongs to the session."""
        ...

    def has_left(self, *, waits: bool) -> bool:
        """Whether nobody reads the reply, as far as can be known."""
        ...

    def on_activity(self, active: bool) -> None:
        """Whether the session has something under way."""
        ...


class Switched(Protocol):
    """Who speaks another protocol on a connection."""

    needed: int
    paused: bool

    @property
    def active(self) -> bool: ...

    def receive(self, data: memoryview, unsent_bytes: Callable[[], int]) -> int: ...

    def closed(self) -> None: ...


class HttpCall:
    __slots__ = ("body", "connection", "gone", "head", "now_ms", "on_gone", "parts", "route", "site", "values")

    def __init__(
        self,
        connection: Origin,
        head: Head,
        route: Route | None,
        values: tuple[str, ...],
        body: memoryview,
        now_ms: int,
    ) -> None:
        self.connection = connection
        self.site = connection.site
        self.head = head
        self.route = route
        """None for one that was refused before anybody looked for its route."""
        self.values = values
        """What the names in the path stand for."""
        self.body: memoryview | bytes = body
        """Good until the handler has returned, or yielded; who needs it for longer copies it."""
        self.now_ms = now_ms
        self.gone = False
        """Nobody waits for the reply any more."""
        self.on_gone: Callable[[], None] | None = None
        """Called when the peer disconnects while the call waits."""
        self.parts: list[bytes] | None = None
        """The reply, once there is one."""

    @property
    def caller(self) -> Caller:
        return self.connection.caller

    @property
    def wants_gzip(self) -> bool:
        accepted = self.head.headers.get(b"accept-encoding")
        return accepted is not None and accepts_gzip(accepted)

    def query(self) -> dict[str, str]:
        """Those that the route knows; Problem for any other."""
        given = self.head.query()
        assert self.route is not None
        for name in given:
            if all(name != known.name for known in self.route.parameters):
                known_names = ", ".join(known.name for known in self.route.parameters) or "none"
                raise Problem(400, "bad_query", f"there is no parameter {name!r} here; known are: {known_names}")
        return given

    @property
    def content_type(self) -> bytes:
        return self.head.headers.get(b"content-type", b"").partition(b";")[0].strip().lower()

    def require_json(self, kinds: Sequence[bytes] = (JSON,)) -> None:
        """A page of some other site can have a browser send anything but this without asking us first."""
        if self.content_type not in kinds:
            named = " or ".join(kind.decode() for kind in kinds)
            raise Problem(415, "not_json", f"a body must have the header Content-Type: {named}")
        if self.head.headers.get(b"content-encoding", b"identity").lower() != b"identity":
            raise Problem(415, "packed", "a body must not be compressed: leave Content-Encoding out")

    def decode(self, decoder: msgspec.json.Decoder[T], kinds: Sequence[bytes] = (JSON,)) -> T:
        """The body as JSON of a shape. Raises Problem."""
        self.require_json(kinds)
        try:
            return decoder.decode(self.body)
        except msgspec.ValidationError as error:
            raise Problem(422, "bad_value", str(error)) from None
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Problem(400, "bad_json", str(error)) from None
        except RecursionError:
            raise Problem(400, "bad_json", "the JSON is nested too deeply") from None

    def reply(self, reply: Reply) -> None:
        assert self.parts is None, "a call is answered once"
        self.on_gone = None
        if not self.gone:
            self.parts = self.encode(reply)
            self.connection.on_reply(self)

    def begin_stream(self, content_type: bytes, headers: bytes) -> None:
        """The head of a reply whose parts follow. A client of HTTP/1.0 has them as they are, until the connection
        ends."""
        self.connection.on_part(self._head_of_stream(content_type, headers))

    def _head_of_stream(self, content_type: bytes, headers: bytes) -> bytes:
        assert self.route is not None
        self.route.answers[200] = self.route.answers.get(200, 0) + 1
        date = self.site.date.line(self.site.node.clock.wall_ms())
        keep_alive = self.head.keep_alive and self.head.minor == 1
        return stream_head(date, content_type, headers, keep_alive=keep_alive, minor=self.head.minor)

    def write(self, data: bytes) -> None:
        if not self.gone:
            self.connection.on_part(b"%x\r\n%b\r\n" % (len(data), data) if self.head.minor else data)

    def when_sent(self, act: Callable[[Any], None]) -> None:
        self.connection.when_sent(act)

    def end_stream(self) -> None:
        assert self.parts is None, "a call is answered once"
        if not self.gone:
            self.parts = [LAST_CHUNK] if self.head.minor else [b""]
            self.connection.on_reply(self)

    def switch(self, headers: bytes, session: Switched) -> None:
        """To another protocol. `headers` are lines of the answer."""
        assert self.route is not None
        self.route.answers[101] = self.route.answers.get(101, 0) + 1
        self.connection.on_part(SWITCHING + self.site.date.line(self.site.node.clock.wall_ms()) + headers + b"\r\n")
        self.connection.switch(self, session)

    def refuse(self, problem: Problem) -> None:
        self.reply(self.refusal(problem))

    def refusal(self, problem: Problem) -> Reply:
        """In the form that the route has for it."""
        return problem_reply(problem) if self.route is None else self.route.refusal.reply(problem)

    def fail(self, bug: Exception) -> None:
        """Answering went wrong, because of a bug."""
        if not self.gone:
            self.connection.on_bug(bug)

    def encode(self, reply: Reply) -> list[bytes]:
        head, site = self.head, self.site
        if self.route is not None:
            answers = self.route.answers
            answers[reply.status] = answers.get(reply.status, 0) + 1
            self.route.times.add((site.node.clock.monotonic_ms() - self.now_ms) * 1_000)
        else:
            site.refused[reply.status] = site.refused.get(reply.status, 0) + 1
        date = site.date.line(site.node.clock.wall_ms())
        keep_alive = head.keep_alive and not self.connection.ends_after(self)
        return [
            reply.encode(date, keep_alive=keep_alive, minor=head.minor, head_only=head.method == "HEAD"),
        ]


def parse_number(query: dict[str, str], name: str, default: Any, low: int, high: int) -> Any:
    """A whole number of the query, held against its bounds."""
    text = query.get(name)
    if text is None:
        return default
    if not _WHOLE_NUMBER.fullmatch(text):
        raise Problem(400, "bad_query", f"{name} must be a whole number, got {text[:50]!r}")
    number = int(text)
    if not low <= number <= high:
        raise Problem(422, "bad_value", f"{name} must be from {low} to {high}, got {number}")
    return number
