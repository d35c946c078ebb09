"""One partition's coordinator of schedules: a decide/apply machine over the records of `__queue_schedule`.

A queue belongs to one coordinator, with all its schedules. What is due is planned: which messages, in which order, to
which partition, and under which name of an idempotent producer. The plan is stored before anything is sent. It is sent
until its leader has it, by whoever is the coordinator then, always as the same messages under the same name, which the
log takes once. Then the schedules are over, or due at their next time, in the same decision that ends the plan. A queue
has one plan at a time.

Another plan takes the place of one only where it is certain that none of its messages is there (`NotTaken`).

A recurring schedule whose times were missed is due once for all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import nsmallest
from typing import Any, Protocol

from msgspec import Struct
from msgspec.structs import replace

from skidway.errors import (
    CoordinatorNotAvailable,
    DuplicateResource,
    InvalidRecordState,
    InvalidRequest,
    PolicyViolation,
    ResourceNotFound,
    UnknownTopicOrPartition,
)
from skidway.log.producers import sequence_after
from skidway.ports import Zones
from skidway.runtime.replicated import Decision, Now, Operation, TimedMachine
from skidway.schedules.checking import check, check_id
from skidway.schedules.line import Line
from skidway.schedules.next_time import UnknownZone, next_due_ms
from skidway.schedules.operations import (
    Cancel,
    Cancelled,
    Create,
    Created,
    Deliver,
    Delivered,
    Listed,
    ListSchedules,
    NotTaken,
    Tick,
    TopicsChanged,
)
from skidway.schedules.records import Defined, PlanMade, Progressed, ScheduleRecord
from skidway.schedules.schedule import LAST, NO_KEY, Definition, Plan, Planned, Schedule
from skidway.schedules.settings import ScheduleSettings

NEVER_MS = 1 << 60
CLOCK_MS = 10_000
"""After so long the clock on the wall is looked at again: it may have been put forward."""
NO_ID_MS = 100
AT_ONCE_MAX = 500
"""Tombstones of deleted queues in one tick; the rest follows in the next one."""
PLANS_AT_ONCE_MAX = 20
LOOKED_AT_MAX = 2_000
"""Of the messages of a queue that are due, for those that go to the same partition."""
SEQUENCES_MAX = 100_000
NAMES_MAX = 1_000
LIST_MAX = 1_000

Decided = Decision[ScheduleRecord, Any]


class QueueFacts(Struct, frozen=True):
    """What a coordinator has to know of a queue."""

    partitions: int
    bytes_max: int
    """Of a batch."""
    is_standard: bool = True
    """A queue, and not a FIFO queue."""


class Queues(Protocol):
    def facts(self, topic_id: bytes) -> QueueFacts | None:
        """None: the topic was deleted."""
        ...


class LookAgain(Struct, frozen=True):
    """A note: when something may be due."""

    at_ms: int


class Named(Struct, frozen=True):
    """A note: this coordinator sends to a partition under this name from now on."""

    producer_id: int
    topic_id: bytes
    partition: int
    next_sequence: int


class NameDropped(Struct, frozen=True):
    """A note: what came last under the name of this coordinator is not known, or not there."""


class Singly(Struct, frozen=True):
    """A note: so many of the next plans of a queue have one message."""

    topic_id: bytes
    count: int


class PutOff(Struct, frozen=True):
    """A note: a schedule is tried again then, by the clock on the wall."""

    topic_id: bytes
    id: str
    until_ms: int


class ScheduleCoordinator(TimedMachine[ScheduleRecord]):
    def __init__(
        self,
        settings: ScheduleSettings,
        queues: Queues,
        zones: Zones,
        new_producer_id: Callable[[], int | None],
    ) -> None:
        """`new_producer_id` gives one that nobody has had, or None: there is none right now, but there will be."""
        self.settings = settings
        self.queues = queues
        self.zones = zones
        self.lines: dict[bytes, Line] = {}
        self.count = self.bytes = 0
        self._new_producer_id = new_producer_id
        self.names: set[int] = set()
        """Those that it has sent under since it was loaded."""
        self._producer_id: int | None = None
        """Of this coordinator since it was loaded: what others have sent is behind other names."""
        self._sequences: dict[tuple[bytes, int], int] = {}
        self._due_ms = 0

    @property
    def deadline_ms(self) -> int:
        return self._due_ms if self.lines else NEVER_MS

    # --- what records and notes change ---

    def apply(self, record: ScheduleRecord) -> None:
        topic_id = record.topic_id
        line = self.lines.get(topic_id)
        if line is None:
            line = self.lines[topic_id] = Line()
        match record:
            case Defined():
                self._define(line, record)
            case Progressed(_, id_, due_ms):
                if due_ms is not None:
                    line.move(id_, due_ms)
            case PlanMade(_, None):
                line.end()
            case PlanMade(_, Plan() as plan):
                line.begin(plan)
        if line.is_empty:
            del self.lines[topic_id]

    def _define(self, line: Line, record: Defined) -> None:
        before = line.remove(record.id)
        if before is not None:
            self.count -= 1
            self.bytes -= before.size
        if (definition := record.definition) is None:
            return
        schedule = Schedule(
            record.id,
            definition.due_ms,
            definition.cron,
            definition.zone,
            definition.created_ms,
            definition.message.size,
            definition.message.key_hash,
            definition.digest,
            record.offset,
        )
        line.put(schedule)
        self.count += 1
        self.bytes += schedule.size

    def note(self, note: Any) -> None:
        match note:
            case LookAgain(at_ms):
                self._due_ms = at_ms
            case Named(producer_id, topic_id, partition, next_sequence):
                if producer_id != self._producer_id:
                    self._producer_id, self._sequences = producer_id, {}
                    self.names = {producer_id} if len(self.names) >= NAMES_MAX else {*self.names, producer_id}
                self._sequences[topic_id, partition] = next_sequence
            case NameDropped():
                self._producer_id, self._sequences = None, {}
            case Singly(topic_id, count):
                if (line := self.lines.get(topic_id)) is not None:
                    line.singly = count
            case PutOff(topic_id, id_, until_ms):
                if (line := self.lines.get(topic_id)) is not None:
                    line.put_off(id_, until_ms)
            case _:
                raise AssertionError(f"unknown note {note}")

    def unfinished(self) -> list[Any]:
        return [Deliver(topic_id, line.plan) for topic_id, line in self.lines.items() if line.plan is not None]

    # --- decisions ---

    def decide(self, operation: Operation[Any], now: Now) -> Decided:
        match operation:
            case Create():
                return self._create(operation, now)
            case Cancel():
                return self._cancel(operation)
            case ListSchedules():
                return Decision([], self._list(operation))
            case Delivered():
                return self._delivered(operation, now)
            case NotTaken():
                return self._not_taken(operation, now)
            case TopicsChanged():
                return Decision([], None, [LookAgain(0)] if operation.deleted and self.lines else [])
            case Tick():
                return self._tick(now)
            case _:
                raise AssertionError(f"unknown operation {operation}")

    def _create(self, asked: Create, now: Now) -> Decided:
        check_id(asked.id)
        check(asked.definition, self.settings, now.wall_ms)
        queue = self.queues.facts(asked.topic_id)
        if queue is None:
            raise UnknownTopicOrPartition("the queue was deleted")
        if not queue.is_standard:
            raise InvalidRequest("only a standard queue takes schedules: this is a FIFO queue, or no queue")
        known = self._known(asked.topic_id, asked.id)
        if known is not None:
            if known.due_ms == LAST:
                raise DuplicateResource(f"the last message of the cancelled {asked.id} is being delivered: retry")
            if known.digest != asked.definition.digest:
                raise DuplicateResource(f"there is another schedule {asked.id}: cancel it first, or choose another id")
            return Decision([], Created(known.due_ms, existed=True))
        self._check_room(asked.definition)
        definition = replace(asked.definition, created_ms=now.wall_ms)
        if definition.cron:
            due_ms = next_due_ms(definition.cron, definition.zone, now.wall_ms, self.zones)
            definition = replace(definition, due_ms=due_ms)
        due_ms = definition.due_ms
        at_ms = now.monotonic_ms + min(max(0, due_ms - now.wall_ms), CLOCK_MS)
        looks_at_ms = at_ms if not self.lines else min(self._due_ms, at_ms)
        record = Defined(asked.topic_id, asked.id, definition)
        return Decision([record], Created(due_ms, existed=False), [LookAgain(looks_at_ms)])

    def _check_room(self, definition: Definition) -> None:
        settings = self.settings
        if self.count >= settings.schedules_max:
            raise PolicyViolation(f"this coordinator keeps {settings.schedules_max} schedules, and takes no more")
        if self.bytes + definition.message.size > settings.bytes_max:
            raise PolicyViolation(f"this coordinator keeps {settings.bytes_max} bytes of messages, and takes no more")

    def _known(self, topic_id: bytes, id_: str) -> Schedule | None:
        line = self.lines.get(topic_id)
        return None if line is None else line.schedules.get(id_)

    def _cancel(self, asked: Cancel) -> Decided:
        known = self._known(asked.topic_id, asked.id)
        if known is None or known.due_ms == LAST:
            raise ResourceNotFound(
                f"there is no schedule {asked.id[:128]}: it was delivered or cancelled, or never was"
            )
        if not known.planned:
            return Decision(_gone(asked.topic_id, known), Cancelled(on_its_way=False))
        if not known.cron:
            raise InvalidRecordState(f"the message of {asked.id} is being delivered: it is too late to cancel it")
        return Decision([Progressed(asked.topic_id, asked.id, LAST)], Cancelled(on_its_way=True))

    def _list(self, asked: ListSchedules) -> list[Listed]:
        line = self.lines.get(asked.topic_id)
        if line is None:
            return []
        behind = (id_ for id_, each in line.schedules.items() if id_ > asked.after and each.due_ms != LAST)
        found = [line.schedules[id_] for id_ in nsmallest(min(asked.count_max, LIST_MAX), behind)]
        return [Listed(each.id, each.due_ms, each.cron, each.zone, each.created_ms, each.size) for each in found]

    # --- what became of plans ---

    def _delivered(self, asked: Delivered, now: Now) -> Decided:
        line = self.lines.get(asked.topic_id)
        if line is None or line.plan != asked.plan:
            return Decision([], None)
        records: list[ScheduleRecord] = []
        for each in asked.plan.messages:
            known = line.schedules.get(each.id)
            if known is not None:
                records += self._after(asked.topic_id, known, max(each.due_ms, now.wall_ms))
        records.append(PlanMade(asked.topic_id, None))
        return Decision(records, None, [LookAgain(now.monotonic_ms)])

    def _after(self, topic_id: bytes, known: Schedule, wall_ms: int) -> list[ScheduleRecord]:
        if not known.cron or known.due_ms == LAST:
            return _gone(topic_id, known)
        try:
            due_ms = next_due_ms(known.cron, known.zone, wall_ms, self.zones)
        except UnknownZone as error:
            # Another node may know it, or this one soon. The plan stays, and this is said again.
            raise CoordinatorNotAvailable(str(error)) from None
        except InvalidRequest:
            return _gone(topic_id, known)
        return [Progressed(topic_id, known.id, due_ms)]

    def _not_taken(self, asked: NotTaken, now: Now) -> Decided:
        line = self.lines.get(asked.topic_id)
        if line is None or line.plan != asked.plan:
            return Decision([], None)
        notes: list[Any] = [NameDropped(), LookAgain(now.monotonic_ms)]
        planned = asked.plan.messages
        if asked.refused and len(planned) > 1:
            notes.append(Singly(asked.topic_id, len(planned)))
        elif asked.refused:
            notes.append(PutOff(asked.topic_id, planned[0].id, now.wall_ms + self.settings.put_off_ms))
        records: list[ScheduleRecord] = [
            record
            for each in planned
            if (known := line.schedules.get(each.id)) is not None and known.due_ms == LAST
            for record in _gone(asked.topic_id, known)
        ]
        return Decision([*records, PlanMade(asked.topic_id, None)], None, notes)

    # --- what is due ---

    def _tick(self, now: Now) -> Decided:
        decision: Decided = Decision([], None)
        next_ms = now.wall_ms + CLOCK_MS
        for topic_id, line in self.lines.items():
            queue = self.queues.facts(topic_id)
            if queue is None:
                # Whoever scheduled it had read of the topic before this node was made the leader here.
                if not _forget(decision, topic_id, line):
                    next_ms = now.wall_ms
                    break
            elif line.plan is None and line.waiting:
                at_ms = line.waiting[0][0]
                if at_ms > now.wall_ms:
                    next_ms = min(next_ms, at_ms)
                elif len(decision.effects) >= PLANS_AT_ONCE_MAX:
                    next_ms = now.wall_ms
                    break
                elif not self._plan(decision, topic_id, line, queue, now):
                    next_ms = now.wall_ms + NO_ID_MS
                    break
        decision.notes.append(LookAgain(now.monotonic_ms + next_ms - now.wall_ms))
        return decision

    def _plan(self, decision: Decided, topic_id: bytes, line: Line, queue: QueueFacts, now: Now) -> bool:
        """False: there is no name to send it under."""
        named = next((note for note in decision.notes if isinstance(note, Named)), None)
        producer_id = self._producer_id if named is None else named.producer_id
        if producer_id is None or len(self._sequences) >= SEQUENCES_MAX:
            producer_id = self._new_producer_id()
        if producer_id is None:
            return False
        chosen, partition = self._choose(line, queue, now.wall_ms)
        place = topic_id, partition
        sequence = self._sequences.get(place, 0) if producer_id == self._producer_id else 0
        plan = Plan(producer_id, sequence, partition, tuple(Planned(each.id, each.due_ms) for each in chosen))
        decision.records.append(PlanMade(topic_id, plan))
        decision.effects.append(Deliver(topic_id, plan))
        decision.notes.append(Named(producer_id, topic_id, partition, sequence_after(sequence, len(chosen))))
        if line.singly:
            decision.notes.append(Singly(topic_id, line.singly - 1))
        return True

    def _choose(self, line: Line, queue: QueueFacts, wall_ms: int) -> tuple[list[Schedule], int]:
        """Those that are due first and go to the same partition."""
        bytes_max = min(self.settings.plan_bytes_max, queue.bytes_max)
        count_max = 1 if line.singly else self.settings.plan_messages_max
        chosen: list[Schedule] = []
        partition, size = 0, 0
        for each in line.due(wall_ms, LOOKED_AT_MAX):
            place = each.key_hash % queue.partitions if each.key_hash != NO_KEY else None
            if not chosen:
                partition = each.digest[0] % queue.partitions if place is None else place
            elif len(chosen) >= count_max or size + each.size > bytes_max:
                break
            elif place not in (None, partition):
                continue
            chosen.append(each)
            size += each.size
        assert chosen, "nothing is due"
        return chosen, partition


def _gone(topic_id: bytes, known: Schedule) -> list[ScheduleRecord]:
    gone: list[ScheduleRecord] = [Defined(topic_id, known.id, None)]
    if known.cron:
        gone.append(Progressed(topic_id, known.id, None))
    return gone


def _forget(decision: Decided, topic_id: bytes, line: Line) -> bool:
    """False: there is more than one tick takes away."""
    if line.plan is not None:
        decision.records.append(PlanMade(topic_id, None))
    for known in line.schedules.values():
        if len(decision.records) >= AT_ONCE_MAX:
            return False
        decision.records += _gone(topic_id, known)
    return True
