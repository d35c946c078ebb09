"""Who holds which offsets, and until when. No two leases have an offset in common.

A lease is cut where a part of it ends. Deadlines are on a heap; what it says of a lease that has ended or was renewed
is passed over.
"""

from bisect import bisect_right
from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from skidway.shares.states import NEVER_MS

STALE_KEPT = 64
NOBODY = ""
"""The owner of a lease that was over before its record was settled."""


class Lease:
    __slots__ = ("count", "deadline_ms", "end", "first", "keep", "lasts_ms", "live", "owner")

    def __init__(self, owner: str, first: int, end: int, count: int, deadline_ms: int, lasts_ms: int = 0) -> None:
        """`count`: which delivery of its offsets this is. `lasts_ms`: how long it lasts when it has begun, if its
        deadline is NEVER_MS."""
        assert first < end
        self.owner = owner
        self.first = first
        self.end = end
        self.count = count
        self.deadline_ms = deadline_ms
        self.lasts_ms = lasts_ms
        self.keep: object = None
        """Who waits for it to be stored, until then."""
        self.live = True

    def part(self, first: int, end: int) -> "Lease":
        part = Lease(self.owner, first, end, self.count, self.deadline_ms, self.lasts_ms)
        part.keep = self.keep
        return part

    def __repr__(self) -> str:
        return f"{self.owner} {self.first}-{self.end - 1} #{self.count} until {self.deadline_ms}"


class Leases:
    __slots__ = ("_due", "_firsts", "_leases", "_made", "_number", "offsets")

    def __init__(self) -> None:
        self._leases: list[Lease] = []
        self._firsts: list[int] = []
        self._due: list[tuple[int, int, Lease]] = []
        self._made = 0
        self._number = 0
        self.offsets = 0
        """How many are leased."""

    def __len__(self) -> int:
        return len(self._leases)

    @property
    def made(self) -> int:
        """How many were ever added: as long as it is the same, nobody got anything."""
        return self._made

    def __iter__(self) -> Iterator[Lease]:
        return iter(self._leases)

    def add(self, lease: Lease) -> None:
        at = bisect_right(self._firsts, lease.first)
        assert at == 0 or self._leases[at - 1].end <= lease.first, f"{self._leases[at - 1]} holds a part of {lease}"
        assert at == len(self._leases) or lease.end <= self._firsts[at], f"{self._leases[at]} holds a part of {lease}"
        self._leases.insert(at, lease)
        self._firsts.insert(at, lease.first)
        self.offsets += lease.end - lease.first
        self._made += 1
        self._await(lease)

    def within(self, first: int, end: int) -> list[Lease]:
        """Those that have an offset in the range, in order."""
        at = bisect_right(self._firsts, first) - 1
        if at >= 0 and first < end <= self._leases[at].end:
            return [self._leases[at]]
        if at < 0 or self._leases[at].end <= first:
            at += 1
        found = []
        while at < len(self._leases) and self._firsts[at] < end:
            found.append(self._leases[at])
            at += 1
        return found

    def held_until(self, owner: str, first: int, end: int) -> int:
        """The first offset of the range that the owner does not hold, or `end`."""
        for lease in self.within(first, end):
            if lease.owner != owner or lease.first > first:
                break
            first = lease.end
        return min(first, end)

    def carve(self, first: int, end: int) -> list[Lease]:
        """End all leases in the range, and return what they were there; what they have outside goes on."""
        carved = []
        for lease in self.within(first, end):
            begin, stop = max(lease.first, first), min(lease.end, end)
            carved.append(lease.part(begin, stop))
            if lease.first == begin and stop == lease.end:
                self.end(lease)
            elif lease.first == begin:
                self._firsts[bisect_right(self._firsts, begin) - 1] = lease.first = stop
                self.offsets -= stop - begin
            else:
                after = lease.part(stop, lease.end) if stop < lease.end else None
                self.offsets -= lease.end - begin
                lease.end = begin
                if after is not None:
                    self.add(after)
        return carved

    def end(self, lease: Lease) -> None:
        assert lease.live, f"{lease} is over"
        at = bisect_right(self._firsts, lease.first) - 1
        assert self._leases[at] is lease
        del self._leases[at], self._firsts[at]
        lease.live = False
        self.offsets -= lease.end - lease.first

    def of_owner(self, owner: str) -> list[Lease]:
        return [lease for lease in self._leases if lease.owner == owner]

    def renew(self, first: int, end: int, deadline_ms: int) -> None:
        for lease in self.carve(first, end):
            lease.deadline_ms = deadline_ms
            self.add(lease)

    def begin(self, lease: Lease, now_ms: int) -> None:
        """Its holder is about to hear of it."""
        lease.keep = None
        if lease.deadline_ms >= NEVER_MS:
            lease.deadline_ms = now_ms + lease.lasts_ms
            self._await(lease)

    def take_due(self, now_ms: int) -> list[Lease]:
        """End those whose time is over, and return them."""
        due = []
        while (deadline_ms := self.deadline_ms) is not None and deadline_ms <= now_ms:
            lease = heappop(self._due)[2]
            self.end(lease)
            due.append(lease)
        return due

    @property
    def deadline_ms(self) -> int | None:
        due = self._due
        while due and (not due[0][2].live or due[0][2].deadline_ms != due[0][0]):
            heappop(due)
        return due[0][0] if due else None

    def _await(self, lease: Lease) -> None:
        if lease.deadline_ms >= NEVER_MS:
            return
        self._number += 1
        heappush(self._due, (lease.deadline_ms, self._number, lease))
        if len(self._due) > 2 * len(self._leases) + STALE_KEPT:
            self._due = [entry for entry in self._due if entry[2].live]
            heapify(self._due)
