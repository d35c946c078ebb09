"""Leaders and groups that do what they should, and what they should not, against coordinator and model.

Leaders of several epochs write what they read and what is long out of date; writes come again, late; groups initialise
twice and anew; topics go; commits are held back, appends fail, the coordinator is lost with or without its uncommitted
end; time passes, so that snapshots are taken and the log is cut. Every answer, its time and every state have to be the
model's, after a load too, and the log stays bounded.
"""

from dataclasses import dataclass
from typing import Any

import hypothesis.strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from naive_share_states import Cell, NaiveShareStates, Row
from share_coordinator_world import PARTITIONS, World, topic_id

from skidway.errors import ErrorCode, ProtocolError
from skidway.shares.coordinator.batches import StateBatch
from skidway.shares.coordinator.keys import ShareKey
from skidway.shares.coordinator.machine import ShareCoordinator
from skidway.shares.coordinator.operations import (
    Ask,
    Delete,
    Done,
    Initialize,
    Question,
    Read,
    ReadSummary,
    State,
    Summary,
    Tick,
    TopicsChanged,
    Write,
)
from skidway.shares.coordinator.settings import ShareCoordinatorSettings
from skidway.shares.coordinator.state import ShareState

KEYS = [ShareKey("g", topic_id("x"), 0), ShareKey("g:x", topic_id("x"), 1), ShareKey("g", topic_id("y"), 0)]
STRANGER = ShareKey("g", topic_id("x"), PARTITIONS)
PRUNE_MS = 1_000
UPDATES_MAX = 3
OFFSETS = st.integers(0, 12)
STEPS = st.integers(-1, 1)


def apart(batches: list[StateBatch]) -> list[StateBatch]:
    """As a leader writes them: in order, without overlaps."""
    found: list[StateBatch] = []
    for batch in sorted(batches):
        if not found or found[-1].last < batch.first:
            found.append(batch)
    return found


BATCHES = st.lists(
    st.builds(
        lambda first, length, state, count: StateBatch(first, first + length, state, count),
        OFFSETS,
        st.integers(0, 4),
        st.sampled_from([0, 2, 3, 4]),
        st.integers(1, 3),
    ),
    max_size=4,
).map(apart)
NONSENSE = [
    [StateBatch(2, 2, 2, 1), StateBatch(5, 4, 2, 1)],
    [StateBatch(2, 2, 2, 1), StateBatch(3, 4, 1, 1)],
    [StateBatch(2, 4, 2, 1), StateBatch(4, 5, 2, 2)],
    [StateBatch(3, 3, 2, 1), StateBatch(2, 2, 2, 1)],
]


def cells_of(batches: Any) -> dict[int, Cell]:
    found: dict[int, Cell] = {}
    before: StateBatch | None = None
    for batch in batches:
        assert batch.first <= batch.last
        if before is not None:
            assert before.last < batch.first, "in order, without overlaps"
            assert before.last + 1 < batch.first or before.rank != batch.rank, "neighbours are joined"
        found |= dict.fromkeys(range(batch.first, batch.last + 1), (batch.delivery_count, batch.state))
        before = batch
    return found


def shown(reply: Any) -> tuple[Any, ...]:
    """An answer of the coordinator as the model puts it."""
    match reply:
        case Done():
            return ("done",)
        case ProtocolError():
            return ("error", ErrorCode(reply.code).name)
        case State():
            return ("state", reply.state_epoch, reply.start_offset, cells_of(reply.batches))
        case Summary():
            return ("summary", reply.state_epoch, reply.leader_epoch, reply.start_offset, reply.complete_count)
    raise AssertionError(reply)


def row_of(state: ShareState) -> Row:
    now = state.snapshot
    return Row(now.state_epoch, now.leader_epoch, now.start_offset, now.complete_count, cells_of(now.batches))


@dataclass
class Call:
    expected: list[tuple[Any, ...]]
    end_offset: int
    """Committed before it is answered."""


class ShareStatesAgainstModel(RuleBasedStateMachine):
    world_class = World

    @initialize()
    def begin(self) -> None:
        self.world = self.world_class(
            ShareCoordinatorSettings(updates_per_snapshot=UPDATES_MAX, prune_interval_ms=PRUNE_MS)
        )
        self.model = NaiveShareStates(
            lambda key: self.world.name_of(key.topic_id) is not None and key.partition < PARTITIONS
        )
        self.calls: dict[int, Call] = {}
        self.answers: dict[int, Any] = {}
        self.count = 0
        self.sent: list[Write] = []
        self.logged: list[tuple[int, dict[ShareKey, Row]]] = [(0, {})]
        """What the model was when the log ended there."""

    # --- one step on both sides ---

    def ask(self, *questions: Question) -> None:
        number = self.count = self.count + 1
        refuses = self.world.refusing

        def answer(reply: Any) -> None:
            assert number not in self.answers, "answered once"
            self.answers[number] = reply

        before = self.model.copy_rows()
        expected = [self.model.ask(question) for question in questions]
        end_before = self.world.end_offset
        self.world.submit(Ask(list(questions)), answer)
        if refuses and not self.world.refusing:
            # Nothing was written, and the state is what the log says.
            self.model.load(before)
            assert isinstance(self.answers.pop(number), ProtocolError)
            return
        self.calls[number] = Call(expected, self.world.end_offset)
        if self.world.end_offset > end_before:
            self.logged.append((self.world.end_offset, self.model.copy_rows()))
        self.collect()

    def collect(self) -> None:
        for number, call in list(self.calls.items()):
            if call.end_offset <= self.world.committed_offset:
                assert [shown(each) for each in self.answers.pop(number)] == call.expected
                del self.calls[number]
        assert not self.answers, "before it was committed"

    # --- questions ---

    @rule(key=st.sampled_from([*KEYS, STRANGER]), step=st.integers(-1, 2), start=st.integers(-1, 10))
    def initialise(self, key: ShareKey, step: int, start: int) -> None:
        row = self.model.rows.get(key)
        self.ask(Initialize(key, max(0, (0 if row is None else row.state_epoch) + step), start))

    @rule(key=st.sampled_from(KEYS), step=STEPS)
    def read(self, key: ShareKey, step: int) -> None:
        row = self.model.rows.get(key)
        self.ask(Read(key, max(0, (0 if row is None else row.leader_epoch) + step)))

    def drawn_write(self, key: ShareKey, steps: tuple[int, int], start: int, done: int, batches: Any) -> Write:
        row = self.model.rows.get(key) or Row(0, 0, 0, 0)
        write = Write(key, row.state_epoch + steps[0], row.leader_epoch + steps[1], start, done, batches)
        self.sent.append(write)
        return write

    @rule(
        key=st.sampled_from(KEYS),
        steps=st.sampled_from([(0, 0)] * 6 + [(-1, 0), (1, 0), (0, -1), (0, 1)]),
        start=st.integers(-1, 12),
        done=st.integers(-1, 5),
        batches=BATCHES,
    )
    def write(self, key: ShareKey, steps: tuple[int, int], start: int, done: int, batches: Any) -> None:
        self.ask(self.drawn_write(key, steps, start, done, batches))

    @rule(key=st.sampled_from(KEYS), batches=st.sampled_from(NONSENSE))
    def write_nonsense(self, key: ShareKey, batches: list[StateBatch]) -> None:
        self.ask(self.drawn_write(key, (0, 0), -1, -1, batches))
        self.sent.pop()

    @rule(back=st.integers(1, 4))
    def write_again(self, back: int) -> None:
        if len(self.sent) >= back:
            self.ask(self.sent[-back])

    @rule(keys=st.lists(st.sampled_from(KEYS), min_size=2, max_size=5), batches=BATCHES)
    def ask_much_at_once(self, keys: list[ShareKey], batches: Any) -> None:
        questions: list[Question] = []
        for number, key in enumerate(keys):
            row = self.model.rows.get(key)
            leader_epoch = 0 if row is None else row.leader_epoch + 1
            one: list[Question] = [
                Initialize(key, 0, number),
                Read(key, leader_epoch),
                self.drawn_write(key, (0, 0), number, 0, batches),
                ReadSummary(key),
                Delete(key),
            ]
            questions.append(one[number % len(one)])
        self.ask(*questions)

    @rule(key=st.sampled_from(KEYS))
    def delete(self, key: ShareKey) -> None:
        self.ask(Delete(key))

    @rule(key=st.sampled_from([*KEYS, STRANGER]))
    def read_summary(self, key: ShareKey) -> None:
        self.ask(ReadSummary(key))

    # --- what happens ---

    @rule(wait_ms=st.sampled_from([10, PRUNE_MS, 3 * PRUNE_MS]))
    def time_passes(self, wait_ms: int) -> None:
        self.world.refusing = False
        end_before = self.world.end_offset
        self.world.pass_time(wait_ms)
        if self.world.end_offset > end_before:
            self.logged.append((self.world.end_offset, self.model.copy_rows()))

    @rule()
    def a_topic_goes(self) -> None:
        if "y" not in self.world.topics:
            self.world.topics.add("y")
            return
        self.world.refusing = False
        self.world.topics.remove("y")
        self.world.submit(TopicsChanged(["y"]))
        self.world.submit(Tick())
        self.model.topic_gone(topic_id("y"))
        self.logged.append((self.world.end_offset, self.model.copy_rows()))

    @rule()
    def hold_back(self) -> None:
        self.world.held_back = True

    @rule()
    def release(self) -> None:
        self.world.release()
        self.collect()

    @rule()
    def refuse(self) -> None:
        self.world.refusing = True

    @rule()
    def move(self) -> None:
        """What was appended is kept by the next coordinator; those who wait hear nothing good."""
        self.world.restart()
        self.forget_calls()
        self.release()

    @rule()
    def lose_the_end(self) -> None:
        self.world.lose(keep_all=False)
        self.forget_calls()
        end_offset = self.world.end_offset
        self.logged = [(end, rows) for end, rows in self.logged if end <= end_offset] or [(0, {})]
        self.model.load(self.logged[-1][1])
        # A topic that is gone is gone, and the next tick sees to it.
        if "y" not in self.world.topics:
            self.world.refusing = False
            self.world.submit(Tick())
            self.model.topic_gone(topic_id("y"))
            self.logged.append((self.world.end_offset, self.model.copy_rows()))
        self.release()

    def forget_calls(self) -> None:
        for number in self.calls:
            assert isinstance(self.answers.pop(number), ProtocolError)
        self.calls.clear()

    # --- laws ---

    @invariant()
    def states_are_the_models(self) -> None:
        if hasattr(self, "world"):
            self.compare(self.world.machine)

    @invariant()
    def the_log_says_the_same(self) -> None:
        if hasattr(self, "world"):
            rebuilt, machine = self.world.rebuilt(), self.world.machine
            self.compare(rebuilt)
            assert rebuilt.states == machine.states
            assert not machine.states or rebuilt.redundant_below == machine.redundant_below

    def compare(self, machine: ShareCoordinator) -> None:
        assert {key: row_of(state) for key, state in machine.states.items()} == self.model.rows

    @invariant()
    def snapshots_come_in_time(self) -> None:
        if hasattr(self, "world"):
            assert all(state.updates <= UPDATES_MAX for state in self.world.machine.states.values())

    def teardown(self) -> None:
        """At rest the log has a few records for each share-partition, however long its history."""
        if not hasattr(self, "world"):
            return
        self.world.refusing = False
        self.world.release()
        for _ in range(4):
            self.world.pass_time(PRUNE_MS)
        keys = len(self.model.rows)
        assert self.world.end_offset - self.world.start_offset <= 2 * keys + keys * UPDATES_MAX
