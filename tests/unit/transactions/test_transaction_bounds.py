"""A transaction coordinator that is full, or late with everything at once; and what it costs to have many ids."""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from types import FrameType
from typing import Any

import pytest
from transaction_world import WALL_AT_START_MS, World

from skidway.errors import PolicyViolation
from skidway.runtime.replicated import Now
from skidway.transactions import bounds
from skidway.transactions.bounds import bytes_of
from skidway.transactions.coordinator import AT_ONCE_MAX, PLACES_AT_ONCE_MAX, TransactionCoordinator
from skidway.transactions.operations import (
    AddPartitions,
    CommitTogether,
    EndTransaction,
    InitProducer,
    MarkersWritten,
    Participant,
    Producer,
    Tick,
    TopicsDeleted,
)
from skidway.transactions.records import TransactionRecord
from skidway.transactions.settings import TransactionSettings
from skidway.transactions.transaction import Empty, Ended, Ending, Ongoing, Place, State, Transaction

IDS = 100_000


class Asking(World):
    def ask(self, operation: Any) -> Any:
        replies: list[Any] = []
        self.submit(operation, replies.append)
        (reply,) = replies
        if isinstance(reply, Exception):
            raise reply
        return reply

    def begin(self, transactional_id: str, places: list[Place], timeout_ms: int = 1_000) -> Producer:
        producer: Producer = self.ask(InitProducer(transactional_id, timeout_ms))
        self.ask(AddPartitions(transactional_id, producer.id, producer.epoch, places))
        return producer


@contextmanager
def counted() -> Iterator[list[str]]:
    """Calls of Python functions; none of a collection of garbage, about which hypothesis wants to be told."""
    names: list[str] = []

    def note(running: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            names.append(running.f_code.co_name)

    gc.disable()
    sys.setprofile(note)
    try:
        yield names
    finally:
        sys.setprofile(None)
        gc.enable()


@pytest.mark.parametrize("letter", ["a", "é", "語", "🜁"])
def test_an_id_is_counted_with_the_memory_that_its_letters_take(letter: str) -> None:
    name = letter * 8_000
    assert bytes_of(name) >= sys.getsizeof(name)


def test_only_so_many_ids_and_those_that_are_known_go_on() -> None:
    world = Asking(TransactionSettings(ids_max=2))
    world.ask(InitProducer("a", 1_000))
    world.ask(InitProducer("b", 1_000))
    before = world.next_producer_id
    with pytest.raises(PolicyViolation):
        world.ask(InitProducer("c", 1_000))
    assert world.next_producer_id == before, "a producer id was given away for nothing"
    assert world.ask(InitProducer("a", 1_000)).epoch == 1
    world.pass_time(world.settings.id_expiration_ms + world.settings.id_expiration_check_ms)
    world.ask(InitProducer("c", 1_000))


def test_only_so_many_partitions_in_a_transaction_however_they_come() -> None:
    world = Asking(TransactionSettings(partitions_max=3))
    producer = world.begin("a", [("x", 0), ("x", 1)])
    with pytest.raises(PolicyViolation):
        world.ask(AddPartitions("a", producer.id, 0, [("y", 0), ("y", 1)]))
    world.ask(AddPartitions("a", producer.id, 0, [("x", 0), ("x", 1), ("y", 0)]))
    with pytest.raises(PolicyViolation):
        world.ask(AddPartitions("a", producer.id, 0, [("y", 1)]))
    world.ask(AddPartitions("a", producer.id, 0, [("y", 0)]))
    world.ask(EndTransaction("a", producer.id, 0, commit=True))


def test_a_request_without_partitions_begins_nothing() -> None:
    world = Asking(TransactionSettings())
    producer = world.ask(InitProducer("a", 1_000))
    world.ask(AddPartitions("a", producer.id, 0, []))
    assert isinstance(world.machine.transactions["a"].state, Empty)


class Neighbours:
    """The coordinators of one node."""

    def __init__(self, settings: TransactionSettings) -> None:
        self.settings = settings
        self.worlds: list[Asking] = []

    @property
    def id_bytes(self) -> int:
        return sum(world.machine.footprint.id_bytes for world in self.worlds)

    @property
    def place_count(self) -> int:
        return sum(world.machine.footprint.place_count for world in self.worlds)

    def new(self) -> Asking:
        neighbours = self

        class Neighbour(Asking):
            def new_machine(self) -> TransactionCoordinator:
                return TransactionCoordinator(self.settings, self.new_producer_id, self.numbers, usage=neighbours)

        self.worlds.append(Neighbour(self.settings))
        return self.worlds[-1]


def test_ids_of_all_coordinators_together_are_bounded_by_what_they_take() -> None:
    node = Neighbours(TransactionSettings(node_id_bytes_max=bytes_of("a") + bytes_of("long" * 100)))
    one, other = node.new(), node.new()
    one.ask(InitProducer("a", 1_000))
    drawn = other.next_producer_id
    with pytest.raises(PolicyViolation, match="as much as they may"):
        other.ask(InitProducer("long" * 100 + "er", 1_000))
    assert other.next_producer_id == drawn, "a producer id was given away for nothing"
    other.ask(InitProducer("long" * 100, 1_000))
    for world in (one, other):
        with pytest.raises(PolicyViolation):
            world.ask(InitProducer("b", 1_000))
    assert one.ask(InitProducer("a", 1_000)).epoch == 1, "those that are known go on"
    one.ask(AddPartitions("a", one.machine.transactions["a"].producer_id, 1, [("x", 0)]))
    other.pass_time(other.settings.id_expiration_ms + other.settings.id_expiration_check_ms)
    one.ask(InitProducer("b", 1_000))


def test_partitions_of_all_open_transactions_together_are_bounded() -> None:
    node = Neighbours(TransactionSettings(node_partitions_max=3))
    one, other = node.new(), node.new()
    first = one.begin("a", [("x", 0), ("x", 1)])
    second = other.begin("b", [("x", 0)])
    with pytest.raises(PolicyViolation, match="as many as they may"):
        other.ask(AddPartitions("b", second.id, 0, [("x", 1)]))
    other.ask(AddPartitions("b", second.id, 0, [("x", 0)]))
    one.ask(EndTransaction("a", first.id, 0, commit=True))
    with pytest.raises(PolicyViolation):
        other.ask(AddPartitions("b", second.id, 0, [("x", 1)]))
    one.ask(MarkersWritten("a", one.performed[0].number, [("x", 0), ("x", 1)]))
    other.ask(AddPartitions("b", second.id, 0, [("x", 1), ("x", 2)]))


def test_what_is_counted_is_what_the_log_says() -> None:
    world = Asking(TransactionSettings())
    for name in ("a", "b", "c"):
        world.begin(name, [("x", 0), ("y", 1)])
    world.ask(EndTransaction("a", world.machine.transactions["a"].producer_id, 0, commit=False))
    world.ask(MarkersWritten("a", world.performed[0].number, [("x", 0), ("y", 1)]))
    assert (world.machine.footprint.id_bytes, world.machine.footprint.place_count) == (3 * bytes_of("a"), 4)
    again = world.rebuilt()
    assert (again.footprint.id_bytes, again.footprint.place_count) == (3 * bytes_of("a"), 4)
    world.ask(MarkersWritten("nobody", 0, []))
    world.pass_time(world.settings.id_expiration_ms + world.settings.id_expiration_check_ms)
    assert world.machine.footprint.id_bytes == 2 * bytes_of("b"), "those that were aborted wait for their markers"
    assert world.settings.node_id_bytes_max > world.settings.ids_max * bytes_of("x" * 100)


def test_transactions_over_very_many_partitions_are_not_committed_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "TOGETHER_PLACES_MAX", 3)
    world = Asking(TransactionSettings())
    producers = {name: world.begin(name, [("x", 0), ("x", 1)]) for name in ("a", "b")}
    both = [Participant(name, producer.id, producer.epoch) for name, producer in producers.items()]
    with pytest.raises(PolicyViolation, match="over 4 partitions"):
        world.ask(CommitTogether(both))
    assert {type(known.state) for known in world.machine.transactions.values()} == {Ongoing}
    world.ask(CommitTogether(both[:1]))


def test_a_deleted_topic_ends_only_so_many_in_one_go() -> None:
    """The sender of markers finds out about the others, and says so."""
    world = Asking(TransactionSettings())
    for number in range(AT_ONCE_MAX + 1):
        producer = world.begin(f"t{number}", [("x", 0)])
        world.ask(EndTransaction(f"t{number}", producer.id, 0, commit=True))
    world.written.clear()
    world.ask(TopicsDeleted(["x"]))
    assert len(world.written) == AT_ONCE_MAX
    world.ask(TopicsDeleted(["x"]))
    assert len(world.written) == AT_ONCE_MAX + 1


def ticked(world: World) -> list[int]:
    """How many records each tick of this moment writes, until there is nothing left to do."""
    counts = []
    while world.machine.deadline_ms <= world.now_ms:
        world.written.clear()
        world.tick()
        counts.append(len(world.written))
        assert len(counts) < 1_000
    return counts


def test_what_times_out_at_once_is_aborted_in_several_ticks_and_nothing_is_left() -> None:
    world = Asking(TransactionSettings())
    many = 2 * AT_ONCE_MAX + 10
    for number in range(many):
        world.begin(f"t{number}", [("x", 0)])
    world.begin("patient", [("x", 0)], timeout_ms=900_000)
    world.tick()
    world.now_ms += 20_000
    assert ticked(world) == [AT_ONCE_MAX, AT_ONCE_MAX, 10]
    assert len({effect.transactional_id for effect in world.performed}) == len(world.performed) == many
    assert isinstance(world.machine.transactions["patient"].state, Ongoing)


def test_what_expires_at_once_is_forgotten_in_several_ticks_and_nothing_is_left() -> None:
    world = Asking(TransactionSettings())
    for number in range(AT_ONCE_MAX):
        world.ask(InitProducer(f"t{number}", 1_000))
    world.tick()
    world.now_ms += world.settings.id_expiration_ms
    world.begin("late", [("x", 0)])
    world.now_ms += world.settings.id_expiration_check_ms
    assert ticked(world) == [AT_ONCE_MAX, 1], "one that timed out, and all that are old"
    assert list(world.machine.transactions) == ["late"]
    assert world.rebuilt().transactions == world.machine.transactions


def test_transactions_of_many_partitions_share_no_tick() -> None:
    """Their records have to fit into one batch."""
    each = PLACES_AT_ONCE_MAX // 2 + 1
    world = Asking(TransactionSettings(partitions_max=2 * PLACES_AT_ONCE_MAX))
    for number in range(3):
        world.begin(f"t{number}", [("x", partition) for partition in range(each)])
    world.begin("vast", [("x", partition) for partition in range(2 * PLACES_AT_ONCE_MAX)])
    world.tick()
    world.now_ms += 20_000
    assert ticked(world) == [1, 1, 1, 1]
    assert {type(known.state) for known in world.machine.transactions.values()} == {Ending}


def test_a_prepared_transaction_without_partitions_is_completed_by_the_answer_to_its_markers() -> None:
    """Kafka may leave one behind; here it is complete in the same decision."""
    world = Asking(TransactionSettings())
    known = Transaction("t", 7, 3, 1_000, Ending(False, 5, frozenset()), 5, 7, bumps=True)
    world.append([TransactionRecord("t", known)], 0)
    world.restart()
    (effect,) = world.performed
    assert not effect.places
    world.ask(MarkersWritten("t", effect.number, []))
    assert world.machine.transactions["t"].state == Ended(False, 5)


def test_the_moments_at_which_things_are_late() -> None:
    """A transaction after its time-out; an id at its age, as in Kafka."""
    settings = TransactionSettings(timeout_check_ms=1, id_expiration_check_ms=1, id_expiration_ms=5_000)
    world = Asking(settings)
    world.begin("t", [("x", 0)], timeout_ms=1_000)
    world.pass_time(1_000)
    assert isinstance(world.machine.transactions["t"].state, Ongoing)
    world.pass_time(1)
    assert isinstance(world.machine.transactions["t"].state, Ending)
    world.ask(MarkersWritten("t", world.performed[0].number, [("x", 0)]))
    ended_ms = world.machine.transactions["t"].updated_ms
    world.pass_time(ended_ms + 5_000 - world.now.wall_ms - 1)
    assert world.machine.transactions
    world.pass_time(1)
    assert not world.machine.transactions


# --- many ids ---


def crowd(state: State, ids: int) -> TransactionCoordinator:
    drawn = count(10 * IDS)
    machine = TransactionCoordinator(TransactionSettings(), lambda: next(drawn), count())
    for number in range(ids):
        known = Transaction(f"t{number}", number, 3, 60_000, state, WALL_AT_START_MS, number, bumps=True)
        machine.apply(TransactionRecord(known.id, known))
    return machine


def calls_of(machine: TransactionCoordinator, operation: Any, now_ms: int = 0) -> int:
    with counted() as names:
        machine.decide(operation, Now(now_ms, WALL_AT_START_MS + now_ms))
    return len(names)


@pytest.mark.parametrize("state", [Empty(), Ongoing(WALL_AT_START_MS, frozenset({("x", 0)}))], ids=["idle", "open"])
def test_a_tick_calls_nothing_for_those_that_are_neither_late_nor_old(state: State) -> None:
    tick = Tick(WALL_AT_START_MS)
    assert calls_of(crowd(state, IDS), tick) == calls_of(crowd(state, 1), tick)


def test_a_decision_costs_the_same_whoever_else_is_there() -> None:
    place = ("x", 0)
    few, many = crowd(Empty(), 2), crowd(Empty(), IDS)
    for operation in (
        InitProducer("t1", 1_000),
        AddPartitions("t1", 1, 3, [place], True),
        EndTransaction("t1", 1, 3, False, True),
    ):
        assert calls_of(few, operation) == calls_of(many, operation)
    few, many = crowd(Ending(True, 0, frozenset({place})), 2), crowd(Ending(True, 0, frozenset({place})), IDS)
    for machine in (few, many):
        machine.unfinished()
    written = [MarkersWritten("t1", machine._unmarked["t1"].number, [place]) for machine in (few, many)]
    assert calls_of(few, written[0]) == calls_of(many, written[1])
