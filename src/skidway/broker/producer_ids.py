"""Producer ids for this node, out of blocks that the controller hands out and never hands out again."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from skidway.errors import ProtocolError

Answer = Callable[[int | ProtocolError], None]
Allocate = Callable[[int, Callable[[tuple[int, int] | ProtocolError], None]], None]
"""(now_ms, respond): asks for a block, answered as (first id, count)."""


class ProducerIds:
    __slots__ = ("_allocate", "_end", "_next", "_waiting")

    def __init__(self, allocate: Allocate) -> None:
        self._allocate = allocate
        self._next = self._end = 0
        self._waiting: deque[Answer] = deque()

    def take(self, now_ms: int, answer: Answer) -> None:
        if self._next < self._end:
            self._next += 1
            answer(self._next - 1)
            return
        self._waiting.append(answer)
        if len(self._waiting) == 1:
            self._allocate(now_ms, lambda block: self._on_block(block, now_ms))

    def _on_block(self, block: tuple[int, int] | ProtocolError, now_ms: int) -> None:
        waiting, self._waiting = self._waiting, deque()
        if isinstance(block, ProtocolError):
            for answer in waiting:
                answer(block)
            return
        first, count = block
        self._next, self._end = first, first + count
        for answer in waiting:
            self.take(now_ms, answer)
