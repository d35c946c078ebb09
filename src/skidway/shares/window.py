"""The offsets of a share-partition as its leader sees them, from the first that is not settled on.

What can be done to them without asking who holds what. `delivery.Delivery` is the whole machine.
"""

from skidway.shares.cells import Cells
from skidway.shares.contents import Contents
from skidway.shares.delays import Delays
from skidway.shares.durable import Durable
from skidway.shares.leases import Leases
from skidway.shares.letters import Letters
from skidway.shares.outbox import Outbox
from skidway.shares.settling import Chore
from skidway.shares.states import ARCHIVED, AVAILABLE, DELAYED, SETTLING, DeliveryRules, HeldUp
from skidway.shares.terms import TERMS_MAX


class Window:
    __slots__ = ("_search_from", "end_offset")

    rules: DeliveryRules
    durable: Durable
    live: Cells
    leases: Leases
    delays: Delays
    outbox: Outbox
    contents: Contents
    letters: Letters
    end_offset: int
    settling_offsets: int
    _floor: int
    _search_from: int

    @property
    def start_offset(self) -> int:
        """Everything below is settled, or gone from the log."""
        return max(self.durable.start_offset, self._floor)

    @property
    def held_offsets(self) -> int:
        """That clients hold, or have spoken about."""
        return self.leases.offsets + self.settling_offsets

    @property
    def room(self) -> int:
        """How many offsets more clients may hold."""
        return self.rules.leases_max - self.held_offsets

    def next_offset(self) -> int | None:
        """From where to read for the next fetch; None when nothing may be acquired now, however much is there."""
        if self._is_full:
            return None
        self.contents.refresh(self)
        start = max(self._search_from, self.start_offset)
        found = self._search_from = self.live.find(AVAILABLE, start, max(start, self.end_offset))
        if found >= self.ceiling:
            return None
        # Leases that another leader has given may lie before it: their keys must be known first.
        return min(found, max(self.contents.looked_to, self.start_offset)) if self.rules.keeps_leases else found

    @property
    def _is_full(self) -> bool:
        if self.held_offsets >= self.rules.leases_max:
            return True
        # A lease of several messages has as many terms once they are extended or deleted one by one.
        return self.rules.keeps_leases and max(len(self.durable.terms.terms), self.held_offsets) >= TERMS_MAX

    def held_up(self, log_end: int) -> HeldUp:
        """Whether messages wait in the log and cannot be acquired because of others."""
        if self._is_full:
            return HeldUp.FULL
        return HeldUp.FAR if self.ceiling < log_end and self.next_offset() is None else HeldUp.NOT

    @property
    def ceiling(self) -> int:
        return self.start_offset + self.rules.span_max

    # --- changes ---

    def free(self, first: int, end: int) -> None:
        self.live.set_state(first, end, AVAILABLE)
        self._search_from = min(self._search_from, first)

    def free_each(self, offsets: list[int]) -> None:
        """The same, without a word to who follows the changes. The offsets ascend."""
        self.live.put_state(offsets, AVAILABLE)
        self._search_from = min(self._search_from, offsets[0])

    def mark(self, first: int, end: int) -> None:
        """What the store has of their leases and delays may not be true any more."""
        if self.durable.terms.terms or self.rules.keeps_leases:
            self.outbox.terms.mark(first, end)

    def _end_delay(self, first: int, end: int) -> bool:
        freed = False
        for run in self.live.runs(max(first, self.start_offset), max(end, self.start_offset)):
            if run.state == DELAYED:
                self.free(run.first, run.end)
                self.mark(run.first, run.end)
                freed = True
        return freed

    def _archive(self, first: int, end: int, state: int = AVAILABLE) -> None:
        """There is no record for readers at these offsets, or nobody needs it any more."""
        while (first := self.live.find(state, first, end)) < end:
            run_end = self.live.run_end(first, end)
            self._do(first, run_end, ARCHIVED, self.live.count_at(first))
            first = run_end

    def _do(self, first: int, end: int, state: int, count: int) -> None:
        self.letters.note(first, end, count, state)
        self.mark(first, end)
        self.live.set_state(first, end, SETTLING)
        self.end_offset = max(self.end_offset, end)
        self.outbox.chores.append(Chore(first, end, state, count))
