"""A coordinator of schedules driven by lines of text, for transcripts.

    create ID at=SECONDS [cron=MINUTE,HOUR,DAY,MONTH,WEEKDAY] [queue=NAME]
    cancel ID, list
    wait SECONDS                   time passes, ticks included
    deliver                        what is on its way arrives, and is answered
    lose answer                    it arrives, and nobody hears of it
    refuse                         the queue does not take it
    gone QUEUE                     the queue was deleted
    restart                        a new machine from the log

Times are seconds since the start, at midnight. The queue is `x`. Answers come first, then `+ record` for each record
written, and `> message` for each that came into a queue.
"""

from typing import Any

from schedule_world import WALL_AT_START_MS, World, topic_id

from skidway.errors import ErrorCode, ProtocolError
from skidway.schedules.operations import Cancel, Cancelled, Create, Created, ListSchedules, TopicsChanged
from skidway.schedules.records import Defined, PlanMade, Progressed, ScheduleRecord
from skidway.schedules.schedule import LAST, Definition, ScheduledMessage
from skidway.schedules.settings import ScheduleSettings


class Transcript:
    def __init__(self, settings: ScheduleSettings) -> None:
        self.world = World(settings)
        self.lines: list[str] = []
        self.shown = 0

    def run(self, line: str) -> str:
        self.lines = []
        verb, *words = line.split()
        options = dict(word.split("=", 1) for word in words if "=" in word)
        getattr(self, f"_{verb}")([word for word in words if "=" not in word], options)
        self.lines += [f"+ {_shown(record)}" for record in self.world.written]
        self.world.written.clear()
        came = [each for name in self.world.queues for each in self.world.messages(name)]
        self.lines += [f"> {each.id} of {_time(each.due_ms)}" for each in came[self.shown :]]
        self.shown = len(came)
        return "\n".join(self.lines) or "nothing"

    def _ask(self, operation: Any) -> None:
        self.world.submit(operation, lambda reply: self.lines.append(_answer(reply)))

    def _create(self, names: list[str], options: dict[str, str]) -> None:
        due_ms = WALL_AT_START_MS + int(options.get("at", 0)) * 1_000
        cron = options.get("cron", "").replace(",", " ")
        message = ScheduledMessage(None, names[0].encode(), ())
        queue = topic_id(options.get("queue", "x"))
        self._ask(Create(queue, names[0], Definition(0, due_ms, message, cron, "UTC" if cron else "")))

    def _cancel(self, names: list[str], options: dict[str, str]) -> None:
        self._ask(Cancel(topic_id(options.get("queue", "x")), names[0]))

    def _list(self, names: list[str], options: dict[str, str]) -> None:
        self._ask(ListSchedules(topic_id(options.get("queue", "x")), "", 100))

    def _wait(self, names: list[str], options: dict[str, str]) -> None:
        self.world.pass_time(int(names[0]) * 1_000)

    def _deliver(self, names: list[str], options: dict[str, str]) -> None:
        for sending in list(self.world.sendings):
            self.world.send(sending, arrives=True, answered=True)

    def _lose(self, names: list[str], options: dict[str, str]) -> None:
        for sending in list(self.world.sendings):
            self.world.send(sending, arrives=True, answered=False)

    def _refuse(self, names: list[str], options: dict[str, str]) -> None:
        for sending in list(self.world.sendings):
            self.world.refuse(sending)

    def _gone(self, names: list[str], options: dict[str, str]) -> None:
        del self.world.queues[names[0]]
        self.world.submit(TopicsChanged(names))
        self.world.pass_time(0)

    def _restart(self, names: list[str], options: dict[str, str]) -> None:
        self.world.restart()


def _time(ms: int) -> str:
    return "never" if ms == LAST else f"{(ms - WALL_AT_START_MS) / 1_000:g} s"


def _answer(reply: Any) -> str:
    match reply:
        case Created(due_ms, existed):
            return f"{'known' if existed else 'created'}, due at {_time(due_ms)}"
        case Cancelled(on_its_way):
            return "cancelled, one message is on its way" if on_its_way else "cancelled"
        case list():
            return "\n".join(f"{each.id} due at {_time(each.due_ms)} {each.cron}".strip() for each in reply) or "none"
    assert isinstance(reply, ProtocolError)
    return f"{ErrorCode(reply.code).name} {reply.message or ''}".strip()


def _shown(record: ScheduleRecord) -> str:
    match record:
        case Defined(_, id_, definition):
            return f"{id_} " + ("gone" if definition is None else f"at {_time(definition.due_ms)}")
        case Progressed(_, id_, due_ms):
            return f"{id_} next " + ("gone" if due_ms is None else _time(due_ms))
        case PlanMade(_, None):
            return "no plan"
        case PlanMade(_, plan):
            assert plan is not None
            ids = " ".join(each.id for each in plan.messages)
            return f"plan {plan.producer_id}/{plan.sequence} for partition {plan.partition}: {ids}"
