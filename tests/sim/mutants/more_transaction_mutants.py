"""More mistakes about transactions: guards, late markers and answers, producers that nobody knows, offsets, expiry.

The numbers are those of the list of mistakes in docs/internals/transactions.md.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from skidway.broker.coordinators import offset_transactions
from skidway.broker.coordinators.markers import MarkerWriter
from skidway.broker.coordinators.next_transactions import NextTransactions
from skidway.broker.partitions.guards import Guard, Guards
from skidway.broker.partitions.producer_checks import ProducerChecks
from skidway.errors import InvalidProducerEpoch
from skidway.groups.coordinator import GroupCoordinator
from skidway.groups.offsets import Offsets
from skidway.log.producers import Producers
from skidway.records.batch import BatchHeader
from skidway.records.control import EndTransaction as Marker
from skidway.runtime.replicated import Decision, Now
from skidway.transactions import ending, records
from skidway.transactions.coordinator import TransactionCoordinator
from skidway.transactions.ending import fenced
from skidway.transactions.records import TransactionRecord
from skidway.transactions.transaction import NO_PRODUCER, Empty, Ended, Place, Transaction
from skidway.wire.schema.transaction_records import TransactionLogValue
from values import replace


@contextmanager
def no_guard() -> Iterator[None]:
    """4: verified, aborted, appended (KAFKA-14884)."""

    def check(self: Guards, guard: Guard, header: BatchHeader) -> None:
        guard.check_order(header.base_sequence)

    with patch.object(Guards, "check", check):
        yield


@contextmanager
def waiting_never_refused() -> Iterator[None]:
    """What waits for the end of the transaction before is dropped without an answer when that takes too long."""

    def wait(self: NextTransactions, one: Any, busy: Any) -> None:
        respond = one.respond
        one.respond = lambda reply: None if reply is busy else respond(reply)
        original(self, one, busy)

    original = NextTransactions._wait
    with patch.object(NextTransactions, "_wait", wait):
        yield


@contextmanager
def waiting_without_a_bound() -> Iterator[None]:
    """It waits until the transaction before has ended, however long that takes."""

    def wait(self: NextTransactions, one: Any, busy: Any) -> None:
        one.until_ms += 60_000
        original(self, one, busy)
        one.until_ms -= 60_000

    original = NextTransactions._wait
    with patch.object(NextTransactions, "_wait", wait):
        yield


@contextmanager
def markers_end_their_own_epoch() -> Iterator[None]:
    """6: a marker of the transaction before ends the one that is open, whichever epoch that one has."""
    original = Producers.check_marker

    def check(self: Producers, producer_id: int, epoch: int, marker: Marker, version: int) -> None:
        original(self, producer_id, epoch, marker, 0)

    with patch.object(Producers, "check_marker", check), late_markers_written():
        yield


@contextmanager
def late_markers_written() -> Iterator[None]:
    """6: a request with markers that a later one has overtaken is carried out; steady epochs do not tell it."""
    with patch.object(MarkerWriter, "is_late", lambda *_: False):
        yield


@contextmanager
def former_coordinators_end() -> Iterator[None]:
    """8: nobody looks which coordinator has sent a marker."""

    def check(self: Producers, producer_id: int, epoch: int, marker: Marker, version: int) -> None:
        known = self.entries.get(producer_id)
        if known is None:
            return
        is_later = version >= 2 and known.transaction_start >= 0
        if epoch < known.epoch or (epoch == known.epoch and is_later):
            raise InvalidProducerEpoch("too old")

    with patch.object(Producers, "check_marker", check):
        yield


@contextmanager
def ended_by_the_first_answer() -> Iterator[None]:
    """9: a transaction is complete when one partition has its marker."""
    original = TransactionCoordinator._without

    def without(self: TransactionCoordinator, key: str, places: frozenset[Place], now: Now) -> Any:
        return original(self, key, self._unmarked[key].places, now)

    with patch.object(TransactionCoordinator, "_without", without):
        yield


@contextmanager
def pending_offsets_win() -> Iterator[None]:
    """19: an offset of a transaction overwrites a later plain one."""

    def end(self: Offsets, producer_id: int, *, committed: bool) -> None:
        for group_id, pending in self.pending.take(producer_id).items():
            for partition, offset in pending.items() if committed else ():
                self._keep(group_id, partition, offset)

    with patch.object(Offsets, "end_transaction", end):
        yield


@contextmanager
def unstable_offsets_told() -> Iterator[None]:
    """21: nobody waits until offsets are stable."""
    original = Offsets._fetched

    def fetched(self: Offsets, operation: Any, *others: Any) -> Any:
        return original(self, replace(operation, require_stable=False), *others)

    with patch.object(Offsets, "_fetched", fetched):
        yield


@contextmanager
def members_checked_before_questions() -> Iterator[None]:
    """22: who was fenced while the transaction's coordinator was asked commits all the same (KAFKA-15784)."""
    commit = GroupCoordinator._commit_in_transaction
    checked: set[int] = set()

    def prepared_first(groups: Any, topics: Any, operation: Any) -> Any:
        partition, preparing = preparation(groups, topics, operation)

        def steps() -> Any:
            prepared = yield from preparing
            commit(groups.coordinator_of(partition).host.machine, prepared, operation)
            checked.add(id(prepared))
            return prepared

        return partition, steps()

    def unchecked(self: GroupCoordinator, prepared: Any, asked: Any) -> Any:
        if id(prepared) not in checked:
            return commit(self, prepared, asked)
        checked.discard(id(prepared))
        return Decision(prepared.records, prepared.codes)

    preparation = offset_transactions.preparation
    with (
        patch.object(offset_transactions, "preparation", prepared_first),
        patch.object(GroupCoordinator, "_commit_in_transaction", unchecked),
    ):
        yield


@contextmanager
def next_producers_not_stored() -> Iterator[None]:
    """23: the producer id that comes after the last epoch is not in the record."""
    original = records.encoded

    def encoded(message: Any, version: int, before: bytes) -> bytes:
        if isinstance(message, TransactionLogValue):
            message.next_producer_id = NO_PRODUCER
        return original(message, version, before)

    with patch.object(records, "encoded", encoded):
        yield


@contextmanager
def epochs_overflow() -> Iterator[None]:
    """23: the last epoch is followed by another one."""
    with patch.object(Transaction, "is_last_epoch", property(lambda self: self.epoch >= 32_767)):
        yield


@contextmanager
def producers_begin_anywhere() -> Iterator[None]:
    """25: a producer that is not known may begin with any sequence (KAFKA-18202)."""
    original = ProducerChecks.question

    def question(self: ProducerChecks, *given: Any) -> Any:
        with patch.object(Producers, "knows", lambda self, producer_id: True):
            return original(self, *given)

    with patch.object(ProducerChecks, "question", question):
        yield


@contextmanager
def repeated_commits_refused() -> Iterator[None]:
    """28: who asks again for a commit that it has got is refused (Redpanda #3501)."""

    def judge(known: Transaction, asked: Any) -> Any:
        raise fenced(known, asked.epoch)

    with patch.object(ending, "_judge_retry", judge):
        yield


@contextmanager
def forgotten_a_tick_later() -> Iterator[None]:
    """30: an id that was old is forgotten at the next tick, whatever has become of it."""
    old: dict[int, list[str]] = {}

    def forget(self: TransactionCoordinator, decision: Any, age_wall_ms: int) -> bool:
        for key in old.pop(id(self), []):
            if key in self.transactions:
                decision.records.append(TransactionRecord(key, None))
        last_ms = age_wall_ms - self.settings.id_expiration_ms
        old[id(self)] = [
            key
            for key, known in self.transactions.items()
            if known.updated_ms <= last_ms and isinstance(known.state, Empty | Ended)
        ]
        return False

    with patch.object(TransactionCoordinator, "_forget_old", forget):
        yield
