"""What one step of a member costs does not grow with the group: memory is counted, as a clock would not be certain."""

import random
import statistics
import tracemalloc
from collections.abc import Sequence
from typing import Any

import pytest

from skidway.errors import MemberIdRequired
from skidway.groups.classic.group import ClassicGroup
from skidway.groups.consumer.operations import ConsumerHeartbeat
from skidway.groups.consumer.protocol import ConsumerProtocol
from skidway.groups.coordinator import GroupCoordinator
from skidway.groups.operations import Heartbeat, JoinGroup, LeaveGroup, Leaving, SyncGroup, Tick
from skidway.groups.records import GroupRecord
from skidway.groups.settings import GroupSettings
from skidway.ports import Buffer
from skidway.runtime.replicated import Now, Operation, Replicated

FEW, MANY = 40, 600
SAMPLES = 15


class OneTopic:
    epoch = 0

    def partition_count(self, name: str) -> int | None:
        return 100

    def id_of(self, name: str) -> bytes | None:
        return b"topic".rjust(16)

    def name_of(self, topic_id: bytes) -> str | None:
        return "t"

    def names(self) -> list[str]:
        return ["t"]


class Crowd:
    """A coordinator and the members of its one group. Nothing is kept of the records."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.end_offset = self.committed_offset = 0
        settings, chance = GroupSettings(initial_rebalance_delay_ms=0), random.Random(1)
        self.host: Replicated[GroupCoordinator, GroupRecord] = Replicated(
            lambda: GroupCoordinator(settings, OneTopic(), chance, ConsumerProtocol), self
        )
        self.ids = [""] * size
        self.generations = [-1] * size
        self.peaks: list[int] = []
        self.submit(Tick())

    def wall_ms(self) -> int:
        return 10**12

    def monotonic_ms(self) -> int:
        return 0

    def append(self, records: Sequence[GroupRecord], now_ms: int) -> int:
        self.end_offset = self.committed_offset = self.end_offset + len(records)
        return self.end_offset

    def read_all(self) -> list[GroupRecord]:
        return []

    def submit(self, operation: Operation[Any], respond: Any = lambda reply: None) -> None:
        if not tracemalloc.is_tracing():
            self.host.submit(operation, Now(0, self.wall_ms()), respond)
            return
        tracemalloc.reset_peak()
        before, _ = tracemalloc.get_traced_memory()
        self.host.submit(operation, Now(0, self.wall_ms()), respond)
        self.peaks.append(tracemalloc.get_traced_memory()[1] - before)

    def bytes_of_a_step(self) -> float:
        """Of the last few; the median, as a dict that grows makes one step dear."""
        return statistics.median(self.peaks[-SAMPLES:])

    # The classic protocol.

    def join(self, number: int, turn: int) -> None:
        def joined(reply: Any) -> None:
            if isinstance(reply, MemberIdRequired):
                self.ids[number] = reply.member_id
            else:
                self.generations[number] = reply.generation

        protocols: list[tuple[str, Buffer]] = [("range", b"\0\0\0\0\0\1\0\1t\0\0\0\1" + bytes([turn]))]
        who = (self.ids[number], None, "client", "/host")
        self.submit(JoinGroup("g", *who, 30_000, 60_000, "consumer", protocols), joined)

    def form(self) -> None:
        """The first alone; then the others, who ask for an id before, and the first again."""
        self.join(0, turn=0)
        self.join(0, turn=0)
        self.sync(0)
        for number in range(1, self.size):
            self.join(number, turn=1)
        for number in range(self.size):
            self.join(number, turn=1)
        for number in range(self.size):
            self.sync(number)
        group = self.host.machine.groups["g"]
        assert isinstance(group, ClassicGroup)
        assert group.state_name == "Stable"
        assert len(group.durable.members) == self.size

    def sync(self, number: int) -> None:
        self.submit(SyncGroup("g", self.ids[number], None, self.generations[number]))

    # The consumer protocol.

    def beat(self, number: int, epoch: int, **said: Any) -> None:
        def answered(reply: Any) -> None:
            self.generations[number] = reply.member_epoch

        self.submit(ConsumerHeartbeat("c", f"member-{number}", epoch, **said), answered)


def steps_of_classic_members(size: int) -> dict[str, float]:
    crowd = Crowd(size)
    crowd.form()
    tracemalloc.start()
    found = {}
    for number in reversed(range(size - SAMPLES, size)):
        crowd.join(number, turn=2)
    found["a join that waits"] = crowd.bytes_of_a_step()
    for number in reversed(range(size - SAMPLES)):
        crowd.join(number, turn=2)
    for number in reversed(range(1, size)):
        crowd.sync(number)
    found["a sync that waits"] = crowd.bytes_of_a_step()
    crowd.sync(0)
    for number in range(SAMPLES):
        crowd.submit(Heartbeat("g", crowd.ids[number], None, crowd.generations[number]))
    found["a heartbeat"] = crowd.bytes_of_a_step()
    for number in range(SAMPLES + 1):
        crowd.submit(LeaveGroup("g", [Leaving(crowd.ids[number])]))
    found["another that leaves"] = crowd.bytes_of_a_step()
    tracemalloc.stop()
    return found


def steps_of_consumers(size: int) -> dict[str, float]:
    crowd = Crowd(size)
    joining: dict[str, Any] = {"rebalance_timeout_ms": 60_000, "topics": ["t"], "owned": []}
    for number in range(size):
        crowd.beat(number, 0, **joining)
    tracemalloc.start()
    found = {}
    for number in range(size):
        crowd.beat(number, crowd.generations[number], owned=[])
    found["a heartbeat on the way"] = crowd.bytes_of_a_step()
    for number in range(size):
        crowd.beat(number, crowd.generations[number], owned=[])
    for number in range(size):
        crowd.beat(number, crowd.generations[number])
    found["a heartbeat"] = crowd.bytes_of_a_step()
    tracemalloc.stop()
    return found


@pytest.mark.parametrize("steps", [steps_of_classic_members, steps_of_consumers])
def test_a_step_of_one_member_takes_no_more_in_a_large_group(steps: Any) -> None:
    try:
        few, many = steps(FEW), steps(MANY)
    finally:
        tracemalloc.stop()
    for step, size in few.items():
        assert many[step] < 2 * size + 1_000, f"{step}: {size} bytes among {FEW} members, {many[step]} among {MANY}"
