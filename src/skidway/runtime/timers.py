"""Deadlines on a heap, cancelled lazily.

The owner asks `deadline_ms` when to be woken and then calls `fire(now_ms)`. A callback runs at most once, in the
order of deadlines and, among equals, of arming. What a callback arms is never run by the same `fire`, so a timer
that re-arms itself for "now" cannot hold the loop.
"""

from collections.abc import Callable
from heapq import heapify, heappop, heappush

# Long polls mostly end before their deadline: below this many, cancelled timers are left for their time to come.
CANCELLED_KEPT = 256


class Timer:
    __slots__ = ("_callback", "_timers", "deadline_ms")

    def __init__(self, timers: "Timers", deadline_ms: int, callback: Callable[[], None]) -> None:
        self.deadline_ms = deadline_ms
        self._timers: Timers | None = timers
        self._callback: Callable[[], None] | None = callback

    @property
    def armed(self) -> bool:
        return self._callback is not None

    def cancel(self) -> None:
        """No effect when it has run or was cancelled before."""
        if self._callback is not None:
            self._callback = None
            if self._timers is not None:
                self._timers._on_cancelled()

    def _run(self) -> bool:
        callback, self._callback = self._callback, None
        if callback is None:
            return False
        callback()
        return True


class Timers:
    __slots__ = ("_armed_count", "_cancelled", "_heap")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Timer]] = []
        self._armed_count = 0
        self._cancelled = 0

    def __len__(self) -> int:
        return len(self._heap) - self._cancelled

    def at(self, deadline_ms: int, callback: Callable[[], None]) -> Timer:
        timer = Timer(self, deadline_ms, callback)
        self._armed_count += 1
        heappush(self._heap, (deadline_ms, self._armed_count, timer))
        return timer

    @property
    def deadline_ms(self) -> int | None:
        """The earliest deadline, None when nothing is armed."""
        heap = self._heap
        while heap and not heap[0][2].armed:
            heappop(heap)
            self._cancelled -= 1
        return heap[0][0] if heap else None

    def fire(self, now_ms: int) -> int:
        """Run everything due; returns how many callbacks ran."""
        heap = self._heap
        due: list[Timer] = []
        while heap and heap[0][0] <= now_ms:
            timer = heappop(heap)[2]
            if timer.armed:
                # Off the heap, yet an earlier callback of this pass may still cancel it.
                timer._timers = None
                due.append(timer)
            else:
                self._cancelled -= 1
        return sum([timer._run() for timer in due])

    def _on_cancelled(self) -> None:
        self._cancelled += 1
        if self._cancelled > CANCELLED_KEPT and self._cancelled * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[2].armed]
            heapify(self._heap)
            self._cancelled = 0
