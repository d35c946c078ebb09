"""What a partition's leader asks of a producer's batch before it is appended."""

from __future__ import annotations

from skidway.broker.partitions.guards import Guard, Guards
from skidway.broker.partitions.producer_budget import ProducerBudget
from skidway.broker.partitions.refusals import Refusals
from skidway.errors import (
    InvalidTransactionState,
    OutOfOrderSequence,
    TransactionalIdAuthorizationFailed,
    UnknownProducerId,
)
from skidway.limits import INT64_MAX
from skidway.log.log import Log
from skidway.records.batch import TRANSACTIONAL_BIT, BatchHeader
from skidway.records.control import EndTransaction
from skidway.runtime.log_store import Marker, Producer

LEGACY_MARKERS = 0
"""The transaction version of markers that may end a transaction of their own epoch."""
BUMPING_VERSION = 12
"""Who produces with this version or a later one has its partitions added to its transaction by their leaders, and a new
epoch for every transaction."""


class ProducerChecks:
    __slots__ = ("_budget", "_log", "_refusals", "guards")

    def __init__(self, log: Log, refusals: Refusals, budget: ProducerBudget) -> None:
        """All partitions share the budget."""
        self._log = log
        self._refusals = refusals
        self._budget = budget
        self.guards = Guards()

    def check(self, header: BatchHeader, wall_ms: int) -> int | None:
        """Where the batch is already, if it is. One that comes behind a refused one is refused like it."""
        producers = self._log.producers
        if producers.transactions.first_unstable != INT64_MAX and not header.attributes & TRANSACTIONAL_BIT:
            self._refuse_if_open(header)
        try:
            # Of a producer that is not known any batch may be the first.
            original = producers.check(header)
        except OutOfOrderSequence:
            if (refusal := self._refusals.behind(header, wall_ms)) is None:
                raise
            raise refusal from None
        if original is not None:
            if header.attributes & TRANSACTIONAL_BIT:
                self._refuse_if_over(header, original)
        elif not producers.knows(header.producer_id):
            refusal = self._refusals.behind(header, wall_ms) if self._refusals else None
            if refusal is not None:
                raise refusal
            if not header.attributes & TRANSACTIONAL_BIT:
                self._budget.admit(header.producer_id, wall_ms)
        return original

    def _refuse_if_over(self, header: BatchHeader, original: int) -> None:
        """A batch with the sequence of one whose transaction has ended is not that one sent again: nobody waits for its
        answer any more. librdkafka (2.16) gives a sequence twice: where it aborts, it drops a batch that it sent and
        got no answer for, and the next transaction's first batch gets the number. Kafka takes that for a repetition,
        acknowledges it, and the transaction is committed without it. This error has librdkafka abort and go on."""
        if not 0 <= self._log.producers.open_transaction(header.producer_id) <= original:
            raise UnknownProducerId(
                f"producer {header.producer_id} sent sequence {header.base_sequence} in a transaction that has ended"
            )

    def _refuse_if_open(self, header: BatchHeader) -> None:
        """A plain batch among those of a transaction would be part of it, as readers see it."""
        if self._log.producers.open_transaction(header.producer_id) >= 0:
            raise InvalidTransactionState(f"producer {header.producer_id} has a transaction open here: end it first")

    def question(
        self, header: BatchHeader, transactional_id: str | None, produce_version: int, asked: Guard | None, wall_ms: int
    ) -> Guard | None:
        """Of a transactional batch that passed `check`: the guard of a question to the transaction's coordinator that
        has to be asked first. None: it may be appended, because the transaction is open here, or because the
        coordinator agreed, and the guard that was `asked` under still stands."""
        if transactional_id is None:
            raise TransactionalIdAuthorizationFailed("a transactional batch in a request without a transactional id")
        producers = self._log.producers
        if producers.continues(header):
            return None
        bumps, is_known = produce_version >= BUMPING_VERSION, producers.knows(header.producer_id)
        if bumps and header.base_sequence and not is_known:
            # Every transaction of such a producer begins with 0: what comes later has lost its beginning (KAFKA-18202).
            raise OutOfOrderSequence(f"producer {header.producer_id} begins with sequence {header.base_sequence}")
        if asked is None:
            return self.guards.stand(header, bumps)
        self.guards.check(asked, header)
        if not is_known:
            self._budget.admit(header.producer_id, wall_ms)
        return None

    def leftover(self, header: BatchHeader) -> Marker | None:
        """What has to be aborted before the batch is appended.

        A transaction that the producer has open here in an older epoch is none of its coordinator's: that agreed to a
        later one. If the batch joined it, what was left over would be committed with it.
        """
        producers = self._log.producers
        if producers.open_transaction(header.producer_id) < 0:
            return None
        left = producers.entries[header.producer_id]
        if left.epoch >= header.producer_epoch:
            return None
        end = EndTransaction(committed=False, coordinator_epoch=max(left.coordinator_epoch, 0))
        return Marker(Producer(header.producer_id, left.epoch), end, LEGACY_MARKERS)

    def forget(self) -> None:
        """This node leads no more, or anew."""
        # Whoever leads next takes what was refused here, and this node may not remember its producers by then.
        self._refusals.clear()
        self.guards.clear()
