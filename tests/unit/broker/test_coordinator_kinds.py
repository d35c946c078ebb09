"""A second kind of coordinator beside the groups: a topic, records, a machine, and nothing else to change."""

from typing import Any

import pytest
from broker_world import Peer, World
from msgspec.structs import replace

from skidway.broker.coordinators.host import Coordinator, CoordinatorKind, Coordinators
from skidway.errors import InvalidRequest, ProtocolError
from skidway.records.record import Record
from skidway.runtime.log_store import Format
from skidway.runtime.replicated import Decision, Now, Operation, TimedMachine
from skidway.sim.world.disk import SimDisk

KEY_TYPE = 77
TOPIC = "__counters"
NEVER_MS = 1 << 60
FULL = 100
"""Has an effect: a counter of another partition counts those that are full."""


class Add(Operation[int]):
    """Answers with the sum."""

    name: str
    amount: int


class Look(Operation[None]):
    pass


class Counters(TimedMachine[tuple[str, int]]):
    """Sums by name: every record is the new sum of one."""

    def __init__(self) -> None:
        self.sums: dict[str, int] = {}

    @property
    def deadline_ms(self) -> int:
        return NEVER_MS

    def decide(self, operation: Operation[Any], now: Now) -> Decision[tuple[str, int], Any]:
        if not isinstance(operation, Add):
            return Decision([], None)
        if operation.amount < 0:
            raise InvalidRequest("only upwards")
        total = self.sums.get(operation.name, 0) + operation.amount
        return Decision([(operation.name, total)], total, effects=["full"] if total >= FULL else [])

    def apply(self, record: tuple[str, int]) -> None:
        name, total = record
        self.sums[name] = total


def decode(record: Record) -> tuple[str, int]:
    return bytes(record.key or b"").decode(), int(bytes(record.value or b""))


KIND: CoordinatorKind[Counters, tuple[str, int]] = CoordinatorKind(
    key_type=KEY_TYPE,
    noun="counters",
    topic=TOPIC,
    topic_partitions=3,
    topic_configs=[("cleanup.policy", "compact")],
    format=Format("counter", lambda record: (record[0].encode(), str(record[1]).encode()), decode),
    place=lambda key, partitions: len(key) % partitions,
    new_machine=Counters,
    tick=Look,
    topics_changed=lambda deleted: Look(),
)


class Story:
    def __init__(self, disk: SimDisk | None = None) -> None:
        self.world = World(disk)
        self.performed: list[tuple[int, str]] = []
        self.counters = Coordinators(
            self.world.node.rooms.services.groups.surroundings, replace(KIND, perform=self._perform)
        )
        self.world.node.rooms.coordinators[TOPIC] = self.counters
        self.counters.start()
        self.peer: Peer = self.world.peer()

    def _perform(self, coordinator: Coordinator[Counters, tuple[str, int]], effect: str) -> None:
        self.performed.append((coordinator.partition.index, effect))
        self.counters.submit(effect, Add(effect, 1), self.world.clock.now_ms, lambda reply: None)

    def find(self, key: str, key_type: int = KEY_TYPE) -> Any:
        (found,) = self.peer.call("FindCoordinator", key_type=key_type, coordinator_keys=[key], version=4).coordinators
        return found

    def add(self, name: str, amount: int) -> int | ProtocolError:
        replies: list[int | ProtocolError] = []
        self.counters.submit(name, Add(name, amount), self.world.clock.now_ms, replies.append)
        self.world.settle()
        (reply,) = replies
        return reply


def test_the_key_type_selects_the_kind_and_the_first_question_creates_its_topic() -> None:
    story = Story()
    assert TOPIC not in story.world.node.image.topics
    found = story.find("hits")
    assert (found.error_code, found.node_id) == (0, 1)
    assert len(story.world.node.image.topics[TOPIC].partitions) == 3
    assert "__consumer_offsets" not in story.world.node.image.topics
    assert story.find("hits", key_type=KEY_TYPE + 1).error_code == InvalidRequest.code


def test_each_key_is_decided_in_its_own_partition() -> None:
    story = Story()
    story.find("a")
    assert [story.add("a", 2), story.add("bb", 5), story.add("a", 3)] == [2, 5, 5]
    refused = story.add("a", -1)
    assert isinstance(refused, InvalidRequest)
    machines = {partition.index: each.host.machine.sums for partition, each in story.counters.loaded.items()}
    assert machines == {1: {"a": 5}, 2: {"bb": 5}}


def test_an_answer_waits_until_its_record_is_stored() -> None:
    story = Story()
    story.find("a")
    replies: list[int | ProtocolError] = []
    story.counters.submit("a", Add("a", 2), story.world.clock.now_ms, replies.append)
    story.world.end_turn()
    assert replies == []
    story.world.settle()
    assert replies == [2]


def test_an_effect_follows_its_record_and_comes_back_as_an_operation() -> None:
    story = Story()
    story.find("a")
    story.counters.submit("a", Add("a", FULL), story.world.clock.now_ms, lambda reply: None)
    story.world.end_turn()
    assert story.performed == [], "its record is not stored"
    story.world.settle()
    assert story.performed == [(1, "full")]
    assert story.add("full", 1) == 2


@pytest.mark.parametrize("clean", [True, False], ids=["clean stop", "kill"])
def test_a_coordinator_is_loaded_from_its_log(clean: bool) -> None:
    story = Story()
    story.find("a")
    assert story.add("a", 2) == 2
    if clean:
        story.world.node.close(clean=True)
    else:
        story.world.disk.kill()
    again = Story(story.world.disk)
    assert again.add("a", 2) == 4


def test_both_kinds_share_a_node() -> None:
    story = Story()
    story.find("a")
    assert story.find("group", key_type=0).error_code == 0
    assert {TOPIC, "__consumer_offsets"} <= set(story.world.node.image.topics)
    assert story.add("a", 1) == 1
    assert not story.world.node.rooms.services.groups.loaded
