"""What is stored of time: until when offsets are with somebody, and until when nobody gets what was released.

Leases of groups with an order of keys are stored before their holders hear of them, so that the next leader knows which
keys are taken. A term has two times: when it is over by the clock on the wall, and how long it had to go when it was
written. A leader that loads it cannot know what that clock did meanwhile, so it may end a lease up to `CLOCKS_APART_MS`
late, but never later than if it began again. Hence a lease of that length or less never ends early, whatever the clocks
on the wall say; of longer ones that is true while the clocks of two leaders differ by less.

Every write with terms has a number. One that comes late, after a newer one, changes nothing: whoever wrote the newer
one knew that the older one might not have been stored, and said all of it again.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from operator import attrgetter

from msgspec import Struct
from msgspec.structs import replace

from skidway.shares.states import AVAILABLE, LEASED

CLOCKS_APART_MS = 60_000
OWNER_LENGTH_MAX = 36
"""Characters in the name of a holder."""
TERMS_MAX = 40_000
"""Of one share-partition: when there are so many, or so many records are held, nothing more is leased where leases are
stored."""
TERMS_STORED_MAX = 100_000
"""A coordinator takes no more. Those of `TERMS_MAX` records that are held and as many delays fit, however they are cut:
a deletion must never be refused."""
DELAYS_STORED_MAX = 10_000
"""Where leases are not stored: delays of released records beyond these are known to their leader only."""


class Term(Struct, frozen=True):
    first: int
    end: int
    kind: int
    """LEASED, or DELAYED: nobody gets it; AVAILABLE, in a change: neither."""
    count: int = 0
    """The delivery that it belongs to: when there was another one since, it says nothing."""
    until_ms: int = 0
    """Wall time."""
    lasts_ms: int = 0
    """From when it was written."""
    owner: str = ""

    def remaining_ms(self, wall_ms: int) -> int:
        """For a leader that loads it now."""
        left_ms = max(0, self.until_ms - wall_ms)
        return min(self.lasts_ms, left_ms + (CLOCKS_APART_MS if self.kind == LEASED else 0))


class TermNotes(Struct, frozen=True):
    """All terms, or what has changed of them: sorted, without overlaps."""

    number: int = 0
    terms: Sequence[Term] = ()


NO_TERMS = TermNotes()

_first, _end = attrgetter("first"), attrgetter("end")


def changed(before: TermNotes, change: TermNotes, start_offset: int) -> TermNotes:
    """Both as one, from an offset on. Neither is changed."""
    if change.number <= before.number:
        kept = _from(before.terms, start_offset)
        return before if kept is before.terms else TermNotes(before.number, kept)
    terms = list(before.terms)
    for term in change.terms:
        put(terms, term)
    terms = [term for term in terms if term.kind != AVAILABLE]
    return TermNotes(change.number, _from(terms, start_offset))


def overlaps(terms: Sequence[Term], first: int, end: int) -> bool:
    at = bisect_right(terms, first, key=_end)
    return at < len(terms) and terms[at].first < end


def put(terms: list[Term], term: Term) -> None:
    """In the place of whatever was there."""
    begin = bisect_right(terms, term.first, key=_end)
    end = bisect_left(terms, term.end, lo=begin, key=_first)
    parts: list[Term] = []
    if begin < end and terms[begin].first < term.first:
        parts.append(replace(terms[begin], end=term.first))
    parts.append(term)
    if begin < end and terms[end - 1].end > term.end:
        parts.append(replace(terms[end - 1], first=term.end))
    terms[begin:end] = parts


def _from(terms: Sequence[Term], start_offset: int) -> Sequence[Term]:
    if not terms or terms[0].first >= start_offset:
        return terms
    kept = list(terms[bisect_right(terms, start_offset, key=_end) :])
    if kept and kept[0].first < start_offset:
        kept[0] = replace(kept[0], first=start_offset)
    return kept
