"""Offsets committed within transactions, between the group's coordinator and the transaction's.

A transaction must know of the group's partition before anything of it is written there, or it could never be ended: so
the first commit of a transaction waits while its coordinator is asked, under a guard, like a batch in any partition
(`partitions.guards`). Member and generation are checked when the answer is there, in the decision that writes: who was
fenced meanwhile commits nothing (KAFKA-15784).
"""

from __future__ import annotations

from collections.abc import Callable

from skidway.broker.coordinators.groups import GroupCoordinators, TopicsView, preparation
from skidway.broker.coordinators.transaction_questions import TransactionQuestions
from skidway.broker.partitions.guards import Guard
from skidway.broker.partitions.partition import Partition
from skidway.broker.partitions.producer_checks import BUMPING_VERSION
from skidway.broker.partitions.waiting import Waiting
from skidway.errors import (
    CoordinatorNotAvailable,
    ErrorCode,
    InvalidGroupId,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    ProtocolError,
)
from skidway.groups.bounds import OFFSET_BYTES
from skidway.groups.operations import CommitOffsetsInTransaction, EndOffsetsTransaction
from skidway.records.batch import HEADER_BYTES, MAGIC, TRANSACTIONAL_BIT, BatchHeader
from skidway.runtime.log_store import FIRST_SEQUENCE, Producer
from skidway.steps import Question, Steps

Respond = Callable[[list[ErrorCode] | ErrorCode], None]
"""A code for each offset, or one for all."""


class OffsetTransactions:
    """The commits of one producer, as one version of the API asks for them."""

    __slots__ = ("_bumps", "_groups", "_header", "_id", "_producer", "_questions", "_waiting")

    def __init__(
        self,
        groups: GroupCoordinators,
        questions: TransactionQuestions,
        waiting: Waiting,
        transactional_id: str,
        producer: Producer,
        bumps: bool,
    ) -> None:
        """`bumps`: the producer has a new epoch for every transaction, and leaves it to leaders to add their
        partitions."""
        self._groups = groups
        self._questions = questions
        self._waiting = waiting
        self._id = transactional_id
        self._producer = producer
        self._bumps = bumps
        self._header = header_of(producer)

    def commit(
        self, topics: TopicsView, operation: CommitOffsetsInTransaction, now_ms: int, respond: Respond
    ) -> Steps[None]:
        """Prepared in steps, decided in one go. While its coordinator is asked the connection takes no more requests:
        they would pile up."""
        try:
            if not operation.group_id:
                raise InvalidGroupId()
            if self._producer.id < 0 or self._producer.epoch < 0:
                # No marker could ever end what such a producer has pending, and not always somebody else is asked.
                raise InvalidProducerIdMapping(
                    f"there is no producer {self._producer.id} in epoch {self._producer.epoch}"
                )
            partition, preparing = preparation(self._groups, topics, operation)
            prepared = yield from preparing
            size = prepared.bytes + OFFSET_BYTES * len(operation.offsets)
            yield from self._agree(partition, size, now_ms)
        except ProtocolError as error:
            respond(error.code)
        except _Refused as refused:
            respond(refused.code)
        else:
            clock = self._groups.surroundings.world.clock
            self._groups.submit(partition, prepared, clock.monotonic_ms(), _answer(respond))

    def _agree(self, partition: Partition, size: int, now_ms: int) -> Steps[None]:
        """Returns when the next that is written to the group's partition may be of the transaction. So many bytes wait
        for that."""
        guard = self._question(partition, None)
        if guard is None:
            return
        try:
            code = yield from self._ask((partition.topic, partition.index), size, now_ms)
            if code:
                raise _Refused(code)
            # Whether it is still here, and leads: its guards are gone with its leadership.
            self._groups.coordinator_of(partition)
            again = self._question(partition, guard)
            assert again is None, "asked twice"
            self._abort_leftover(partition)
        finally:
            partition.checks.guards.leave(guard, FIRST_SEQUENCE)

    def _ask(self, place: tuple[str, int], size: int, now_ms: int) -> Steps[ErrorCode]:
        waiting, limits = self._waiting, self._groups.surroundings.world.limits
        if waiting.questioned_bytes + size > limits.receive_bytes_max:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        waiting.questioned_bytes += size
        try:
            (code,) = yield Question(
                lambda answer: self._questions.ask(self._id, *self._producer, [place], self._bumps, now_ms, answer)
            )
        finally:
            waiting.questioned_bytes -= size
        told: ErrorCode = code
        return told

    def _question(self, partition: Partition, asked: Guard | None) -> Guard | None:
        """See ProducerChecks: the guard of a question that has to be asked first, if one has to."""
        known = partition.log.producers.entries.get(self._producer.id)
        if known is not None and known.epoch > self._producer.epoch:
            raise InvalidProducerEpoch(f"producer {self._producer.id} has epoch {known.epoch} here")
        version = BUMPING_VERSION if self._bumps else BUMPING_VERSION - 1
        wall_ms = self._groups.surroundings.world.clock.wall_ms()
        return partition.checks.question(self._header, self._id, version, asked, wall_ms)

    def _abort_leftover(self, partition: Partition) -> None:
        leftover = partition.checks.leftover(self._header)
        if leftover is None:
            return
        now_ms = self._groups.surroundings.world.clock.monotonic_ms()
        self._groups.submit(partition, EndOffsetsTransaction(leftover), now_ms, lambda reply: None)
        if partition.log.producers.open_transaction(self._producer.id) >= 0:
            raise CoordinatorNotAvailable("what the producer left open could not be aborted: retry")


class _Refused(Exception):
    """By the transaction's coordinator."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(code.name)
        self.code = code


def _answer(respond: Respond) -> Callable[[list[ErrorCode] | ProtocolError], None]:
    return lambda reply: respond(reply.code if isinstance(reply, ProtocolError) else reply)


def header_of(producer: Producer) -> BatchHeader:
    """The batch to come, as far as producers are checked by it."""
    return BatchHeader(0, HEADER_BYTES, -1, MAGIC, 0, TRANSACTIONAL_BIT, 0, -1, -1, *producer, FIRST_SEQUENCE, 1)
