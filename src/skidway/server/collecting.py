"""When Python's cyclic garbage collector runs: not while large requests are worked on in steps.

A full collection looks at every object that is alive, in one go. A request of 200,000 elements makes a million objects,
and Python starts a full collection each time their number has grown by a quarter: each stops the event loop for
30 to 300 ms, although hardly anything is found (requests and replies have no reference cycles).

So the collector pauses while such a request is under way, and its objects are gone before the collector could see
them. It never pauses for longer than `PAUSE_MS_MAX`: clients that send one large request after the other must not keep
the broker from freeing memory.
"""

import gc

from skidway.ports import Clock

PAUSE_MS_MAX = 30_000
LINGER_MS = 500
"""The pause goes on for so long after the last turn with such a request. A request may wait for a commit in between,
with all its objects, and then nothing works on it."""


class Collecting:
    __slots__ = ("_busy_ms", "_until_ms")

    def __init__(self) -> None:
        self._until_ms: int | None = None
        """When the pause ends at the latest; None: there is no pause."""
        self._busy_ms = 0
        """When such a request was last under way."""

    def follow(self, long_work: bool, clock: Clock) -> None:
        """Called at the end of every turn."""
        if self._until_ms is None:
            if long_work and gc.isenabled():
                gc.disable()
                self._busy_ms = clock.monotonic_ms()
                self._until_ms = self._busy_ms + PAUSE_MS_MAX
            return
        now_ms = clock.monotonic_ms()
        if long_work:
            self._busy_ms = now_ms
        if now_ms >= self._until_ms or now_ms >= self._busy_ms + LINGER_MS:
            self.resume()

    def resume(self) -> None:
        if self._until_ms is not None:
            self._until_ms = None
            gc.enable()
