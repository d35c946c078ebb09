"""What a coordinator does otherwise while the cluster's `transaction.version` is below 2."""

from itertools import count
from typing import Any

import pytest

from skidway.errors import ConcurrentTransactions, ProducerFenced, UnsupportedVersion
from skidway.records.record import Record
from skidway.runtime.replicated import Now
from skidway.transactions.coordinator import TransactionCoordinator
from skidway.transactions.operations import (
    CommitTogether,
    EndTransaction,
    InitProducer,
    MarkersWritten,
    Participant,
    Producer,
    Tick,
    WriteMarkers,
)
from skidway.transactions.records import TransactionRecord, encode, format_at
from skidway.transactions.settings import TransactionSettings
from skidway.transactions.transaction import Ended, Ending, Ongoing, Transaction

PLACES = frozenset({("x", 0)})
LATE = Now(2_000, 2_000)


class Story:
    def __init__(self, epoch: int, *, version: int, bumps: bool = False) -> None:
        self.version = version
        drawn = count(900)
        self.machine = TransactionCoordinator(TransactionSettings(), lambda: next(drawn), count(), lambda: self.version)
        self.machine.apply(
            TransactionRecord("t", Transaction("t", 7, epoch, 1_000, Ongoing(5, PLACES), 5, 7, bumps=bumps))
        )

    @property
    def known(self) -> Transaction:
        return self.machine.transactions["t"]

    def decide(self, operation: Any, now: Now = LATE) -> Any:
        decision = self.machine.decide(operation, now)
        for record in decision.records:
            self.machine.apply(record)
        for note in decision.notes:
            self.machine.note(note)
        return decision

    def abort(self, by: str) -> WriteMarkers:
        """What its markers are to be."""
        decision = self.decide(Tick(0) if by == "time" else InitProducer("t", 1_000))
        if by == "newcomer":
            assert isinstance(decision.reply, ConcurrentTransactions)
        (effect,) = decision.effects
        assert isinstance(effect, WriteMarkers)
        return effect

    def complete(self, effect: WriteMarkers) -> None:
        self.decide(MarkersWritten("t", effect.number, list(effect.places)))


@pytest.mark.parametrize("by", ["time", "newcomer"])
@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("bumps", [False, True])
def test_who_is_aborted_is_fenced_and_the_markers_are_those_of_steady_clients(
    by: str, version: int, bumps: bool
) -> None:
    story = Story(3, version=version, bumps=bumps)
    effect = story.abort(by)
    assert (effect.producer_id, effect.epoch, effect.commit, effect.bumps) == (7, 4, False, False)
    assert (story.known.epoch, story.known.bumps) == (4, False)
    story.complete(effect)
    assert (story.known.epoch, story.known.state) == (4, Ended(False, 5))
    for version_of_client in (False, True):
        with pytest.raises(ProducerFenced):
            story.decide(EndTransaction("t", 7, 3, True, version_of_client))


@pytest.mark.parametrize("by", ["time", "newcomer"])
def test_with_version_2_they_are_those_of_bumping_clients(by: str) -> None:
    effect = Story(3, version=2).abort(by)
    assert (effect.epoch, effect.bumps) == (4, True)


@pytest.mark.parametrize("by", ["time", "newcomer"])
def test_after_the_last_epoch_the_next_producer_gets_another_producer_id(by: str) -> None:
    story = Story(32_766, version=1)
    effect = story.abort(by)
    assert (effect.producer_id, effect.epoch) == (7, 32_767)
    assert story.known.next_producer_id == -1
    story.complete(effect)
    assert story.decide(InitProducer("t", 1_000)).reply == Producer(900, 0)


def test_a_change_counts_from_the_next_decision_on() -> None:
    story = Story(3, version=1)
    story.version = 2
    assert story.abort("time").bumps


@pytest.mark.parametrize("version", [0, 1])
def test_nothing_is_committed_together(version: int) -> None:
    story = Story(3, version=version)
    with pytest.raises(UnsupportedVersion, match=f"only with transaction.version 2: the cluster uses {version}"):
        story.decide(CommitTogether([Participant("t", 7, 3)]))
    assert isinstance(story.known.state, Ongoing)
    story.version = 2
    story.decide(CommitTogether([Participant("t", 7, 3)]))
    assert isinstance(story.known.state, Ending)


def test_values_have_version_0_as_long_as_the_version_of_transactions_is_0() -> None:
    level = [0]
    written = format_at(lambda: level[0])
    record = TransactionRecord("t", Transaction("t", 7, 3, 1_000, Ending(True, 5, PLACES), 6, 7, 9, bumps=True))
    key, old = written.encode(record)
    assert old is not None
    assert old[:2] == b"\0\0"
    found = written.decode(Record(0, 0, key, old))
    assert found is not None
    # What only version 1 has is lost.
    assert found.transaction == Transaction("t", 7, 3, 1_000, Ending(True, 5, PLACES), 6)
    for level[0] in (1, 2):
        assert written.encode(record) == encode(record)
        assert written.decode(Record(0, 0, *written.encode(record))) == record
