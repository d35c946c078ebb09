"""What a fetch may take: rules that look at what was read, not at who holds what.

A batch that was delivered in vain several times holds a record that kills whoever gets it. From half of the group's
limit on fewer and fewer of its offsets go out together, and at the last attempt each goes alone: so the poisonous
record is found, and the others survive it.
"""

from collections.abc import Sequence

from msgspec import Struct

from skidway.shares.states import AcquireMode, DeliveryRules


class Span(Struct):
    """The offsets of one batch, as its header tells them."""

    first: int
    end: int
    deliverable: bool = True
    """Not: a control batch, or one of a transaction that was aborted."""


class Offered(Struct):
    """What was read from the log, from an offset on. What lies between two batches is gone from the log."""

    from_offset: int
    spans: Sequence[Span]


class Wanted(Struct):
    """What a consumer asks for."""

    records: int
    mode: AcquireMode = AcquireMode.BATCH_OPTIMIZED
    range_size: int = 2**31 - 1
    """Ranges are cut at the end of a batch as soon as they have so many offsets."""


class Acquired(Struct):
    first: int
    end: int
    count: int
    """Which delivery this is of each of them."""


class Taking:
    """One acquisition under way: how much more it may take, and the ranges it has."""

    __slots__ = ("_cut", "left_over", "ranges", "room", "taken", "wanted")

    def __init__(self, wanted: Wanted, room: int) -> None:
        """`room`: offsets that may be leased in addition."""
        self.wanted = wanted
        self.room = min(room, wanted.records) if wanted.mode is AcquireMode.RECORD_LIMIT else room
        self.taken = 0
        self.left_over: int | None = None
        """Records of noisy tenants that may be taken besides those of others; None: there is no such limit."""
        self.ranges: list[Acquired] = []
        self._cut = False

    @property
    def is_full(self) -> bool:
        """No offset more, not even inside a batch."""
        return self.taken >= self.room

    @property
    def has_enough(self) -> bool:
        """No batch more."""
        return self.taken >= min(self.room, self.wanted.records)

    def end_of_batch(self) -> None:
        if self.wanted.mode is AcquireMode.BATCH_OPTIMIZED and self.ranges:
            last = self.ranges[-1]
            self._cut = last.end - last.first >= self.wanted.range_size

    def take(self, first: int, end: int, count: int) -> int:
        """As much as there is room for; returns where that ends."""
        end = min(end, first + self.room - self.taken)
        self.taken += end - first
        last = self.ranges[-1] if self.ranges else None
        if last is not None and not self._cut and last.end == first and last.count == count:
            last.end = end
        else:
            self.ranges.append(Acquired(first, end, count))
        self._cut = False
        return end

    def take_left_over(self, first: int, end: int, count: int) -> int:
        """As much as others leave; returns where that ends."""
        assert self.left_over is not None
        end = min(end, first + self.left_over)
        if first < end:
            end = self.take(first, end, count)
            self.left_over -= end - first
        return end


def isolated(count: int, size: int, rules: DeliveryRules) -> int | None:
    """How many of `size` offsets may go out, and nothing with them, after `count` deliveries in vain; None: all, and
    others with them."""
    limit = rules.count_limit
    if not rules.isolates:
        return None
    if limit > 2 and count == limit - 1:
        return 1
    threshold = max(2, -(-limit // 2))
    if count < threshold:
        return None
    return max(1, size >> (count - threshold + 1))
