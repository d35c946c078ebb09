"""Random histories of transactional produce against laws that know nothing of guards; planted mistakes are found."""

from collections.abc import Callable
from typing import Any

import pytest
from transactional_model import Unlawful, run

from skidway.broker.partitions.guards import Guard, Guards
from skidway.broker.partitions.producer_checks import ProducerChecks
from skidway.errors import InvalidProducerEpoch, TransactionAbortable
from skidway.log.producers import Producers
from skidway.records.batch import BatchHeader
from skidway.records.control import EndTransaction

SEEDS = 12
SEEDS_MAX = 60
"""In which a planted mistake has to be found."""


def test_histories_are_lawful() -> None:
    models = [run(seed) for seed in range(SEEDS)]
    assert sum(model.appended for model in models) > 15 * SEEDS
    assert sum(model.committed for model in models) > SEEDS
    assert sum(model.refused_markers for model in models) > SEEDS // 2


def no_guard(self: Guards, guard: Guard, header: BatchHeader) -> None:
    """4: verified, aborted, appended."""
    guard.check_order(header.base_sequence)


def guard_by_producer(self: Guards, guard: Guard, header: BatchHeader) -> None:
    """5: any question of the producer will do."""
    if guard.producer_id not in self._standing:
        raise TransactionAbortable
    guard.check_order(header.base_sequence)


def marker_leaves_guards(self: Guards, producer_id: int, epoch: int) -> None:
    """4: the guard stays although its transaction has ended."""


def marker_at_the_same_epoch(
    self: Producers, producer_id: int, epoch: int, marker: EndTransaction, transaction_version: int
) -> None:
    """6: a marker of the transaction before ends the one that is open."""
    known = self.entries.get(producer_id)
    if known is not None and epoch < known.epoch:
        raise InvalidProducerEpoch


def marker_refused_again(
    self: Producers, producer_id: int, epoch: int, marker: EndTransaction, transaction_version: int
) -> None:
    """7: what a coordinator repeats is called too old."""
    known = self.entries.get(producer_id)
    if known is not None and epoch < known.epoch + (transaction_version == 2):
        raise InvalidProducerEpoch


_question = ProducerChecks.question


def begins_anywhere(self: ProducerChecks, header: BatchHeader, *others: Any) -> Guard | None:
    """25: an unknown producer may begin with any sequence."""
    knows = Producers.knows
    Producers.knows = lambda self, producer_id: True  # type: ignore[method-assign]
    try:
        return _question(self, header, *others)
    finally:
        Producers.knows = knows  # type: ignore[method-assign]


def no_order(self: Guard, sequence: int) -> None:
    """26: what comes later does not look who waits."""


@pytest.mark.parametrize(
    ("where", "name", "mistake", "laws"),
    [
        (Guards, "check", no_guard, "S"),
        (Guards, "check", guard_by_producer, "S"),
        (Guards, "on_marker", marker_leaves_guards, "S"),
        (Producers, "check_marker", marker_at_the_same_epoch, "T"),
        (Producers, "check_marker", marker_refused_again, "S"),
        (ProducerChecks, "question", begins_anywhere, "D"),
        (Guard, "check_order", no_order, "D"),
    ],
    ids=lambda value: value.__name__ if callable(value) else None,
)
def test_a_planted_mistake_is_found(
    monkeypatch: pytest.MonkeyPatch, where: Any, name: str, mistake: Callable[..., Any], laws: str
) -> None:
    monkeypatch.setattr(where, name, mistake)
    broken = next(filter(None, map(broken_law, range(SEEDS_MAX))), "none")
    assert broken in laws


def broken_law(seed: int) -> str | None:
    try:
        run(seed)
    except Unlawful as found:
        return str(found)[0]
    return None
