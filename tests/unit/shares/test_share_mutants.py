"""Mistakes that leaders of share-partitions have made, planted and found by name: the laws can be broken.

Each is found by a law, the one that is named, within a bounded number of random histories, always the same ones.
"""

from typing import Any, ClassVar

import pytest
from shares_against_model import UnderLaws

from skidway.errors import ProtocolError
from skidway.shares import cells, delivery
from skidway.shares.delivery import Delivery
from skidway.shares.durable import Durable
from skidway.shares.leases import Lease, Leases
from skidway.shares.records import StateBatch, Stored
from skidway.shares.settling import Answer, Said
from skidway.shares.states import ACKNOWLEDGED, AVAILABLE, TERMINAL, DeliveryRules
from values import replace

HISTORIES_MAX = 1_000
STEPS = 60


class AcquiresWhatIsSettling(Delivery):
    """What is on its way to the store is delivered (KAFKA-18084)."""

    def settle(self, owner: str, said: list[Said], now_ms: int, answer: Answer, lock_ms: int | None = None) -> None:
        before = len(self.outbox.settlements)
        super().settle(owner, said, now_ms, answer, lock_ms)
        for settlement in self.outbox.settlements[before:]:
            for part in settlement.parts:
                self.free(part.lease.first, part.lease.end)


class OneDeliveryTooMany(Delivery):
    """The limit is off by one."""

    def __init__(self, stored: Stored, rules: DeliveryRules, log_start: int = 0) -> None:
        super().__init__(stored, replace(rules, count_limit=rules.count_limit + 1), log_start)


class OnlyTheFirstIsArchived(Delivery):
    """The log's start moves, and only one record is given up (KAFKA-19630)."""

    def on_log_start(self, offset: int) -> None:
        super().on_log_start(min(offset, self.start_offset + 1))


class HolesAreDone(Delivery):
    """Offsets between stored batches are taken for settled (KAFKA-18494)."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        for run in list(self.live.runs(self.start_offset, self.end_offset)):
            if not run.state and not run.count:
                self.live.set_state(run.first, run.end, ACKNOWLEDGED)


class GoneStaysAvailable(Delivery):
    """What compaction removed is waited for (KAFKA-17351)."""

    def _archive(self, first: int, end: int, state: int = AVAILABLE) -> None:
        pass


class RepliesBeforeTheCommit(Delivery):
    def settle(self, owner: str, said: list[Said], now_ms: int, answer: Answer, lock_ms: int | None = None) -> None:
        told: list[Any] = []

        def once(error: ProtocolError | None) -> None:
            if not told:
                told.append(error)
                answer(error)

        super().settle(owner, said, now_ms, once, lock_ms)
        if not told:
            once(None)


class EndsLeasesLate(Delivery):
    def on_time(self, now_ms: int) -> bool:
        return super().on_time(now_ms - 1)


class EndsLeasesEarly(Delivery):
    def on_time(self, now_ms: int) -> bool:
        return super().on_time(now_ms + 1)


class LeasesOutliveTheLeader(Delivery):
    """A lease of the leader before is honoured."""

    before: ClassVar[list[Lease]] = []

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        for lease in type(self).before:
            if lease.first >= self.start_offset and lease.end <= self.end_offset:
                self.leases.add(lease.part(lease.first, lease.end))
                self.live.set_state(lease.first, lease.end, delivery.LEASED)

    def give_up(self, error: ProtocolError) -> None:
        type(self).before = list(self.leases)
        super().give_up(error)


class StrangersSettle(Delivery):
    """Nobody asks whose lease it is."""

    def _check_held(self, owner: str, first: int, end: int) -> None:
        held = self.leases.within(first, end)
        super()._check_held(held[0].owner if held else owner, first, end)


class AppliesPartOfAnAck(Delivery):
    """What comes before the mistake takes effect."""

    def settle(self, owner: str, said: list[Said], now_ms: int, answer: Answer, lock_ms: int | None = None) -> None:
        for word in said[:-1]:
            super().settle(owner, [word], now_ms, lambda error: None, lock_ms)
        super().settle(owner, said[-1:], now_ms, answer, lock_ms)


class FailedWritesEndLeases(Delivery):
    """Nobody holds what could not be settled."""

    def _restore(self, lease: Lease, now_ms: int) -> bool:
        return super()._restore(lease, lease.deadline_ms)


class FailedWritesAreAnswered(Delivery):
    """The client hears of success whatever the store says."""

    def on_failed(self, error: ProtocolError, now_ms: int) -> bool:
        for settlement in self.outbox.writing.settlements if self.outbox.writing else []:
            answer = settlement.answer
            settlement.answer = lambda error, answer=answer: answer(None)  # type: ignore[misc]
        return super().on_failed(error, now_ms)


class CountsFall(Delivery):
    """A lease that ends by time did not count."""

    def give_back(self, lease: Lease) -> bool:
        freed = super().give_back(lease)
        if freed:
            self.live.set_count(lease.first, lease.end, lease.count - 1)
        return freed


class SettlingTakesNoRoom(Delivery):
    @property
    def held_offsets(self) -> int:
        return self.leases.offsets


class OneLeavesAllLeave(Delivery):
    def release_owner(self, owner: str) -> bool:
        freed = [super(OneLeavesAllLeave, self).release_owner(each) for each in ("ann", "bob", "cyd")]
        return any(freed)


class WrittenIsNotApplied(Delivery):
    """Memory does not follow the store."""

    def on_written(self, now_ms: int) -> bool:
        assert self.outbox.writing is not None
        self.outbox.writing.update.batches = self.outbox.writing.update.batches[1:]
        self.outbox.writing.update.complete_count = -1
        return super().on_written(now_ms)


class _DurableThatPasses(Durable):
    __slots__ = ()

    def preview(self, batches: list[StateBatch], floor: int) -> tuple[int, int]:
        start, complete_count = super().preview(batches, floor)
        for batch in batches:
            if batch.state == AVAILABLE and batch.first <= start < batch.end:
                passed = self.cells.count_terminal(self.start_offset, min(batch.end, self.end_offset))
                above = sum(b.end - b.first for b in batches if b.state in TERMINAL and b.first >= batch.end)
                return batch.end, self.complete_count - passed + above
        return start, complete_count


class StartPassesWhatIsReleased(Delivery):
    """The start offset moves over records that come again."""

    def next_write(self, now_ms: int, wall_ms: int) -> Any:
        self.durable.__class__ = _DurableThatPasses
        return super().next_write(now_ms, wall_ms)


class _DurableThatCountsWrong(Durable):
    __slots__ = ()

    def preview(self, batches: list[StateBatch], floor: int) -> tuple[int, int]:
        start, complete_count = super().preview(batches, floor)
        return start, complete_count + min(1, start - self.start_offset)


class CompleteCountKeepsWhatWasPassed(Delivery):
    def next_write(self, now_ms: int, wall_ms: int) -> Any:
        self.durable.__class__ = _DurableThatCountsWrong
        return super().next_write(now_ms, wall_ms)


class _LeasesThatDoNotRenew(Leases):
    __slots__ = ()

    def renew(self, first: int, end: int, deadline_ms: int) -> None:
        pass


class RenewIsForgotten(Delivery):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.leases = _LeasesThatDoNotRenew()


class NamedTwicePasses(Delivery):
    """`<` for `<=`: an offset may be named twice in one request."""


MUTANTS: dict[type[Delivery], tuple[str, ...]] = {
    AcquiresWhatIsSettling: ("L1", "L3"),
    OneDeliveryTooMany: ("L4",),
    OnlyTheFirstIsArchived: ("L8",),
    HolesAreDone: ("L2",),
    GoneStaysAvailable: ("L2",),
    RepliesBeforeTheCommit: ("L6",),
    EndsLeasesLate: ("L3", "L5"),
    EndsLeasesEarly: ("L3", "L5"),
    LeasesOutliveTheLeader: ("L3",),
    StrangersSettle: ("L3",),
    AppliesPartOfAnAck: ("L7",),
    FailedWritesEndLeases: ("L3", "L5"),
    FailedWritesAreAnswered: ("L6",),
    CountsFall: ("L4",),
    SettlingTakesNoRoom: ("L8",),
    OneLeavesAllLeave: ("L3", "L5"),
    WrittenIsNotApplied: ("L13",),
    StartPassesWhatIsReleased: ("L8",),
    CompleteCountKeepsWhatWasPassed: ("L14",),
    RenewIsForgotten: ("L3", "L5"),
    NamedTwicePasses: ("L7",),
}


def _order_is_unchecked(said: list[Said]) -> None:
    del said


def _run(histories: int) -> None:
    for seed in range(histories):
        UnderLaws(seed).run(STEPS)


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cells, "CHUNK", 8)


def test_nothing_is_found_where_nothing_is_planted() -> None:
    _run(60)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_planted_mistake_breaks_its_law(mutant: type[Delivery], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "Delivery", mutant)
    if mutant is NamedTwicePasses:
        monkeypatch.setattr(delivery, "check_order", _order_is_unchecked)
    with pytest.raises(AssertionError) as broken:
        _run(HISTORIES_MAX)
    law = str(broken.value).split(":")[0]
    assert law in MUTANTS[mutant], broken.value
