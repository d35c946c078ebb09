"""What a producer adds while its last transaction is ending waits until that has ended, and for a bounded time."""

from collections.abc import Callable
from typing import Any

import pytest
from broker_world import HandClock

from skidway.broker.coordinators import next_transactions
from skidway.broker.coordinators.next_transactions import BUSY_MS, NextTransactions
from skidway.errors import ConcurrentTransactions, ProducerFenced, ProtocolError
from skidway.runtime.timers import Timers
from skidway.transactions.operations import AddPartitions

BUSY = ConcurrentTransactions("still ending")


class Waiting:
    def __init__(self) -> None:
        self.clock = HandClock()
        self.timers = Timers()
        self.asked: list[tuple[str, Callable[[ProtocolError | None], None]]] = []
        self.next = NextTransactions(self.clock, self.timers, self._submit)
        self.answers: list[tuple[str, Any]] = []

    def _submit(
        self, key: str, operation: AddPartitions, now_ms: int, respond: Callable[[ProtocolError | None], None]
    ) -> None:
        assert now_ms == self.clock.now_ms
        self.asked.append((operation.places[0][0], respond))

    def add(self, key: str, topic: str) -> None:
        def answered(reply: ProtocolError | None) -> None:
            self.answers.append((topic, reply))

        self.next.add(AddPartitions(key, 7, 4, [(topic, 0)]), self.clock.now_ms, answered)

    def reply(self, reply: ProtocolError | None) -> str:
        """To the oldest question; which one it was."""
        topic, respond = self.asked.pop(0)
        respond(reply)
        return topic

    def pass_time(self, milliseconds: int) -> None:
        self.clock.now_ms += milliseconds
        self.timers.fire(self.clock.now_ms)


@pytest.mark.parametrize("reply", [None, ProducerFenced("…")])
def test_where_nothing_is_ending_nothing_waits(reply: ProtocolError | None) -> None:
    waiting = Waiting()
    waiting.add("shop", "orders")
    waiting.reply(reply)
    assert waiting.answers == [("orders", reply)]
    assert (len(waiting.next), len(waiting.timers)) == (0, 0)


def test_it_is_tried_again_when_the_last_one_has_ended() -> None:
    waiting = Waiting()
    waiting.add("shop", "orders")
    waiting.add("shop", "bills")
    waiting.add("other", "letters")
    for _ in range(3):
        waiting.reply(BUSY)
    assert (waiting.answers, waiting.asked, len(waiting.next)) == ([], [], 3)
    waiting.pass_time(BUSY_MS - 1)
    waiting.next.on_ended("nobody")
    waiting.next.on_ended("shop")
    assert [waiting.reply(None), waiting.reply(None)] == ["orders", "bills"]
    assert waiting.answers == [("orders", None), ("bills", None)]
    assert (len(waiting.next), len(waiting.timers)) == (1, 1)


def test_it_waits_for_a_bounded_time_however_often_it_was_tried() -> None:
    waiting = Waiting()
    waiting.add("shop", "orders")
    waiting.reply(BUSY)
    waiting.pass_time(BUSY_MS // 2)
    waiting.next.on_ended("shop")
    waiting.reply(BUSY)
    waiting.pass_time(BUSY_MS // 2 - 1)
    assert waiting.answers == []
    waiting.pass_time(1)
    assert waiting.answers == [("orders", BUSY)]
    waiting.next.on_ended("shop")
    assert (waiting.asked, len(waiting.next), len(waiting.timers)) == ([], 0, 0)


def test_one_that_gives_up_leaves_the_others_waiting() -> None:
    waiting = Waiting()
    waiting.add("shop", "orders")
    waiting.reply(BUSY)
    waiting.pass_time(10)
    waiting.add("shop", "bills")
    waiting.reply(BUSY)
    waiting.pass_time(BUSY_MS - 10)
    assert waiting.answers == [("orders", BUSY)]
    waiting.next.on_ended("shop")
    assert waiting.reply(None) == "bills"
    assert waiting.answers[1:] == [("bills", None)]


def test_only_so_many_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(next_transactions, "WAITING_MAX", 1)
    waiting = Waiting()
    waiting.add("shop", "orders")
    waiting.add("other", "letters")
    waiting.reply(BUSY)
    waiting.reply(BUSY)
    assert waiting.answers == [("letters", BUSY)]


def test_only_so_many_partitions_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(next_transactions, "WAITING_PLACES_MAX", 2)
    waiting = Waiting()
    for topic in ("orders", "bills", "letters"):
        waiting.add("shop", topic)
        waiting.reply(BUSY)
    assert waiting.answers == [("letters", BUSY)]
    waiting.next.on_ended("shop")
    assert [waiting.reply(None), waiting.reply(BUSY)] == ["orders", "bills"]
    waiting.add("shop", "letters")
    waiting.reply(BUSY)
    assert waiting.answers[1:] == [("orders", None)], "who has waited makes room for others"
    waiting.pass_time(BUSY_MS)
    assert len(waiting.answers) == 4
