"""Repeated log lines: the first of each kind is logged, the next ones only after a while, with how many there were."""

from skidway.ports import Clock

KINDS_MAX = 1_000
"""Remembered at a time; the oldest are forgotten."""


class OncePer:
    __slots__ = ("_clock", "_interval_ms", "_seen")

    def __init__(self, interval_ms: int, clock: Clock) -> None:
        self._interval_ms = interval_ms
        self._clock = clock
        self._seen: dict[object, tuple[int, int]] = {}  # by kind: when it was last logged, how many came since

    def take(self, kind: object) -> int | None:
        """None: do not log it now. Otherwise how many of this kind were left out since the last that was logged."""
        now_ms = self._clock.monotonic_ms()
        logged_ms, left_out = self._seen.get(kind, (None, 0))
        if logged_ms is not None and now_ms - logged_ms < self._interval_ms:
            self._seen[kind] = logged_ms, left_out + 1
            return None
        self._seen.pop(kind, None)
        self._seen[kind] = now_ms, 0
        if len(self._seen) > KINDS_MAX:
            del self._seen[next(iter(self._seen))]
        return left_out
