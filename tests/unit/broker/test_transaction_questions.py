"""Questions to transaction coordinators: here, on other nodes, several at once, and when nobody can tell."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from broker_world import START_MS, HandClock

from skidway.broker.coordinators.transaction_questions import ANSWER_MS, AT_ONCE_MAX, BUSY_MS, TransactionQuestions
from skidway.errors import ConcurrentTransactions, CoordinatorNotAvailable, ErrorCode, ProducerFenced, ProtocolError
from skidway.runtime.timers import Timers
from skidway.transactions.operations import AddPartitions, VerifyPartitions
from skidway.wire.schema.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)

HERE, THERE = 1, 2
NONE, BUSY, LOST = ErrorCode.NONE, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NETWORK_EXCEPTION
FENCED = ErrorCode.PRODUCER_FENCED
PLACES = [("orders", 0), ("bills", 3), ("orders", 2)]


@dataclass
class PlayedCoordinators:
    node_id: int = HERE
    missing: ProtocolError | None = None
    asked: list[tuple[Any, Callable[[Any], None]]] = field(default_factory=list)

    def find(self, key: str) -> Any:
        if self.missing is not None:
            raise self.missing
        return SimpleNamespace(id=self.node_id)

    @property
    def next(self) -> "PlayedCoordinators":
        return self

    def add(self, operation: Any, now_ms: int, respond: Callable[[Any], None]) -> None:
        self.submit(operation.transactional_id, operation, now_ms, respond)

    def submit(self, key: str, operation: Any, now_ms: int, respond: Callable[[Any], None]) -> None:
        assert key == operation.transactional_id
        self.asked.append((operation, respond))


@dataclass
class PlayedPeers:
    asked: list[tuple[int, AddPartitionsToTxnRequest, Callable[[Any], None]]] = field(default_factory=list)

    def ask(self, node_id: int, channel: str, request: Any, now_ms: int, timeout_ms: int, respond: Any) -> None:
        self.asked.append((node_id, request, respond))


class Asking:
    def __init__(self, node_id: int = HERE) -> None:
        self.clock = HandClock()
        self.timers = Timers()
        self.coordinators = PlayedCoordinators(node_id)
        self.peers = PlayedPeers()
        world: Any = SimpleNamespace(clock=self.clock, timers=self.timers, settings=SimpleNamespace(node_id=HERE))
        coordinators: Any = self.coordinators
        peers: Any = self.peers
        self.questions = TransactionQuestions(world, peers, coordinators)
        self.answers: list[list[ErrorCode]] = []
        self.named: dict[str, list[ErrorCode]] = {}

    def ask(self, key: str = "shop", places: list[tuple[str, int]] = PLACES, *, add: bool = False) -> None:
        def answered(codes: list[ErrorCode]) -> None:
            self.answers.append(codes)
            assert key not in self.named, "once"
            self.named[key] = codes

        self.questions.ask(key, 7, 4, places, add, self.clock.now_ms, answered)

    def pass_time(self, milliseconds: int) -> None:
        self.clock.now_ms += milliseconds
        self.timers.fire(self.clock.now_ms)

    def reply(self, codes: dict[str, list[ErrorCode]] | None, error: ErrorCode = NONE) -> None:
        """The other node answers the oldest request; a code for each place of each id that is named."""
        _, request, respond = self.peers.asked.pop(0)
        if codes is None:
            respond(None)
            return
        response = AddPartitionsToTxnResponse(error_code=error)
        for transaction in reversed(request.transactions):
            if transaction.transactional_id in codes:
                given = iter(codes[transaction.transactional_id])
                topics = [
                    AddPartitionsToTxnTopicResult(
                        topic.name,
                        [AddPartitionsToTxnPartitionResult(index, next(given)) for index in topic.partitions],
                    )
                    for topic in transaction.topics
                ]
                response.results_by_transaction.append(AddPartitionsToTxnResult(transaction.transactional_id, topics))
        respond(response)


def test_a_coordinator_on_this_node_is_asked_without_a_request() -> None:
    asking = Asking()
    asking.ask()
    asking.ask("other", add=True)
    (verify, verified), (add, added) = asking.coordinators.asked
    assert verify == VerifyPartitions("shop", 7, 4, PLACES)
    assert add == AddPartitions("other", 7, 4, PLACES, bumps=True)
    verified([NONE, ErrorCode.TRANSACTION_ABORTABLE, NONE])
    added(None)
    assert asking.answers == [[NONE, ErrorCode.TRANSACTION_ABORTABLE, NONE], [NONE] * 3]
    assert asking.peers.asked == []
    assert len(asking.timers) == 0


@pytest.mark.parametrize("add", [False, True])
def test_what_it_refuses_it_refuses_for_all_places(add: bool) -> None:
    asking = Asking()
    asking.ask(add=add)
    asking.coordinators.asked[0][1](ProducerFenced("…"))
    assert asking.answers == [[FENCED] * 3]


def test_nobody_coordinates_it_now() -> None:
    asking = Asking()
    asking.coordinators.missing = CoordinatorNotAvailable("…")
    asking.ask()
    assert asking.answers == [[ErrorCode.COORDINATOR_NOT_AVAILABLE] * 3]


def test_a_coordinator_on_another_node() -> None:
    asking = Asking(THERE)
    asking.ask(add=True)
    ((node_id, request, _),) = asking.peers.asked
    (transaction,) = request.transactions
    assert node_id == THERE
    assert (transaction.transactional_id, transaction.producer_id, transaction.producer_epoch) == ("shop", 7, 4)
    assert not transaction.verify_only
    assert [(topic.name, topic.partitions) for topic in transaction.topics] == [("orders", [0, 2]), ("bills", [3])]
    asking.reply({"shop": [NONE, FENCED, ErrorCode.TRANSACTION_ABORTABLE]})
    assert asking.answers == [[NONE, ErrorCode.TRANSACTION_ABORTABLE, FENCED]], "in the order of the question"


def test_what_comes_while_a_node_is_asked_goes_together_in_the_next_request() -> None:
    asking = Asking(THERE)
    for key in ("a", "b", "c", "b", "d"):
        asking.questions.ask(key, 7, 4, [("orders", 0)], key == "c", START_MS, partial(_append, asking.answers, key))
    assert _keys(asking) == [["a"]]
    asking.reply({"a": [NONE]})
    assert _keys(asking) == [["b", "c", "d"]], "one about each id: the answer names nothing else"
    assert [each.verify_only for each in asking.peers.asked[0][1].transactions] == [True, False, True]
    asking.reply({"b": [NONE], "c": [FENCED], "d": [NONE]})
    assert _keys(asking) == [["b"]]
    asking.reply({"b": [FENCED]})
    assert _keys(asking) == []
    assert asking.answers == [["a", NONE], ["b", NONE], ["c", FENCED], ["d", NONE], ["b", FENCED]]
    assert len(asking.timers) == 0


def test_a_request_has_a_bounded_number_of_questions() -> None:
    asking = Asking(THERE)
    for number in range(AT_ONCE_MAX + 3):
        asking.ask(f"id-{number}")
    asking.reply({})
    assert [len(keys) for keys in _keys(asking)] == [AT_ONCE_MAX]
    asking.reply({})
    assert [len(keys) for keys in _keys(asking)] == [2]


def test_a_node_that_does_not_answer() -> None:
    asking = Asking(THERE)
    asking.ask("a")
    asking.ask("b")
    asking.reply(None)
    assert asking.answers == [[LOST] * 3]
    assert _keys(asking) == [["b"]], "the next one tries again"
    asking.reply({}, error=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    assert asking.answers[1:] == [[ErrorCode.CLUSTER_AUTHORIZATION_FAILED] * 3]


def test_an_answer_that_lacks_something() -> None:
    asking = Asking(THERE)
    asking.ask("a")
    asking.reply({"b": [NONE] * 3})
    assert asking.answers == [[LOST] * 3]


@pytest.mark.parametrize("node_id", [HERE, THERE])
def test_what_is_not_answered_in_time_is_answered_once(node_id: int) -> None:
    asking = Asking(node_id)
    asking.ask("a")
    asking.ask("b")
    asking.pass_time(ANSWER_MS)
    assert asking.named == {"a": [LOST] * 3, "b": [LOST] * 3}
    if node_id == HERE:
        asking.coordinators.asked[0][1]([NONE] * 3)
    else:
        asking.reply({"a": [NONE] * 3})
        assert _keys(asking) == [], "nobody waits for it any more"
    assert len(asking.answers) == 2


@pytest.mark.parametrize("node_id", [HERE, THERE])
def test_a_transaction_that_is_still_ending_is_asked_again_for_a_moment(node_id: int) -> None:
    asking = Asking(node_id)
    asking.ask(add=True)
    tries = 0
    while not asking.answers:
        tries += 1
        if node_id == HERE:
            asking.coordinators.asked.pop(0)[1](ConcurrentTransactions("…"))
        else:
            asking.reply({"shop": [BUSY] * 3})
        while not asking.answers and not asking.coordinators.asked and not asking.peers.asked:
            asking.pass_time(1)
    assert asking.answers == [[BUSY] * 3]
    assert tries == 7, "after 2, 4, 8, 16 and 32 ms, and at the end"
    assert asking.clock.now_ms - START_MS == BUSY_MS


def test_it_goes_on_as_soon_as_the_last_one_has_ended() -> None:
    asking = Asking()
    asking.ask(add=True)
    asking.coordinators.asked.pop(0)[1](ConcurrentTransactions("…"))
    assert asking.answers == []
    asking.pass_time(2)
    asking.coordinators.asked.pop(0)[1](None)
    assert asking.answers == [[NONE] * 3]
    assert len(asking.timers) == 0


def test_who_verifies_is_told_at_once() -> None:
    asking = Asking()
    asking.ask()
    asking.coordinators.asked.pop(0)[1](ConcurrentTransactions("…"))
    assert asking.answers == [[BUSY] * 3]


def _append(answers: list[Any], key: str, codes: list[ErrorCode]) -> None:
    answers.append([key, *codes])


def _keys(asking: Asking) -> list[list[str]]:
    return [[each.transactional_id for each in request.transactions] for _, request, _ in asking.peers.asked]
