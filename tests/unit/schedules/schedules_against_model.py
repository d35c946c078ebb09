"""People who schedule, list and cancel, queues that take what is due or do not, and a naive account of all of it.

Copies of messages are lost on the way, there and back, and come late; queues refuse; commits are held back, appends
fail, the coordinator moves or is lost with its uncommitted end; queues are deleted and come back; time passes. Each
schedule has a value that no other has, so its messages are known in the queues. The laws:

S1 a message comes no earlier than it is due, and to its own queue;
S2 a time of a schedule comes once;
S3 what was cancelled does not come afterwards, unless the answer said that it is on its way;
S4 what is due comes, once everything works again;
S5 what is listed then is what has not come, and a recurring schedule is listed with its next time;
S6 the coordinator is what its log says.
"""

from typing import Any

import hypothesis.strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from msgspec import Struct
from schedule_world import WALL_AT_START_MS, World, topic_id

from skidway.errors import (
    DuplicateResource,
    InvalidRecordState,
    ProtocolError,
    ResourceNotFound,
    UnknownTopicOrPartition,
)
from skidway.schedules.operations import Cancel, Cancelled, Create, Created, ListSchedules, Tick, TopicsChanged
from skidway.schedules.schedule import LAST, NO_KEY, Definition, ScheduledMessage
from skidway.schedules.settings import ScheduleSettings

QUEUES = st.sampled_from(["x", "x", "y"])
IDS = st.sampled_from(["a", "b", "c", "d", "e", "f"])
MINUTE_MS = 60_000
CRONS = {"* * * * *": MINUTE_MS, "*/2 * * * *": 2 * MINUTE_MS}
PUT_OFF_MS = 5_000
SCHEDULES_MAX = 10


class Row(Struct):
    """One schedule, as whoever asked for it knows it."""

    queue: str
    id: str
    value: bytes
    due_ms: int
    cron: str = ""
    known: bool = True
    """Its creation was answered; else it may be there or not."""
    over: bool = False
    """It was cancelled, or its queue deleted."""
    in_doubt: bool = False
    """A cancellation was not answered."""
    more_max: int = 0
    """So many may come after the cancellation."""
    came_when_over: int = 0


class SchedulesAgainstModel(RuleBasedStateMachine):
    world_class = World

    @initialize()
    def begin(self) -> None:
        self.world = self.world_class(
            ScheduleSettings(put_off_ms=PUT_OFF_MS, schedules_max=SCHEDULES_MAX, plan_messages_max=2)
        )
        self.second, self.generation = "y", 0
        """The queue that is deleted: each time it comes back it is another."""
        self.rows: list[Row] = []
        self.waiting: list[tuple[Row, Any, list[Any]]] = []
        """Calls that were not answered when they were made."""

    # --- what people do ---

    def ask(self, row: Row, operation: Any) -> None:
        answers: list[Any] = []
        self.world.submit(operation, answers.append)
        self.waiting.append((row, operation, answers))
        self.collect()

    def collect(self) -> None:
        for call in list(self.waiting):
            row, operation, answers = call
            if answers:
                self.waiting.remove(call)
                assert len(answers) == 1, "answered once"
                if isinstance(operation, Create):
                    self.on_created(row, answers[0])
                else:
                    self.on_cancelled(row, answers[0])

    @rule(
        queue=QUEUES,
        asked=st.lists(
            st.tuples(
                IDS,
                st.sampled_from([-5, 0, 0, 1_000, 3_000]),
                st.sampled_from(["", "", "", *CRONS]),
                st.sampled_from([NO_KEY, 0, 1]),
            ),
            min_size=1,
            max_size=3,
        ),
    )
    def create(self, queue: str, asked: list[tuple[str, int, str, int]]) -> None:
        queue = self.second if queue == "y" else queue
        for id_, delay_ms, cron, key_hash in asked:
            value = b"%d" % len(self.rows)
            due_ms = self.world.now.wall_ms + delay_ms
            row = Row(queue, id_, value, due_ms, cron, known=False)
            message = ScheduledMessage(None, value, (), key_hash)
            definition = Definition(0, due_ms, message, cron, "UTC" if cron else "")
            self.rows.append(row)
            self.ask(row, Create(topic_id(queue), id_, definition))

    def on_created(self, row: Row, answer: Any) -> None:
        if isinstance(answer, Created):
            assert not answer.existed, "nobody has asked for this value"
            row.known = True
            assert not row.cron or answer.due_ms > WALL_AT_START_MS
            row.due_ms = answer.due_ms
        elif isinstance(answer, DuplicateResource | UnknownTopicOrPartition):
            row.over = True
        else:
            assert isinstance(answer, ProtocolError)
            if len(self.world.machine.lines) == 0 or answer.code != 44:
                row.in_doubt = True
            else:
                row.over = True  # POLICY_VIOLATION: there are too many

    @rule(backs=st.lists(st.integers(1, 5), min_size=1, max_size=3))
    def cancel(self, backs: list[int]) -> None:
        for back in backs:
            if len(self.rows) >= back:
                row = self.rows[-back]
                self.ask(row, Cancel(topic_id(row.queue), row.id))

    def on_cancelled(self, row: Row, answer: Any) -> None:
        named = [each for each in self.rows if (each.queue, each.id) == (row.queue, row.id)]
        if isinstance(answer, Cancelled):
            for each in named:
                # Whichever of them it was: of no other there was any.
                if not each.over:
                    each.more_max = int(answer.on_its_way)
                    self.close(each)
        elif isinstance(answer, InvalidRecordState):
            assert any(each.due_ms <= self.world.now.wall_ms for each in named), "too late before it is due"
        elif not isinstance(answer, ResourceNotFound):
            for each in named:
                each.in_doubt = True

    def close(self, row: Row) -> None:
        row.over, row.came_when_over = True, len(self.came(row))

    # --- what queues do ---

    @rule(ways=st.lists(st.sampled_from(["there and back", "there", "there", "nowhere", "refused"]), min_size=1))
    def send(self, ways: list[str]) -> None:
        for sending, way in zip(list(self.world.sendings), ways, strict=False):
            if way == "refused":
                self.world.refuse(sending)
            else:
                self.world.send(sending, arrives="there" in way, answered="back" in way)
        self.collect()

    @rule(back=st.integers(1, 6))
    def a_copy_comes_late(self, back: int) -> None:
        if len(self.world.sent) >= back:
            self.world.arrive_late(-back)

    # --- what happens ---

    @rule(wait_ms=st.sampled_from([0, 999, 1_000, 5_000, MINUTE_MS, 3 * MINUTE_MS]))
    def time_passes(self, wait_ms: int) -> None:
        self.world.pass_time(wait_ms)
        self.world.submit(Tick())
        self.collect()

    @rule()
    def a_queue_goes(self) -> None:
        if self.second not in self.world.queues:
            self.generation += 1
            self.second = f"y{self.generation}"
            self.world.queues[self.second] = self.world.new_queue()
            return
        self.world.refusing = False
        del self.world.queues[self.second]
        for row in self.rows:
            row.over = row.over or row.queue == self.second
        self.world.submit(TopicsChanged([self.second]))
        self.world.pass_time(0)
        assert topic_id(self.second) not in self.world.machine.lines, "what was scheduled for a queue goes with it"

    @rule(back=st.integers(1, 6))
    def an_answer_comes_late(self, back: int) -> None:
        if len(self.world.taken) >= back:
            self.world.answer_late(-back)
            self.collect()

    @rule()
    def hold_back(self) -> None:
        self.world.held_back = True

    @rule()
    def release(self) -> None:
        self.world.release()
        self.collect()

    @rule()
    def refuse_appends(self) -> None:
        self.world.refusing = True

    @rule(keeps_all=st.booleans())
    def move(self, keeps_all: bool) -> None:
        """Another node takes over, or this one again without what was not committed."""
        if keeps_all:
            self.world.restart()
        else:
            self.world.lose()
            self.the_log_says_the_same()
        self.collect()
        self.release()

    @rule()
    def rest(self) -> None:
        """Everything works again, for long enough."""
        self.world.refusing = False
        self.release()
        self.world.pass_time(PUT_OFF_MS)
        for _ in range(40):
            for sending in list(self.world.sendings):
                self.world.send(sending, arrives=True, answered=True)
            self.world.pass_time(0)
        assert not self.world.sendings, "S4 something is sent for ever"
        self.everything_came()
        self.the_log_says_the_same()
        self.what_is_listed_is_to_come()

    def everything_came(self) -> None:
        now_ms = self.world.now.wall_ms
        for row in self.rows:
            if row.known and not row.over and not row.in_doubt and row.due_ms <= now_ms:
                assert self.came(row), f"S4 {row} has not come"

    def what_is_listed_is_to_come(self) -> None:
        now_ms = self.world.now.wall_ms
        for queue in self.world.queues:
            answers: list[Any] = []
            self.world.submit(ListSchedules(topic_id(queue), "", 100), answers.append)
            listed = {each.id: each for each in answers[0]}
            assert list(listed) == sorted(listed)
            sure = {row.id for row in self.rows if row.queue == queue and self.is_to_come(row, now_ms)}
            doubtful = {row.id for row in self.rows if row.queue == queue and (row.in_doubt or not row.known)}
            assert sure <= set(listed), "S5 somebody waits for what is not listed"
            assert set(listed) <= sure | doubtful, "S5 nobody waits for what is listed"
            for each in listed.values():
                assert each.due_ms > now_ms, "S5 what is listed is to come"
                assert not each.cron or each.due_ms - now_ms <= CRONS[each.cron], "S5 the next time"

    def is_to_come(self, row: Row, now_ms: int) -> bool:
        return row.known and not row.over and not row.in_doubt and (bool(row.cron) or row.due_ms > now_ms)

    # --- laws ---

    def came(self, row: Row) -> list[Any]:
        if row.queue not in self.world.queues:
            return []
        return [each for each in self.world.messages(row.queue) if each.value == row.value]

    @invariant()
    def messages_are_right(self) -> None:
        if not hasattr(self, "world"):
            return
        rows = {(row.queue, row.value): row for row in self.rows}
        for queue in self.world.queues:
            seen: set[tuple[Any, int]] = set()
            for message in self.world.messages(queue):
                row = rows.get((queue, message.value or b""))
                assert row is not None, "S1 a message that nobody has scheduled here"
                assert row.id == message.id, "S1 under another id"
                assert message.came_ms >= message.due_ms, "S1 too early"
                assert message.due_ms == row.due_ms if not row.cron else message.due_ms % CRONS[row.cron] == 0, "S1"
                assert (message.value, message.due_ms) not in seen, "S2 twice"
                seen.add((message.value, message.due_ms))
        for row in self.rows:
            if row.over and row.queue in self.world.queues:
                assert len(self.came(row)) <= row.came_when_over + row.more_max, "S3 after it was cancelled"

    def the_log_says_the_same(self) -> None:
        rebuilt, machine = self.world.rebuilt(), self.world.machine
        assert (rebuilt.count, rebuilt.bytes) == (machine.count, machine.bytes), "S6"
        assert {topic: shown(line) for topic, line in rebuilt.lines.items()} == {
            topic: shown(line) for topic, line in machine.lines.items()
        }, "S6"
        assert machine.count <= SCHEDULES_MAX

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.rest()


def shown(line: Any) -> Any:
    schedules = sorted((each.id, each.due_ms, each.offset, each.planned, each.cron) for each in line.schedules.values())
    waiting = sorted(
        id_ for _, id_ in line.waiting if not line.schedules[id_].planned and line.schedules[id_].due_ms != LAST
    )
    assert len(waiting) == len(line.waiting) == len(set(waiting))
    return schedules, waiting, line.plan
