"""The offsets of a share-partition as its leader sees them, from the first that is not settled on.

What can be done to them without asking who holds what. `delivery.Delivery` is the whole machine.
"""

from skidway.shares.acquiring import Taking, isolated
from skidway.shares.cells import Cells
from skidway.shares.contents import Contents
from skidway.shares.delays import Delays
from skidway.shares.durable import Durable
from skidway.shares.leases import Leases
from skidway.shares.letters import Letters
from skidway.shares.outbox import Outbox
from skidway.shares.settling import Chore
from skidway.shares.states import ARCHIVED, AVAILABLE, COUNT_MAX, DELAYED, SETTLING, DeliveryRules, HeldUp
from skidway.shares.tenants import Tenants
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
    tenants: Tenants
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

    @property
    def looked_to(self) -> int:
        """What lies below was examined, or is settled."""
        return max(self.contents.looked_to, self.start_offset)

    def next_offset(self, upto: int | None = None) -> int | None:
        """From where to read for the next fetch; None when nothing may be acquired now, however much is there.

        `upto`: the log ends there, and records of noisy tenants are passed over if there may be others."""
        if self._is_full:
            return None
        self.contents.refresh(self)
        if self.rules.fair:
            self.tenants.refresh(self)
        start = max(self._search_from, self.start_offset)
        found = self._search_from = self.live.find(AVAILABLE, start, max(start, self.end_offset))
        if found >= self.ceiling:
            return None
        # Leases that another leader has given may lie before it: their keys must be known first.
        if self.rules.keeps_leases:
            return min(found, self.looked_to)
        return found if upto is None else self.tenants.first_of_others(self, found, upto)

    def seeks_others(self, offset: int) -> bool:
        """Whether it is read from there to find records of tenants that are not noisy."""
        return self.tenants.passes and not self.tenants.run_end(offset, offset + 1)[1]

    def is_first(self, offset: int) -> bool:
        """Whether nothing is available before it."""
        first = max(self._search_from, self.start_offset)
        return self.live.find(AVAILABLE, first, max(first, offset)) >= offset

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

    def _take(self, taking: Taking, first: int, end: int) -> bool:
        """What is available of one batch; False when nothing may go with what was taken."""
        live = self.live
        while (first := live.find(AVAILABLE, first, end)) < end and not taking.is_full:
            run_end, count = live.run_end(first, end), live.count_at(first)
            if count >= self.rules.count_limit:  # it was lowered since
                self._do(first, run_end, self.rules.dead, count)
                first = run_end
                continue
            if taking.left_over is not None:
                run_end, is_noisy = self.tenants.run_end(first, run_end)
                if is_noisy:
                    taken_end = taking.take_left_over(first, run_end, min(count + 1, COUNT_MAX))
                    first = run_end if not taking.left_over else taken_end
                    continue
            alone = isolated(count, run_end - first, self.rules)
            if alone is not None:
                if not taking.taken:
                    taking.take(first, first + alone, min(count + 1, COUNT_MAX))
                return False
            first = taking.take(first, run_end, min(count + 1, COUNT_MAX))
        return True
