"""Mistakes about leases that are stored, planted and found by name."""

from typing import Any

import pytest
from shares_against_model import UnderLaws

from skidway.shares import cells, delivery
from skidway.shares.delivery import Delivery
from skidway.shares.settling import Keep
from skidway.shares.terms import TermNotes
from values import replace

HISTORIES_MAX = 500
STEPS = 60


class LeasesForgottenAtLoad(Delivery):
    def resume(self, now_ms: int, wall_ms: int) -> None:
        pass


class HeardBeforeTheCommit(Delivery):
    """Who acquires hears of it at once."""

    def acquire(self, *arguments: Any) -> Any:
        acquired = super().acquire(*arguments)
        if acquired and self.rules.keeps_leases:
            keep = self.outbox.keeps.pop()
            keep.acquired = self._begin(keep, arguments[3])
            self.outbox.keeps.append(Known(keep.acquired, is_known=True))
            self.outbox.eager = True
        return acquired


class Known(Keep):
    def tell(self, error: Any) -> None:
        pass


class WallClockTrusted(Delivery):
    """A lease is over when the clock on the wall says so."""

    def resume(self, now_ms: int, wall_ms: int) -> None:
        stored = self.durable.terms
        over = [term for term in stored.terms if term.until_ms <= wall_ms]
        left = [term for term in stored.terms if term.until_ms > wall_ms]
        self.durable.terms = TermNotes(stored.number, left)
        super().resume(now_ms, wall_ms)
        self.durable.terms = stored
        for term in over:
            self.mark(term.first, term.end)


class RenewalsNotStored(Delivery):
    """Who renews is answered at once, and the store has the old time."""

    def renew(self, first: int, end: int, deadline_ms: int) -> bool:
        self.leases.renew(first, end, deadline_ms)
        return False


class FailedOnesStayLeased(Delivery):
    """The store did not take the lease, nobody was told of it, and it stays."""

    def uncount(self, acquired: Any, keep: Any = None) -> bool:
        return False if keep is not None else super().uncount(acquired)


class HoldersForgotten(Delivery):
    """The next leader knows that something is leased, but not to whom."""

    def resume(self, now_ms: int, wall_ms: int) -> None:
        terms = self.durable.terms
        self.durable.terms = TermNotes(terms.number, [replace(term, owner="") for term in terms.terms])
        super().resume(now_ms, wall_ms)
        self.durable.terms = terms


MUTANTS: dict[type[Delivery], tuple[str, ...]] = {
    LeasesForgottenAtLoad: ("L18",),
    HeardBeforeTheCommit: ("L18",),
    WallClockTrusted: ("L18",),
    RenewalsNotStored: ("L18",),
    FailedOnesStayLeased: ("L2", "L16"),
    HoldersForgotten: ("L18",),
}


def _run() -> None:
    for seed in range(HISTORIES_MAX):
        UnderLaws(seed, by_receipt=seed % 2 == 0, contents=True).run(STEPS)


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cells, "CHUNK", 8)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_planted_mistake_about_leases_breaks_its_law(mutant: type[Delivery], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "Delivery", mutant)
    with pytest.raises(AssertionError) as broken:
        _run()
    assert str(broken.value).split(":")[0] in MUTANTS[mutant], broken.value
