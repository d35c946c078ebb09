"""The wall clock for everything that is deleted by age: records, tombstones, committed offsets.

A wall clock that jumps forwards makes all of them look old at once, and what is deleted on its word does not come back
when it is set right. So a jump is not believed at first: for `wait_ms` this clock goes on as if there had been none,
which leaves an operator that long to correct it. A jump back is believed at once: nothing is deleted too early by it.
A machine that slept looks the same, and its deletions come so much later.
"""

from collections.abc import Callable

from skidway.ports import Clock
from skidway.runtime.news import ClockJumped

LEAP_MS = 60_000
"""By so much the wall clock runs ahead of the monotonic one when it was set, or the machine was asleep."""


class AgeClock:
    __slots__ = (
        "_behind_ms",
        "_believed_ms",
        "_clock",
        "_doubted_ms",
        "_looked_ms",
        "_looked_wall_ms",
        "_report",
        "_wait_ms",
    )

    def __init__(self, clock: Clock, wait_ms: int, report: Callable[[ClockJumped], None]) -> None:
        self._clock = clock
        self._wait_ms = wait_ms
        self._report = report
        self._looked_ms, self._looked_wall_ms = clock.monotonic_ms(), clock.wall_ms()
        self._doubted_ms = 0
        """How far the wall clock is ahead of what is believed."""
        self._behind_ms = 0
        """How far it was set back: to jump forwards as far again is to be where it was."""
        self._believed_ms = 0
        """When, by the monotonic clock, the doubt ends."""

    def wall_ms(self) -> int:
        now_ms, wall_ms = self._clock.monotonic_ms(), self._clock.wall_ms()
        leap_ms = (wall_ms - self._looked_wall_ms) - (now_ms - self._looked_ms)
        self._looked_ms, self._looked_wall_ms = now_ms, wall_ms
        if leap_ms < -LEAP_MS:
            believed_ms = min(self._doubted_ms, -leap_ms)
            self._doubted_ms -= believed_ms
            self._behind_ms -= leap_ms + believed_ms
        elif leap_ms > LEAP_MS:
            caught_up_ms = min(self._behind_ms, leap_ms)
            self._behind_ms -= caught_up_ms
            if leap_ms - caught_up_ms > LEAP_MS:
                self._doubt(leap_ms - caught_up_ms, now_ms)
        if now_ms >= self._believed_ms:
            self._doubted_ms = 0
        return wall_ms - self._doubted_ms

    def _doubt(self, leap_ms: int, now_ms: int) -> None:
        self._doubted_ms += leap_ms
        self._believed_ms = now_ms + self._wait_ms
        self._report(ClockJumped(leap_ms, self._wait_ms))
