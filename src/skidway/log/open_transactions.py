"""Which transactions keep a partition's last stable offset down.

Those that are open, and those that have ended with a marker that is not committed yet: a new leader may lack it, and
what the log says then may be another end. A transaction begins where the log ends, so the order in which they begin is
the order of their first offsets.
"""

from collections import OrderedDict, deque
from collections.abc import Iterable

from skidway.limits import INT64_MAX

# Where a marker stands, and the first offset of the transaction that it ended.
Ended = tuple[int, int]


class OpenTransactions:
    __slots__ = ("_ended", "_open", "committed", "first_unstable")

    def __init__(self, opened: Iterable[tuple[int, int]] = (), ended: Iterable[Ended] = (), committed: int = 0) -> None:
        """`opened` has pairs of producer id and first offset, in any order."""
        self.committed = committed
        """Markers below this offset are known to be committed; a start may know less of its watermark. It is brought up
        to date where it matters, not with every batch."""
        self._open: OrderedDict[int, int] = OrderedDict(sorted(opened, key=lambda pair: pair[1]))
        # Of two, the one that begins later and whose marker is committed sooner does not count: it is left out. So
        # first offsets rise from one marker to the next, and the first of all is the lowest.
        self._ended: deque[Ended] = deque()
        for marker_offset, first_offset in ended:
            self._await(marker_offset, first_offset)
        self.first_unstable = INT64_MAX
        """The first offset of any of them; far above every log if there is none."""
        self._place()

    def __len__(self) -> int:
        """How many are open."""
        return len(self._open)

    @property
    def ended(self) -> tuple[Ended, ...]:
        """Those whose markers are not committed, as far as they count."""
        return tuple(self._ended)

    def first_offset(self, producer_id: int) -> int:
        """Where the producer's open transaction begins; -1 if it has none."""
        return self._open.get(producer_id, -1)

    def begin(self, producer_id: int, first_offset: int) -> None:
        assert producer_id not in self._open, f"producer {producer_id} has a transaction open"
        self._open[producer_id] = first_offset
        if first_offset < self.first_unstable:
            self.first_unstable = first_offset

    def end(self, producer_id: int, marker_offset: int) -> int:
        """Its marker was written. Returns the first open offset of all others, or the one behind the marker."""
        self._await(marker_offset, self._open.pop(producer_id))
        return next(iter(self._open.values()), marker_offset + 1)

    def commit(self, high_watermark: int) -> None:
        """Markers below the watermark cannot be lost."""
        ended = self._ended
        if high_watermark > self.committed:
            self.committed = high_watermark
        if ended and ended[0][0] < high_watermark:
            while ended and ended[0][0] < high_watermark:
                ended.popleft()
            self._place()

    def _await(self, marker_offset: int, first_offset: int) -> None:
        ended = self._ended
        while ended and ended[-1][1] > first_offset:
            ended.pop()
        ended.append((marker_offset, first_offset))

    def _place(self) -> None:
        first_open = next(iter(self._open.values()), INT64_MAX)
        self.first_unstable = min(first_open, self._ended[0][1]) if self._ended else first_open
