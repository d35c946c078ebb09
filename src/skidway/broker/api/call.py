"""One request on its way through the node: what its handler sees, and where the reply goes. One that came in a frame is
in `connection`, which handlers do not know."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Protocol

from skidway.broker.api.caller import Caller
from skidway.ports import Buffer, FileSlice
from skidway.runtime.distribution import Distribution
from skidway.runtime.slices import Slices, Work
from skidway.steps import Steps
from skidway.wire.framing import frame, join_small
from skidway.wire.headers import read_response_header
from skidway.wire.registry import api

Part = Buffer | FileSlice
Handle = Callable[[Any, "Call", Any], Any]
"""(services, call, request). Which services a handler may use, the API table says; here nobody looks at them.
Returns the response, or None: then the handler keeps the call to reply later, has replied, or made it silent.
A handler whose work grows with its request is a generator (`skidway.steps`) that returns one of these."""

LENGTH_AND_CORRELATION = struct.Struct(">ii")
NO_TAGS = b"\0"


class Hangup(Exception):
    """This peer must be dropped, after what is in its outbox has been sent."""


class Goodbye(Hangup):
    """Both sides know that the conversation ends with what is in the outbox: nobody has to hear of it."""


class Malformed(Hangup):
    """This peer sent what no client of ours would send."""


class Waits:
    """How long requests took from their frame to their reply."""

    __slots__ = ("count", "longest_ms", "times", "total_ms")

    def __init__(self) -> None:
        self.count = self.total_ms = self.longest_ms = 0
        self.times = Distribution()


class Route:
    """Everything that is the same for all requests of one API and version."""

    __slots__ = (
        "decode",
        "decode_steps",
        "early",
        "elements_at_once",
        "encode",
        "encode_steps",
        "errors",
        "forwarded",
        "handle",
        "handle_here",
        "has_slices",
        "key",
        "name",
        "request_bytes",
        "requests",
        "tagged_header",
        "takes",
        "tried_at_once",
        "version",
        "waits",
    )

    def __init__(
        self,
        key: int,
        name: str,
        version: int,
        handle_here: Handle,
        decode: Callable[[Buffer, int, int], tuple[Any, int]],
        encode: Callable[[Any, list[Part], dict[int, int]], None],
        *,
        tagged_header: bool,
        has_slices: bool,
        forwarding: Handle | None = None,
        early: bool = False,
        elements_at_once: int = 0,
        decode_steps: Callable[[Buffer, int, list[Any]], Steps[tuple[Any, int]]] | None = None,
        tried_at_once: bool = False,
        takes: bool = False,
        encode_steps: Callable[[Any, list[Part], dict[int, int]], Steps[None]] | None = None,
    ) -> None:
        self.key = key
        self.name = name
        self.version = version
        self.handle = handle_here if forwarding is None else forwarding
        """What this node does with a request."""
        self.handle_here = handle_here
        """The API's own handler, which forwards nothing."""
        self.decode = decode
        self.encode = encode
        self.tagged_header = tagged_header
        self.has_slices = has_slices
        self.forwarded = forwarding is not None
        """Answered by the active controller, whichever node is asked."""
        self.elements_at_once = elements_at_once
        """How many elements a request may have that is decoded in one go."""
        self.early = early
        """Served before this node knows enough of the cluster for clients."""
        self.decode_steps = decode_steps
        """As `decode`, for a large request; None where the request is decoded in one go whatever its size. The list
        gets the request when decoding begins: who frees it in steps must have it, however decoding ends."""
        self.tried_at_once = tried_at_once
        """A large request is given to `decode` first, which refuses one of many elements."""
        self.encode_steps = encode_steps
        """As `encode`, for a large reply."""
        self.takes = takes
        """A peer that has closed its side does not wait for the reply."""
        self.requests = self.request_bytes = 0
        """That came from clients and other nodes, for metrics."""
        self.errors: dict[int, int] = {}
        """Error codes in its replies: how often each was given, to a request as a whole or to one of its items."""
        self.waits = Waits()
        """Of requests that were not answered in one go."""

    def reply(self, correlation_id: int, response: Any) -> list[Part]:
        """The whole frame: length, header, body."""
        parts: list[Part] = []
        if self.has_slices:
            parts.append(correlation_id.to_bytes(4, "big", signed=True) + (NO_TAGS if self.tagged_header else b""))
            self.encode(response, parts, self.errors)
            return frame(parts)
        if self.tagged_header:
            parts.append(NO_TAGS)
        self.encode(response, parts, self.errors)
        body = b"".join(parts)  # type: ignore[arg-type]  # no slices here
        return [LENGTH_AND_CORRELATION.pack(len(body) + 4, correlation_id) + body]

    def reply_steps(self, correlation_id: int, response: Any) -> Steps[list[Part]]:
        """The same in steps."""
        if self.encode_steps is None:
            return self.reply(correlation_id, response)
        parts: list[Part] = [correlation_id.to_bytes(4, "big", signed=True) + (NO_TAGS if self.tagged_header else b"")]
        framed: list[Part] = [b""]
        for _ in self.encode_steps(response, parts, self.errors):
            framed += join_small(parts)
            parts.clear()
            yield None
        framed[0] = sum(map(len, framed)).to_bytes(4, "big")
        return framed


class RouteTable(Protocol):
    """The routes of a node, by key and version; KeyError for what is not served."""

    advertised: dict[int, tuple[int, int]]
    """The versions of each API that ApiVersions lists."""
    listed: dict[bool, list[Any]]
    """As it lists them, to our own clients and to others."""

    def __getitem__(self, key_and_version: tuple[int, int], /) -> Route: ...

    def newest(self, key: int) -> Route: ...


class Call:
    """A request as its handler sees it. A handler answers by returning the response, or keeps the call and calls
    `reply` once, whenever it likes. Where the reply goes is up to the kind of call."""

    __slots__ = ("caller", "correlation_id", "gone", "is_long", "now_ms", "on_gone", "route", "silent", "version")

    caller: Caller
    route: Route
    version: int
    correlation_id: int
    now_ms: int
    silent: bool
    """The handler is done, and there is no reply."""
    is_long: bool
    """Its request is large, or took more than one turn: so its reply may be large, too."""
    gone: bool
    """Nobody waits for the reply any more."""
    on_gone: Callable[[], None] | None
    """Called when the caller disconnects while the call waits. Work in steps is cancelled then; at its end it sets
    this for what it waits for afterwards."""

    def reply(self, response: Any) -> None:
        raise NotImplementedError

    def reply_with(self, reply: Buffer) -> None:
        """Another node made the reply: everything after its length, for this very call."""
        raise NotImplementedError

    def fail(self, bug: Exception) -> None:
        """Answering went wrong, because of a bug."""
        raise NotImplementedError

    def keep_request(self) -> bool:
        """Whether the bytes that the request refers to stay as they are after the handler has returned. To be asked
        before it does."""
        return False

    def when_disconnected(self, act: Callable[[], None]) -> None:
        """Have something done when the caller disconnects, be it long after the reply."""
        raise NotImplementedError

    def has_left(self) -> bool:
        """Whether the caller has closed its side, which may be known before what it sent is read."""
        return False

    @property
    def origin(self) -> object:
        """What is the same for all calls that end together when the caller disconnects."""
        return self

    def goes_on_in(self, work: Work) -> None:
        """Perhaps nothing is left of the work but to free memory: then the call waits for something else."""
        if not work.over:
            self.is_long = True
            if self.on_gone is None:
                self.on_gone = work.cancel


class LocalCall(Call):
    """A call without a connection, from inside this process. `respond` gets the response as a message."""

    __slots__ = ("_answered", "_fail", "_respond")

    def __init__(
        self,
        route: Route,
        caller: Caller,
        now_ms: int,
        respond: Callable[[Any], None],
        fail: Callable[[Exception], None] | None = None,
    ) -> None:
        self.route = route
        self.version = route.version
        self.caller = caller
        self.correlation_id = 0
        self.now_ms = now_ms
        self.silent = self.is_long = self.gone = self._answered = False
        self.on_gone = None
        self._respond = respond
        self._fail = fail

    def reply(self, response: Any) -> None:
        assert not self._answered, "a call is answered once"
        self._answered = True
        self.on_gone = None
        if not self.gone:
            self._respond(response)

    def reply_with(self, reply: Buffer) -> None:
        _, position = read_response_header(self.route.key, self.version, reply)
        response, _ = api(self.route.key).response.decoder(self.version)(memoryview(reply), position)
        self.reply(response)

    def fail(self, bug: Exception) -> None:
        if self._fail is None:
            raise bug
        self._fail(bug)

    def when_disconnected(self, act: Callable[[], None]) -> None:
        pass  # this process ends with its callers

    @property
    def answered(self) -> bool:
        return self._answered

    def give_up(self) -> None:
        """The caller does not want the reply any more."""
        self.gone = True
        if self.on_gone is not None:
            self.on_gone()


def answer_later(slices: Slices, call: Call, steps: Steps[Any]) -> None:
    """Reply with what the work returns, if that is anything. For handlers that had to wait before they could begin.
    A peer that hangs up ends the work."""

    def answer(response: Any) -> None:
        if response is not None:
            call.reply(response)

    call.on_gone = None  # what it waited for is here
    call.goes_on_in(slices.begin(steps, answer, call.fail))
