"""Requests of this node to other nodes: framed, numbered, answered in order, each exactly once.

A `Link` is one outgoing connection; the shell (or a simulated network) carries its bytes. `Peers` knows where nodes
are and keeps one link for every node and channel. Whoever asks on a channel of its own waits behind nobody else.

`respond` gets the response, or None when there is none: nobody there, refused, lost, too late, garbage. It is never
called from inside `ask`. Bytes in a response (records of a fetch) are views of what was received, so they are good
until `respond` returns; who needs them for longer copies them.

A request that is not answered in time ends its link, and with it all others under way there: the answers come in
order, and a connection that has lost its way would otherwise be waited for again and again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, cast

from skidway.broker.events import PeerHungUpOn, Report
from skidway.errors import ProtocolError
from skidway.limits import Limits
from skidway.ports import Buffer
from skidway.runtime.timers import Timer, Timers
from skidway.wire.framing import LENGTH, LENGTH_BYTES, frame
from skidway.wire.headers import read_response_header, write_request_header
from skidway.wire.message import Message
from skidway.wire.registry import api

Respond = Callable[[Message | None], None]

RETRY_MS = 50
"""So long a node that refused a connection, or lost one, is not dialled again."""
LOST_MS = 1_000
"""So long a node counts as lost that closed its connections with requests under way; then its word is good again."""
"""A node that talks nonsense does so again and again; the operator hears of it now and then."""
HEADER_BYTES_MIN = 4
ONCE = "once"
"""The channel of a link to where somebody says a node is: nobody else hears of it if there is none, or not that one."""
CORRELATION_IDS = 1 << 31
# Kafka marks the newest version of InitProducerId as unstable.
VERSIONS = {22: 5}
"""APIs that are asked in another version than the newest."""


def _no_shell() -> None:
    pass


class _Request:
    """One that is under way. Its timer always runs: at the latest it is answered by that."""

    __slots__ = ("api_key", "correlation_id", "decode", "respond", "timer", "version")

    def __init__(self, api_key: int, version: int, correlation_id: int, decode: Any, respond: Respond) -> None:
        self.api_key = api_key
        self.version = version
        self.correlation_id = correlation_id
        self.decode = decode
        self.respond = respond
        self.timer: Timer | None = None

    def answer(self, response: Message) -> None:
        assert self.timer is not None
        assert self.timer.armed, "a request is answered once"
        self.timer.cancel()
        self.respond(response)


class Link:
    __slots__ = (
        "_correlation_id",
        "_peers",
        "channel",
        "ended",
        "hangup",
        "heard",
        "host",
        "is_open",
        "needed",
        "node_id",
        "on_ready",
        "outbox",
        "port",
        "under_way",
    )

    def __init__(self, peers: Peers, node_id: int, channel: str, host: str, port: int) -> None:
        self._peers = peers
        self.node_id = node_id
        self.channel = channel
        self.host = host
        self.port = port
        self.outbox: list[Buffer] = []
        """Also filled before the link is open; the shell sends and clears it from then on."""
        self.on_ready: Callable[[], None] = _no_shell
        self.hangup: Callable[[], None] = _no_shell
        self.needed = 0
        """After `receive`: the whole size of the partial frame at the tail, 0 if not known yet."""
        self.is_open = False
        self.heard = False
        """Whether anything was answered on it."""
        self.ended = False
        """Of no more use: nothing is sent, and what still arrives is nobody's."""
        self.under_way: deque[_Request] = deque()
        self._correlation_id = 0

    def __str__(self) -> str:
        return f"node {self.node_id} at {self.host}:{self.port} ({self.channel})"

    # --- what the shell calls ---

    def opened(self, now_ms: int) -> None:
        if self.ended:
            self.hangup()
            return
        self.is_open = True
        self._peers.on_found(self.node_id)
        if self.outbox:
            self.on_ready()

    def receive(self, data: memoryview, now_ms: int) -> int:
        """Handle every whole frame in `data`; returns how many bytes are done with."""
        position, end = 0, len(data)
        self.needed = 0
        while end - position >= LENGTH_BYTES and not self.ended:
            (length,) = LENGTH.unpack_from(data, position)
            if not HEADER_BYTES_MIN <= length <= self._peers.reply_bytes_max:
                self._give_up(f"a reply of {length} bytes; at most {self._peers.reply_bytes_max} are accepted", now_ms)
                break
            frame_end = position + LENGTH_BYTES + length
            if frame_end > end:
                self.needed = LENGTH_BYTES + length
                break
            self._take(data[position + LENGTH_BYTES : frame_end], now_ms)
            position = frame_end
        return end if self.ended else position

    def closed(self, now_ms: int) -> None:
        """Refused, reset or closed. May be said more than once."""
        if not self.ended:
            lost = self.heard and bool(self.under_way)
            self._peers.on_ended(self, now_ms)
            if lost:
                self._peers.on_lost(self.node_id, now_ms)

    # --- what Peers calls ---

    def send(self, request: Message, respond: Respond) -> _Request:
        api_key = request.__key__
        assert api_key is not None, f"{type(request).__name__} is not a request"
        known = api(api_key)
        version = VERSIONS.get(api_key, known.versions[1])
        self._correlation_id = (self._correlation_id + 1) % CORRELATION_IDS
        parts = [write_request_header(api_key, version, self._correlation_id, self._peers.client_id)]
        known.request.encoder(version)(request, cast(list[Any], parts))
        self.outbox += cast(list[Buffer], frame(parts))
        asked = _Request(api_key, version, self._correlation_id, known.response.decoder(version), respond)
        self.under_way.append(asked)
        return asked

    def _take(self, body: memoryview, now_ms: int) -> None:
        if not self.under_way:
            self._give_up("a reply to nothing", now_ms)
            return
        asked = self.under_way[0]
        try:
            correlation_id, position = read_response_header(asked.api_key, asked.version, body)
            if correlation_id != asked.correlation_id:
                self._give_up(f"a reply to request {correlation_id} instead of {asked.correlation_id}", now_ms)
                return
            response, position = asked.decode(body, position, self._peers.elements_max)
        except ProtocolError as error:
            self._give_up(f"a reply that cannot be decoded: {error}", now_ms)
            return
        if position != len(body):
            self._give_up(f"{len(body) - position} bytes more than a {type(response).__name__} has", now_ms)
            return
        self.under_way.popleft()
        self.heard = True
        asked.answer(response)

    def _give_up(self, reason: str, now_ms: int) -> None:
        self._peers.tell(self, reason)
        self._peers.on_ended(self, now_ms)
        self.hangup()


class Peers:
    def __init__(self, client_id: str, timers: Timers, limits: Limits, report: Report) -> None:
        self.client_id = client_id
        self.dial: Callable[[Link], None] | None = None
        """Set by the shell: it connects the link. Without a shell nobody is reached."""
        self._report = report
        # A fetch reply holds at least one batch, which came in a frame, and what else it says.
        self.reply_bytes_max = max(limits.frame_bytes_max, limits.fetch_bytes_max) + limits.reply_bytes_max
        self.elements_max = limits.request_elements_max
        self._requests_max = limits.inflight_requests_max
        self._timers = timers
        self._addresses: dict[int, tuple[str, int]] = {}
        self._links: dict[tuple[int, str], Link] = {}
        self._retry_at_ms: dict[tuple[int, str], int] = {}
        self._lost_ms: dict[int, int] = {}
        self._now_ms = 0
        """When we were called last: for failures that come without a time."""

    def address_of(self, node_id: int) -> tuple[str, int] | None:
        return self._addresses.get(node_id)

    def locate(self, node_id: int, host: str, port: int) -> None:
        """Where a node is from now on. Links to where it was are hung up."""
        if self._addresses.get(node_id) == (host, port):
            return
        self.forget(node_id)
        self._addresses[node_id] = (host, port)

    def forget(self, node_id: int) -> None:
        """Nobody asks this node any more: it is known nowhere."""
        self._addresses.pop(node_id, None)
        self._lost_ms.pop(node_id, None)
        for link in [link for link in self._links.values() if link.node_id == node_id]:
            self._hang_up(link, self._now_ms)
        for key in [key for key in self._retry_at_ms if key[0] == node_id]:
            del self._retry_at_ms[key]

    def ask(self, node_id: int, channel: str, request: Message, now_ms: int, timeout_ms: int, respond: Respond) -> None:
        """`respond` is called once, later: with the response, or with None if none comes within `timeout_ms`."""
        self._now_ms = now_ms
        link = self._link(node_id, channel, now_ms)
        if link is None or len(link.under_way) >= self._requests_max:
            self._timers.at(now_ms, lambda: respond(None))
            return
        asked = link.send(request, respond)
        deadline_ms = now_ms + timeout_ms
        asked.timer = self._timers.at(deadline_ms, partial(self._on_late, link, asked, deadline_ms))
        if link.is_open:
            link.on_ready()

    def ask_at(
        self, node_id: int, host: str, port: int, request: Message, now_ms: int, timeout_ms: int, respond: Respond
    ) -> None:
        """Ask once where a node is said to be, whatever is known of it; the link ends with the answer."""
        self._now_ms = now_ms
        link = Link(self, node_id, ONCE, host, port)

        def answered(response: Message | None) -> None:
            if not link.ended:
                self._hang_up(link, self._now_ms)
            respond(response)

        asked = link.send(request, answered)
        deadline_ms = now_ms + timeout_ms
        asked.timer = self._timers.at(deadline_ms, partial(self._on_late, link, asked, deadline_ms))
        if self.dial is None:
            self.on_ended(link, now_ms)
        else:
            self.dial(link)

    def abandon(self, node_id: int, channel: str, now_ms: int) -> None:
        """What was asked there goes without an answer, and one that still comes is nobody's."""
        link = self._links.get((node_id, channel))
        if link is not None and link.under_way:
            self._hang_up(link, now_ms)

    def is_lost(self, node_id: int, now_ms: int) -> bool:
        """Whether its process seems to have ended just now; a controller takes longer to be sure of it."""
        lost_ms = self._lost_ms.get(node_id)
        return lost_ms is not None and now_ms < lost_ms + LOST_MS

    def on_lost(self, node_id: int, now_ms: int) -> None:
        """It hung up in the middle of something. A node that lives has other links open, or opens one soon."""
        if not any(link.node_id == node_id and link.is_open for link in self._links.values()):
            self._lost_ms[node_id] = now_ms

    def on_found(self, node_id: int) -> None:
        self._lost_ms.pop(node_id, None)

    def tell(self, link: Link, reason: str) -> None:
        """What one of them sent makes no sense."""
        if link.channel != ONCE:
            self._report(PeerHungUpOn(link.node_id, str(link), reason))

    def on_ended(self, link: Link, now_ms: int) -> None:
        """Everything under way on it stays without an answer."""
        self._now_ms = now_ms
        link.ended = True
        link.is_open = False
        link.outbox.clear()
        key = link.node_id, link.channel
        if self._links.get(key) is link:
            del self._links[key]
            self._retry_at_ms[key] = now_ms + RETRY_MS
        while link.under_way:
            asked = link.under_way.popleft()
            assert asked.timer is not None
            if asked.timer.armed:
                # By way of a timer, because the one who asks may be in the middle of it.
                asked.timer.cancel()
                asked.timer = self._timers.at(now_ms, partial(asked.respond, None))

    def _link(self, node_id: int, channel: str, now_ms: int) -> Link | None:
        key = node_id, channel
        link = self._links.get(key)
        if link is not None:
            return link
        address = self._addresses.get(node_id)
        if address is None or self.dial is None or now_ms < self._retry_at_ms.get(key, now_ms):
            return None
        link = self._links[key] = Link(self, node_id, channel, *address)
        self.dial(link)
        return None if link.ended else link

    def _on_late(self, link: Link, asked: _Request, now_ms: int) -> None:
        """Nothing else under way there will be answered sooner."""
        self._hang_up(link, now_ms)
        asked.respond(None)

    def _hang_up(self, link: Link, now_ms: int) -> None:
        self.on_ended(link, now_ms)
        link.hangup()
