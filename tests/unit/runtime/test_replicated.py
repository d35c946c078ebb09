"""Replicated, with a machine that counts: replies wait for the commit, and a failed append leaves no trace."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from skidway.errors import InvalidRequest, NotController, ProtocolError, StorageError
from skidway.runtime.replicated import Decision, Operation, Replicated


@dataclass(slots=True)
class Add(Operation[int]):
    """Answers the sum afterwards."""

    amount: int


class Read(Operation[int]):
    pass


class Counter:
    def __init__(self) -> None:
        self.total = 0

    def decide(self, operation: Operation[Any], now_ms: int) -> Decision[int, int]:
        if not isinstance(operation, Add):
            return Decision([], self.total)
        if operation.amount < 0:
            raise InvalidRequest("only up")
        return Decision([operation.amount], self.total + operation.amount)

    def apply(self, record: int) -> None:
        self.total += record


class MemoryStore:
    def __init__(self, *records: int) -> None:
        self.records = list(records)
        self.committed_offset = len(records)
        self.failing = False
        self.unreadable = False

    @property
    def end_offset(self) -> int:
        return len(self.records)

    def append(self, records: Sequence[int], now_ms: int) -> int:
        if self.failing:
            raise StorageError("disk full")
        self.records.extend(records)
        return len(self.records)

    def read_all(self) -> list[int]:
        if self.unreadable:
            raise StorageError("unreadable")
        return self.records


class World:
    def __init__(self, *records: int) -> None:
        self.store = MemoryStore(*records)
        self.published: list[int] = []
        self.replies: list[int | str] = []
        self.host = Replicated[Counter, int](Counter, self.store, self.published.extend)

    def submit(self, operation: Operation[int]) -> None:
        def respond(reply: int | ProtocolError) -> None:
            self.replies.append(str(reply) if isinstance(reply, ProtocolError) else reply)

        self.host.submit(operation, 0, respond)

    def commit(self, offset: int) -> None:
        self.store.committed_offset = offset
        self.host.on_committed(offset)


def test_a_reply_waits_for_its_records_to_be_committed() -> None:
    world = World()
    world.submit(Add(2))
    world.submit(Add(3))
    assert world.host.machine.total == 5
    assert world.replies == []
    assert world.published == []
    world.commit(1)
    assert world.replies == [2]
    assert world.published == [2]
    world.commit(2)
    assert world.replies == [2, 5]


def test_records_are_published_before_their_reply_leaves() -> None:
    store, journal = MemoryStore(), list[str]()
    host = Replicated[Counter, int](Counter, store, lambda records: journal.append(f"published {records}"))
    host.submit(Add(2), 0, lambda reply: journal.append(f"replied {reply}"))
    store.committed_offset = 1
    host.on_committed(1)
    assert journal == ["published [2]", "replied 2"]


def test_a_read_waits_for_what_it_may_have_seen() -> None:
    world = World()
    world.submit(Read())
    assert world.replies == [0]
    world.submit(Add(2))
    world.submit(Read())
    assert world.replies == [0]
    world.commit(1)
    assert world.replies == [0, 2, 2]


def test_a_refusal_answers_the_error_and_writes_nothing() -> None:
    world = World()
    world.submit(Add(-1))
    assert world.replies == ["only up"]
    assert world.store.records == []


def test_loading_applies_and_publishes_what_the_store_holds() -> None:
    world = World(1, 2, 3)
    assert world.host.machine.total == 6
    assert world.published == [1, 2, 3]


def test_loaded_records_that_are_not_committed_yet_are_published_later() -> None:
    store = MemoryStore(1, 2)
    store.committed_offset = 1
    published: list[int] = []
    host = Replicated[Counter, int](Counter, store, published.extend)
    assert published == []
    host.on_committed(2)
    assert published == [1, 2]


def test_a_failed_append_changes_nothing_and_earlier_replies_go_on_waiting() -> None:
    world = World()
    world.submit(Add(2))
    world.store.failing = True
    world.submit(Add(3))
    assert world.replies == ["disk full"]
    assert world.host.machine.total == 2
    world.store.failing = False
    world.commit(1)
    assert world.replies == ["disk full", 2]
    world.submit(Add(4))
    world.commit(2)
    assert world.replies == ["disk full", 2, 6]
    assert world.published == [2, 4]


def test_records_the_failure_took_along_are_answered_as_lost() -> None:
    world = World()
    world.submit(Add(2))
    world.store.failing = True
    world.store.records.clear()
    world.submit(Add(3))
    assert world.replies == ["disk full", "The records of this change were lost."]
    assert world.host.machine.total == 0


def test_an_unreadable_store_refuses_everything_from_then_on() -> None:
    world = World()
    world.submit(Add(2))
    world.store.failing = world.store.unreadable = True
    world.submit(Add(3))
    world.submit(Read())
    assert world.replies == ["disk full", "unreadable", "unreadable"]


def test_losing_the_leadership_answers_all_that_waits() -> None:
    world = World()
    world.submit(Add(2))
    world.submit(Read())
    world.host.on_lost(NotController("moved"))
    assert world.replies == ["moved", "moved"]
    assert world.host.parked_count == 0
