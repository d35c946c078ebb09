"""How long things took, by a few bounds: cheap to add to, and what Prometheus calls a histogram."""

from bisect import bisect_left

BOUNDS_MS = (1, 2, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000)
"""Upper ends, which belong to what is below them; the clock counts milliseconds."""


class Distribution:
    __slots__ = ("counts", "total_ms")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_MS) + 1)
        """By bound, and of what took longer than all of them."""
        self.total_ms = 0

    def add(self, took_ms: int) -> None:
        self.counts[bisect_left(BOUNDS_MS, took_ms)] += 1
        self.total_ms += took_ms

    def merge(self, other: "Distribution") -> None:
        self.counts = [mine + theirs for mine, theirs in zip(self.counts, other.counts, strict=True)]
        self.total_ms += other.total_ms
