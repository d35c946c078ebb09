"""What a share-partition has for its store: gathered until the store has answered the write before.

Clients wait for settlements, and for leases that are to be stored first; nobody waits for chores, which are tried until
they are stored. Delivery counts of what is leased ride along; they alone are not worth a write, unless a lease has
ended.
"""

from collections.abc import Callable

from skidway.shares.cells import Cells
from skidway.shares.letters import Letters
from skidway.shares.records import StateBatch, Update, joined
from skidway.shares.settling import Answer, Chore, Decided, Keep, Settlement, Writing
from skidway.shares.states import AVAILABLE, BLOCKED, DELAYED, LEASED
from skidway.shares.term_changes import TermChanges, Window
from skidway.shares.terms import NO_TERMS

OVER_MS = -1
"""A deadline that has passed on every clock."""


class Outbox:
    __slots__ = ("_last", "again", "chores", "counted", "eager", "keeps", "settlements", "terms", "writing")

    def __init__(self, term_number: int) -> None:
        self.settlements: list[Settlement] = []
        self._last: Decided | None = None
        """The last part of the settlements."""
        self.keeps: list[Keep] = []
        self.terms = TermChanges(term_number)
        self.chores: list[Chore] = []
        self.counted: list[StateBatch] = []
        """Deliveries whose counts the store has not heard of."""
        self.eager = False
        """Whether something else is worth a write that nobody waits for."""
        self.writing: Writing | None = None
        self.again: list[tuple[Callable[[int], None], Answer]] = []
        """Words about what is on its way to the store: to be heard when it has answered, or never."""

    @property
    def is_empty(self) -> bool:
        return not (self.writing or self.settlements or self.keeps or self.chores or self.eager)

    def count(self, first: int, end: int, count: int) -> None:
        self.counted.append(StateBatch(first, end, AVAILABLE, count))

    def settle(self, answer: Answer, parts: list[Decided]) -> None:
        """What one request says. What is written together takes effect together: neighbours become one."""
        last, kept = self._last, list[Decided]()
        for part in parts:
            if last is None or not last.join(part):
                kept.append(part)
                last = part
        self._last = last
        self.settlements.append(Settlement(answer, kept))

    def next_write(self, window: Window, floor: int, letters: Letters, now_ms: int, wall_ms: int) -> Update | None:
        """None when there is nothing, or the last one is not answered yet. The start will be `floor` at least."""
        is_asked = self.settlements or self.keeps or self.chores or self.eager or letters.is_planning
        if self.writing is not None or not is_asked:
            return None
        settlements, chores, durable, live = self.settlements, self.chores, window.durable, window.live
        start = max(durable.start_offset, floor)
        counted = self._counts(live, start)
        batches = [batch for chore in chores for batch in durable.raised(chore.batch())] + counted
        for settlement in settlements:
            for part in settlement.parts:
                lease = part.lease
                batch = StateBatch(lease.first, lease.end, part.state, lease.count)
                # The store may know of a delivery that did not count only where a receipt stands for a lease that was
                # over: those are single offsets.
                batches += [batch] if lease.end - lease.first > 1 else durable.raised(batch)
        batches = _above(start, joined(batches))
        start, complete_count = durable.preview(batches, floor)
        decided = [part for settlement in settlements for part in settlement.parts]
        terms = self.terms.take(window, decided, start, now_ms, wall_ms)
        update = Update(start, complete_count, _above(start, batches), letters.unstored(start), terms)
        self.writing = Writing(update, settlements, chores, counted, self.keeps, terms or NO_TERMS)
        self.settlements, self.keeps, self.chores, self.counted, self.eager = [], [], [], [], False
        self._last = None
        return update

    def answered(self) -> Writing:
        writing, self.writing = self.writing, None
        assert writing is not None, "nothing is with the store"
        return writing

    def put_back(self, writing: Writing, floor: int) -> None:
        """The store does not have it: all but what clients wait for is tried again."""
        self.chores = [*writing.chores, *self.chores]
        self.drop_below(floor)
        self.counted = writing.counted + self.counted
        self.terms.put_back(writing.terms)
        self.eager = True

    def drop_below(self, floor: int) -> None:
        self.chores = [chore for chore in self.chores if chore.end > floor]

    def hear_again(self, now_ms: int) -> None:
        again, self.again = self.again, []
        for hear, _ in again:
            hear(now_ms)

    def end_leases_of(self, owner: str) -> None:
        """Its session is over: if the store does not take what it said, nobody has its leases again."""
        for settlement in [*(self.writing.settlements if self.writing else []), *self.settlements]:
            for part in settlement.parts:
                if part.lease.owner == owner:
                    part.lease.deadline_ms = OVER_MS

    def take_unanswered(self) -> list[Answer]:
        settlements = [*(self.writing.settlements if self.writing else []), *self.settlements]
        keeps = [*(self.writing.keeps if self.writing else []), *self.keeps]
        unanswered = [settlement.answer for settlement in settlements] + [answer for _, answer in self.again]
        unanswered += [keep.tell for keep in keeps]
        self.writing, self.settlements, self.keeps, self.again = None, [], [], []
        self._last = None
        return unanswered

    def _counts(self, live: Cells, start: int) -> list[StateBatch]:
        """Of what was delivered since the last write, and nothing is decided about."""
        found: dict[int, StateBatch] = {}
        for counted in self.counted:
            for run in live.runs(max(counted.first, start), max(counted.end, start)):
                if run.state not in (LEASED, AVAILABLE, DELAYED, BLOCKED) or run.count != counted.count:
                    continue
                if run.first not in found or found[run.first].end < run.end:
                    found[run.first] = StateBatch(run.first, run.end, AVAILABLE, run.count)
        return _without_overlaps(found)


def _above(start: int, batches: list[StateBatch]) -> list[StateBatch]:
    """Without what lies below the start."""
    return [
        StateBatch(max(batch.first, start), batch.end, batch.state, batch.count)
        for batch in batches
        if batch.end > start
    ]


def _without_overlaps(found: dict[int, StateBatch]) -> list[StateBatch]:
    """One offset may have been counted twice: leased, given back, or a lease cut since."""
    kept: list[StateBatch] = []
    end = 0
    for first in sorted(found):
        batch = found[first]
        if batch.end > end:
            kept.append(StateBatch(max(first, end), batch.end, batch.state, batch.count))
            end = batch.end
    return kept
