"""Mistakes about receipts, planted and found by name: whose delivery it is, how long it is good for, whether it counts.

Each is found by the law that is named, within a bounded number of random histories, always the same ones.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from shares_against_model import UnderLaws

from skidway.errors import InvalidRecordState
from skidway.shares import cells, delivery, receipts
from skidway.shares.acquiring import Acquired
from skidway.shares.delivery import Delivery
from skidway.shares.durable import Durable
from skidway.shares.leases import Lease
from skidway.shares.receipts import Receipts, Standing
from skidway.shares.records import StateBatch
from skidway.shares.settling import Answer
from skidway.shares.states import AVAILABLE, Verb

HISTORIES_MAX = 1_000
STEPS = 60


class LateHoldersEndLeases(Receipts):
    """Whoever held the record once may release, reject and extend it."""

    def _refusal(self, offset: int, count: int, verb: Verb, standing: Standing) -> InvalidRecordState | None:
        return None if standing is Standing.TAKEN else super()._refusal(offset, count, verb, standing)

    def standing(self, offset: int, count: int) -> Standing:
        standing = super().standing(offset, count)
        return Standing.HELD if standing is Standing.TAKEN else standing


class ExpiredReceiptsSettle(Receipts):
    """A FIFO queue takes a receipt whose lease is over."""

    def _refusal(self, offset: int, count: int, verb: Verb, standing: Standing) -> InvalidRecordState | None:
        refusal = super()._refusal(offset, count, verb, standing)
        return None if verb is Verb.ACCEPT and standing is not Standing.DONE else refusal


class LateAcceptanceIsRefused(Receipts):
    """A receipt ends with its lease in every queue."""

    def _refusal(self, offset: int, count: int, verb: Verb, standing: Standing) -> InvalidRecordState | None:
        if standing is not Standing.HELD:
            return InvalidRecordState("it is over")
        return None


class AnswersWhatIsOnItsWay(Receipts):
    """A word about a record that is settling is taken for done."""

    def standing(self, offset: int, count: int) -> Standing:
        standing = super().standing(offset, count)
        return Standing.DONE if standing is Standing.SETTLING else standing


class ChangesAreForgotten(Receipts):
    """The holder is told that the lease goes on, and it does not."""

    def change(self, owner: str, offset: int, count: int, lock_ms: int, now_ms: int, answer: Answer) -> None:
        if self.standing(offset, count) is Standing.HELD and lock_ms:
            answer(None)
        else:
            super().change(owner, offset, count, lock_ms, now_ms, answer)


class LeasesMoreThanThereIsRoomFor(Receipts):
    def change(self, owner: str, offset: int, count: int, lock_ms: int, now_ms: int, answer: Answer) -> None:
        inner = self._delivery
        inner.on_time(now_ms)
        possible = lock_ms > 0 and self._impossible(offset, count) is None
        over = possible and self.standing(offset, count) is Standing.OVER
        if over and self._refusal(offset, count, Verb.RENEW, Standing.OVER) is None:
            self._lease_again(Lease(owner, offset, offset + 1, count, now_ms + lock_ms))
            answer(None)
        else:
            super().change(owner, offset, count, lock_ms, now_ms, answer)


class UncountedCounts(Receipts):
    taken_back = 0

    def untake(self, acquired: Iterable[Acquired]) -> bool:
        acquired, delivery = list(acquired), self._delivery
        held = [lease for each in acquired for lease in delivery.leases.within(each.first, each.end)]
        freed = super().untake(acquired)
        for lease in held:
            for run in list(delivery.live.runs(lease.first, lease.end)):
                if run.state == AVAILABLE and run.count == lease.count - 1:
                    delivery.live.set_count(run.first, run.end, max(0, lease.count - self.taken_back))
        return freed


class UncountsTwice(UncountedCounts):
    taken_back = 2


class _DurableThatDoesNotRaise(Durable):
    __slots__ = ()

    def raised(self, batch: StateBatch) -> Iterator[StateBatch]:
        yield batch


class StoreOutranksWhatIsSettled(Delivery):
    """A stored delivery that did not count has a higher count than what becomes of the record, and wins."""

    def next_write(self, now_ms: int, wall_ms: int) -> Any:
        self.durable.__class__ = _DurableThatDoesNotRaise
        return super().next_write(now_ms, wall_ms)


OF_RECEIPTS: dict[type[Receipts], tuple[str, ...]] = {
    LateHoldersEndLeases: ("L16",),
    ExpiredReceiptsSettle: ("L16",),
    LateAcceptanceIsRefused: ("L16",),
    AnswersWhatIsOnItsWay: ("L6", "L16"),
    ChangesAreForgotten: ("L3", "L5", "L16"),
    UncountedCounts: ("L4",),
    UncountsTwice: ("L4",),
    LeasesMoreThanThereIsRoomFor: ("L8",),
}
OF_DELIVERY: dict[type[Delivery], tuple[str, ...]] = {
    StoreOutranksWhatIsSettled: ("L1", "L6", "L14"),
}


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cells, "CHUNK", 8)


@pytest.mark.parametrize("mutant", OF_RECEIPTS, ids=lambda mutant: mutant.__name__)
def test_a_planted_mistake_about_receipts_breaks_its_law(
    mutant: type[Receipts], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receipts, "Receipts", mutant)
    assert _broken_law() in OF_RECEIPTS[mutant]


@pytest.mark.parametrize("mutant", OF_DELIVERY, ids=lambda mutant: mutant.__name__)
def test_a_planted_mistake_about_counts_breaks_its_law(mutant: type[Delivery], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "Delivery", mutant)
    assert _broken_law() in OF_DELIVERY[mutant]


def _broken_law() -> str:
    with pytest.raises(AssertionError) as broken:
        _run()
    return str(broken.value).split(":")[0]


def _run() -> None:
    for seed in range(HISTORIES_MAX):
        UnderLaws(seed, by_receipt=True).run(STEPS)
