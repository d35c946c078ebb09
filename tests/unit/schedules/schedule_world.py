"""The world of a coordinator of schedules: its log, its clocks, and the queues that it delivers to.

The log takes records as bytes and gives them back as bytes. It commits when told to, so a coordinator can be lost with
the uncommitted end of it. What it wants delivered is sent when told to, and may be lost on the way, there or back; a
copy of it may come late. Queues know producers as any partition does.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import count
from typing import Any

from msgspec import Struct

from skidway.errors import NotCoordinator, OutOfOrderSequence, ProtocolError, StorageError
from skidway.log.producers import Producers
from skidway.records.batch import read_header
from skidway.records.record import Record, build_batch
from skidway.runtime.replicated import Now, Operation, Replicated
from skidway.schedules.machine import QueueFacts, ScheduleCoordinator
from skidway.schedules.next_time import NoZones
from skidway.schedules.operations import Deliver, Delivered, NotTaken, Tick
from skidway.schedules.records import FORMAT, Defined, ScheduleRecord
from skidway.schedules.schedule import Plan
from skidway.schedules.settings import ScheduleSettings

WALL_AT_START_MS = 1_767_225_600_000
"""1 January 2026, midnight."""
PARTITIONS = 2
BATCH_BYTES_MAX = 1_000


def topic_id(name: str) -> bytes:
    return name.encode().ljust(16, b".")


class Message(Struct, frozen=True):
    """In a queue."""

    id: str
    due_ms: int
    value: bytes | None
    came_ms: int


class QueueLog:
    """One partition of a queue."""

    def __init__(self) -> None:
        self.producers = Producers()
        self.messages: list[Message] = []

    def take(self, plan: Plan, messages: list[Message]) -> None:
        """Raises OutOfOrderSequence."""
        records = [Record(0, 0, None, each.value, ()) for each in messages]
        header = read_header(
            build_batch(records, producer_id=plan.producer_id, producer_epoch=0, base_sequence=plan.sequence)
        )
        if self.producers.check(header) is None:
            end = len(self.messages)
            self.messages += messages
            self.producers.record(plan.producer_id, 0, plan.sequence, end, len(messages) - 1, 0, 0, 0)


class Sending(Struct):
    """A plan that its coordinator sends until it is answered."""

    effect: Deliver
    made_here: bool
    in_doubt: bool = False
    """A send was not answered: it may be there."""


class World:
    machine_class: type[ScheduleCoordinator] = ScheduleCoordinator
    """A mutant takes its place where the tests themselves are tested."""

    def __init__(self, settings: ScheduleSettings, queues: Sequence[str] = ("x", "y")) -> None:
        self.now_ms = 0
        self.settings = settings
        self.queues = {name: self.new_queue() for name in queues}
        self.fifo: set[str] = set()
        self.batches: list[tuple[int, bytes]] = []
        """With the offset behind each."""
        self.committed_offset = 0
        self.held_back = self.refusing = False
        self.written: list[ScheduleRecord] = []
        self.sendings: list[Sending] = []
        self.sent: list[tuple[bytes, Plan, list[Message]]] = []
        """All copies that were ever on their way."""
        self.taken: list[tuple[bytes, Plan]] = []
        self.ids = count(1_000)
        self.loading = True
        self.host = self.new_host()

    @staticmethod
    def new_queue() -> list[QueueLog]:
        return [QueueLog() for _ in range(PARTITIONS)]

    def new_host(self) -> Replicated[ScheduleCoordinator, ScheduleRecord]:
        self.loading = True
        host = Replicated(self.new_machine, self, perform=self.perform)
        self.loading = False
        return host

    def new_machine(self) -> ScheduleCoordinator:
        return self.machine_class(self.settings, self, NoZones(), lambda: next(self.ids))

    @property
    def machine(self) -> ScheduleCoordinator:
        return self.host.machine

    def facts(self, topic_id: bytes) -> QueueFacts | None:
        name = topic_id.decode().rstrip(".")
        queue = self.queues.get(name)
        return None if queue is None else QueueFacts(len(queue), BATCH_BYTES_MAX, name not in self.fifo)

    # Clock and store.

    @property
    def now(self) -> Now:
        return Now(self.now_ms, WALL_AT_START_MS + self.now_ms)

    @property
    def end_offset(self) -> int:
        return self.batches[-1][0] if self.batches else 0

    def append(self, records: Sequence[ScheduleRecord], now_ms: int) -> int:
        if self.refusing:
            self.refusing = False
            raise StorageError("disk full")
        base_offset = self.end_offset
        batch = FORMAT.to_batch(records, self.now.wall_ms)
        batch[0:8] = base_offset.to_bytes(8, "big")
        for offset, record in enumerate(records, base_offset):
            if isinstance(record, Defined):
                record.offset = offset
        self.batches.append((base_offset + len(records), bytes(batch)))
        self.written += records
        if not self.held_back:
            self.committed_offset = self.end_offset
        return self.end_offset

    def read_all(self) -> list[ScheduleRecord]:
        return [record for _, batch in self.batches for record in FORMAT.from_batches(batch)]

    # Delivering.

    def perform(self, effect: Deliver) -> None:
        self.sendings.append(Sending(effect, made_here=not self.loading))

    def is_wanted(self, sending: Sending) -> bool:
        line = self.machine.lines.get(sending.effect.topic_id)
        return line is not None and line.plan == sending.effect.plan

    def send(self, sending: Sending, *, arrives: bool, answered: bool) -> None:
        """The whole way of one copy, or a part of it."""
        effect = sending.effect
        name = effect.topic_id.decode().rstrip(".")
        if not self.is_wanted(sending):
            self.sendings.remove(sending)
            return
        if name not in self.queues:
            return
        messages = self.messages_of(effect)
        self.sent.append((effect.topic_id, effect.plan, messages))
        if not (arrives and answered):
            sending.in_doubt = True
        if not arrives:
            return
        try:
            self.queues[name][effect.plan.partition].take(effect.plan, messages)
        except OutOfOrderSequence:
            self.tell(sending, NotTaken(effect.topic_id, effect.plan, refused=False))
            return
        self.taken.append((effect.topic_id, effect.plan))
        if answered:
            self.tell(sending, Delivered(effect.topic_id, effect.plan))

    def refuse(self, sending: Sending) -> None:
        """The queue does not take it: known only where no copy was sent that may be there."""
        if self.is_wanted(sending) and sending.made_here and not sending.in_doubt:
            self.tell(sending, NotTaken(sending.effect.topic_id, sending.effect.plan, refused=True))

    def arrive_late(self, number: int) -> None:
        """A copy that everybody had forgotten."""
        topic_id, plan, messages = self.sent[number]
        queue = self.queues.get(topic_id.decode().rstrip("."))
        if queue is not None:
            with suppress(OutOfOrderSequence):
                queue[plan.partition].take(plan, messages)

    def answer_late(self, number: int) -> None:
        self.submit(Delivered(*self.taken[number]))

    def tell(self, sending: Sending, operation: Operation[None]) -> None:
        def answer(reply: Any) -> None:
            if not isinstance(reply, ProtocolError) and sending in self.sendings:
                self.sendings.remove(sending)

        self.submit(operation, answer)

    def messages_of(self, effect: Deliver) -> list[Message]:
        """As the log of schedules has them."""
        stored = {record.offset: record for record in self.read_all() if isinstance(record, Defined)}
        line, found = self.machine.lines[effect.topic_id], []
        for each in effect.plan.messages:
            record = stored[line.schedules[each.id].offset]
            assert record.id == each.id, "its place in the log is another's"
            assert record.definition is not None
            found.append(Message(each.id, each.due_ms, record.definition.message.value, self.now.wall_ms))
        return found

    def messages(self, name: str) -> list[Message]:
        return [message for log in self.queues[name] for message in log.messages]

    # What happens.

    def submit(self, operation: Operation[Any], respond: Callable[[Any], None] = lambda reply: None) -> None:
        self.host.submit(operation, self.now, respond)

    def pass_time(self, wait_ms: int) -> None:
        end_ms = self.now_ms + wait_ms
        while self.machine.deadline_ms <= end_ms:
            self.now_ms = max(self.now_ms, self.machine.deadline_ms)
            before = self.machine.deadline_ms
            self.submit(Tick())
            if self.machine.deadline_ms <= before:
                break  # a tick that could not be written
        self.now_ms = end_ms

    def release(self) -> None:
        self.held_back = False
        self.committed_offset = self.end_offset
        self.host.on_committed(self.end_offset)

    def restart(self) -> None:
        """Another node takes over, with all that is in the log."""
        self.host.close(NotCoordinator())
        self.sendings.clear()
        self.host = self.new_host()

    def lose(self) -> None:
        """The coordinator comes back with what was committed."""
        self.batches = [(end, batch) for end, batch in self.batches if end <= self.committed_offset]
        self.sendings.clear()
        self.loading = True
        self.host.on_lost(NotCoordinator())
        self.loading = False

    def rebuilt(self) -> ScheduleCoordinator:
        """Another coordinator, by the log alone."""
        machine = self.new_machine()
        for record in self.read_all():
            machine.apply(record)
        return machine
