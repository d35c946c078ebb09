"""Receives that are made again, because their answer was lost: the same messages, under the same receipts.

Only where nothing has happened to any of them since: each is hidden anew for its visibility time, which the leader
refuses for what was settled or is over. Kept for five minutes by the node that answered, and bounded: what is forgotten
makes the repeated receive an ordinary one.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from skidway.gateways.queues.types import Received
from skidway.limits import MIB

KEPT_MS = 300_000
BYTES_MAX = 16 * MIB
COUNT_MAX = 10_000
OVERHEAD_BYTES = 1_024

Key = tuple[bytes, str]
"""The topic's id, and what the client calls its attempt."""


class Attempt(NamedTuple):
    received: list[Received]
    until_ms: int
    size: int


class Attempts:
    __slots__ = ("_bytes", "_known", "_order")

    def __init__(self) -> None:
        self._known: dict[Key, Attempt] = {}
        self._order: deque[tuple[Key, Attempt]] = deque()
        self._bytes = 0
        """Of all in `_order`."""

    def find(self, key: Key, now_ms: int) -> list[Received]:
        known = self._known.get(key)
        return [] if known is None or known.until_ms <= now_ms else known.received

    def note(self, key: Key, received: list[Received], now_ms: int) -> None:
        size = sum(len(each.body or b"") + OVERHEAD_BYTES for each in received)
        size += sum(len(name) + len(value or b"") for each in received for name, value in each.headers)
        attempt = Attempt(received, now_ms + KEPT_MS, size)
        self._known[key] = attempt
        self._order.append((key, attempt))
        self._bytes += size
        while self._order and (self._bytes > BYTES_MAX or len(self._order) > COUNT_MAX or self._is_over(now_ms)):
            self._drop_first()

    def forget(self, key: Key) -> None:
        self._known.pop(key, None)

    def _is_over(self, now_ms: int) -> bool:
        return self._order[0][1].until_ms <= now_ms

    def _drop_first(self) -> None:
        key, attempt = self._order.popleft()
        self._bytes -= attempt.size
        if self._known.get(key) is attempt:
            del self._known[key]
