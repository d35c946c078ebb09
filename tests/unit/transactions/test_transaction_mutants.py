"""Mistakes that transaction coordinators have made, planted and found by name: the tests can fail.

Each is found by the model or by a law within a bounded number of random histories, always the same ones.
"""

from pathlib import Path
from typing import Any

import pytest
import transaction_world
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from transaction_world import World
from transactions_against_model import TransactionsAgainstModel

from skidway.errors import InvalidTransactionState, ProducerFenced, ProtocolError
from skidway.runtime.log_store import Format
from skidway.runtime.replicated import Decision, Now, Operation, Replicated
from skidway.transactions import records
from skidway.transactions.coordinator import Marked, TransactionCoordinator
from skidway.transactions.operations import (
    AddPartitions,
    CommitTogether,
    EndTransaction,
    InitProducer,
    MarkersWritten,
    Participant,
    Producer,
    Tick,
    TopicsDeleted,
)
from skidway.transactions.records import TransactionRecord
from skidway.transactions.transaction import NO_PRODUCER, Ended, Ending, Ongoing, Transaction
from values import replace

HISTORIES_MAX = 400
COMPARING = ("transactions_against_model.py", "transaction_laws.py")


class Mutant(TransactionCoordinator):
    """Decides as it should; what follows is wrong in one way each."""

    def right(self, operation: Operation[Any], now: Now) -> Any:
        return TransactionCoordinator.decide(self, operation, now)


class EndsDoNotBump(Mutant):
    """A late EndTxn ends the next transaction (KAFKA-17754)."""

    def decide(self, operation: Operation[Any], now: Now) -> Any:
        if isinstance(operation, EndTransaction):
            operation = replace(operation, bumps=False)
        return self.right(operation, now)


class LoadsSendNoMarkers(Mutant):
    """After a load nobody completes what was ending."""

    def unfinished(self) -> list[Any]:
        TransactionCoordinator.unfinished(self)
        return []


class LoadsCompleteWhatWasEnding(Mutant):
    """Complete before the last answer."""

    def apply(self, record: TransactionRecord) -> None:
        TransactionCoordinator.apply(self, record)
        if record.transaction is not None and isinstance(record.transaction.state, Ending):
            unmarked = self._unmarked[record.id]
            unmarked.places = frozenset(sorted(unmarked.places)[:1])


class MarkersAreKnownByIdOnly(Mutant):
    """An answer about the transaction before completes this one (KAFKA-16352, 10080)."""

    def decide(self, operation: Operation[Any], now: Now) -> Any:
        if isinstance(operation, MarkersWritten) and operation.transactional_id in self._unmarked:
            operation = replace(operation, number=self._unmarked[operation.transactional_id].number)
        return self.right(operation, now)


class AnyAnswerIsDone(Mutant):
    """An answer that names no partition, since all failed, counts as done."""

    def decide(self, operation: Operation[Any], now: Now) -> Any:
        if isinstance(operation, MarkersWritten) and not operation.places:
            known = self.transactions.get(operation.transactional_id)
            operation = replace(operation, places=sorted(known.places) if known else [])
        return self.right(operation, now)


class NewcomersBumpTwice(Mutant):
    """Double bump (KAFKA-19367)."""

    def decide(self, operation: Operation[Any], now: Now) -> Any:
        decision = self.right(operation, now)
        for record in decision.records if isinstance(operation, InitProducer) else []:
            if isinstance(record.transaction.state, Ending) and record.transaction.epoch < 32_000:
                record.transaction = replace(record.transaction, epoch=record.transaction.epoch + 1)
                decision.effects = [replace(each, epoch=each.epoch + 1) for each in decision.effects]
        return decision


class SomeAbortsDoNotBump(Mutant):
    by: type[Operation[Any]]
    deciding: Operation[Any]

    def decide(self, operation: Operation[Any], now: Now) -> Any:
        self.deciding = operation
        return self.right(operation, now)

    def _begin_end(self, known: Transaction, *, commit: bool, bumps: bool, wall_ms: int) -> Any:
        bumps = bumps and not isinstance(self.deciding, self.by)
        return TransactionCoordinator._begin_end(self, known, commit=commit, bumps=bumps, wall_ms=wall_ms)


class TimeoutsDoNotBump(SomeAbortsDoNotBump):
    by = Tick


class NewcomersDoNotBump(SomeAbortsDoNotBump):
    """The open transaction is aborted, and its epoch stays."""

    by = InitProducer


class RetriedCommitsFail(Mutant):
    """As in Redpanda #3501."""

    def decide(self, operation: Operation[Any], now: Now) -> Any:
        decision = self.right(operation, now)
        if isinstance(operation, EndTransaction) and operation.commit and not decision.records:
            raise InvalidTransactionState("nothing to commit")
        return decision


class OngoingIsInMemoryOnly(Mutant):
    """As in Redpanda #6019."""

    def decide(self, operation: Operation[Any], now: Now) -> Any:
        decision = self.right(operation, now)
        if isinstance(operation, AddPartitions):
            for record in decision.records:
                self.apply(record)
            decision.records = []
        return decision


class TombstonesComeLate(Mutant):
    """What expired is forgotten although a producer has taken it again since."""

    def __init__(self, *rest: Any) -> None:
        super().__init__(*rest)
        self.expired: list[TransactionRecord] = []

    def decide(self, operation: Operation[Any], now: Now) -> Any:
        decision = self.right(operation, now)
        if isinstance(operation, Tick):
            self.expired += [record for record in decision.records if record.transaction is None]
            decision.records = [record for record in decision.records if record.transaction is not None]
        elif isinstance(operation, InitProducer):
            decision.records += self.expired
            self.expired = []
        return decision


class ZombiesAbortTheirSuccessors(Mutant):
    """Who comes back is told apart by its producer id alone while a transaction is open, as in Kafka."""

    def decide(self, operation: Operation[Any], now: Now) -> Any:
        try:
            return self.right(operation, now)
        except ProducerFenced:
            known = self.transactions.get(getattr(operation, "transactional_id", ""))
            if isinstance(operation, InitProducer) and known is not None and isinstance(known.state, Ongoing):
                return self.right(replace(operation, epoch=known.epoch), now)
            raise


class ZombiesHearOfTheirSuccessorsCommit(Mutant):
    """The epoch before is taken for a retry whatever the last end was, as in Kafka."""

    def decide(self, operation: Operation[Any], now: Now) -> Any:
        try:
            return self.right(operation, now)
        except ProducerFenced:
            if not isinstance(operation, EndTransaction):
                raise
            known = self.transactions[operation.transactional_id]
            is_next = operation.epoch == known.epoch - 1
            if is_next and isinstance(known.state, Ended) and known.state.commit == operation.commit:
                return Decision([], Producer(known.producer_id, known.epoch))
            raise


class AddingLooksAtTheProducerFirst(Mutant):
    """A client that has its next producer id already hears that it is wrong (KAFKA-18660's sibling)."""

    def _add(self, asked: AddPartitions, now: Now) -> Any:
        self._held_by(asked)
        return TransactionCoordinator._add(self, asked, now)


class DeletedTopicsHoldUp(Mutant):
    def decide(self, operation: Operation[Any], now: Now) -> Any:
        return Decision([], None) if isinstance(operation, TopicsDeleted) else self.right(operation, now)


class AnswersAreForgotten(Mutant):
    """Only an answer for all partitions at once completes a transaction."""

    def note(self, note: Any) -> None:
        if not isinstance(note, Marked):
            TransactionCoordinator.note(self, note)


class OnlySomeAreCommitted(Mutant):
    """Of a set those that can be are committed; the others are left out."""

    def decide(self, operation: Operation[Any], now: Now) -> Any:
        try:
            return self.right(operation, now)
        except ProtocolError:
            if not isinstance(operation, CommitTogether):
                raise
            some = [each for each in operation.participants if self._is_open(each)]
            if not some or len({each.transactional_id for each in some}) < len(some):
                raise
            return self.right(CommitTogether(some), now)

    def _is_open(self, each: Participant) -> bool:
        known = self.transactions.get(each.transactional_id)
        said = (each.producer_id, each.epoch)
        return known is not None and isinstance(known.state, Ongoing) and said == (known.producer_id, known.epoch)


class RefusedSetsAreDone(Mutant):
    """A set with a participant that was fenced is answered as if it had been committed."""

    def decide(self, operation: Operation[Any], now: Now) -> Any:
        try:
            return self.right(operation, now)
        except ProducerFenced:
            if not isinstance(operation, CommitTogether):
                raise
            return Decision([], [Producer(each.producer_id, each.epoch + 1) for each in operation.participants])


class SetsCommittedBeforeAreRefused(Mutant):
    """Who asks again hears of a failure that there was not, and writes everything once more."""

    def decide(self, operation: Operation[Any], now: Now) -> Any:
        decision = self.right(operation, now)
        if isinstance(operation, CommitTogether) and not decision.records:
            raise InvalidTransactionState("nothing to commit")
        return decision


# Those that are planted inside.


def markers_leave_at_append(patch: pytest.MonkeyPatch) -> None:
    submit = Replicated.submit

    def hasty(host: Any, operation: Any, now: Now, respond: Any) -> None:
        submit(host, operation, now, respond)
        for parked in host.parked:
            for effect in parked.effects:
                host._perform(effect)
            parked.effects = ()

    patch.setattr(Replicated, "submit", hasty)


def ends_are_answered_at_append(patch: pytest.MonkeyPatch) -> None:
    submit = Replicated.submit

    def hasty(host: Any, operation: Any, now: Now, respond: Any) -> None:
        submit(host, operation, now, respond)
        if isinstance(operation, EndTransaction) and host.parked:
            for answer, reply in host.parked[-1].replies:
                answer(reply)
            host.parked[-1].replies = []

    patch.setattr(Replicated, "submit", hasty)


def epochs_overflow(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Transaction, "is_last_epoch", property(lambda known: known.epoch > 32_766))


def next_producer_id_is_not_stored(patch: pytest.MonkeyPatch) -> None:
    def encode(record: TransactionRecord) -> Any:
        known = record.transaction
        return records.encode(replace(record, transaction=known and replace(known, next_producer_id=NO_PRODUCER)))

    patch.setattr(transaction_world, "FORMAT", Format("transaction", encode, records.FORMAT.decode))


MUTANTS: list[Any] = [
    markers_leave_at_append,
    ends_are_answered_at_append,
    EndsDoNotBump,
    LoadsSendNoMarkers,
    LoadsCompleteWhatWasEnding,
    MarkersAreKnownByIdOnly,
    AnyAnswerIsDone,
    NewcomersBumpTwice,
    epochs_overflow,
    next_producer_id_is_not_stored,
    TimeoutsDoNotBump,
    NewcomersDoNotBump,
    RetriedCommitsFail,
    OngoingIsInMemoryOnly,
    TombstonesComeLate,
    ZombiesAbortTheirSuccessors,
    ZombiesHearOfTheirSuccessorsCommit,
    AddingLooksAtTheProducerFirst,
    DeletedTopicsHoldUp,
    AnswersAreForgotten,
    OnlySomeAreCommitted,
    RefusedSetsAreDone,
    SetsCommittedBeforeAreRefused,
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_the_model_finds(mutant: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    machine_class: Any = TransactionCoordinator
    if isinstance(mutant, type):
        machine_class = mutant
    else:
        mutant(monkeypatch)
    world_class = type("MutantWorld", (World,), {"machine_class": machine_class})
    tested = type("Tested", (TransactionsAgainstModel,), {"world_class": world_class})
    tries = settings(
        max_examples=HISTORIES_MAX,
        stateful_step_count=40,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        report_multiple_bugs=False,
    )
    with pytest.raises(AssertionError) as broken:
        run_state_machine_as_test(tested, settings=tries)
    # By what the model or a law says, not by an assertion of the product that the mistake trips on.
    assert Path(broken.traceback[-1].path).name in COMPARING, broken.getrepr()
