"""How proposals reach the controller: together, one request at a time, again and again until there is an answer."""

from collections.abc import Callable
from typing import Any

import pytest
from broker_world import World, batch
from follower_by_hand import Follower, replicated_topic
from msgspec.structs import replace

from skidway.broker.asking import RETRY_MS
from skidway.broker.events import InSyncChange, InSyncChanged
from skidway.errors import ErrorCode
from skidway.server.event_text import line_of
from skidway.wire.schema.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    ResponsePartitionData,
    ResponseTopicData,
)


class ControllerByHand:
    def __init__(self) -> None:
        self.asked: list[tuple[AlterPartitionRequest, Callable[[Any], None]]] = []

    def ask(self, request: Any, respond: Callable[[Any], None], now_ms: int) -> None:
        self.asked.append((request, respond))

    def request(self) -> tuple[AlterPartitionRequest, Callable[[Any], None]]:
        (only,) = self.asked
        self.asked = []
        return only


class Scene:
    """Broker 2 follows two partitions, and lags."""

    def __init__(self) -> None:
        self.world = World(session_timeout_ms=10**9, replica_lag_ms=1_000)
        Follower(self.world, 2)
        replicated_topic(self.world, "orders", [[1, 2], [1, 2]], flush="os", min_insync_replicas="1")
        self.controller = ControllerByHand()
        self.world.node.rooms.in_sync.ask = self.controller.ask
        for index in (0, 1):
            self.world.peer().produce("orders", batch(b"a"), acks=1, index=index)
        self.pass_time(2_000)
        self.pass_time(0)

    def pass_time(self, milliseconds: int) -> None:
        self.world.pass_time(milliseconds)
        self.world.settle()

    def publish(self, *indexes: int) -> None:
        """The metadata brings what the controller answered."""
        for index in indexes:
            partition = self.world.partition("orders", index)
            role = replace(partition.role, in_sync=[1], partition_epoch=partition.role.partition_epoch + 1)
            partition.lead(role, self.world.clock.now_ms)

    def in_sync(self) -> list[list[int]]:
        return [list(self.world.partition("orders", index).leader.in_sync) for index in (0, 1)]


@pytest.fixture
def scene() -> Scene:
    return Scene()


def answer(request: AlterPartitionRequest, error: int = 0) -> AlterPartitionResponse:
    (topic,) = request.topics
    results = [
        ResponsePartitionData(
            asked.partition_index,
            error,
            1,
            asked.leader_epoch,
            [member.broker_id for member in asked.new_isr_with_epochs],
            0,
            asked.partition_epoch + 1,
        )
        for asked in topic.partitions
    ]
    return AlterPartitionResponse(topics=[ResponseTopicData(topic.topic_id, results)])


def test_all_of_a_turn_go_in_one_request(scene: Scene) -> None:
    request, respond = scene.controller.request()
    asked = request.topics[0].partitions
    assert [(each.partition_index, [m.broker_id for m in each.new_isr_with_epochs]) for each in asked] == [
        (0, [1]),
        (1, [1]),
    ]
    assert request.broker_id == 1
    assert request.broker_epoch == scene.world.node.broker_epoch
    assert scene.in_sync() == [[1, 2], [1, 2]]
    respond(answer(request))
    assert scene.in_sync() == [[1, 2], [1, 2]], "settings that changed before that may not be known here yet"
    scene.publish(0, 1)
    assert scene.in_sync() == [[1], [1]]
    assert [scene.world.partition("orders", index).log.high_watermark for index in (0, 1)] == [1, 1]


@pytest.mark.parametrize(
    "lost", [None, AlterPartitionResponse(error_code=ErrorCode.NOT_CONTROLLER), AlterPartitionResponse()]
)
def test_what_was_not_answered_is_asked_again(scene: Scene, lost: Any) -> None:
    first, respond = scene.controller.request()
    scene.pass_time(1_000)
    assert scene.controller.asked == [], "one at a time"
    respond(lost)
    scene.pass_time(0)
    assert scene.controller.asked == [], "not at once"
    scene.pass_time(RETRY_MS)
    second, respond = scene.controller.request()
    assert second.topics == first.topics
    respond(answer(second))
    scene.pass_time(5_000)
    assert scene.controller.asked == [], "answered"
    scene.publish(0, 1)
    assert scene.in_sync() == [[1], [1]]


def test_what_the_controller_knows_better_is_left_to_the_metadata(scene: Scene) -> None:
    request, respond = scene.controller.request()
    respond(answer(request, ErrorCode.INVALID_UPDATE_VERSION))
    scene.pass_time(5_000)
    assert scene.controller.asked == []
    assert scene.in_sync() == [[1, 2], [1, 2]]


def test_an_answer_to_somebody_who_does_not_lead_any_more_changes_nothing(scene: Scene) -> None:
    request, respond = scene.controller.request()
    partition = scene.world.partition("orders", 0)
    partition.follow(replace(partition.role, leader=2, leader_epoch=9), scene.world.clock.now_ms)
    respond(answer(request))
    scene.publish(1)
    assert scene.in_sync() == [[1, 2], [1]]


def test_a_broker_that_goes_is_one_event() -> None:
    world = World(session_timeout_ms=10**9)
    second = Follower(world, 2)
    replicated_topic(world, "wide", [[1, 2]] * 100)
    second.heartbeat(want_fence=True)
    world.pass_time(0)
    (event,) = [event for event in world.reported if isinstance(event, InSyncChanged)]
    assert event.changes[0] == InSyncChange("wide-0", [1, 2], [1])
    assert len(event.changes) == 100
    line = line_of(event)
    assert line.startswith("in-sync sets changed, 100 partitions: wide-0 1,2 -> 1, wide-1 1,2 -> 1, ")
    assert line.endswith(" and 90 more")
