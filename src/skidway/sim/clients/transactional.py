"""Transactional producers of both generations, as their clients behave.

A steady one (librdkafka) adds partitions before it writes and keeps its epoch. A bumping one (Java 4) has partitions
added by their leaders and gets a new epoch with every end. Who is fenced, or dies in the middle of a transaction, comes
back as a newcomer. What became of each transaction is told to the laws: it is committed, surely not committed, or
nobody knows.
"""

from __future__ import annotations

from typing import Any

from skidway.errors import ErrorCode
from skidway.metadata.features import TRANSACTIONS as TRANSACTION_VERSION
from skidway.metadata.features import TRANSACTIONS_NEWEST
from skidway.sim.clients.outcomes import ELSEWHERE, FENCED, NO_ANSWER, RETRIED, RETRY_MS, Outcome, judge, refused
from skidway.sim.clients.readers import Partition
from skidway.sim.clients.scripts import Ask, Pause, Script, ScriptedClient
from skidway.sim.clients.transactional_offsets import BOOKED, BOOKS, commit_plainly, send_offsets
from skidway.sim.clients.transactional_writes import Writes
from skidway.sim.laws.transactions import TransactionLaws, Written
from skidway.sim.transactional_plan import TransactionalClientPlan
from skidway.sim.world.events import World
from skidway.sim.world.network import Address, Network
from skidway.wire.message import Message
from skidway.wire.schema.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from skidway.wire.schema.api_versions import ApiVersionsRequest, ApiVersionsResponse
from skidway.wire.schema.end_txn import EndTxnRequest, EndTxnResponse
from skidway.wire.schema.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from skidway.wire.schema.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from skidway.wire.schema.txn_offset_commit import TxnOffsetCommitRequest

STEADY = {22: 4, 24: 3, 25: 3, 26: 3, 28: 3}
BUMPING = {22: 5, 25: 4, 26: 5, 28: 5}
"""The versions in which the generations speak."""
BUMPING_PRODUCE = 12
ASKS_CHANCE = 0.3
GROUPS, TRANSACTIONS = 0, 1
"""Kinds of coordinators."""


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
        self.writes = Writes(self, plan, laws)
        self._number = 0
        self.bumps = plan.bumps
        self._speak()

    def _speak(self) -> None:
        """As its generation does."""
        self.brokers.versions.update(BUMPING if self.bumps else STEADY)
        self.brokers.versions[0] = self.plan.produce_version
        if self.plan.asks_level and self.bumps:
            self.brokers.versions[0] = BUMPING_PRODUCE

    def start(self) -> None:
        super().start()
        self.play(self._script())

    def may_come_late(self, request: Message) -> bool:
        # A steady client's end that comes late ends its next transaction, and offsets that come late are part of that:
        # its protocol cannot tell them apart. A job would copy again what it has copied; the books bear it. And who
        # takes the id late has it.
        if isinstance(request, InitProducerIdRequest):
            return False
        if isinstance(request, TxnOffsetCommitRequest) and not self.bumps:
            return self.plan.late_books and request.group_id == BOOKS
        return self.bumps or not isinstance(request, EndTxnRequest)

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
        if self.plan.asks_level:
            yield from self._ask_level()
        if (yield from self._init()) is not Outcome.FINE:
            return
        yield from self.prepare()
        while self.producing:
            if self.has_work:
                self.is_idle = False
                if self.plan.asks_level and (yield from self._change_over()) is not Outcome.FINE:
                    return
                if (yield from self._transaction()) is not Outcome.FINE:
                    return
            self.is_idle = True
            yield Pause(self.plan.interval_ms * (0.5 + self.random.random()))

    @property
    def has_work(self) -> bool:
        return True

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

    def _ask_level(self) -> Script[None]:
        """Of any broker: which generation the cluster wants."""
        reply: ApiVersionsResponse | None = None
        while reply is None:
            reply = yield Ask(-1, ApiVersionsRequest(client_software_name="sim", client_software_version="1"), 1_000)
        levels = {each.name: each.max_version_level for each in reply.finalized_features}
        self.bumps = levels.get(TRANSACTION_VERSION, 0) >= TRANSACTIONS_NEWEST
        self._speak()

    def _change_over(self) -> Script[Outcome]:
        """Now and then; in the other generation it goes on in another epoch, as Java does."""
        before = self.bumps
        if self.random.random() < ASKS_CHANCE:
            yield from self._ask_level()
        if self.bumps == before:
            return Outcome.FINE
        self.world.mark("producer changed over")
        return (yield from self._init(comes_back=True))

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
                raise refused(self.place, reply.error_code, f"the initialisation of {self.plan.id}")
            else:
                self._become(reply.producer_id, reply.producer_epoch)
                return Outcome.FINE

    def _become(self, producer_id: int, epoch: int) -> None:
        self.writes.become(producer_id, epoch)
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
        if outcome is Outcome.ABORT and ended is Outcome.FINE and not self.bumps:
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
        return (yield from self._keep_books()) if self.random.random() < self.plan.books_chance else Outcome.FINE

    def _keep_books(self) -> Script[Outcome]:
        """An offset in the transaction, and one outside of it that comes before or after."""
        self._number += 1
        plain_first = self.random.random() < 0.3
        if plain_first:
            yield from commit_plainly(self, {BOOKED: 1_000_000 + self._number})
        outcome = yield from send_offsets(self, BOOKS, {BOOKED: self._number})
        if not plain_first and self.random.random() < 0.7:
            yield from commit_plainly(self, {BOOKED: 1_000_000 + self._number})
        return outcome

    def made_up(self) -> list[bytes]:
        return [self.numbered(b"") for _ in range(1 + self.random.randrange(self.plan.records))]

    def numbered(self, value: bytes) -> bytes:
        """A value that nobody else writes, ever."""
        self._number += 1
        return f"{self.place}/{self._number}=".encode() + value

    def write(self, written: Written, values: dict[Partition, list[bytes]]) -> Script[Outcome]:
        if not self.bumps:
            added = yield from self._add(list(values))
            if added is not Outcome.FINE:
                return added
        return (yield from self.writes.write(written, values))

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
            codes = [NO_ANSWER]
            if reply is not None:
                results = reply.results_by_topic_v3_and_below
                codes = [each.partition_error_code for result in results for each in result.results_by_partition]
            outcome = judge(self.place, codes, "adding partitions")
            if outcome is not None:
                return outcome
            if reply is None or any(code in ELSEWHERE for code in codes):
                yield from self.elsewhere()
            else:
                yield Pause(RETRY_MS * self.random.random())

    # --- EndTxn ---

    def _end(self, written: Written, *, commit: bool) -> Script[Outcome]:
        request = EndTxnRequest(self.plan.id, self.producer_id, self.epoch, commit)
        self.laws.ending(written, commit=commit)
        while True:
            sent_us = self.world.now_us
            reply: EndTxnResponse | None = yield from self.ask_coordinator(request)
            code = NO_ANSWER if reply is None else reply.error_code
            if reply is not None and code == ErrorCode.NONE:
                self.laws.ended(written, commit=commit, sent_us=sent_us)
                if self.bumps:
                    self._become(reply.producer_id, reply.producer_epoch)
                return Outcome.FINE
            if code == ErrorCode.CONCURRENT_TRANSACTIONS:
                yield Pause(RETRY_MS * self.random.random())
            elif code in FENCED or code == ErrorCode.INVALID_TXN_STATE:
                self.laws.end_refused(written, ErrorCode(code).name)
                return Outcome.FENCED
            elif code == NO_ANSWER or code in RETRIED:
                # It may have been decided, and only the answer is lost.
                self.laws.end_unheard(written)
                yield from self.elsewhere()
            else:
                raise refused(self.place, code, f"the {'commit' if commit else 'abort'} of {self.plan.id}")
