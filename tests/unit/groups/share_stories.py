"""A coordinator on a log in memory, members of share groups that speak in one line, and share coordinators played by
the test: they answer when they are told to."""

import random
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

from consumer_stories import Checked, Cluster, topic_id
from durable import check_durable

from skidway.errors import ErrorCode, NotCoordinator, StorageError
from skidway.groups.coordinator import GroupCoordinator
from skidway.groups.operations import Tick
from skidway.groups.records import GroupRecord, from_batches, to_batch
from skidway.groups.settings import GroupSettings
from skidway.groups.share.group import ShareGroup
from skidway.groups.share.operations import (
    DeleteStates,
    InitializeStates,
    ShareHeartbeat,
    StateEffect,
    StatesChanged,
)
from skidway.groups.share.protocol import ShareProtocol
from skidway.runtime.replicated import Now, Operation, Replicated

SESSION_MS, HEARTBEAT_MS = 45_000, 5_000
NONE = ErrorCode.NONE


class World:
    protocol_class: type[ShareProtocol] = ShareProtocol

    def __init__(self, size_max: int = 10, **sizes: int) -> None:
        self.cluster = Cluster(**sizes)
        self.size_max = size_max
        self.now_ms = 1_000
        self.batches: list[bytes] = []
        self.end_offset = self.committed_offset = 0
        self.held_back = self.refusing = False
        self.numbers = count(1)
        self.effects: list[StateEffect] = []
        """Performed, and not answered."""
        self.states: dict[tuple[str, bytes, int], tuple[int, int]] = {}
        """What share coordinators keep: state epoch and start offset."""
        self.end = 100
        """Of every partition: where `latest` is."""
        self.host = self._new_host()
        self.tick()

    def _new_host(self) -> Replicated[GroupCoordinator, GroupRecord]:
        return Replicated(self._new_machine, self, perform=self.effects.append)

    def _new_machine(self) -> GroupCoordinator:
        return Checked(
            GroupSettings(),
            self.cluster,
            random.Random(1),
            share=lambda context: self.protocol_class(
                context, lambda group_id: (SESSION_MS, HEARTBEAT_MS), self.size_max, self.numbers
            ),
        )

    # Store.

    def append(self, records: Sequence[GroupRecord], now_ms: int) -> int:
        if self.refusing:
            self.refusing = False
            raise StorageError("disk full")
        self.batches.append(bytes(to_batch(records, self.now_ms)))
        self.end_offset += 1
        if not self.held_back:
            self.committed_offset = self.end_offset
        return self.end_offset

    def read_all(self) -> list[GroupRecord]:
        return [record for batch in self.batches for record in from_batches(batch)]

    # What happens.

    @property
    def group(self) -> ShareGroup:
        group = self.host.machine.groups["g"]
        assert isinstance(group, ShareGroup)
        return group

    def ask(self, operation: Operation[Any], respond: Callable[[Any], None] | None = None) -> Any:
        answers: list[Any] = []
        self.host.submit(operation, Now(self.now_ms, self.now_ms), respond or answers.append)
        self.check()
        return answers[0] if answers else None

    def check(self) -> None:
        read = self._new_machine()
        for record in self.read_all():
            read.apply(record)
        check_durable(self.host.machine, read)

    def tick(self) -> None:
        self.ask(Tick())

    def pass_time(self, wait_ms: int) -> None:
        end_ms = self.now_ms + wait_ms
        while self.host.machine.deadline_ms <= end_ms:
            self.now_ms = max(self.now_ms, self.host.machine.deadline_ms)
            self.tick()
        self.now_ms = end_ms

    def restart(self) -> None:
        self.host.close(NotCoordinator())
        self.effects.clear()
        self.host = self._new_host()
        self.tick()

    # Share coordinators.

    def answer(self, code: ErrorCode = NONE) -> None:
        """All that was asked for is done, or fails."""
        while self.effects:
            self.answer_one(self.effects.pop(0), code)

    def answer_one(self, effect: StateEffect, code: ErrorCode = NONE) -> None:
        codes = [code if code != NONE else self.store(effect, number) for number in range(len(effect.items))]
        self.ask(StatesChanged(effect.group_id, effect.number, codes))

    def store(self, effect: StateEffect, number: int) -> ErrorCode:
        item = effect.items[number]
        key = effect.group_id, item.topic_id, item.partition
        if isinstance(effect, DeleteStates):
            self.states.pop(key, None)
            return NONE
        assert isinstance(effect, InitializeStates)
        epoch, _ = self.states.get(key, (-1, 0))
        if effect.state_epoch < epoch:
            return ErrorCode.FENCED_STATE_EPOCH
        if effect.state_epoch > epoch:
            self.states[key] = (effect.state_epoch, self.end if item.start_offset < 0 else item.start_offset)
        return NONE

    def started(self, topic: str, partition: int) -> int:
        return self.states["g", topic_id(topic), partition][1]


class Member:
    def __init__(self, world: World, member_id: str, *topics: str) -> None:
        self.world, self.member_id, self.topics = world, member_id, list(topics)
        self.epoch = 0
        self.assigned: dict[str, list[int]] = {}
        self.interval_ms = 0

    def beat(self, epoch: int | None = None, **fields: Any) -> Any:
        epoch = self.epoch if epoch is None else epoch
        if epoch == 0:
            fields.setdefault("topics", self.topics)
        reply = self.world.ask(ShareHeartbeat("g", self.member_id, epoch, client_id="c", client_host="h", **fields))
        if isinstance(reply, Exception):
            return ErrorCode(getattr(reply, "code", 0)).name
        self.epoch, self.interval_ms = reply.member_epoch, reply.heartbeat_interval_ms
        if reply.assignment is not None:
            self.assigned = {topic.decode().strip(): partitions for topic, partitions in reply.assignment}
        return self.assigned if reply.assignment is not None else None
