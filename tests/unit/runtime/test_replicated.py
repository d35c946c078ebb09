"""Replicated, with a machine that counts: replies wait for the commit, and a failed append leaves no trace."""

from collections.abc import Sequence
from typing import Any

from skidway.errors import InvalidRequest, NotController, ProtocolError, RecordListTooLarge, StorageError
from skidway.runtime.replicated import PARKED, Decision, Machine, Now, Operation, Replicated

LARGEST = 1_000


START = Now(0, 0)


class Add(Operation[int]):
    """Answers the sum afterwards."""

    amount: int


class Read(Operation[int]):
    pass


class Counter(Machine[int]):
    def __init__(self) -> None:
        self.total = 0

    def decide(self, operation: Operation[Any], now: Now) -> Decision[int, int]:
        if not isinstance(operation, Add):
            return Decision([], self.total)
        if operation.amount < 0:
            raise InvalidRequest("only up")
        return Decision([operation.amount], self.total + operation.amount)

    def apply(self, record: int) -> None:
        self.total += record


class MemoryStore:
    def __init__(self, *records: int) -> None:
        self.records: list[Any] = list(records)
        self.committed_offset = len(records)
        self.failing = False
        self.unreadable = False

    @property
    def end_offset(self) -> int:
        return len(self.records)

    def append(self, records: Sequence[Any], now_ms: int) -> int:
        if self.failing:
            raise StorageError("disk full")
        if any(isinstance(record, int) and record > LARGEST for record in records):
            raise RecordListTooLarge("too large")
        self.records.extend(records)
        return len(self.records)

    def read_all(self) -> list[Any]:
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

        self.host.submit(operation, START, respond)

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
    host.submit(Add(2), START, lambda reply: journal.append(f"replied {reply}"))
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


def test_a_failed_append_that_leaves_the_store_as_it_was_reads_nothing_again() -> None:
    """A disk that is full refuses every write, and to read thousands of records for each would stop all else."""
    world = World(1, 2)
    machine = world.host.machine
    world.store.failing = world.store.unreadable = True
    world.submit(Add(3))
    world.submit(Read())
    assert world.replies == ["disk full", 3]
    assert world.host.machine is machine


def test_records_the_store_cannot_take_are_refused_and_all_goes_on() -> None:
    world = World()
    world.submit(Add(2))
    world.submit(Add(LARGEST + 1))
    assert world.replies == ["too large"]
    world.submit(Add(3))
    world.commit(2)
    assert world.replies == ["too large", 2, 5]


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
    world.store.records.clear()
    world.submit(Add(3))
    world.submit(Read())
    assert world.replies == ["disk full", "unreadable", "unreadable"]


def test_losing_the_leadership_answers_all_that_waits() -> None:
    world = World()
    world.submit(Add(2))
    world.submit(Read())
    world.host.on_lost(NotController("moved"))
    assert world.replies == ["moved", "moved"]
    assert not world.host.parked


class Meet(Operation[str]):
    """Answered when another one comes, with a number that counts the pairs."""


class Booth(Machine[int]):
    """Who waits is known to the machine alone; the pairs are in the log."""

    def __init__(self) -> None:
        self.pairs = 0
        self.waiting: Meet | None = None

    def decide(self, operation: Operation[Any], now: Now) -> Decision[int, Any]:
        assert isinstance(operation, Meet)
        if self.waiting is None:
            return Decision([], PARKED, [operation])
        pair = f"pair {self.pairs + 1}"
        return Decision([1], PARKED, [None], [(self.waiting, pair), (operation, pair)])

    def apply(self, record: int) -> None:
        self.pairs += record

    def note(self, note: Meet | None) -> None:
        self.waiting = note


class Meeting:
    def __init__(self) -> None:
        self.store = MemoryStore()
        self.told: list[str] = []
        self.host = Replicated[Booth, int](Booth, self.store)

    def meet(self, name: str) -> None:
        self.host.submit(Meet(), START, lambda reply: self.told.append(f"{name}: {reply}"))

    def commit(self) -> None:
        self.store.committed_offset = self.store.end_offset
        self.host.on_committed(self.store.end_offset)


def test_a_parked_call_is_answered_by_a_later_decision_once_its_records_are_committed() -> None:
    meeting = Meeting()
    meeting.meet("a")
    meeting.commit()
    assert meeting.told == []
    meeting.meet("b")
    assert meeting.host.machine.pairs == 1
    assert meeting.told == []
    meeting.commit()
    assert meeting.told == ["a: pair 1", "b: pair 1"]
    assert meeting.host.held_count == 0


def test_who_is_parked_waits_on_when_an_append_fails() -> None:
    meeting = Meeting()
    meeting.meet("a")
    meeting.store.failing = True
    meeting.meet("b")
    assert meeting.told == ["b: disk full"]
    meeting.store.failing = False
    meeting.meet("c")
    meeting.commit()
    assert meeting.told == ["b: disk full", "a: pair 1", "c: pair 1"]


def test_a_failed_append_that_lost_something_answers_everyone_who_was_parked() -> None:
    meeting = Meeting()
    meeting.meet("a")
    meeting.meet("b")
    meeting.meet("c")
    meeting.store.failing = True
    meeting.store.records.clear()
    meeting.meet("d")
    lost = "The records of this change were lost."
    assert sorted(meeting.told) == [f"a: {lost}", f"b: {lost}", "c: disk full", "d: disk full"]
    assert meeting.host.held_count == 0
    assert meeting.host.machine.waiting is None


def test_losing_the_leadership_answers_the_parked_too() -> None:
    meeting = Meeting()
    meeting.meet("a")
    meeting.meet("b")
    meeting.meet("c")
    meeting.host.on_lost(NotController("moved"))
    assert sorted(meeting.told) == ["a: moved", "b: moved", "c: moved"]
    assert meeting.host.machine.pairs == 1


class Order(Operation[str]):
    """Answered when it is stored; then it is delivered."""

    name: str


class Delivered(Operation[None]):
    name: str


class Shop(Machine[str]):
    """Records are `+name` for an order and `-name` for a delivery."""

    def __init__(self) -> None:
        self.open: list[str] = []

    def decide(self, operation: Operation[Any], now: Now) -> Decision[str, Any]:
        if isinstance(operation, Order):
            return Decision([f"+{operation.name}"], "ordered", effects=[operation.name])
        assert isinstance(operation, Delivered)
        return Decision([f"-{operation.name}"] if operation.name in self.open else [], None)

    def apply(self, record: str) -> None:
        if record.startswith("+"):
            self.open.append(record[1:])
        else:
            self.open.remove(record[1:])

    def unfinished(self) -> list[str]:
        return list(self.open)


class Deliveries:
    def __init__(self, store: Any = None) -> None:
        self.store = store or MemoryStore()
        self.happened: list[str] = []
        self.host = Replicated[Shop, str](
            Shop, self.store, perform=lambda name: self.happened.append(f"deliver {name}")
        )

    def order(self, name: str) -> None:
        self.host.submit(Order(name), START, lambda reply: self.happened.append(f"{name}: {reply}"))

    def delivered(self, name: str) -> None:
        self.host.submit(Delivered(name), START, lambda reply: None)

    def commit(self) -> None:
        self.store.committed_offset = self.store.end_offset
        self.host.on_committed(self.store.end_offset)


def test_an_effect_happens_after_its_record_is_committed_and_answered() -> None:
    shop = Deliveries()
    shop.order("a")
    shop.order("b")
    assert shop.happened == []
    shop.commit()
    assert shop.happened == ["a: ordered", "deliver a", "b: ordered", "deliver b"]
    shop.delivered("a")
    shop.commit()
    assert shop.host.machine.open == ["b"]


def test_what_was_not_finished_is_performed_by_who_loads_it_once_it_is_committed() -> None:
    shop = Deliveries()
    shop.order("a")
    shop.order("b")
    shop.commit()
    shop.delivered("a")
    later = Deliveries(shop.store)
    assert later.happened == [], "the delivery of a is not committed: it may not have happened"
    later.commit()
    assert later.happened == ["deliver b"]


def test_no_effect_of_a_lost_decision_happens() -> None:
    shop = Deliveries()
    shop.order("a")
    shop.commit()
    shop.happened.clear()
    shop.store.failing = True
    shop.order("b")
    assert shop.happened == ["b: disk full"]
    shop.store.failing = False
    shop.order("c")
    shop.commit()
    assert shop.happened[1:] == ["c: ordered", "deliver c"]


def test_effects_whose_decision_waited_when_the_store_was_read_again_happen_once_it_is_committed() -> None:
    shop = Deliveries()
    shop.order("a")
    shop.commit()
    shop.order("b")
    shop.happened.clear()
    shop.store.failing = True
    shop.store.records.append("+somebody else's")
    shop.order("c")
    assert shop.happened == ["c: disk full"]
    shop.commit()
    everything = ["b: ordered", "deliver a", "deliver b", "deliver somebody else's"]
    assert shop.happened[1:] == everything, "a may have been delivered or not: it is delivered again"


def test_an_effect_of_a_closed_host_does_not_happen() -> None:
    shop = Deliveries()
    shop.order("a")
    shop.host.close(NotController("moved"))
    shop.commit()
    assert shop.happened == ["a: moved"]


def test_who_waits_too_long_is_told_and_the_rest_goes_on() -> None:
    store = MemoryStore()
    host = Replicated(Counter, store)
    heard: dict[str, list[Any]] = {name: [] for name in ("first", "read", "second")}
    host.submit(Add(1), Now(0, 0), heard["first"].append)
    host.submit(Read(), Now(5, 0), heard["read"].append)
    host.submit(Add(2), Now(10, 0), heard["second"].append)
    late = NotController("late")
    assert host.give_up(-1, late) == 0
    assert not host.is_late
    assert host.give_up(5, late) == 10
    assert heard == {"first": [late], "read": [late], "second": []}
    assert host.is_late
    assert len(host.parked) == 2, "what is only read leaves nothing behind"
    assert host.give_up(9, late) == 10
    host.on_committed(1)
    assert not host.is_late
    host.on_committed(2)
    assert heard["second"] == [3]
    assert heard["first"] == [late], "nobody is answered twice"
    assert host.give_up(99, late) is None
    assert (host.machine.total, len(host.parked)) == (3, 0)


def test_who_was_told_so_is_not_told_again_when_the_store_fails() -> None:
    store = MemoryStore()
    host = Replicated(Counter, store)
    heard: list[Any] = []
    host.submit(Add(1), Now(0, 0), heard.append)
    late = NotController("late")
    host.give_up(0, late)
    host.on_lost(NotController("gone"))
    host.close(NotController("closed"))
    assert heard == [late]
