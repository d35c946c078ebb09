"""Producer ids at hand, for machines that decide at once and cannot wait for the controller.

Filled ahead out of the node's blocks. What is left at a stop is never given to anybody: numbers do not repeat.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from skidway.errors import ProtocolError
from skidway.ports import Clock

Take = Callable[[int, Callable[[int | ProtocolError], None]], None]
"""(now_ms, answer): one id, at once or later."""
Waiter = Callable[[ProtocolError | None], None]

RESERVED = 100


class ProducerIdReserve:
    __slots__ = ("_asked", "_clock", "_ids", "_take", "_waiting")

    def __init__(self, take: Take, clock: Clock) -> None:
        self._take = take
        self._clock = clock
        self._ids: deque[int] = deque()
        self._asked = 0
        """Asked for and not answered."""
        self._waiting: deque[Waiter] = deque()

    def __len__(self) -> int:
        return len(self._ids)

    def draw(self) -> int | None:
        """One that nobody has had, or None: then more are on their way."""
        drawn = self._ids.popleft() if self._ids else None
        self._fill()
        return drawn

    def when_filled(self, act: Waiter) -> None:
        """Now if there is one, else when there is; with the error if none can be had."""
        if self._ids:
            act(None)
            return
        self._waiting.append(act)
        self._fill()

    def _fill(self) -> None:
        now_ms = self._clock.monotonic_ms()
        for _ in range(RESERVED - len(self._ids) - self._asked):
            self._asked += 1
            self._take(now_ms, self._on_answer)

    def _on_answer(self, answer: int | ProtocolError) -> None:
        self._asked -= 1
        failed = answer if isinstance(answer, ProtocolError) else None
        if not isinstance(answer, ProtocolError):
            self._ids.append(answer)
        waiting, self._waiting = self._waiting, deque()
        for act in waiting:
            act(failed)
