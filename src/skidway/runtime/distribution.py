"""How long things took, by a few bounds: cheap to add to, and what Prometheus calls a histogram."""

from bisect import bisect_left

BOUNDS_MS = (1, 2, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000)
"""Upper ends, which belong to what is below them, for times of a clock that counts milliseconds."""

WHOLE_MS = tuple(bound_ms * 1_000 for bound_ms in BOUNDS_MS)
FINE_US = (100, 250, 500, *WHOLE_MS)
"""The same in microseconds, and more of them for times of a finer clock."""


class Distribution:
    __slots__ = ("bounds_us", "counts", "total_us")

    def __init__(self, bounds_us: tuple[int, ...] = WHOLE_MS) -> None:
        self.bounds_us = bounds_us
        self.counts = [0] * (len(bounds_us) + 1)
        """By bound, and of what took longer than all of them."""
        self.total_us = 0

    def add(self, took_us: int) -> None:
        self.counts[bisect_left(self.bounds_us, took_us)] += 1
        self.total_us += took_us

    def merge(self, other: "Distribution") -> None:
        assert other.bounds_us == self.bounds_us
        self.counts = [mine + theirs for mine, theirs in zip(self.counts, other.counts, strict=True)]
        self.total_us += other.total_us
