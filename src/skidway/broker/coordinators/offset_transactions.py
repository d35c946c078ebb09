"""Offsets committed within transactions, between the group's coordinator and the transaction's.

A transaction must know of the group's partition before anything of it is written there, or it could never be ended: so
the first commit of a transaction waits while its coordinator is asked, under a guard, like a batch in any partition
(`partitions.guards`). Member and generation are checked when the answer is there, in the decision that writes: who was
fenced meanwhile commits nothing (KAFKA-15784).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from skidway.broker.coordinators.groups import OFFSETS_TOPIC, GroupCoordinators, TopicsView, prepared_commit
from skidway.broker.coordinators.transaction_questions import TransactionQuestions
from skidway.broker.partitions.guards import Guard
from skidway.broker.partitions.partition import LEGACY_MARKERS, Partition
from skidway.broker.partitions.producer_checks import BUMPING_VERSION
from skidway.errors import CoordinatorNotAvailable, ErrorCode, InvalidGroupId, InvalidProducerEpoch, ProtocolError
from skidway.groups.operations import CommitOffsetsInTransaction, EndOffsetsTransaction, PreparedCommit
from skidway.records.batch import HEADER_BYTES, MAGIC, TRANSACTIONAL_BIT, BatchHeader
from skidway.runtime.log_store import FIRST_SEQUENCE, Marker, Producer
from skidway.steps import Steps

Respond = Callable[[list[ErrorCode] | ErrorCode], None]
"""A code for each offset, or one for all."""


class OffsetTransactions:
    __slots__ = ("_groups", "_questions", "_topics")

    def __init__(self, groups: GroupCoordinators, topics: TopicsView, questions: TransactionQuestions) -> None:
        self._groups = groups
        self._topics = topics
        self._questions = questions

    def commit(
        self,
        transactional_id: str,
        operation: CommitOffsetsInTransaction,
        bumps: bool,
        now_ms: int,
        respond: Respond,
    ) -> Steps[None]:
        """Prepared in steps, decided in one go. `bumps`: the producer has a new epoch for every transaction, and leaves
        it to leaders to add their partitions."""
        try:
            if not operation.group_id:
                raise InvalidGroupId()
            prepared = yield from prepared_commit(self._groups, self._topics, operation)
        except ProtocolError as error:
            respond(error.code)
            return
        commit = _Commit(self._groups, transactional_id, operation.producer, prepared, bumps, respond)
        commit.begin(self._questions, now_ms)


class _Commit:
    """One commit, from here on."""

    __slots__ = ("_bumps", "_groups", "_id", "_prepared", "_producer", "_respond")

    def __init__(
        self,
        groups: GroupCoordinators,
        transactional_id: str,
        producer: Producer,
        prepared: PreparedCommit,
        bumps: bool,
        respond: Respond,
    ) -> None:
        self._groups = groups
        self._id = transactional_id
        self._producer = producer
        self._prepared = prepared
        self._bumps = bumps
        self._respond = respond

    def begin(self, questions: TransactionQuestions, now_ms: int) -> None:
        try:
            partition = self._partition()
            guard = self._question(partition, None)
        except ProtocolError as error:
            self._respond(error.code)
            return
        if guard is None:
            self._write(partition, now_ms)
            return
        places = [(OFFSETS_TOPIC, partition.index)]
        answered = partial(self._on_codes, partition, guard)
        questions.ask(self._id, *self._producer, places, self._bumps, now_ms, answered)

    def _on_codes(self, partition: Partition, guard: Guard, codes: list[ErrorCode]) -> None:
        """The coordinator has answered."""
        (code,) = codes
        now_ms = self._groups.surroundings.world.clock.monotonic_ms()
        try:
            if code:
                self._respond(code)
                return
            # Whether it is still here, and leads: its guards are gone with its leadership.
            partition = self._partition()
            again = self._question(partition, guard)
            assert again is None, "asked twice"
            self._abort_leftover(partition, now_ms)
        except ProtocolError as error:
            self._respond(error.code)
            return
        finally:
            partition.checks.guards.leave(guard, FIRST_SEQUENCE)
        self._write(partition, now_ms)

    def _partition(self) -> Partition:
        return self._groups.coordinator_of(self._prepared.asked.group_id).partition

    def _question(self, partition: Partition, asked: Guard | None) -> Guard | None:
        """See ProducerChecks: the guard of a question that has to be asked first, if one has to."""
        known = partition.log.producers.entries.get(self._producer.id)
        if known is not None and known.epoch > self._producer.epoch:
            raise InvalidProducerEpoch(f"producer {self._producer.id} has epoch {known.epoch} here")
        version = BUMPING_VERSION if self._bumps else BUMPING_VERSION - 1
        wall_ms = self._groups.surroundings.world.clock.wall_ms()
        return partition.checks.question(header_of(self._producer), self._id, version, asked, wall_ms)

    def _abort_leftover(self, partition: Partition, now_ms: int) -> None:
        leftover = partition.checks.leftover(header_of(self._producer))
        if leftover is None:
            return
        epoch, end = leftover
        marker = Marker(Producer(self._producer.id, epoch), end, LEGACY_MARKERS)
        self._groups.submit(partition, EndOffsetsTransaction(marker), now_ms, lambda reply: None)
        if partition.log.producers.open_transaction(self._producer.id) >= 0:
            raise CoordinatorNotAvailable("what the producer left open could not be aborted: retry")

    def _write(self, partition: Partition, now_ms: int) -> None:
        self._groups.submit(partition, self._prepared, now_ms, self._on_reply)

    def _on_reply(self, reply: list[ErrorCode] | ProtocolError) -> None:
        self._respond(reply.code if isinstance(reply, ProtocolError) else reply)


def header_of(producer: Producer) -> BatchHeader:
    """The batch to come, as far as producers are checked by it."""
    return BatchHeader(0, HEADER_BYTES, -1, MAGIC, 0, TRANSACTIONAL_BIT, 0, -1, -1, *producer, FIRST_SEQUENCE, 1)
