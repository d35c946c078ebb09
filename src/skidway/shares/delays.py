"""Offsets that nobody gets before a time.

The time of each is in chunks of numbers, and decides which entries of the order still count. The order is coarse: a
list of offsets for each second, and an exact one for the seconds that have begun. So a delayed record takes 16 bytes.
"""

from array import array
from heapq import heapify, heappop, heappush

from skidway.shares import cells

BUCKET_MS = 1_000


class Delays:
    __slots__ = ("_buckets", "_due", "_opened", "_order", "_soon", "offsets")

    def __init__(self) -> None:
        self._due: dict[int, array[int]] = {}
        """By chunk: when each offset is due; 0: it is not delayed."""
        self._buckets: dict[int, array[int]] = {}
        self._order: list[int] = []
        """The numbers of the buckets, as a heap."""
        self._soon: list[tuple[int, int]] = []
        """(when, offset) of the buckets whose second has begun, as a heap."""
        self._opened = -1
        """The last bucket that may have been opened."""
        self.offsets = 0
        """How many are delayed."""

    def add(self, until_ms: int, first: int, end: int) -> None:
        assert until_ms > 0
        self.drop(first, end)
        for number, begin, stop in cells.pieces(first, end):
            chunk = self._due.get(number)
            if chunk is None:
                chunk = self._due[number] = array("q", bytes(8 * cells.CHUNK))
            chunk[begin:stop] = array("q", (until_ms,)) * (stop - begin)
        self.offsets += end - first
        bucket = until_ms // BUCKET_MS
        if bucket <= self._opened:
            for offset in range(first, end):
                heappush(self._soon, (until_ms, offset))
            return
        if bucket not in self._buckets:
            self._buckets[bucket] = array("q")
            heappush(self._order, bucket)
        self._buckets[bucket].extend(range(first, end))

    def due_at(self, offset: int) -> int:
        """0: it is not delayed."""
        number, at = divmod(offset, cells.CHUNK)
        chunk = self._due.get(number)
        return 0 if chunk is None else chunk[at]

    def drop(self, first: int, end: int) -> None:
        """They are not delayed any more."""
        for number, begin, stop in cells.pieces(first, end):
            chunk = self._due.get(number)
            if chunk is not None:
                self.offsets -= stop - begin - chunk[begin:stop].count(0)
                chunk[begin:stop] = array("q", bytes(8 * (stop - begin)))

    def drop_below(self, offset: int) -> None:
        for number in [number for number in self._due if (number + 1) * cells.CHUNK <= offset]:
            self.offsets -= cells.CHUNK - self._due.pop(number).count(0)

    @property
    def deadline_ms(self) -> int | None:
        """When there may be something to take: the time of an offset, or the begin of a second."""
        soon = self._soon
        while soon and self.due_at(soon[0][1]) != soon[0][0]:
            heappop(soon)
        times = [soon[0][0]] if soon else []
        if self._order:
            times.append(self._order[0] * BUCKET_MS)
        return min(times, default=None)

    def take_due(self, now_ms: int) -> list[tuple[int, int]]:
        """The ranges whose time has come, in order."""
        if not self._order and not self._soon:
            self._opened = max(self._opened, now_ms // BUCKET_MS)
            return []
        due: list[int] = []
        while self._order and self._order[0] * BUCKET_MS <= now_ms:
            self._open(heappop(self._order))
        self._opened = max(self._opened, now_ms // BUCKET_MS)
        while self._soon and self._soon[0][0] <= now_ms:
            until_ms, offset = heappop(self._soon)
            if self.due_at(offset) == until_ms:
                self.drop(offset, offset + 1)
                due.append(offset)
        return _ranges(sorted(due))

    def _open(self, bucket: int) -> None:
        begun = [(due_ms, at) for at in self._buckets.pop(bucket) if (due_ms := self.due_at(at)) // BUCKET_MS == bucket]
        self._soon += begun
        heapify(self._soon)


def _ranges(offsets: list[int]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for offset in offsets:
        if found and found[-1][1] == offset:
            found[-1] = (found[-1][0], offset + 1)
        else:
            found.append((offset, offset + 1))
    return found
