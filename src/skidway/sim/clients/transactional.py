"""Transactional producers of both generations, as their clients behave.

A steady one (librdkafka) adds partitions before it writes and keeps its epoch. A bumping one (Java 4) has partitions
added by their leaders and gets a new epoch with every end. Who is fenced, or dies in the middle of a transaction, comes
back as a newcomer. What became of each transaction is told to the laws: it is committed, surely not committed, or
nobody knows.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from skidway.errors import ErrorCode
from skidway.records.record import Record, build_batch
from skidway.sim.clients.base import ROUTING_ERRORS
from skidway.sim.clients.readers import Partition
from skidway.sim.clients.scripts import Ask, AskAll, Pause, Script, ScriptedClient
from skidway.sim.laws.transactions import TransactionLaws, Written
from skidway.sim.transactional_plan import TransactionalClientPlan
from skidway.sim.world.events import MS, Violation, World
from skidway.sim.world.network import Address, Network
from skidway.wire.message import Message
from skidway.wire.schema.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from skidway.wire.schema.end_txn import EndTxnRequest, EndTxnResponse
from skidway.wire.schema.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from skidway.wire.schema.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from skidway.wire.schema.produce import PartitionProduceData, ProduceRequest, TopicProduceData

RETRY_MS = 40
GIVE_UP_MS = 4_000
"""So long is a write tried; then the transaction is aborted."""
STEADY = {22: 4, 24: 3, 25: 3, 26: 3, 28: 3}
BUMPING = {22: 5, 25: 4, 26: 5, 28: 5}
"""The versions in which the generations speak."""
GROUPS, TRANSACTIONS = 0, 1
"""Kinds of coordinators."""
ELSEWHERE = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NETWORK_EXCEPTION,
    }
)
RETRIED = (
    ELSEWHERE
    | ROUTING_ERRORS
    | {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.OPERATION_NOT_ATTEMPTED,
    }
)
FENCED = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_ID_MAPPING})
ABORTABLE = FENCED | {ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_TXN_STATE}


class Outcome(Enum):
    FINE = auto()
    ABORT = auto()
    """It can only be aborted."""
    FENCED = auto()
    """The producer is none any more."""


@dataclass(slots=True)
class Batch:
    topic: str
    partition: int
    sequence: int
    values: list[bytes]


class TransactionalProducer(ScriptedClient):
    def __init__(
        self,
        world: World,
        network: Network,
        place: str,
        seeds: list[Address],
        plan: TransactionalClientPlan,
        laws: TransactionLaws,
    ) -> None:
        super().__init__(world, network, place, seeds, [*plan.topics, *([plan.input] if plan.input else [])])
        self.plan = plan
        self.laws = laws
        self.late_chance = plan.late_chance
        self.producing = True
        self.is_idle = True
        self.producer_id = self.epoch = -1
        self.coordinators: dict[int, int] = {}
        """Node id, by the kind of coordinator."""
        self._sequences: dict[Partition, int] = {}
        self._number = 0
        self.brokers.versions.update(BUMPING if plan.bumps else STEADY)
        self.brokers.versions[0] = plan.produce_version

    def start(self) -> None:
        super().start()
        self.play(self._script())

    def may_come_late(self, request: Message) -> bool:
        # A steady client's end that comes late ends its next transaction: its protocol cannot tell them apart. And who
        # takes the id late has it.
        return not isinstance(request, InitProducerIdRequest) and (
            self.plan.bumps or not isinstance(request, EndTxnRequest)
        )

    # --- lives ---

    def _script(self) -> Script[None]:
        yield Pause(self.random.randrange(600))
        while self.producing:
            self.is_idle = False
            yield from self._live()
            self.is_idle = True
            yield Pause(self.random.randrange(300, 1_500))

    def _live(self) -> Script[None]:
        """From its start until it is fenced or dies."""
        if (yield from self._init()) is not Outcome.FINE:
            return
        yield from self.prepare()
        while self.producing:
            self.is_idle = False
            if (yield from self._transaction()) is not Outcome.FINE:
                return
            self.is_idle = True
            yield Pause(self.plan.interval_ms * (0.5 + self.random.random()))

    def prepare(self) -> Script[None]:
        """What a life begins with, once it has its epoch."""
        yield Pause(0)

    def coordinator(self, kind: int, key: str) -> Script[int]:
        while True:
            known = self.coordinators.get(kind, -1)
            if known >= 0:
                return known
            request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
            reply: FindCoordinatorResponse | None = yield Ask(-1, request, 2_000)
            found = None if reply is None else reply.coordinators[0]
            if found is None or found.error_code or found.node_id < 0:
                yield Pause(RETRY_MS * (0.5 + self.random.random()))
            else:
                self.coordinators[kind] = found.node_id
                self.brokers.addresses.setdefault(found.node_id, (found.host, found.port))

    def ask_coordinator(self, request: Message, kind: int = TRANSACTIONS, key: str = "") -> Script[Any]:
        """One answer of whoever coordinates now; None if there was none."""
        node_id = yield from self.coordinator(kind, key or self.plan.id)
        reply = yield Ask(node_id, request)
        return reply

    def elsewhere(self, kind: int = TRANSACTIONS) -> Script[None]:
        self.coordinators.pop(kind, None)
        yield Pause(RETRY_MS * (0.5 + self.random.random()))

    def refused(self, code: int, what: str) -> Violation:
        return Violation("client-errors", f"{self.place} got {ErrorCode(code).name} for {what}")

    # --- InitProducerId ---

    def _init(self, *, comes_back: bool = False) -> Script[Outcome]:
        request = InitProducerIdRequest(
            transactional_id=self.plan.id,
            transaction_timeout_ms=self.plan.timeout_ms,
            producer_id=self.producer_id if comes_back else -1,
            producer_epoch=self.epoch if comes_back else -1,
        )
        while True:
            reply: InitProducerIdResponse | None = yield from self.ask_coordinator(request)
            if reply is None or reply.error_code in ELSEWHERE:
                yield from self.elsewhere()
            elif reply.error_code == ErrorCode.CONCURRENT_TRANSACTIONS:
                yield Pause(RETRY_MS * self.random.random())
            elif reply.error_code in FENCED and comes_back:
                return Outcome.FENCED
            elif reply.error_code:
                raise self.refused(reply.error_code, f"the initialisation of {self.plan.id}")
            else:
                self._become(reply.producer_id, reply.producer_epoch)
                return Outcome.FINE

    def _become(self, producer_id: int, epoch: int) -> None:
        if (producer_id, epoch) != (self.producer_id, self.epoch):
            self._sequences.clear()
        self.producer_id, self.epoch = producer_id, epoch
        self.laws.took(self.plan.id, self.place, producer_id, epoch)

    # --- one transaction ---

    def _transaction(self) -> Script[Outcome]:
        written = self.laws.begin(self.plan.id, self.place, (self.producer_id, self.epoch))
        outcome = yield from self.work(written)
        yield Pause(self.plan.work_ms * 2 * self.random.random())
        if outcome is Outcome.FENCED or self.random.random() < self.plan.death_chance:
            self.laws.left(written)
            return Outcome.FENCED
        if outcome is Outcome.FINE and self.random.random() >= self.plan.abort_chance:
            return (yield from self._end(written, commit=True))
        ended = yield from self._end(written, commit=False)
        if outcome is Outcome.ABORT and ended is Outcome.FINE and not self.plan.bumps:
            # Of what it gave up, anything may still come: it goes on in another epoch.
            return (yield from self._init(comes_back=True))
        return ended

    def work(self, written: Written) -> Script[Outcome]:
        """Writes into some partitions, once or twice."""
        known = [(topic, index) for topic, count in self.plan.topics.items() for index in range(count)]
        places = sorted(self.random.sample(known, self.random.randrange(1, len(known) + 1)))
        for number in range(1 + self.random.randrange(2)):
            if number:
                yield Pause(self.plan.work_ms * 2 * self.random.random())
            values = {place: self.made_up() for place in places}
            outcome = yield from self.write(written, values)
            if outcome is not Outcome.FINE:
                return outcome
        return Outcome.FINE

    def made_up(self) -> list[bytes]:
        return [self.numbered(b"") for _ in range(1 + self.random.randrange(self.plan.records))]

    def numbered(self, value: bytes) -> bytes:
        """A value that nobody else writes, ever."""
        self._number += 1
        return f"{self.place}/{self._number}=".encode() + value

    def write(self, written: Written, values: dict[Partition, list[bytes]]) -> Script[Outcome]:
        if not self.plan.bumps:
            added = yield from self._add(list(values))
            if added is not Outcome.FINE:
                return added
        pending: dict[Partition, Batch] = {}
        for place, each in values.items():
            sequence = self._sequences.get(place, 0)
            self._sequences[place] = sequence + len(each)
            pending[place] = Batch(*place, sequence, each)
            self.laws.sending(written, place, each)
        give_up_us = self.world.now_us + GIVE_UP_MS * MS
        while pending:
            if self.world.now_us > give_up_us:
                return Outcome.ABORT
            outcome = yield from self._send(written, pending)
            if outcome is not Outcome.FINE:
                return outcome
            if pending:
                self.refresh()
                yield Pause(RETRY_MS * (0.5 + self.random.random()))
        return Outcome.FINE

    def _add(self, places: list[Partition]) -> Script[Outcome]:
        topics: dict[str, list[int]] = {}
        for topic, index in places:
            topics.setdefault(topic, []).append(index)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.plan.id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(topic, indexes) for topic, indexes in topics.items()],
        )
        while True:
            reply = yield from self.ask_coordinator(request)
            codes = [-1]
            if reply is not None:
                results = reply.results_by_topic_v3_and_below
                codes = [each.partition_error_code for result in results for each in result.results_by_partition]
            outcome = self._judge(codes, "adding partitions")
            if outcome is not None:
                return outcome
            if reply is None or any(code in ELSEWHERE for code in codes):
                yield from self.elsewhere()
            else:
                yield Pause(RETRY_MS * self.random.random())

    def _judge(self, codes: list[int], what: str) -> Outcome | None:
        """None: ask again. -1 stands for no answer."""
        if not any(codes):
            return Outcome.FINE
        if any(code in FENCED for code in codes):
            return Outcome.FENCED
        if any(code in ABORTABLE for code in codes):
            return Outcome.ABORT
        for code in codes:
            if code > 0 and code not in RETRIED:
                raise self.refused(code, what)
        return None

    # --- Produce ---

    def _send(self, written: Written, pending: dict[Partition, Batch]) -> Script[Outcome]:
        """Each once, to the leaders of now; what is acknowledged is pending no more."""
        sent: list[tuple[Batch, bytes]] = []
        asks = []
        for batch in pending.values():
            leader, _ = self.leader_of(batch.topic, batch.partition)
            if leader in self.brokers.addresses:
                topic_id = self.known[batch.topic].topic_id
                sent.append((batch, topic_id))
                asks.append(Ask(leader, self._produce(batch, topic_id), 2_500))
        if not asks:
            return Outcome.FINE
        sent_us = self.world.now_us
        replies = yield AskAll(asks)
        outcome = Outcome.FINE
        for (batch, topic_id), reply in zip(sent, replies, strict=True):
            if reply is None:
                continue
            answer = reply.responses[0].partition_responses[0]
            code = answer.error_code
            if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                del pending[batch.topic, batch.partition]
                offset = answer.base_offset if code == ErrorCode.NONE else -1
                self.laws.acked(written, (batch.topic, batch.partition), topic_id, offset, batch.values, sent_us)
            elif code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
                raise Violation(
                    "idempotence",
                    f"{self.place}: sequence {batch.sequence} of {batch.topic}-{batch.partition} in epoch {self.epoch} "
                    f"is refused although everything before it was acknowledged: {answer.error_message}",
                )
            elif code in ABORTABLE:
                self.say(f"{batch.topic}-{batch.partition}: {ErrorCode(code).name}, aborts")
                outcome = Outcome.ABORT
            elif code not in RETRIED:
                raise self.refused(code, f"a write ({answer.error_message})")
        return outcome

    def _produce(self, batch: Batch, topic_id: bytes) -> ProduceRequest:
        wall_ms = 1_790_000_000_000 + self.world.now_us // MS
        records = build_batch(
            [Record(0, wall_ms, None, value) for value in batch.values],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=batch.sequence,
            transactional=True,
        )
        data = [PartitionProduceData(index=batch.partition, records=records)]
        return ProduceRequest(
            transactional_id=self.plan.id,
            acks=-1,
            timeout_ms=1_500,
            topic_data=[TopicProduceData(name=batch.topic, topic_id=topic_id, partition_data=data)],
        )

    # --- EndTxn ---

    def _end(self, written: Written, *, commit: bool) -> Script[Outcome]:
        request = EndTxnRequest(self.plan.id, self.producer_id, self.epoch, commit)
        self.laws.ending(written, commit=commit)
        while True:
            sent_us = self.world.now_us
            reply: EndTxnResponse | None = yield from self.ask_coordinator(request)
            code = -1 if reply is None else reply.error_code
            if reply is not None and code == ErrorCode.NONE:
                self.laws.ended(written, commit=commit, sent_us=sent_us)
                if self.plan.bumps:
                    self._become(reply.producer_id, reply.producer_epoch)
                return Outcome.FINE
            if code == ErrorCode.CONCURRENT_TRANSACTIONS:
                yield Pause(RETRY_MS * self.random.random())
            elif code in FENCED or code == ErrorCode.INVALID_TXN_STATE:
                self.laws.end_refused(written, ErrorCode(code).name)
                return Outcome.FENCED
            elif code == -1 or code in RETRIED:
                # It may have been decided, and only the answer is lost.
                self.laws.end_unheard(written)
                yield from self.elsewhere()
            else:
                raise self.refused(code, f"the {'commit' if commit else 'abort'} of {self.plan.id}")
