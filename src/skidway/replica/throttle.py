"""A bound on the bytes per second that replicas which are not in sync may cost.

What is taken may go beyond the bound once; the debt is waited for. What was not used within a second is gone.
"""

from skidway.limits import INT64_MAX

UNBOUNDED = INT64_MAX
WAIT_MS_MAX = 1_000
"""Then one looks again: the rate may have been changed."""


class Throttle:
    __slots__ = ("_left_bytes", "_seen_ms", "rate")

    def __init__(self, rate: int = UNBOUNDED) -> None:
        self.rate = rate
        """Bytes per second."""
        self._left_bytes = 0
        self._seen_ms = 0

    def wait_ms(self, now_ms: int) -> int:
        """0: go on; otherwise for how long not."""
        rate = self.rate
        if rate == UNBOUNDED:
            return 0
        self._earn(now_ms)
        if self._left_bytes > 0:
            return 0
        return min(-self._left_bytes * 1000 // rate + 1, WAIT_MS_MAX) if rate else WAIT_MS_MAX

    def took(self, size: int, now_ms: int) -> None:
        if self.rate != UNBOUNDED:
            self._earn(now_ms)
            self._left_bytes -= size

    def _earn(self, now_ms: int) -> None:
        earned = self.rate * (now_ms - self._seen_ms) // 1000
        if earned > 0:
            self._left_bytes = min(self._left_bytes + earned, self.rate)
            self._seen_ms = now_ms
