"""When Python's cyclic garbage collector runs, and at how much it looks in one go.

A full collection looks at every object that is alive: 25 ms for each thousand partitions that were made since the
start. Python starts one each time their number has grown by a quarter, although hardly anything is ever found, because
requests, replies and partitions have no reference cycles. So the collector is led by the hand here:

- While a large request is worked on in steps it pauses: 200,000 elements are a million objects, which are gone before
  the collector could see them. It never pauses for longer than `PAUSE_MS_MAX`: clients that send one large request
  after the other must not keep the broker from freeing memory.
- Python starts no full collection by itself. Once so many objects have grown old that a full one takes some
  milliseconds (`SLICE_COUNT`), it is done at the end of a turn, and what survives is exempt from the next (frozen): a
  collection looks at what is new, never at everything.
- What is exempt is freed as ever when nothing refers to it, but its cycles are not found. So everything is looked at
  once it has grown by half (`GROWTH`), cycles that nobody needs included: in a quiet moment, or, when there was
  none for `WAIT_MS_MAX` and it has doubled, in any.

Python 3.14 collects in slices by itself: there only the pause is left.
"""

import gc
import sys

from skidway.ports import Clock

PAUSE_MS_MAX = 30_000
LINGER_MS = 500
"""The pause goes on for so long after the last turn with such a request. A request may wait for a commit in between,
with all its objects, and then nothing works on it."""
SLICE_COUNT = 4
"""Collections of the middle generation, each of which lets at most about 7,700 objects grow old: 30,000 take 10 ms."""
YOUNG_MAX = 30_000
"""When a pause has left more new objects than this, they are exempt at once: the first collection would look at all."""
NEVER = 1_000_000_000
CHECK_MS = 60_000
"""Between two counts of what is exempt: counting takes a millisecond for 100,000 objects."""
QUIET_MS = 100
"""A turn that begins so long after the last one ended has nobody waiting behind it."""
WAIT_MS_MAX = 600_000
GROWTH = 1.5
GROWTH_MAX = 2.0
COLLECTS_BY_ITSELF = sys.version_info >= (3, 14)


class Collecting:
    __slots__ = ("_busy_ms", "_checked_ms", "_exempt", "_full_ms", "_last_ms", "_thresholds", "_until_ms", "_wanted")

    def __init__(self) -> None:
        self._until_ms: int | None = None
        """When the pause ends at the latest; None: there is no pause."""
        self._busy_ms = 0
        """When such a request was last under way."""
        self._thresholds: tuple[int, int, int] | None = None
        """Python's own, while full collections are started here."""
        self._exempt = 0
        """Objects that were exempt after the last look at everything."""
        self._full_ms = self._checked_ms = self._last_ms = 0
        """When everything was looked at, what is exempt was counted, and the last turn ended."""
        self._wanted = False
        """Everything is to be looked at, in a quiet moment."""

    def spare_what_is_there(self, clock: Clock) -> None:
        """What a start made is exempt; from the first call on full collections are started here."""
        gc.freeze()
        if COLLECTS_BY_ITSELF:
            return
        if self._thresholds is None:
            self._thresholds = young, middle, _ = gc.get_threshold()
            gc.set_threshold(young, middle, NEVER)
        self._exempt = gc.get_freeze_count()
        self._full_ms = self._checked_ms = self._last_ms = clock.monotonic_ms()

    def follow(self, long_work: bool, clock: Clock) -> None:
        """Called at the end of every turn."""
        now_ms = clock.monotonic_ms()
        if self._until_ms is None:
            if long_work and gc.isenabled():
                gc.disable()
                self._busy_ms = now_ms
                self._until_ms = now_ms + PAUSE_MS_MAX
            else:
                self._collect(now_ms)
        else:
            if long_work:
                self._busy_ms = now_ms
            if now_ms >= self._until_ms or now_ms >= self._busy_ms + LINGER_MS:
                self._resume()
                self._collect(now_ms)
        self._last_ms = now_ms

    def end(self) -> None:
        """Python's own ways again."""
        self._resume()
        if self._thresholds is not None:
            gc.set_threshold(*self._thresholds)
            self._thresholds = None

    def _resume(self) -> None:
        if self._until_ms is None:
            return
        self._until_ms = None
        if self._thresholds is not None and gc.get_count()[0] > YOUNG_MAX:
            gc.freeze()
        gc.enable()

    def _collect(self, now_ms: int) -> None:
        if self._thresholds is None:
            return
        is_quiet = now_ms - self._last_ms >= QUIET_MS
        if gc.get_count()[2] >= SLICE_COUNT:
            gc.collect()
            gc.freeze()
        elif self._wanted and is_quiet:
            self._look_at_everything(now_ms)
        elif now_ms - self._checked_ms >= CHECK_MS:
            self._checked_ms = now_ms
            growth = gc.get_freeze_count() / max(self._exempt, 1)
            self._wanted = growth >= GROWTH
            if growth >= GROWTH_MAX and now_ms - self._full_ms >= WAIT_MS_MAX:
                self._look_at_everything(now_ms)

    def _look_at_everything(self, now_ms: int) -> None:
        gc.unfreeze()
        gc.collect()
        gc.freeze()
        self._exempt = gc.get_freeze_count()
        self._full_ms = now_ms
        self._wanted = False
