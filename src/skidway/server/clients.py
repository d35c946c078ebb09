"""All clients, whichever listener they came by: what they share, the coarse clock, draining."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from skidway.broker.api.call import Goodbye
from skidway.broker.api.connection import OtherProtocol
from skidway.limits import Limits
from skidway.ports import Clock
from skidway.server.connection_counts import ConnectionCounts
from skidway.server.once_per import OncePer
from skidway.server.receiving import ReceiveMemory

if TYPE_CHECKING:
    from skidway.server.served import ServedNode
    from skidway.server.tcp import Client
    from skidway.server.turn import Turn

log = logging.getLogger("skidway.listener")

SWEEP_MS_MIN = 20
SWEEP_MS_MAX = 5_000
SWEEPS_PER_TIMEOUT = 8
SHORTAGE_SWEEP_MS = 500
SLACK = 8
"""This fraction of `replies_bytes_max` above it clients are dropped at once, until the same fraction is free."""
REPORTS_PER_SECOND = 5
HANGUP_LOG_MS = 60_000
"""A client that fails in one way goes on failing in that way, many times a second: logged once in this time."""
HANGUP_TEXT_MAX = 500
ABORT_TIMEOUT_S = 1.0
LINE_MS_MAX = 10
"""So long a turn goes on with connections that have had theirs."""


class Clients:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        node: ServedNode,
        turn: Turn,
        clock: Clock,
        limits: Limits,
        *,
        hangup: type[Exception],
        waiting_max: int = sys.maxsize,
        files_short: Callable[[], bool] = lambda: False,
    ) -> None:
        """`hangup` is the exception by which a connection asks to be closed. At most `waiting_max` clients may have
        replies waiting, each of which takes one more descriptor. `files_short` tells that replies which nobody reads
        must not keep files open."""
        self.waiting_max = waiting_max
        self.waiting = 0
        self._files_short = files_short
        self.loop = loop
        self.node = node
        self.turn = turn
        self.clock = clock
        self.limits = limits
        self.hangup = hangup
        self.memory = ReceiveMemory(limits.receive_bytes_max)
        self.connected: dict[Client, None] = {}
        self.counts = ConnectionCounts("limits.", limits.connections_max, limits.connections_per_ip_max)
        self.refused = 0
        self.shed = 0
        """Clients that were disconnected because their unread replies took too much memory."""
        self.queued_bytes = 0
        """Replies of all clients that their sockets have not taken yet."""
        self._ready: list[Client] = []
        self._line: deque[Client] = deque()
        self._waking = False
        self._sweeper: asyncio.TimerHandle | None = None
        self._gone: asyncio.Event | None = None
        self._reports = _Allowance(REPORTS_PER_SECOND, clock)
        self._sheds = _Allowance(REPORTS_PER_SECOND, clock)
        self._refusals = _Allowance(REPORTS_PER_SECOND, clock)
        self._hangups = _Allowance(REPORTS_PER_SECOND, clock)
        self._hangup_kinds = OncePer(HANGUP_LOG_MS, clock)
        turn.send_ready = self.send_ready

    def start(self) -> None:
        self._sweep()

    def follow(self, limits: Limits) -> None:
        """Bounds were changed at run time."""
        self.limits = limits
        self.counts.connections_max = limits.connections_max
        self.counts.connections_per_ip_max = limits.connections_per_ip_max

    async def drain(self, timeout_s: float) -> int:
        """Let replies on their way leave; returns how many clients did not make it in time and were dropped. No
        listener may accept any more."""
        for client in list(self.connected):
            client.drain()
        dropped = 0
        if not await self._all_gone(timeout_s):
            dropped = len(self.connected)
            for client in list(self.connected):
                client.abort("the broker is stopping")
            await self._all_gone(ABORT_TIMEOUT_S)
        if self._sweeper is not None:
            self._sweeper.cancel()
        return dropped

    async def _all_gone(self, timeout_s: float) -> bool:
        if not self.connected:
            return True
        self._gone = asyncio.Event()
        try:
            await asyncio.wait_for(self._gone.wait(), timeout_s)
        except TimeoutError:
            return False
        return True

    # For clients.

    @property
    def shortage(self) -> str | None:
        """What clients that do not read their replies take from others; None when there is enough of everything."""
        if self.replies_too_many:
            return f"limits.replies_bytes_max is {self.limits.replies_bytes_max}"
        if self.waiting > self.waiting_max:
            return f"replies may wait for at most {self.waiting_max} clients, or descriptors run out"
        return "too many files are open" if self._files_short() else None

    @property
    def replies_too_many(self) -> bool:
        return self.queued_bytes > self.limits.replies_bytes_max

    def check_replies(self) -> None:
        """Far above a bound there is no time to see who goes on reading: those with the most are dropped."""
        bytes_max, waiting_max = self.limits.replies_bytes_max, self.waiting_max
        if self.queued_bytes <= bytes_max + bytes_max // SLACK and self.waiting <= waiting_max:
            return
        why = self.shortage or ""
        now_ms = self.clock.monotonic_ms()
        waiting = [client for client in self.connected if client.queued_bytes]
        waiting.sort(key=lambda client: (client.is_stalled(now_ms), client.queued_bytes), reverse=True)
        for client in waiting:
            if (
                self.queued_bytes <= bytes_max - bytes_max // SLACK
                and self.waiting <= waiting_max - waiting_max // SLACK
            ):
                break
            client.shed(why)

    def admit(self, client: Client) -> bool:
        """Whether there is room for it, at its listener and in all."""
        both = (self.counts, client.listener.counts)
        for counts in both:
            if (why := counts.refusal(client.ip)) is not None:
                self._refuse(client, why)
                return False
        self.connected[client] = None
        for counts in both:
            counts.add(client.ip)
        return True

    def forget(self, client: Client) -> None:
        if client not in self.connected:
            return
        del self.connected[client]
        self.counts.remove(client.ip)
        client.listener.counts.remove(client.ip)
        if not self.connected and self._gone is not None:
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
            log.error("%s dropped: internal error while %s", client.peer, doing, exc_info=bug or True)

    def report_hangup(self, client: Client, reason: Exception) -> None:
        if isinstance(reason, Goodbye):
            return
        text = str(reason)[:HANGUP_TEXT_MAX]
        left_out = self._hangup_kinds.take((client.ip, text))
        if left_out is None or not self._hangups.take():
            return
        again = f" ({left_out} more times in the last minute)" if left_out else ""
        log.log(_level_of(reason), "closed the connection of %s: %s%s", client.peer, text, again)

    def report_shed(self, client: Client, why: str) -> None:
        self.shed += 1
        if self._sheds.take():
            text = "%s disconnected: it does not read its replies (%d bytes in memory), and %s (%d so far)"
            log.warning(text, client.peer, client.queued_bytes, why, self.shed)

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
        for client in list(self.connected):
            client.check_time(now_ms)
        shortest_ms = min(self.limits.connection_idle_ms, self.limits.frame_complete_ms)
        wait_ms = min(max(shortest_ms // SWEEPS_PER_TIMEOUT, SWEEP_MS_MIN), SWEEP_MS_MAX)
        if self.shortage is not None:
            wait_ms = min(wait_ms, SHORTAGE_SWEEP_MS)
        self._sweeper = self.loop.call_later(wait_ms / 1000, self._sweep)


def _level_of(reason: Exception) -> int:
    return logging.WARNING if isinstance(reason, OtherProtocol) else logging.INFO


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
