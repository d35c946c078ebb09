"""The world in which a coordinator is held against a naive model: its log, its clock, its dice, and who was answered.

The log takes records as bytes and gives them back as bytes. It commits when told to, so a coordinator can be lost
with the uncommitted end of it. The dice fall the same way for the whole of a step, so that a model knows the ids that
are made up in it.
"""

import uuid
from collections.abc import Sequence
from typing import Any

from durable import check_durable

from skidway.errors import NotCoordinator, ProtocolError
from skidway.groups.consumer.protocol import ConsumerProtocol
from skidway.groups.coordinator import GroupCoordinator
from skidway.groups.operations import Tick
from skidway.groups.records import GroupRecord, from_batches, to_batch
from skidway.groups.settings import GroupSettings
from skidway.runtime.log_store import Marker
from skidway.runtime.replicated import Now, Operation, Replicated

WALL_MS = 10**12


class Topics:
    """Topics by name and size. A topic made again under its name has another id."""

    def __init__(self, **sizes: int) -> None:
        self.epoch = 0
        self.sizes: dict[str, int] = {}
        self._made: dict[str, int] = {}
        for name, size in sizes.items():
            self.resize(name, size)

    def resize(self, name: str, size: int | None) -> None:
        self.epoch += 1
        if size is None:
            del self.sizes[name]
            return
        if name not in self.sizes:
            self._made[name] = self._made.get(name, 0) + 1
        self.sizes[name] = size

    def partition_count(self, name: str) -> int | None:
        return self.sizes.get(name)

    def id_of(self, name: str) -> bytes | None:
        return f"{name}/{self._made[name]}".encode().ljust(16) if name in self.sizes else None

    def name_of(self, topic_id: bytes) -> str | None:
        name = topic_id.decode().partition("/")[0]
        return name if self.id_of(name) == topic_id else None

    def names(self) -> list[str]:
        return list(self.sizes)


class Dice:
    """The same bytes for every throw of a step."""

    def __init__(self) -> None:
        self.step = 0

    def randbytes(self, size: int) -> bytes:
        return self.step.to_bytes(size, "big")

    def randrange(self, stop: int, /) -> int:
        return self.step % stop

    def uuid(self) -> str:
        return str(uuid.UUID(bytes=self.randbytes(16), version=4))


class ModelWorld:
    machine_class: type[GroupCoordinator] = GroupCoordinator
    """A mutant takes its place where the tests themselves are tested."""

    def __init__(self, settings: GroupSettings, topics: Topics) -> None:
        self.settings = settings
        self.topics = topics
        self.dice = Dice()
        self.now_ms = 0
        self.calls = 0
        self.batches: list[tuple[int, bytes]] = []
        self._decoded: dict[bytes, list[GroupRecord]] = {}
        self.committed = 0
        self.prompt = True
        """Whether what is written is committed at once."""
        self.answers: dict[int, Any] = {}
        """Of the calls answered since they were last taken away."""
        self.reader = self.new_machine()
        """It has read the log and nothing else: every record, through bytes, and no note."""
        self.host: Replicated[GroupCoordinator, GroupRecord] = Replicated(self.new_machine, self)
        self.tick()

    def new_machine(self) -> GroupCoordinator:
        return self.machine_class(self.settings, self.topics, self.dice, ConsumerProtocol)

    # Clock and store.

    @property
    def now(self) -> Now:
        return Now(self.now_ms, self.wall_ms())

    def wall_ms(self) -> int:
        return WALL_MS + self.now_ms

    def monotonic_ms(self) -> int:
        return self.now_ms

    @property
    def end_offset(self) -> int:
        return self.batches[-1][0] if self.batches else 0

    @property
    def committed_offset(self) -> int:
        return self.end_offset if self.prompt else self.committed

    def append(self, records: Sequence[GroupRecord], now_ms: int) -> int:
        batch = bytes(to_batch(records, 0))
        self.batches.append((self.end_offset + len(records), batch))
        for record in from_batches(batch):
            self.reader.apply(record)
        return self.end_offset

    def read_all(self) -> list[GroupRecord]:
        for _, batch in self.batches:
            if batch not in self._decoded:
                self._decoded[batch] = list(from_batches(batch))
        return [record for _, batch in self.batches for record in self._decoded[batch]]

    # What happens.

    def submit(self, operation: Operation[Any]) -> int:
        """The call's number; its answer comes to `answers`, now or later."""
        self.calls += 1
        number = self.calls
        self.host.submit(operation, self.now, lambda reply: self.answers.__setitem__(number, reply))
        check_durable(self.host.machine, self.reader)
        return number

    def ask(self, operation: Operation[Any]) -> Any:
        """For questions that are not a step: the answer by the state appended so far, committed or not."""
        return ask(self.host.machine, operation, self.now)

    def take_answers(self) -> dict[int, Any]:
        answers, self.answers = self.answers, {}
        return answers

    def tick(self) -> None:
        self.host.submit(Tick(), self.now, lambda reply: None)
        check_durable(self.host.machine, self.reader)

    def tick_if_due(self) -> None:
        for _ in range(100):
            if self.host.machine.deadline_ms > self.now_ms:
                return
            self.tick()
        raise AssertionError("the coordinator is never done with ticks of the same millisecond")

    def commit(self) -> None:
        self.committed = self.end_offset
        self.host.on_committed(self.committed)

    def lose(self, *, keep_all: bool = True) -> None:
        """The coordinator is gone and comes back with what is in the log."""
        cut = self.end_offset if keep_all else self.committed_offset
        self.batches = [(end, batch) for end, batch in self.batches if end <= cut]
        self.committed = min(self.committed, self.end_offset)
        self.reader = self.rebuilt()
        self.host.on_lost(NotCoordinator())
        self.tick()

    def rebuilt(self, *, compacted: bool = False) -> GroupCoordinator:
        """Another coordinator, by the log alone."""
        records = self.read_all()
        if compacted:
            records = compact(records)
        machine = self.new_machine()
        for record in records:
            machine.apply(record)
        return machine


def compact(records: list[GroupRecord]) -> list[GroupRecord]:
    """The last record of each key, without those of transactions that were aborted; nothing behind the first record of
    a transaction that is open is touched. Markers stay."""
    ends: dict[int, tuple[int, bool]] = {}
    """Of each record of a transaction: where its marker is, and whether that commits."""
    waiting: dict[int, list[int]] = {}
    for number, record in enumerate(records):
        if record.producer is not None:
            waiting.setdefault(record.producer.id, []).append(number)
        elif isinstance(record.key, Marker):
            for each in waiting.pop(record.key.producer.id, []):
                ends[each] = (number, record.key.end.committed)
    cut = len(records)
    while True:
        is_open = [
            number
            for number, record in enumerate(records[:cut])
            if record.producer is not None and ends.get(number, (cut, False))[0] >= cut
        ]
        if not is_open:
            break
        cut = is_open[0]
    below = [
        (number, record) for number, record in enumerate(records[:cut]) if record.producer is None or ends[number][1]
    ]
    last = {repr(record.key): number for number, record in below if not isinstance(record.key, Marker)}
    kept = [
        record
        for number, record in below
        if isinstance(record.key, Marker) or (last[repr(record.key)] == number and record.value is not None)
    ]
    return kept + records[cut:]


def ask(machine: GroupCoordinator, operation: Operation[Any], now: Now) -> Any:
    """What it would answer; a refusal is returned."""
    try:
        return machine.decide(operation, now).reply
    except ProtocolError as refusal:
        return refusal
