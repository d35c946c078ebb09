"""Questions of this node to transaction coordinators: may a producer write into these partitions?

Leaders ask before the first batch of a transaction, and groups before offsets of one. The coordinator is asked to look
whether the partitions are in the transaction, or to add them. If it is on this node, no request is made. To every other
node one request is under way at a time; what comes meanwhile goes together in the next. No request has two questions
about one transactional id, because the answer names nothing else.

Every question is answered, once and in bounded time: without an answer from the coordinator with NETWORK_EXCEPTION. To
be added while the transaction before is still ending is tried again for a moment: a producer that has heard of its
commit goes on at once, and its partitions' markers are on their way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial

from skidway.broker.cluster.peers import Peers
from skidway.broker.coordinators.next_transactions import BUSY_MS
from skidway.broker.coordinators.transactions import TransactionCoordinators
from skidway.broker.world import World
from skidway.errors import ErrorCode, ProtocolError
from skidway.runtime.timers import Timer
from skidway.transactions.operations import AddPartitions, VerifyPartitions
from skidway.transactions.transaction import Place
from skidway.wire.message import Message
from skidway.wire.schema.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)

CHANNEL = "transactions"
ANSWER_MS = 5_000
"""Clients wait for 30 s, and try again."""
BUSY_FIRST_MS = 2
"""After so long another node is asked again that finds the transaction before still ending, then after twice as long
each time, until BUSY_MS are over: markers take a sync or two."""
AT_ONCE_MAX = 500
"""Questions in one request."""

Respond = Callable[[list[ErrorCode]], None]


class _Question:
    __slots__ = (
        "add",
        "epoch",
        "over",
        "pause_ms",
        "places",
        "producer_id",
        "respond",
        "timer",
        "transactional_id",
        "until_ms",
    )

    def __init__(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        places: list[Place],
        add: bool,
        until_ms: int,
        respond: Respond,
    ) -> None:
        self.transactional_id = transactional_id
        self.producer_id = producer_id
        self.epoch = epoch
        self.places = places
        self.add = add
        self.pause_ms = BUSY_FIRST_MS
        self.until_ms = until_ms
        self.respond = respond
        self.over = False
        """Whether it is answered."""
        self.timer: Timer | None = None
        """Armed while it is not, unless that comes at once."""

    def end(self, codes: list[ErrorCode]) -> None:
        assert len(codes) == len(self.places), "one code for each place"
        self.over = True
        if self.timer is not None:
            self.timer.cancel()
        self.respond(codes)

    def all(self, code: ErrorCode) -> list[ErrorCode]:
        return [code] * len(self.places)

    def message(self) -> AddPartitionsToTxnTransaction:
        topics: dict[str, list[int]] = {}
        for topic, index in self.places:
            topics.setdefault(topic, []).append(index)
        entries = [AddPartitionsToTxnTopic(topic, indexes) for topic, indexes in topics.items()]
        return AddPartitionsToTxnTransaction(self.transactional_id, self.producer_id, self.epoch, not self.add, entries)


class TransactionQuestions:
    __slots__ = ("_lines", "_peers", "_transactions", "_under_way", "_verifies", "_world")

    def __init__(
        self,
        world: World,
        peers: Peers,
        transactions: TransactionCoordinators,
        verifies: Callable[[], bool] = lambda: True,
    ) -> None:
        """`verifies`: whether anybody is to be asked about partitions that a client says it has added."""
        self._world = world
        self._peers = peers
        self._transactions = transactions
        self._verifies = verifies
        self._lines: dict[int, deque[_Question]] = {}
        """What is to be asked of each other node."""
        self._under_way: set[int] = set()
        """Nodes that were asked and have not answered."""

    def ask(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        places: list[Place],
        add: bool,
        now_ms: int,
        respond: Respond,
    ) -> None:
        """`respond` gets a code for each place, at once or later: the coordinator's, in Kafka's words."""
        if not add and not self._verifies():
            respond([ErrorCode.NONE] * len(places))
            return
        until_ms = now_ms + BUSY_MS if add else now_ms
        question = _Question(transactional_id, producer_id, producer_epoch, places, add, until_ms, respond)
        self._put(question, now_ms)
        if not question.over:
            late = partial(question.end, question.all(ErrorCode.NETWORK_EXCEPTION))
            question.timer = self._world.timers.at(now_ms + ANSWER_MS, late)

    def _put(self, question: _Question, now_ms: int) -> None:
        if question.over:
            return
        try:
            node_id = self._transactions.find(question.transactional_id).id
        except ProtocolError as error:
            question.end(question.all(error.code))
            return
        if node_id == self._world.settings.node_id:
            self._ask_here(question, now_ms)
        else:
            self._lines.setdefault(node_id, deque()).append(question)
            self._ask_there(node_id, now_ms)

    def _ask_here(self, question: _Question, now_ms: int) -> None:
        key, places = question.transactional_id, question.places
        if question.add:

            def added(reply: ProtocolError | None) -> None:
                self._on_codes(question, question.all(ErrorCode.NONE if reply is None else reply.code))

            add = AddPartitions(key, question.producer_id, question.epoch, places, bumps=True)
            self._transactions.next.add(add, now_ms, added)
            return

        def verified(reply: list[ErrorCode] | ProtocolError) -> None:
            self._on_codes(question, question.all(reply.code) if isinstance(reply, ProtocolError) else reply)

        verify = VerifyPartitions(key, question.producer_id, question.epoch, places)
        self._transactions.submit(key, verify, now_ms, verified)

    def _ask_there(self, node_id: int, now_ms: int) -> None:
        if node_id in self._under_way:
            return
        asked = self._take(node_id)
        if not asked:
            return
        self._under_way.add(node_id)
        request = AddPartitionsToTxnRequest([question.message() for question in asked.values()])
        self._peers.ask(node_id, CHANNEL, request, now_ms, ANSWER_MS, partial(self._on_response, node_id, asked))

    def _take(self, node_id: int) -> dict[str, _Question]:
        """What the next request asks, by transactional id; the rest stays in line."""
        line, asked = self._lines.pop(node_id, deque()), dict[str, _Question]()
        left: deque[_Question] = deque()
        for question in line:
            if question.over:
                continue
            if len(asked) < AT_ONCE_MAX and question.transactional_id not in asked:
                asked[question.transactional_id] = question
            else:
                left.append(question)
        if left:
            self._lines[node_id] = left
        return asked

    def _on_response(self, node_id: int, asked: dict[str, _Question], response: Message | None) -> None:
        self._under_way.discard(node_id)
        answers: dict[str, dict[Place, int]] = {}
        otherwise = ErrorCode.NETWORK_EXCEPTION
        if isinstance(response, AddPartitionsToTxnResponse):
            if response.error_code:
                otherwise = _code(response.error_code)
            for result in response.results_by_transaction:
                answers[result.transactional_id] = {
                    (topic.name, entry.partition_index): entry.partition_error_code
                    for topic in result.topic_results
                    for entry in topic.results_by_partition
                }
        for key, question in asked.items():
            codes = answers.get(key, {})
            self._on_codes(question, [_code(codes.get(place, otherwise)) for place in question.places])
        self._ask_there(node_id, self._world.clock.monotonic_ms())

    def _on_codes(self, question: _Question, codes: list[ErrorCode]) -> None:
        if question.over:
            return
        now_ms = self._world.clock.monotonic_ms()
        if ErrorCode.CONCURRENT_TRANSACTIONS in codes and now_ms < question.until_ms:
            again_ms = min(now_ms + question.pause_ms, question.until_ms)
            question.pause_ms *= 2
            self._world.timers.at(again_ms, lambda: self._put(question, again_ms))
        else:
            question.end(codes)


def _code(number: int) -> ErrorCode:
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
