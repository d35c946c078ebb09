"""Producers that do what they should, and what they should not, against coordinator and model.

Producers of both generations share two transactional ids, so they are each other's newcomers and zombies. Answers are
lost, calls are sent again much later; markers are answered late, twice, in part, or about the transaction before;
commits are held back, appends fail, the coordinator is lost with or without its uncommitted end; time passes, topics
go, epochs and producer ids run out. Every answer and its time, every effect and its time, and every state have to be
the model's, and the laws of `transaction_laws` hold after every step.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import hypothesis.strategies as st
import transaction_laws as laws
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from naive_transactions import Markers, NaiveTransactions, Row
from transaction_world import World

from skidway.errors import ErrorCode, ProtocolError
from skidway.runtime.replicated import Operation
from skidway.transactions.operations import (
    AddPartitions,
    CommitTogether,
    DescribeTransaction,
    EndTransaction,
    InitProducer,
    ListTransactions,
    MarkersWritten,
    Participant,
    Producer,
    Tick,
    TopicsDeleted,
    VerifyPartitions,
    WriteMarkers,
)
from skidway.transactions.records import NAMES, TransactionRecord, status_of
from skidway.transactions.settings import TransactionSettings
from skidway.transactions.transaction import Empty, Transaction

TOPICS = ["x", "y"]
PLACES = [("x", 0), ("x", 1), ("y", 0)]
TIMEOUTS_MS = [2_000, 2_000, 60_000]
CLIENTS = st.integers(0, 3)
SUBSETS = st.sampled_from([PLACES[:1], PLACES[1:2], PLACES[2:], PLACES[:2], PLACES[1:], PLACES])
NOBODY = Producer(-1, -1)
NOBODY_SAID = (-1, -1)
NOT_ASKED_FOR = -2
"""The producer id that the model goes on with where the coordinator draws none, and should."""


def shown(reply: Any) -> tuple[Any, ...]:
    """An answer of the coordinator as the model puts it."""
    match reply:
        case None:
            return ("done",)
        case ProtocolError():
            return ("error", reply.code.name)
        case Producer():
            return ("producer", reply.id, reply.epoch)
        case [Producer(), *_]:
            return ("producers", *((each.id, each.epoch) for each in reply))
        case list():
            return ("codes", *(ErrorCode(code).name for code in reply))
    raise AssertionError(reply)


def row_of(known: Transaction) -> Row:
    """What a log says of an id, as the model puts it."""
    return Row(
        known.producer_id,
        known.epoch,
        NAMES[status_of(known.state)],
        known.timeout_ms,
        known.updated_ms,
        known.started_ms,
        known.previous_producer_id,
        known.next_producer_id,
        known.bumps,
        set(known.places),
    )


class Client:
    def __init__(self, transactional_id: str, bumps: bool) -> None:
        self.id, self.bumps = transactional_id, bumps
        self.told = self.before = NOBODY
        self.is_open = False

    def hear(self, asked: Operation[Any], reply: Any) -> None:
        if isinstance(reply, Producer) and reply != self.told:
            self.before, self.told = self.told, reply
        if isinstance(asked, AddPartitions) and reply is None:
            self.is_open = True
        if isinstance(asked, EndTransaction | InitProducer) and not isinstance(reply, ProtocolError):
            self.is_open = False


class Driver:
    """Commits what several clients wrote, and passes on what it hears."""

    def __init__(self, clients: list[Client]) -> None:
        self.clients = clients

    def hear(self, asked: Operation[Any], reply: Any) -> None:
        if isinstance(reply, ProtocolError):
            return
        for client, producer in zip(self.clients, reply, strict=True):
            client.hear(EndTransaction(client.id, *NOBODY_SAID, commit=True), producer)


@dataclass
class Call:
    asked: Operation[Any]
    expected: tuple[Any, ...]
    end_offset: int
    """Committed before it is answered."""
    client: Client | Driver | None
    """Who hears the answer; nobody if it is lost."""
    decided_on: list[TransactionRecord]


class TransactionsAgainstModel(RuleBasedStateMachine):
    world_class = World

    @initialize(
        ids_max=st.sampled_from([10, 10, 1]),
        partitions_max=st.sampled_from([10, 10, 2]),
        epoch=st.sampled_from([None, None, 32_763, 32_765, 32_766]),
    )
    def begin(self, ids_max: int, partitions_max: int, epoch: int | None) -> None:
        settings = TransactionSettings(
            timeout_ms_max=60_000,
            timeout_check_ms=1_000,
            id_expiration_ms=20_000,
            id_expiration_check_ms=5_000,
            ids_max=ids_max,
            partitions_max=partitions_max,
        )
        self.world = self.world_class(settings)
        self.model = NaiveTransactions(settings, self.next_drawn)
        pairs = [("t", True), ("t", False), ("t", True), ("u", False)]
        self.clients = [Client(transactional_id, bumps) for transactional_id, bumps in pairs]
        self.calls: dict[int, Call] = {}
        self.answers: dict[int, Any] = {}
        self.count = 0
        self.asked: list[Operation[Any]] = []
        self.due: list[tuple[int, Markers]] = []
        """Effects, with the end offset that has to be committed first."""
        self.sent: list[tuple[WriteMarkers, int]] = []
        """Performed, with the model's ticket."""
        self.logged: list[tuple[int, dict[str, Row]]] = [(0, {})]
        """What the model was when the log ended there."""
        self.grants = laws.Grants()
        if epoch is not None:
            self.begin_late(epoch)

    def begin_late(self, epoch: int) -> None:
        """The first producer has the first id, in an epoch near the end of them."""
        known = Transaction("t", 7, epoch, 60_000, Empty(), self.world.now.wall_ms, 7)
        self.world.append([TransactionRecord("t", known)], 0)
        self.world.restart()
        self.logged.append((self.world.end_offset, {"t": row_of(known)}))
        self.model.load(self.logged[-1][1])
        first = self.clients[0]
        first.told = Producer(7, epoch)
        self.grants.grant(first, InitProducer("t", 60_000), (7, epoch))

    def next_drawn(self) -> int | None:
        if self.world.short:
            return None
        return self.world.drawn.pop(0) if self.world.drawn else NOT_ASKED_FOR

    # --- one step on both sides ---

    def ask(self, operation: Operation[Any], client: Client | Driver | None = None) -> None:
        """`client` hears the answer."""
        self.asked.append(operation)
        self.step(operation, lambda: self.model.ask(operation, self.world.now.wall_ms), client)

    def step(
        self, operation: Operation[Any], model: Callable[[], tuple[Any, ...]], client: Client | Driver | None
    ) -> None:
        before, refusing = self.model.copy(), self.world.refusing
        decided_on = self.world.read_all()
        self.count += 1
        number = self.count
        self.world.submit(operation, lambda reply: self.answers.__setitem__(number, reply))
        expected, end_offset = model(), self.world.end_offset
        if refusing and self.model.wrote:
            expected, end_offset = ("error", "KAFKA_STORAGE_ERROR"), 0
            self.model = before
        else:
            self.due += [(end_offset, each) for each in self.model.markers]
            if self.model.wrote:
                self.logged.append((end_offset, self.model.copy_rows()))
        self.calls[number] = Call(operation, expected, end_offset, client, decided_on)
        assert not self.world.drawn, "a producer id was given away for nothing"
        self.compare()

    def load(self, rows: dict[str, Row]) -> None:
        self.model.load(rows)
        self.due = [(self.world.end_offset, each) for each in self.model.markers]

    def compare(self) -> None:
        self.compare_effects()
        answers, self.answers = self.answers, {}
        committed = self.world.records_below(self.world.committed_offset)
        for number, reply in sorted(answers.items()):
            call = self.calls.pop(number)
            assert shown(reply) == call.expected, call.asked
            assert call.end_offset <= self.world.committed_offset, f"answered before it was committed: {call.asked}"
            self.check_laws(call, reply, committed)
            if call.client is not None:
                call.client.hear(call.asked, reply)
        late = [call.asked for call in self.calls.values() if call.end_offset <= self.world.committed_offset]
        assert not late, "committed and not answered"

    def compare_effects(self) -> None:
        performed, self.world.performed[:] = list(self.world.performed), []
        committed = self.world.records_below(self.world.committed_offset)
        for effect in performed:
            laws.check_effect(committed, effect)
        due = [each for end_offset, each in self.due if end_offset <= self.world.committed_offset]
        self.due = self.due[len(due) :]
        performed.sort(key=self.order)
        assert [self.order(each) for each in performed] == [self.order(each) for each in sorted(due)]
        self.sent += [(effect, each.ticket) for effect, each in zip(performed, sorted(due), strict=True)]

    @staticmethod
    def order(each: WriteMarkers | Markers) -> tuple[Any, ...]:
        if isinstance(each, Markers):
            return (each.transactional_id, each.pid, each.epoch, each.commit, each.bumps, each.places)
        places = tuple(sorted(each.places))
        return (each.transactional_id, each.producer_id, each.epoch, each.commit, each.bumps, places)

    def check_laws(self, call: Call, reply: Any, committed: list[TransactionRecord]) -> None:
        asked = call.asked
        if isinstance(reply, ProtocolError):
            return
        if isinstance(asked, AddPartitions | VerifyPartitions | EndTransaction):
            laws.check_accepted(asked, call.decided_on, committed)
        if isinstance(asked, CommitTogether):
            laws.check_committed_together(asked, committed)
        if isinstance(call.client, Driver):
            for client, producer in zip(call.client.clients, reply, strict=True):
                self.grants.grant(client, asked, (producer.id, producer.epoch))
        elif call.client is not None and isinstance(reply, Producer):
            self.grants.grant(call.client, asked, (reply.id, reply.epoch))

    # --- producers ---

    @rule(number=CLIENTS, heard=st.sampled_from([True, True, False]), timeout_ms=st.sampled_from(TIMEOUTS_MS))
    def init(self, number: int, heard: bool, timeout_ms: int) -> None:
        """As a newcomer, whoever it was."""
        client = self.clients[number]
        self.ask(InitProducer(client.id, timeout_ms), client if heard else None)

    @rule(number=CLIENTS, heard=st.booleans(), old=st.booleans(), timeout_ms=st.sampled_from([2_000, 60_000, 60_001]))
    def come_back(self, number: int, heard: bool, old: bool, timeout_ms: int) -> None:
        client = self.clients[number]
        was = client.before if old else client.told
        self.ask(InitProducer(client.id, timeout_ms, was.id, was.epoch), client if heard else None)

    @rule(number=CLIENTS, places=SUBSETS)
    def add(self, number: int, places: list[tuple[str, int]]) -> None:
        client = self.clients[number]
        self.ask(AddPartitions(client.id, client.told.id, client.told.epoch, places, client.bumps), client)

    @rule(number=CLIENTS, places=SUBSETS)
    def verify(self, number: int, places: list[tuple[str, int]]) -> None:
        client = self.clients[number]
        self.ask(VerifyPartitions(client.id, client.told.id, client.told.epoch, places), client)

    @rule(number=CLIENTS, commit=st.booleans(), heard=st.sampled_from([True, True, False]), old=st.booleans())
    def end(self, number: int, commit: bool, heard: bool, old: bool) -> None:
        client = self.clients[number]
        was = client.before if old else client.told
        self.ask(EndTransaction(client.id, was.id, was.epoch, commit, client.bumps), client if heard else None)

    @rule(
        numbers=st.sampled_from([[0, 3], [3, 0], [2, 3], [0], [0, 2]]),
        heard=st.sampled_from([True, True, False]),
        old=st.sampled_from([False, False, True]),
        begin=st.sampled_from([True, True, False]),
        places=SUBSETS,
        again=st.booleans(),
    )
    def commit_together(
        self, numbers: list[int], heard: bool, old: bool, begin: bool, places: list[tuple[str, int]], again: bool
    ) -> None:
        """What several wrote, also if one of them is a zombie or has written nothing; perhaps twice."""
        clients = [self.clients[number] for number in numbers]
        for number, client in zip(numbers, clients, strict=True):
            if begin and client.told == NOBODY:
                self.init(number, True, 60_000)
            if begin and not client.is_open:
                self.add(number, places)
        said = [(client.id, client.before if old else client.told) for client in clients]
        operation = CommitTogether([Participant(key, was.id, was.epoch) for key, was in said])
        self.ask(operation, Driver(clients) if heard else None)
        if again:
            self.ask(operation)

    @rule(
        number=CLIENTS,
        steps=st.integers(1, 4),
        heard=st.sampled_from([True, True, True, False]),
        commit=st.sampled_from([True, True, False]),
        places=SUBSETS,
        then=st.sampled_from(["markers", "markers", "commit", "load", "delete", "nothing"]),
    )
    def go_on(
        self, number: int, steps: int, heard: bool, commit: bool, places: list[tuple[str, int]], then: str = "markers"
    ) -> None:
        """The next steps of a producer that does what it should, and what follows each end."""
        client = self.clients[number]
        for _ in range(steps):
            if client.told == NOBODY:
                self.init(number, True, 60_000)
            elif not client.is_open:
                self.add(number, places)
            else:
                self.world.held_back |= then == "commit"
                self.end(number, commit, heard, False)
                self.follow(then)

    def follow(self, then: str) -> None:
        match then:
            case "markers":
                self.answer_markers_one_by_one()
            case "commit":
                self.commit(False)
            case "load":
                self.lose(True)
            case "delete":
                self.delete(TOPICS)

    @rule(number=CLIENTS, timeout_ms=st.sampled_from(TIMEOUTS_MS), places=SUBSETS, commit=st.booleans())
    def take_over(self, number: int, timeout_ms: int, places: list[tuple[str, int]], commit: bool) -> None:
        """A newcomer that tries until it is let in, and begins. It may end at once, too."""
        self.init(number, False, timeout_ms)
        self.answer_all_markers()
        self.init(number, True, timeout_ms)
        self.go_on(number, 2 if commit else 1, True, commit, places)

    @rule(old=st.booleans())
    def zombies_speak(self, old: bool) -> None:
        """They try everything, with the last or the last but one that they were told."""
        for number, client in enumerate(self.clients):
            row = self.model.rows.get(client.id)
            if client.told == NOBODY or (row is not None and row.pair == (client.told.id, client.told.epoch)):
                continue
            self.add(number, PLACES[:1])
            self.end(number, True, True, old)
            self.come_back(number, True, old, 60_000)
            self.end(number, False, True, old)

    @rule(back=st.integers(0, 12))
    def send_again(self, back: int) -> None:
        """A call that was sent before, delivered once more; nobody waits for the answer."""
        if back < len(self.asked):
            self.ask(self.asked[-1 - back])

    @rule(number=CLIENTS, whose=CLIENTS, more=st.integers(-2, 2), bumps=st.booleans(), kind=st.integers(0, 3))
    def pretend(self, number: int, whose: int, more: int, bumps: bool, kind: int) -> None:
        """Somebody with a producer id or an epoch that is not its own, or none."""
        client, was = self.clients[number], self.clients[whose].told
        epoch = min(max(was.epoch + more, -1), 32_767)
        calls: list[Operation[Any]] = [
            InitProducer(client.id, 5_000, was.id, epoch),
            AddPartitions(client.id, was.id, epoch, PLACES[:1], bumps),
            EndTransaction(client.id, was.id, epoch, True, bumps),
            EndTransaction(client.id, was.id, epoch, False, bumps),
        ]
        self.ask(calls[kind])

    # --- partitions ---

    @rule(back=st.integers(0, 3), some=st.sampled_from([[], PLACES[:1], PLACES[1:], PLACES]), times=st.integers(1, 2))
    def answer_markers(self, back: int, some: list[tuple[str, int]], times: int) -> None:
        """About one of the last requests for markers: some of its partitions have theirs, or none, since all failed."""
        if back >= len(self.sent):
            return
        effect, ticket = self.sent[-1 - back]
        for _ in range(times):
            self.answer(effect, ticket, [place for place in some if place in effect.places])

    def answer(self, effect: WriteMarkers, ticket: int, places: list[tuple[str, int]]) -> None:
        def model() -> tuple[Any, ...]:
            self.model.marked(effect.transactional_id, ticket, set(places), self.world.now.wall_ms)
            return ("done",)

        self.step(MarkersWritten(effect.transactional_id, effect.number, places), model, None)

    @rule()
    def answer_markers_one_by_one(self) -> None:
        for effect, ticket in self.sent[-1:]:
            for place in sorted(effect.places):
                self.answer(effect, ticket, [])
                self.answer(effect, ticket, [place])

    @rule()
    def answer_all_markers(self) -> None:
        for effect, ticket in list(self.sent):
            self.answer(effect, ticket, sorted(effect.places))
        self.sent = self.sent[-4:]

    @rule(topics=st.sampled_from([TOPICS[:1], TOPICS[1:], TOPICS]))
    def delete(self, topics: list[str]) -> None:
        self.ask(TopicsDeleted(topics))

    # --- the log, the coordinator, time ---

    @rule(held_back=st.sampled_from([True, False, False]))
    def commit(self, held_back: bool) -> None:
        """What is in the log; and what follows, unless it is held back."""
        self.world.release()
        self.world.held_back = held_back
        self.compare()

    @rule()
    def fail_next_append(self) -> None:
        self.world.refusing = True

    @rule(keep_all=st.booleans())
    def lose(self, keep_all: bool) -> None:
        self.world.lose(keep_all=keep_all)
        self.logged = [(end, rows) for end, rows in self.logged if end <= self.world.end_offset]
        for call in self.calls.values():
            call.expected, call.end_offset = ("error", "NOT_COORDINATOR"), 0
        self.load(self.logged[-1][1])
        self.compare()

    @rule(short=st.booleans())
    def run_short_of_producer_ids(self, short: bool) -> None:
        self.world.short = short

    @rule(wait_ms=st.sampled_from([500, 1_500, 3_000, 8_000, 25_000]))
    def pass_time(self, wait_ms: int) -> None:
        end_ms = self.world.now_ms + wait_ms
        while self.model.deadline_ms <= end_ms:
            self.world.now_ms = max(self.world.now_ms, self.model.deadline_ms)
            self.tick()
            self.compare_states()
        self.world.now_ms = end_ms

    @rule()
    def tick(self) -> None:
        """A tick before its time does no harm."""

        def model() -> tuple[Any, ...]:
            self.model.tick(self.world.now_ms, self.world.now.wall_ms)
            return ("done",)

        self.step(Tick(self.world.now.wall_ms), model, None)

    # --- after every step ---

    @invariant()
    def compare_states(self) -> None:
        known = self.world.machine.transactions
        rows = {
            key: replace(row, before=None, unmarked=set(), ticket=-1) for key, row in self.model.copy_rows().items()
        }
        assert {key: row_of(each) for key, each in known.items()} == rows
        assert self.world.machine.deadline_ms == self.model.deadline_ms
        for key, row in self.model.rows.items():
            described = self.world.machine.decide(DescribeTransaction(key), self.world.now).reply
            lacking = row.unmarked if row.state.startswith("Prepare") else row.places
            assert set(described.places) == lacking, key
        listed = self.world.machine.decide(ListTransactions(running_longer_than_ms=1_000), self.world.now).reply
        old = [key for key, row in self.model.rows.items() if self.world.now.wall_ms - row.started_ms > 1_000]
        assert sorted(each.transactional_id for each in listed) == sorted(old)

    @invariant()
    def check_log(self) -> None:
        laws.check_log(self.world.read_all())
        known = self.world.machine.transactions
        assert self.world.rebuilt().transactions == known, "the log says something else"
        assert self.world.rebuilt(compacted=True).transactions == known, "the compacted log says something else"

    def teardown(self) -> None:
        """Everything heals: whoever waits is answered, and nothing stays open."""
        if not hasattr(self, "model"):
            return
        self.world.refusing = self.world.short = False
        self.commit(False)
        self.answer_all_markers()
        self.pass_time(62_000)
        self.answer_all_markers()
        assert not self.calls
        states = {row.state for row in self.model.rows.values()}
        assert states <= {"Empty", "CompleteCommit", "CompleteAbort"}
        self.compare_states()
