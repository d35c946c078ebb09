"""What the store should hear next of leases and delays, as they are when it is written.

Marked is what may have changed. What was in a write without an answer is in doubt: the store may have it, so the next
write says how it is now, whatever that is.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Protocol

from skidway.shares.cells import Cells
from skidway.shares.delays import Delays
from skidway.shares.durable import Durable
from skidway.shares.leases import Lease, Leases
from skidway.shares.settling import Decided
from skidway.shares.states import AVAILABLE, DELAYED, LEASED, LOCK_MS_MAX, NEVER_MS, DeliveryRules
from skidway.shares.terms import DELAYS_STORED_MAX, Term, TermNotes, overlaps, put

Range = tuple[int, int]


class Window(Protocol):
    """What is needed of `window.Window`."""

    rules: DeliveryRules
    durable: Durable
    live: Cells
    leases: Leases
    delays: Delays


class TermChanges:
    __slots__ = ("_doubtful", "_marked", "_number")

    def __init__(self, number: int) -> None:
        """`number`: of the last write that is stored."""
        self._marked: list[Range] = []
        self._doubtful: list[Range] = []
        self._number = number

    def mark(self, first: int, end: int) -> None:
        self._marked.append((first, end))

    def take(
        self, window: Window, decided: Iterable[Decided], start: int, now_ms: int, wall_ms: int
    ) -> TermNotes | None:
        """From an offset on; None when there is nothing to say. `decided`: what is written with it."""
        doubtful, marked = _apart(self._doubtful, 0), [*self._marked, *self._doubtful]
        self._marked, self._doubtful = [], []
        stored, found = window.durable.terms.terms, list[Term]()
        for first, end in _apart(marked, start):
            for term in _terms(window, first, end, now_ms, wall_ms):
                is_known = not _meets(doubtful, term.first, term.end) and not overlaps(stored, term.first, term.end)
                if term.kind != AVAILABLE or not is_known:
                    found.append(term)
        if window.rules.keeps_leases or len(stored) < DELAYS_STORED_MAX:
            for part in decided:
                lease = part.lease
                if part.state == AVAILABLE and part.delay_ms > 0 and lease.end > start:
                    until_ms, first = wall_ms + part.delay_ms, max(lease.first, start)
                    put(found, Term(first, lease.end, DELAYED, lease.count, until_ms, part.delay_ms))
        if not found:
            return None
        self._number += 1
        return TermNotes(self._number, found)

    def put_back(self, notes: TermNotes) -> None:
        """The store may have it, or not."""
        self._doubtful += [(term.first, term.end) for term in notes.terms]


def _apart(ranges: list[Range], start: int) -> list[Range]:
    """Sorted, without overlaps, from an offset on."""
    found: list[Range] = []
    for first, end in sorted(ranges):
        first = max(first, start, found[-1][1] if found else 0)
        if first < end:
            found.append((first, end))
    return found


def _meets(ranges: list[Range], first: int, end: int) -> bool:
    """One of the ranges, which are sorted and apart."""
    at = bisect_right(ranges, first, key=lambda each: each[1])
    return at < len(ranges) and ranges[at][0] < end


def _terms(window: Window, first: int, end: int, now_ms: int, wall_ms: int) -> Iterator[Term]:
    """As things are now, without a gap."""
    for run in window.live.runs(first, end):
        if run.state == LEASED and window.rules.keeps_leases:
            for lease in window.leases.within(run.first, run.end):
                lasts_ms = _lasts_ms(lease, now_ms)
                begin, stop = max(lease.first, run.first), min(lease.end, run.end)
                yield Term(begin, stop, LEASED, lease.count, wall_ms + lasts_ms, lasts_ms, lease.owner)
        elif run.state == DELAYED:
            yield from _delays(window.delays, run.first, run.end, run.count, now_ms, wall_ms)
        else:
            yield Term(run.first, run.end, AVAILABLE)


def _lasts_ms(lease: Lease, now_ms: int) -> int:
    return lease.lasts_ms if lease.deadline_ms >= NEVER_MS else max(0, lease.deadline_ms - now_ms)


def _delays(delays: Delays, first: int, end: int, count: int, now_ms: int, wall_ms: int) -> Iterator[Term]:
    while first < end:
        due_ms, stop = delays.due_at(first), first + 1
        while stop < end and delays.due_at(stop) == due_ms:
            stop += 1
        lasts_ms = max(0, due_ms - now_ms)
        if lasts_ms <= LOCK_MS_MAX:
            yield Term(first, stop, DELAYED, count, wall_ms + lasts_ms, lasts_ms)
        else:  # the record says so itself, and says it to the next leader as well
            yield Term(first, stop, AVAILABLE)
        first = stop
