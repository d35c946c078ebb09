"""Dead letters of one share-partition, decided at its leader: each dead record gets exactly one.

Letters are planned before they are produced. The plan names the batch (`letter_notes.Plan`) and is stored first.
Whoever takes over finds it, and produces the same batch under the same name: the log of the dead letters takes a name
once. When the letters are there their records are archived, and the next plan follows. So at most one batch is in doubt
at any time.

`Deaths` are the causes and times of death, stored with the state `ARCHIVING`. They are bounded: of what is beyond, and
of records that another broker has left as archiving, the cause is told from the delivery count.
"""

from collections import deque
from collections.abc import Iterator

from msgspec.structs import replace

from skidway.shares.cells import Cells
from skidway.shares.durable import Durable
from skidway.shares.letter_notes import DEATHS_MAX, REASON_LENGTH_MAX, UNKNOWN_MS, Death, LetterNotes, Plan
from skidway.shares.states import ARCHIVING, AVAILABLE, Cause, Verb

FAILURES_MAX = 1_000
"""Ranges of offsets of which the leader remembers when they failed first."""


class Deaths:
    """Of one leader: it notes them as they happen."""

    __slots__ = ("_deaths", "_failures", "wall_ms")

    def __init__(self, stored: tuple[Death, ...]) -> None:
        self._deaths = {death.first: death for death in stored}
        self._failures: deque[tuple[int, int, int]] = deque(maxlen=FAILURES_MAX)
        """(first, end, when) of first deliveries that were in vain."""
        self.wall_ms = UNKNOWN_MS
        """Now. The host keeps it."""

    def failed(self, first: int, end: int, count: int) -> None:
        if count == 1:
            self._failures.append((first, end, self.wall_ms))

    def died(self, first: int, end: int, cause: Cause, count: int, reason: str = "") -> bool:
        """Whether there was room to note it."""
        self.failed(first, end, count)
        self.forget(first, end)
        for begin, stop, failed_ms in self._pieces(first, end):
            if len(self._deaths) >= DEATHS_MAX:
                return False
            self._deaths[begin] = Death(begin, stop, cause, failed_ms, self.wall_ms, reason[:REASON_LENGTH_MAX])
        return True

    def at(self, offset: int) -> Death | None:
        return next((death for death in self._deaths.values() if death.first <= offset < death.end), None)

    def forget(self, first: int, end: int) -> None:
        """Their letters are written, or nobody waits for them."""
        for death in [each for each in self._deaths.values() if each.first < end and first < each.end]:
            del self._deaths[death.first]
            for begin, stop in ((death.first, min(death.end, first)), (max(death.first, end), death.end)):
                if begin < stop:
                    self._deaths[begin] = replace(death, first=begin, end=stop)

    def drop_below(self, offset: int) -> None:
        if self._deaths:
            self.forget(0, offset)

    def all(self) -> tuple[Death, ...]:
        return tuple(self._deaths[first] for first in sorted(self._deaths))

    def _pieces(self, first: int, end: int) -> Iterator[tuple[int, int, int]]:
        """The range, cut where the records did not fail together for the first time."""
        while first < end:
            found = next(((b, e, at) for b, e, at in self._failures if b <= first < e), None)
            if found is None:
                stop = min((b for b, _, _ in self._failures if first < b < end), default=end)
                yield first, stop, UNKNOWN_MS
            else:
                stop = min(found[1], end)
                yield first, stop, found[2]
            first = stop


class Letters:
    __slots__ = ("_durable", "_notes", "deaths")

    def __init__(self, durable: Durable) -> None:
        self._durable = durable
        self._notes = durable.letters
        """As this leader wants them to be; the store follows (`unstored`)."""
        self.deaths = Deaths(durable.letters.deaths)

    # --- plans ---

    @property
    def waiting(self) -> bool:
        """Whether a record may be waiting for its letter: `due` finds out."""
        return self._durable.has_dead

    @property
    def last_plan(self) -> Plan | None:
        """Of those that are stored."""
        return self._durable.letters.plan

    @property
    def is_planning(self) -> bool:
        """A plan is on its way to the store."""
        return self._notes.plan != self._durable.letters.plan

    def open_plan(self, live: Cells, start: int) -> Plan | None:
        """The last plan, if one at least of its records waits for its letter: it is to be produced, perhaps again."""
        plan = self.last_plan
        if plan is None or plan.end <= start:
            return None
        return plan if live.find(ARCHIVING, max(plan.first, start), plan.end) < plan.end else None

    def due(self, live: Cells, start: int, end: int) -> tuple[int, int] | None:
        """The first range of dead records without a letter, all with one delivery count."""
        first = live.find(ARCHIVING, start, max(start, end))
        self._durable.has_dead = first < end
        return (first, live.run_end(first, end)) if first < end else None

    def propose(self, plan: Plan) -> None:
        assert not self.is_planning, f"{self._notes.plan} is not stored yet"
        self._notes = LetterNotes(self._notes.number + 1, plan, self.deaths.all())

    # --- deaths ---

    def note(self, first: int, end: int, count: int, becomes: int, verb: Verb = Verb.RELEASE, reason: str = "") -> None:
        """A delivery ends: with this word, or without any. The records become available again, die, or are done."""
        if becomes == AVAILABLE:
            self.deaths.failed(first, end, count)
        elif becomes == ARCHIVING:
            cause = Cause.REJECTED if verb is Verb.REJECT else Cause.EXHAUSTED
            if self.deaths.died(first, end, cause, count, reason):
                self._notes = LetterNotes(self._notes.number + 1, self._notes.plan, self.deaths.all())

    # --- the store ---

    def unstored(self, start: int) -> LetterNotes | None:
        """What the store does not have yet. Nobody asks for what lies below the start."""
        self.deaths.drop_below(start)
        return self._notes if self._notes.number > self._durable.letters.number else None
