"""Batches of a produce request that wait until their transaction's coordinator has answered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from skidway.broker.partitions.partition import Appended, Partition, Unverified
from skidway.broker.partitions.producer_checks import BUMPING_VERSION
from skidway.errors import (
    ConcurrentTransactions,
    ErrorCode,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidTransactionState,
    NotEnoughReplicas,
    PolicyViolation,
    ProtocolError,
    TransactionAbortable,
    TransactionalIdAuthorizationFailed,
    UnknownServerError,
    UnknownTopicOrPartition,
)
from skidway.records.batch import HEADER_BYTES, TRANSACTIONAL_BIT
from skidway.replica.leader import ACKS_ALL
from skidway.steps import Question
from skidway.wire.schema.produce import PartitionProduceResponse, ProduceRequest

if TYPE_CHECKING:
    from skidway.broker.api.call import Call
    from skidway.broker.services import Services

ABORTABLE_SINCE = 11
LOOKED_AT_MAX = 1_000
_ATTRIBUTES_LOW = 22
_PRODUCER = slice(43, 53)
"""Producer id and epoch, in the bytes of a batch."""
_TRY_AGAIN = (
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)
_REFUSALS: dict[ErrorCode, type[ProtocolError]] = {
    refusal.code: refusal
    for refusal in (
        InvalidProducerEpoch,
        InvalidProducerIdMapping,
        PolicyViolation,
        TransactionalIdAuthorizationFailed,
        UnknownTopicOrPartition,
    )
}


@dataclass(slots=True)
class Questioned:
    """One of them, and where its answer belongs."""

    partition: Partition
    batch: Unverified
    answers: list[PartitionProduceResponse]
    position: int

    @property
    def producer(self) -> tuple[int, int]:
        """Id and epoch."""
        return self.batch.guard.producer_id, self.batch.guard.epoch

    @property
    def index(self) -> int:
        return self.partition.index

    def append(self, code: ErrorCode, transactional_id: str, version: int, wall_ms: int) -> Appended:
        """Now that the coordinator has answered `code`."""
        partition, records = self.partition, self.batch.validated[0]
        try:
            refusal = refusal_of(code, version)
            if refusal is not None:
                if isinstance(refusal, NotEnoughReplicas | ConcurrentTransactions):
                    partition.refusals.note(records, refusal, wall_ms)
                raise refusal
            if partition.removed:
                raise UnknownTopicOrPartition(f"{partition} was deleted")
            outcome = partition.produce(
                memoryview(records),
                ACKS_ALL,
                version,
                wall_ms,
                transactional_id,
                self.batch.validated,
                self.batch.guard,
            )
            assert isinstance(outcome, Appended), "what the coordinator agreed to needs no more questions"
            return outcome
        except TransactionAbortable:
            ended = refusal_of(ErrorCode.TRANSACTION_ABORTABLE, version)
            assert ended is not None
            raise ended from None
        finally:
            self.leave()

    def give_up(self, wall_ms: int) -> None:
        """Nobody waits for it any more. Its producer sends it again: nothing may come before it until then."""
        refusal = NotEnoughReplicas("a batch before it has to come again: retry")
        self.partition.refusals.note(self.batch.validated[0], refusal, wall_ms)
        self.leave()

    def leave(self) -> None:
        self.partition.checks.guards.leave(self.batch.guard, self.batch.validated[1].base_sequence)


def have_two_producers(request: ProduceRequest) -> bool:
    """Whether the transactional batches of a request are of different producers or epochs. Only the first of very many
    are looked at: a batch that is not of the first one's producer is refused anyway when it has to wait."""
    found: bytes | None = None
    looked_at = 0
    for topic in request.topic_data:
        for data in topic.partition_data:
            records: memoryview | None = data.records  # type: ignore[assignment]
            looked_at += 1
            if looked_at > LOOKED_AT_MAX:
                return False
            if records is None or len(records) < HEADER_BYTES or not records[_ATTRIBUTES_LOW] & TRANSACTIONAL_BIT:
                continue
            producer = bytes(records[_PRODUCER])
            if found is not None and producer != found:
                return True
            found = producer
    return False


def question_about(node: Services, call: Call, transactional_id: str, batches: Sequence[Questioned]) -> Question:
    """One for all of them; they are of one producer and epoch. The answer is a code for each."""
    producer_id, epoch = batches[0].producer
    places = [(each.partition.topic, each.index) for each in batches]
    return Question(
        lambda respond: node.questions.ask(
            transactional_id,
            producer_id,
            epoch,
            places,
            call.version >= BUMPING_VERSION,
            node.world.clock.monotonic_ms(),
            respond,
        )
    )


def refusal_of(code: ErrorCode, version: int) -> ProtocolError | None:
    """What a producer hears that speaks this version of Produce; None: the coordinator agrees."""
    if code == ErrorCode.NONE:
        return None
    if code in (ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_TXN_STATE):
        reason = "the partition is not in the producer's transaction"
        return TransactionAbortable(reason) if version >= ABORTABLE_SINCE else InvalidTransactionState(reason)
    if code == ErrorCode.PRODUCER_FENCED:
        return InvalidProducerEpoch("another producer uses the transactional id")
    if code == ErrorCode.CONCURRENT_TRANSACTIONS and version >= BUMPING_VERSION:
        return ConcurrentTransactions("the last transaction is still ending: retry")
    if code in _TRY_AGAIN or code == ErrorCode.CONCURRENT_TRANSACTIONS:
        # Every client sends it again for this, and asks nobody who leads the partition.
        return NotEnoughReplicas(f"the transaction's coordinator cannot tell now ({code.name}): retry")
    return _REFUSALS.get(code, UnknownServerError)(f"the transaction's coordinator refuses the batch: {code.name}")
