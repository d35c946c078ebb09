"""The listening socket and all clients that came through it: admission, shared memory, the coarse clock, draining."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import deque
from typing import TYPE_CHECKING

from skidway.limits import Limits
from skidway.ports import Clock
from skidway.server.receiving import ReceiveMemory
from skidway.server.tcp import Client

if TYPE_CHECKING:
    from skidway.server.served import ServedNode
    from skidway.server.turn import Turn

log = logging.getLogger("skidway.listener")

BACKLOG = 1024
SWEEP_MS_MIN = 20
SWEEP_MS_MAX = 5_000
SWEEPS_PER_TIMEOUT = 8
REPORTS_PER_SECOND = 5
ABORT_TIMEOUT_S = 1.0
LINE_MS_MAX = 10
"""So long a turn goes on with connections that have had theirs."""


def bind(host: str, port: int) -> socket.socket:
    """A socket that has its address but accepts nobody yet. A name is resolved here and its first address taken."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except socket.gaierror as error:
        raise OSError(f"cannot listen on {host}: {error.strerror}") from None
    family, kind, protocol, _, address = found[0]
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            # `::` means IPv4 as well, as with other brokers.
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listening.bind(address)
        listening.setblocking(False)
    except OSError as error:
        listening.close()
        raise OSError(error.errno, f"cannot listen on {host}:{port}: {error.strerror}") from None
    return listening


class Listener:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        node: ServedNode,
        turn: Turn,
        clock: Clock,
        limits: Limits,
        *,
        hangup: type[Exception],
    ) -> None:
        """`hangup` is the exception by which a connection asks to be closed."""
        self.loop = loop
        self.node = node
        self.turn = turn
        self.clock = clock
        self.limits = limits
        self.hangup = hangup
        self.memory = ReceiveMemory(limits.receive_bytes_max)
        self.clients: dict[Client, None] = {}
        self.refused = 0
        self.queued_bytes = 0
        """Replies of all clients that their sockets have not taken yet."""
        self._per_ip: dict[str, int] = {}
        self._ready: list[Client] = []
        self._line: deque[Client] = deque()
        self._waking = False
        self._sweeper: asyncio.TimerHandle | None = None
        self._server: asyncio.AbstractServer | None = None
        self._gone: asyncio.Event | None = None
        self._reports = _Allowance(REPORTS_PER_SECOND, clock)
        self._refusals = _Allowance(REPORTS_PER_SECOND, clock)
        self._hangups = _Allowance(REPORTS_PER_SECOND, clock)
        turn.send_ready = self.send_ready

    async def start(self, bound: socket.socket) -> None:
        """Accept clients on a socket from `bind`, which is the listener's from now on."""
        self._server = await self.loop.create_server(lambda: Client(self), sock=bound, backlog=BACKLOG)
        self._sweep()

    def stop_accepting(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    async def drain(self, timeout_s: float) -> int:
        """Let replies on their way leave; returns how many clients did not make it in time and were dropped."""
        self.stop_accepting()
        for client in list(self.clients):
            client.drain()
        dropped = 0
        if not await self._all_gone(timeout_s):
            dropped = len(self.clients)
            for client in list(self.clients):
                client.abort("the broker stops")
            await self._all_gone(ABORT_TIMEOUT_S)
        if self._sweeper is not None:
            self._sweeper.cancel()
        return dropped

    async def _all_gone(self, timeout_s: float) -> bool:
        if not self.clients:
            return True
        self._gone = asyncio.Event()
        try:
            await asyncio.wait_for(self._gone.wait(), timeout_s)
        except TimeoutError:
            return False
        return True

    # For clients.

    @property
    def replies_too_many(self) -> bool:
        return self.queued_bytes > self.limits.replies_bytes_max

    def admit(self, client: Client) -> bool:
        of_this_ip = self._per_ip.get(client.ip, 0)
        if len(self.clients) >= self.limits.connections_max:
            self._refuse(client, f"limits.connections_max is {self.limits.connections_max}")
            return False
        if of_this_ip >= self.limits.connections_per_ip_max:
            self._refuse(client, f"limits.connections_per_ip_max is {self.limits.connections_per_ip_max}")
            return False
        self.clients[client] = None
        self._per_ip[client.ip] = of_this_ip + 1
        return True

    def forget(self, client: Client) -> None:
        if client not in self.clients:
            return
        del self.clients[client]
        left = self._per_ip[client.ip] - 1
        if left:
            self._per_ip[client.ip] = left
        else:
            del self._per_ip[client.ip]
        if not self.clients and self._gone is not None:
            self._gone.set()

    def mark_ready(self, client: Client) -> None:
        self._ready.append(client)
        self.turn.schedule()

    def send_ready(self) -> None:
        ready, self._ready = self._ready, []
        for client in ready:
            client.send_ready()
        # Last, and not all at once: whoever asks little is served before those who ask for more than their turn.
        until_ms = self.clock.monotonic_ms() + LINE_MS_MAX
        while self._line:
            self._line.popleft().take_turn()
            if self.clock.monotonic_ms() >= until_ms:
                break
        if self._line:
            self.turn.schedule()

    def stand_in_line(self, client: Client) -> None:
        self._line.append(client)
        self.turn.schedule()

    def wake_memory(self) -> None:
        if not self._waking:
            self._waking = True
            self.loop.call_soon(self._wake_memory)

    def report_bug(self, client: Client, doing: str, bug: Exception | None = None) -> None:
        """Without `bug` called where an exception is being handled."""
        if self._reports.take():
            log.error("%s dropped: a bug while %s", client.peer, doing, exc_info=bug or True)

    def report_hangup(self, client: Client, reason: str) -> None:
        if self._hangups.take():
            log.info("%s is hung up on: %.500s", client.peer, reason)

    def _wake_memory(self) -> None:
        self._waking = False
        self.memory.wake()

    def _refuse(self, client: Client, why: str) -> None:
        self.refused += 1
        if self._refusals.take():
            log.warning("%s refused: %s (%d refused so far)", client.peer, why, self.refused)

    def _sweep(self) -> None:
        """One coarse timer for every client instead of one each."""
        now_ms = self.clock.monotonic_ms()
        for client in list(self.clients):
            client.check_time(now_ms)
        shortest_ms = min(self.limits.connection_idle_ms, self.limits.frame_complete_ms)
        wait_ms = min(max(shortest_ms // SWEEPS_PER_TIMEOUT, SWEEP_MS_MIN), SWEEP_MS_MAX)
        self._sweeper = self.loop.call_later(wait_ms / 1000, self._sweep)


class _Allowance:
    """So many log lines a second and no more: a hostile peer must not fill the disk with them."""

    __slots__ = ("_clock", "_left", "_per_second", "_second")

    def __init__(self, per_second: int, clock: Clock) -> None:
        self._per_second = per_second
        self._clock = clock
        self._second = 0
        self._left = per_second

    def take(self) -> bool:
        second = self._clock.monotonic_ms() // 1000
        if second != self._second:
            self._second, self._left = second, self._per_second
        self._left -= 1
        return self._left >= 0
