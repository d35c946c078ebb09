"""Connections that this node opens to others: carries the bytes of `skidway.broker.cluster.peers.Link` over TCP.

What the node asks in one turn leaves together at its end. A reply is handled as soon as it is whole; a long one is
read straight into a buffer that grows with the bytes that came, up to its announced size. An error, a bug included,
costs the link it happened on and no other.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import TYPE_CHECKING, cast

from skidway.broker.cluster.peers import ONCE
from skidway.limits import MIB, Limits
from skidway.ports import Clock
from skidway.server.receiving import ReceiveMemory

if TYPE_CHECKING:
    from skidway.broker.cluster.peers import Link
    from skidway.server.carriage import Carriage
    from skidway.server.sending import Part, Sender
    from skidway.server.turn import Turn

log = logging.getLogger("skidway.dialer")

CONNECT_TIMEOUT_S = 1.0
EAGER_BYTES = 16 * MIB
"""A reply up to this gets its whole buffer at once: whom we dial is one of us, so it means what it announces."""


class Dialer:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        limits: Limits,
        carriage: Carriage,
        *,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
    ) -> None:
        """`carriage` is that of the listener by which nodes speak to each other."""
        self.loop = loop
        self.carriage = carriage
        self.clock = clock
        self.connect_timeout_s = connect_timeout_s
        self.memory = ReceiveMemory(limits.receive_bytes_max)
        self.carriers: dict[Carrier, None] = {}
        self._turn: Turn | None = None
        self._ready: list[Carrier] = []
        self._unreached: set[int] = set()
        self._closed = False

    def attach(self, turn: Turn) -> None:
        """From now on; what was asked before waits for it. Others that send at the end of a turn go on to do so."""
        send_others = turn.send_ready

        def send_all() -> None:
            self.send_ready()
            send_others()

        self._turn = turn
        turn.send_ready = send_all
        turn.schedule()

    def dial(self, link: Link) -> None:
        """For `Peers.dial`. Returns at once; the link is told how it went."""
        if self._closed:
            link.closed(self.clock.monotonic_ms())
            return
        carrier = Carrier(self, link)
        self.carriers[carrier] = None
        carrier.connect()

    def close(self) -> None:
        """Hang up on everybody and dial nobody any more."""
        self._closed = True
        for carrier in list(self.carriers):
            carrier.hang_up()

    def send_ready(self) -> None:
        ready, self._ready = self._ready, []
        for carrier in ready:
            carrier.send_outbox()

    # For carriers.

    def mark_ready(self, carrier: Carrier) -> None:
        self._ready.append(carrier)
        self.schedule()

    def schedule(self) -> None:
        """The node was called: its timers, syncs and questions are looked after at the end of the turn."""
        if self._turn is not None:
            self._turn.schedule()

    def on_reached(self, link: Link) -> None:
        if link.channel != ONCE and link.node_id in self._unreached:
            self._unreached.discard(link.node_id)
            log.info("%s is reached again", link)

    def on_unreached(self, link: Link, reason: str) -> None:
        """Told once, however often it is tried. Who asks at an address that it was given tells whoever gave it."""
        if link.channel != ONCE and link.node_id not in self._unreached:
            self._unreached.add(link.node_id)
            log.info("%s cannot be reached: %s", link, reason)

    def forget(self, carrier: Carrier) -> None:
        self.carriers.pop(carrier, None)
        try:
            carrier.link.closed(self.clock.monotonic_ms())
        except Exception:
            log.exception("%s: internal error while closing", carrier.link)
        self.schedule()


class Carrier(asyncio.BufferedProtocol):
    """One link's socket."""

    __slots__ = ("_connecting", "_dialer", "_end", "_holding", "_ready", "_sender", "_transport", "link")

    def __init__(self, dialer: Dialer, link: Link) -> None:
        self.link = link
        self._dialer = dialer
        self._connecting: asyncio.Task[str] | None = None
        self._transport: asyncio.Transport | None = None
        self._sender: Sender | None = None
        self._holding: memoryview | None = None
        """A reply that is not whole yet, up to `_end`."""
        self._end = 0
        self._ready = False
        link.on_ready = self.on_ready
        link.hangup = self.hang_up

    def connect(self) -> None:
        self._connecting = self._dialer.loop.create_task(self._connect())
        # Not in the task itself: one that is cancelled before it began never runs.
        self._connecting.add_done_callback(self._on_tried)

    async def _connect(self) -> str:
        """Returns why it did not work, if it did not."""
        link, timeout_s = self.link, self._dialer.connect_timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                await self._dialer.carriage.connect(self._dialer.loop, link.host, link.port, lambda: self)
        except TimeoutError:
            return f"no connection within {timeout_s:g} s"
        except (OSError, ValueError) as error:  # the latter: what is no host name at all
            return str(error)
        except Exception as bug:
            log.exception("%s: internal error while connecting", link)
            return repr(bug)
        return ""

    def _on_tried(self, task: asyncio.Task[str]) -> None:
        self._connecting = None
        if self._transport is None:
            self._dialer.on_unreached(self.link, "given up on" if task.cancelled() else task.result())
            self._dialer.forget(self)

    # The loop's side.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        try:
            own_socket = transport.get_extra_info("socket")
            own_socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            own_socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            dialer = self._dialer
            self._sender = dialer.carriage.make_sender(dialer.loop, transport, lambda: None, self._on_broken)
            self._dialer.on_reached(self.link)
            self.link.opened(self._dialer.clock.monotonic_ms())
        except OSError as error:  # gone already
            self._on_broken(error)
        except Exception:
            log.exception("%s: internal error while opening", self.link)
            self.hang_up()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._dialer.memory.scratch if self._holding is None else self._holding[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        view, end = self._dialer.memory.scratch, nbytes
        if self._holding is not None:
            view = self._holding
            end = self._end = self._end + nbytes
            if end < self.link.needed and end < len(view):
                return
        try:
            handled = self.link.receive(view[:end], self._dialer.clock.monotonic_ms())
        except Exception:
            log.exception("%s: internal error while handling a reply", self.link)
            self.hang_up()
            return
        self._keep_tail(view, handled, end)
        if handled:
            self._dialer.schedule()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._let_go()
        if self._sender is not None:
            self._sender.close()
            self._sender = None
        self._dialer.forget(self)

    # The node's side.

    def on_ready(self) -> None:
        if not self._ready:
            self._ready = True
            self._dialer.mark_ready(self)

    def hang_up(self) -> None:
        if self._connecting is not None:
            self._connecting.cancel()
        if self._transport is not None:
            self._transport.abort()

    def send_outbox(self) -> None:
        self._ready = False
        if self._sender is None or not self.link.outbox:
            return
        self._sender.send(cast("list[Part]", self.link.outbox))
        self.link.outbox.clear()

    def _on_broken(self, error: Exception) -> None:
        log.debug("%s: lost: %s", self.link, error)
        self.hang_up()

    # The tail: bytes of a reply that is not whole.

    def _keep_tail(self, view: memoryview, position: int, end: int) -> None:
        size = end - position
        if size == 0:
            self._let_go()
            return
        wanted = min(max(self.link.needed, size + 1), max(EAGER_BYTES, 2 * size))
        holding, memory = self._holding, self._dialer.memory
        if holding is not None and wanted <= len(holding):
            if position:
                holding[:size] = holding[position:end]
            self._end = size
            return
        held_bytes = 0 if holding is None else len(holding)
        if memory.used_bytes - held_bytes + wanted > memory.bytes_max:
            log.warning(
                "%s: closed the connection, because its replies take more than limits.receive_bytes_max", self.link
            )
            self.hang_up()
            return
        buffer = memory.take(wanted)
        buffer[:size] = view[position:end]
        self._let_go()
        self._holding, self._end = buffer, size

    def _let_go(self) -> None:
        if self._holding is not None:
            self._dialer.memory.give_back(self._holding)
            self._holding = None
        self._end = 0
