"""One HTTP/1.1 connection: whole requests in, replies out in the order of their requests.

It has the shape of `broker.api.connection`: the shell hands over what it received, keeps what is not handled yet, and
sends what it finds in `outbox`. A request is handled when all of it is there, so its memory, and the time it may take
to arrive, are those of a frame of Kafka's protocol.

Requests of one connection that change nothing are worked on side by side; one that changes something begins when all
before it are answered, and those behind it wait for it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from skidway.broker.api.call import Goodbye
from skidway.broker.api.caller import anonymous
from skidway.gateways.http.bounds import BATCH_BYTES_MAX, DISCARD_MS_MAX, DISCARDED_BYTES_MAX
from skidway.gateways.http.call import HttpCall, Switched
from skidway.gateways.http.chunked import ChunkedBody
from skidway.gateways.http.head import CHUNKED, Head, Reader
from skidway.gateways.http.problems import Fatal, Problem
from skidway.gateways.http.replies import CONTINUE, PACKED_BYTES_MIN, Reply
from skidway.gateways.http.routes import SAFE, Route
from skidway.gateways.http.site import HttpSite
from skidway.runtime.slices import Work
from skidway.runtime.timers import Timer
from skidway.steps import Job, Steps

PASS_BYTES_MAX = 1 << 20
TURN_MS_MAX = 10
_EMPTY = memoryview(b"")
_UNREADABLE = Head("GET", b"/", 1, {}, 0, keep_alive=False)
"""In the place of a head that could not be read."""


def _nothing_to_do() -> None:
    pass


def _nobody_left() -> bool:
    return False


class _Arriving:
    """A request whose head is here."""

    __slots__ = ("chunks", "head", "needed", "refusal", "route", "values")

    def __init__(
        self, head: Head, route: Route | None, values: tuple[str, ...], refusal: Problem | None, bytes_max: int
    ) -> None:
        self.head = head
        self.route = route
        self.values = values
        self.refusal = refusal
        """What is wrong with it already; it is answered when the body is here, so that the next request is found."""
        self.chunks = ChunkedBody(head.size, bytes_max) if head.body_bytes == CHUNKED else None
        self.needed = 0 if self.chunks is not None else head.size + head.body_bytes
        """Its bytes, if that is known."""

    def end_in(self, data: memoryview) -> int:
        """Where it ends, 0 if that is not here yet."""
        if self.chunks is None:
            return self.needed if self.needed <= len(data) else 0
        return self.chunks.position if self.chunks.take(data) else 0


class _End:
    """How the connection ends: with the reply of one call, after a refusal only when the peer has had time for it."""

    __slots__ = ("discarded_bytes", "last", "lingering")

    def __init__(self, last: HttpCall, lingering: Timer | None = None) -> None:
        self.last = last
        self.lingering = lingering
        """Runs while the peer may still be sending what it was refused for."""
        self.discarded_bytes = 0


class HttpConnection:
    __slots__ = (
        "_arriving",
        "_end",
        "_on_sent",
        "_reader",
        "_receiving",
        "_switched",
        "_waiting_bytes",
        "bug",
        "caller",
        "gone",
        "needed",
        "offered",
        "on_ready",
        "outbox",
        "paused",
        "peer_left",
        "pending",
        "site",
        "work",
        "yielded",
    )

    kept = False

    def __init__(self, site: HttpSite, peer: str, listener: str) -> None:
        self.site = site
        site.node.counts.connections_opened += 1
        self.caller = anonymous(peer, listener, is_node=False)
        self.outbox: list[bytes] = []
        self.pending: deque[HttpCall] = deque()
        self.on_ready: Callable[[], None] = _nothing_to_do
        self.peer_left: Callable[[], bool] = _nobody_left
        self.needed = 0
        self.paused = self.yielded = False
        self.bug: Exception | None = None
        self.offered = self.gone = False
        self.work: Work | None = None
        """What a request takes more than one turn for. Those behind it wait."""
        self._reader = Reader()
        self._arriving: _Arriving | None = None
        self._receiving = False
        self._waiting_bytes = 0
        self._on_sent: Callable[[Any], None] | None = None
        self._end: _End | None = None
        """No request is read any more."""
        self._switched: tuple[HttpCall, Switched] | None = None
        """Who has what comes from now on, and the request that asked for it."""

    # --- what the shell calls ---

    def receive(self, data: memoryview, now_ms: int) -> int:
        """Handle every whole request in `data`; returns how many bytes are done with. See `ServedConnection`."""
        position, end = 0, len(data)
        clock = self.site.node.clock
        self.needed = 0
        self.paused = self.yielded = False
        self._receiving = True
        try:
            while position < end:
                if self._switched is not None:
                    position += self._receive_switched(self._switched[1], data[position:])
                    break
                if self._end is not None:
                    self._discard(self._end, end - position)
                    position = end
                    break
                if self.work is not None or (self.pending and self._must_wait(self.pending[-1].head)):
                    self.paused = True
                    break
                if position and (_size(self.outbox) > PASS_BYTES_MAX or clock.monotonic_ms() - now_ms >= TURN_MS_MAX):
                    self.paused = self.yielded = True
                    break
                taken = self._take(data[position:], now_ms)
                position += taken
                if self.bug is not None:
                    raise self.bug
                if not taken:
                    break
        finally:
            self._receiving = False
        return position

    def _receive_switched(self, session: Switched, data: memoryview) -> int:
        taken = session.receive(data, lambda: _size(self.outbox))
        self.needed = session.needed
        self.paused = session.paused
        self.yielded = session.paused and not self.outbox
        if self.bug is not None:
            raise self.bug
        return taken

    def closed(self) -> None:
        """The peer is gone: whatever still waits for it is given up."""
        if not self.gone:
            self.site.node.counts.connections_closed += 1
        self.gone = True
        if self._end is not None and self._end.lingering is not None:
            self._end.lingering.cancel()
        if self._switched is not None:
            self._switched[1].closed()
        for call in self.pending:
            call.gone = True
        for call in self.pending:
            if call.parts is None and call.on_gone is not None:
                call.on_gone()
        self.pending.clear()
        self.outbox.clear()
        self._wait(-self._waiting_bytes)

    # --- what calls call ---

    def on_reply(self, call: HttpCall) -> None:
        """A call that had to wait has its reply."""
        assert call.parts is not None
        self._wait(_size(call.parts))
        if self.pending and self.pending[0] is call:
            self._release()
            self._wake()

    def on_bug(self, bug: Exception) -> None:
        self.bug = bug
        self._wake()

    def on_part(self, data: bytes) -> None:
        self.outbox.append(data)  # of the only call there is: others wait for one that streams
        self._wake()

    def when_sent(self, act: Callable[[Any], None]) -> None:
        self._on_sent = act
        self.on_ready()  # also while it receives: whoever sends what that brought says afterwards that it is sent

    @property
    def awaits_sent(self) -> bool:
        """Whether the shell should say when nothing is left to send."""
        return self._on_sent is not None

    @property
    def needs_its_peer(self) -> bool:
        return any(call.route is not None and call.route.takes for call in self.pending)

    def has_left(self, *, waits: bool) -> bool:
        """Who has sent only one request may close its side and wait for the answer, unless that may take long."""
        return self.gone or ((waits or self._reader.pipelined) and self.peer_left())

    def sent(self) -> None:
        act, self._on_sent = self._on_sent, None
        assert act is not None
        act(None)

    def ends_after(self, call: HttpCall) -> bool:
        return self._end is not None and self._end.last is call

    def switch(self, call: HttpCall, session: Switched) -> None:
        self._switched = call, session

    def on_activity(self, active: bool) -> None:
        """A session with nothing under way may be closed at any time, as a connection between two requests."""
        if self._switched is not None and not self.gone:
            if active and not self.pending:
                self.pending.append(self._switched[0])
            elif not active:
                self.pending.clear()

    # --- requests ---

    def _take(self, data: memoryview, now_ms: int) -> int:
        """The request at the beginning of `data`; how many bytes it has, or 0 if they are not all here or must
        wait."""
        if self._arriving is None and bytes(data[:2]) == b"\r\n":
            return 2  # some clients end a body with an empty line that they do not count
        try:
            arriving = self._arriving or self._enter(data)
            if arriving is None:
                return 0
            head = arriving.head
            streams = arriving.route is not None and arriving.route.streams
            if self.pending and (head.method not in SAFE or head.expects_continue or streams):
                self.paused = True
                return 0
            end = arriving.end_in(data)
            if not end:
                self.needed = arriving.needed
                if head.expects_continue and b"expect" in head.headers:
                    del head.headers[b"expect"]  # it is told once
                    self.outbox.append(CONTINUE)
                return 0
            self._reader.finish(head, data[head.size : end])
        except Fatal as problem:
            self._end_with(problem, now_ms)
            return len(data)
        self._arriving = None
        self._reader.pipelined |= end < len(data)
        body = data[head.size : end] if arriving.chunks is None else memoryview(arriving.chunks.body)
        call = HttpCall(self, head, arriving.route, arriving.values, body, now_ms)
        if not head.keep_alive or (streams and not head.minor):
            self._end = _End(call)
        if arriving.refusal is not None:
            self._answer(call, call.refusal(arriving.refusal))
        else:
            self._handle(call)
        return end

    def _enter(self, data: memoryview) -> _Arriving | None:
        """A head came: find out who answers it, before its body is asked for."""
        head = self._reader.read(data)
        if head is None:
            return None
        route: Route | None = None
        values: tuple[str, ...] = ()
        refusal: Problem | None = None
        bytes_max = BATCH_BYTES_MAX
        try:
            route, values = self.site.find(head)
            bytes_max = route.body.bytes_max
            self.site.check_ready(route)
        except Problem as problem:
            refusal = problem
        if head.body_bytes > bytes_max:
            text = f"a body of {head.body_bytes} bytes; at most {bytes_max} are allowed here"
            raise Fatal(413, "body_too_large", text)
        if head.expects_continue and refusal is not None:
            # It may send the body or not: nobody knows what comes next.
            raise Fatal(refusal.status, refusal.code, refusal.detail, retryable=refusal.retryable)
        self._arriving = _Arriving(head, route, values, refusal, bytes_max)
        return self._arriving

    def _handle(self, call: HttpCall) -> None:
        route = call.route
        assert route is not None
        try:
            reply = route.handle(call)
        except Problem as problem:
            reply = call.refusal(problem)
        if isinstance(reply, Reply):
            self._answer(call, reply)
        elif reply is not None:
            _begin(self, call, reply)
        elif self._switched is None:
            self.pending.append(call)
            self._release()

    def _answer(self, call: HttpCall, reply: Reply) -> None:
        """At once, unless others are first."""
        parts = call.encode(reply)
        if self.pending:
            call.parts = parts
            self._wait(_size(parts))
            self.pending.append(call)
            return
        self.outbox += parts
        self._check_end(call)

    # --- order ---

    def _must_wait(self, last: Head) -> bool:
        limits = self.site.node.world.limits
        full = len(self.pending) >= limits.inflight_requests_max or self._waiting_bytes >= limits.reply_bytes_max
        return last.method not in SAFE or full

    def _wait(self, size: int) -> None:
        self._waiting_bytes += size
        self.site.services.waiting_bytes += size

    def _release(self) -> None:
        """Move the replies that nothing older holds back to the outbox."""
        pending = self.pending
        while pending and (parts := pending[0].parts) is not None:
            self._wait(-_size(parts))
            self.outbox += parts
            self._check_end(pending.popleft())

    def _wake(self) -> None:
        if not self._receiving:
            self.on_ready()

    # --- the end ---

    def _end_with(self, problem: Fatal, now_ms: int) -> None:
        """Answer, and read nothing more of what this peer sends."""
        arriving = self._arriving
        head = _UNREADABLE if arriving is None else arriving.head
        call = HttpCall(self, head, None if arriving is None else arriving.route, (), _EMPTY, now_ms)
        self._arriving = None
        self._end = _End(call, self.site.node.world.timers.at(now_ms + DISCARD_MS_MAX, self._say_goodbye))
        self._answer(call, call.refusal(problem))

    def _discard(self, end: _End, size: int) -> None:
        end.discarded_bytes += size
        if end.discarded_bytes > DISCARDED_BYTES_MAX and not self.pending:
            raise Goodbye("it goes on sending after a refusal")

    def _check_end(self, answered: HttpCall) -> None:
        if self._end is not None and answered is self._end.last and self._end.lingering is None:
            self._say_goodbye()

    def _say_goodbye(self) -> None:
        if not self.gone:
            self.on_bug(Goodbye("the last reply was sent"))


def _begin(connection: HttpConnection, call: HttpCall, steps: Steps[Reply | None]) -> None:
    """Work on a request in steps; those behind it wait."""
    connection.pending.append(call)

    def over() -> None:
        connection.work = None
        connection._wake()

    def done(reply: Reply | None) -> None:
        over()
        if reply is not None:
            call.reply(reply)

    def failed(error: Exception) -> None:
        over()
        if isinstance(error, Problem):
            call.refuse(error)
        else:
            connection.on_bug(error)

    assert call.route is not None
    if call.route.packs:
        steps = _packed(call, steps)
    work = connection.site.node.world.slices.begin(steps, done, failed)
    if not work.over:
        call.on_gone = work.cancel
        connection.work = work


def _packed(call: HttpCall, steps: Steps[Reply | None]) -> Steps[Reply | None]:
    """The reply of a long piece of work, compressed by a worker if that pays."""
    reply = yield from steps
    if reply is not None and len(reply.body) >= PACKED_BYTES_MIN and call.wants_gzip:
        yield Job(partial(reply.pack))
    return reply


def _size(parts: list[bytes]) -> int:
    return sum(map(len, parts))
