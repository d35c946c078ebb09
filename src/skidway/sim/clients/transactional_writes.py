"""The batches of a transactional producer: numbered by partition, one or two under way to each, sent until they are
acknowledged or their producer has had enough of it."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from skidway.errors import ErrorCode
from skidway.records.record import Record, build_batch
from skidway.sim.clients.outcomes import ABORTABLE, RETRIED, RETRY_MS, Outcome, refused
from skidway.sim.clients.readers import Partition
from skidway.sim.clients.scripts import Ask, AskAll, Pause, Script, ScriptedClient
from skidway.sim.laws.transactions import TransactionLaws, Written
from skidway.sim.plan import COMPACTED, key_of
from skidway.sim.transactional_plan import TransactionalClientPlan
from skidway.sim.world.events import MS, Violation
from skidway.wire.schema.produce import PartitionProduceData, ProduceRequest, TopicProduceData

GIVE_UP_MS = 4_000
"""So long is a write tried; then the transaction is aborted."""
ANSWER_MS = 2_500
WALL_START_MS = 1_790_000_000_000


@dataclass(slots=True)
class Batch:
    topic: str
    partition: int
    sequence: int
    values: list[bytes]


Pending = dict[Partition, deque[Batch]]


class Writes:
    def __init__(self, client: ScriptedClient, plan: TransactionalClientPlan, laws: TransactionLaws) -> None:
        self._client = client
        self._plan = plan
        self._laws = laws
        self._producer = (-1, -1)
        self._sequences: dict[Partition, int] = {}

    def become(self, producer_id: int, epoch: int) -> None:
        """Every epoch counts from 0."""
        if (producer_id, epoch) != self._producer:
            self._sequences.clear()
        self._producer = (producer_id, epoch)

    def write(self, written: Written, values: dict[Partition, list[bytes]]) -> Script[Outcome]:
        pending: Pending = {}
        for place, each in values.items():
            half = len(each) // 2 if self._plan.pipelined else 0
            pending[place] = deque(self._number(place, part) for part in (each[:half], each[half:]) if part)
            self._laws.sending(written, place, each)
        client = self._client
        give_up_us = client.world.now_us + GIVE_UP_MS * MS
        while pending:
            if client.world.now_us > give_up_us:
                return Outcome.ABORT
            outcome = yield from self._send(written, pending)
            if outcome is not Outcome.FINE:
                return outcome
            if pending:
                client.refresh()
                yield Pause(RETRY_MS * (0.5 + client.random.random()))
        return Outcome.FINE

    def _number(self, place: Partition, values: list[bytes]) -> Batch:
        sequence = self._sequences.get(place, 0)
        self._sequences[place] = sequence + len(values)
        return Batch(*place, sequence, values)

    def _send(self, written: Written, pending: Pending) -> Script[Outcome]:
        """Each once, to the leaders of now; what is acknowledged is pending no more."""
        client = self._client
        sent: list[tuple[Batch, bytes]] = []
        asks = []
        for batches in pending.values():
            for batch in batches:
                leader, _ = client.leader_of(batch.topic, batch.partition)
                if leader in client.brokers.addresses:
                    topic_id = client.known[batch.topic].topic_id
                    sent.append((batch, topic_id))
                    asks.append(Ask(leader, self._produce(batch, topic_id), ANSWER_MS, self._plan.patience_ms))
        if not asks:
            return Outcome.FINE
        sent_us = client.world.now_us
        replies = yield AskAll(asks)
        outcome = Outcome.FINE
        for (batch, topic_id), reply in zip(sent, replies, strict=True):
            if reply is None:
                if self._plan.patience_ms:
                    outcome = Outcome.ABORT
                continue
            code = reply.responses[0].partition_responses[0].error_code
            if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                offset = reply.responses[0].partition_responses[0].base_offset if code == ErrorCode.NONE else -1
                self._acked(written, pending, batch)
                self._laws.acked(written, (batch.topic, batch.partition), topic_id, offset, batch.values, sent_us)
            elif self._refused(batch, code, pending):
                outcome = Outcome.ABORT
        return outcome

    def _acked(self, written: Written, pending: Pending, batch: Batch) -> None:
        place = (batch.topic, batch.partition)
        if pending[place][0] is not batch:
            raise Violation(
                "sequences",
                f"{self._client.place}: {place} took sequence {batch.sequence} before {pending[place][0].sequence}",
            )
        pending[place].popleft()
        if not pending[place]:
            del pending[place]

    def _refused(self, batch: Batch, code: int, pending: Pending) -> bool:
        """Whether the transaction has to be aborted."""
        client = self._client
        if code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            if batch.topic in self._plan.deleted:
                return True  # Its beginning went with the topic that had this name.
            if pending[batch.topic, batch.partition][0] is not batch:
                return False  # What comes before it was refused as well.
            raise Violation(
                "idempotence",
                f"{client.place}: sequence {batch.sequence} of {batch.topic}-{batch.partition} in {self._producer} "
                "is refused although everything before it was acknowledged",
            )
        if code in ABORTABLE:
            client.say(f"{batch.topic}-{batch.partition}: {ErrorCode(code).name}, aborts")
            return True
        if code not in RETRIED:
            raise refused(client.place, code, "a write")
        return False

    def _produce(self, batch: Batch, topic_id: bytes) -> ProduceRequest:
        wall_ms = WALL_START_MS + self._client.world.now_us // MS
        records = build_batch(
            [Record(0, wall_ms, key_of(value) if batch.topic == COMPACTED else None, value) for value in batch.values],
            producer_id=self._producer[0],
            producer_epoch=self._producer[1],
            base_sequence=batch.sequence,
            transactional=True,
        )
        data = [PartitionProduceData(index=batch.partition, records=records)]
        return ProduceRequest(
            transactional_id=self._plan.id,
            acks=-1,
            timeout_ms=1_500,
            topic_data=[TopicProduceData(name=batch.topic, topic_id=topic_id, partition_data=data)],
        )
