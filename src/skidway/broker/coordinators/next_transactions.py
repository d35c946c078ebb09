"""Transactions that begin while the one before is still ending.

A producer may begin its next transaction as soon as it knows how the last one ends. The markers may be on their way
then. What it adds waits here until the last of them is written, instead of being refused and asked again: a client of
librdkafka would come back after 20 ms, a partition's leader after 2.
"""

from __future__ import annotations

from collections.abc import Callable

from skidway.errors import ConcurrentTransactions, ProtocolError
from skidway.ports import Clock
from skidway.runtime.timers import Timer, Timers
from skidway.transactions.operations import AddPartitions

BUSY_MS = 100
"""So long it waits at most (Kafka's add.partitions.to.txn.retry.backoff.max.ms)."""
WAITING_MAX = 10_000
WAITING_PLACES_MAX = 100_000
"""Partitions that they name, all together."""

Respond = Callable[[ProtocolError | None], None]
Submit = Callable[[str, AddPartitions, int, Respond], None]


class _Waiting:
    __slots__ = ("operation", "respond", "timer", "until_ms")

    def __init__(self, operation: AddPartitions, until_ms: int, respond: Respond) -> None:
        self.operation = operation
        self.until_ms = until_ms
        self.respond = respond
        self.timer: Timer | None = None


class NextTransactions:
    __slots__ = ("_clock", "_count", "_places", "_submit", "_timers", "_waiting")

    def __init__(self, clock: Clock, timers: Timers, submit: Submit) -> None:
        self._clock = clock
        self._timers = timers
        self._submit = submit
        self._waiting: dict[str, list[_Waiting]] = {}
        """By transactional id, in the order in which they came."""
        self._count = self._places = 0

    def __len__(self) -> int:
        return self._count

    def add(self, operation: AddPartitions, now_ms: int, respond: Respond) -> None:
        self._try(_Waiting(operation, now_ms + BUSY_MS, respond), now_ms)

    def on_ended(self, transactional_id: str) -> None:
        """Its last transaction has all its markers."""
        waiting = self._waiting.pop(transactional_id, None)
        if waiting is None:
            return
        self._count -= len(waiting)
        self._places -= sum(len(one.operation.places) for one in waiting)
        now_ms = self._clock.monotonic_ms()
        for one in waiting:
            assert one.timer is not None, "what waits has a bound"
            one.timer.cancel()
            self._try(one, now_ms)

    def _try(self, one: _Waiting, now_ms: int) -> None:
        def answered(reply: ProtocolError | None) -> None:
            is_busy = isinstance(reply, ConcurrentTransactions)
            if is_busy and self._clock.monotonic_ms() < one.until_ms and self._has_room(one):
                self._wait(one, reply)
            else:
                one.respond(reply)

        self._submit(one.operation.transactional_id, one.operation, now_ms, answered)

    def _has_room(self, one: _Waiting) -> bool:
        return self._count < WAITING_MAX and self._places + len(one.operation.places) <= WAITING_PLACES_MAX

    def _wait(self, one: _Waiting, busy: ProtocolError | None) -> None:
        key = one.operation.transactional_id
        self._waiting.setdefault(key, []).append(one)
        self._count += 1
        self._places += len(one.operation.places)

        def give_up() -> None:
            of_id = self._waiting[key]
            of_id.remove(one)
            self._count -= 1
            self._places -= len(one.operation.places)
            if not of_id:
                del self._waiting[key]
            one.respond(busy)

        one.timer = self._timers.at(one.until_ms, give_up)
