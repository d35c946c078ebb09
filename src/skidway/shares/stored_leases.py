"""Leases that outlive their leader, where keys have an order: nobody hears of one before the store has it.

What `delivery.Delivery` does about them; what is stored is in `terms`. A lease begins when it is stored. If it is not,
it was no delivery.
"""

from collections.abc import Iterable

from skidway.shares.acquiring import Acquired
from skidway.shares.leases import Lease
from skidway.shares.settling import Keep
from skidway.shares.states import AVAILABLE, LEASED
from skidway.shares.window import Window


class StoredLeases(Window):
    __slots__ = ()

    def resume(self, now_ms: int, wall_ms: int) -> None:
        """Leases and delays that the leader before has stored go on. Once, before anything else."""
        for term in self.durable.terms.terms:
            remaining_ms, first = term.remaining_ms(wall_ms), max(term.first, self.start_offset)
            for run in self.live.runs(first, max(first, term.end)):
                if remaining_ms <= 0 or run.state != AVAILABLE or run.count != term.count:
                    self.mark(run.first, run.end)  # it is over, settled, or was delivered once more
                    continue
                self.live.set_state(run.first, run.end, term.kind)
                if term.kind == LEASED:
                    self.leases.add(Lease(term.owner, run.first, run.end, run.count, now_ms + remaining_ms))
                else:
                    self.delays.add(now_ms + remaining_ms, run.first, run.end)

    @property
    def last_keep(self) -> Keep | None:
        """Of what was just acquired: nobody may hear of it before the keep says that it is stored. None: at once."""
        return self.outbox.keeps[-1] if self.outbox.keeps else None

    def renew(self, first: int, end: int, deadline_ms: int) -> bool:
        """Whether the store has to hear of it. If it does not, the leases last longer than their holder knows."""
        self.leases.renew(first, end, deadline_ms)
        self.mark(first, end)
        return self.rules.keeps_leases

    def uncount(self, acquired: Iterable[Acquired], keep: Keep | None = None) -> bool:
        """Nobody was told of these deliveries: they did not happen. Whether something is available that was not.

        A lease that is stored ends there at once: the next leader would go on with it, and nobody has it."""
        freed = False
        for each in acquired:
            for held in self.leases.within(each.first, each.end):
                if held.count == each.count and (keep is None or held.keep is keep):
                    for lease in self.leases.carve(max(held.first, each.first), min(held.end, each.end)):
                        self.free(lease.first, lease.end)
                        self.live.set_count(lease.first, lease.end, lease.count - 1)
                        self.mark(lease.first, lease.end)
                        freed = True
        self.outbox.eager |= freed and self.rules.keeps_leases
        return freed

    def _begin(self, keep: Keep, now_ms: int) -> list[Acquired]:
        """What of it is still leased: the leases begin now."""
        begun: list[Acquired] = []
        for each in keep.acquired:
            for lease in self.leases.within(each.first, each.end):
                if lease.keep is keep:
                    self.leases.begin(lease, now_ms)
                    begun.append(Acquired(max(lease.first, each.first), min(lease.end, each.end), each.count))
        return begun
