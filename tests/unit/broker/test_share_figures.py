"""DescribeShareDelivery: what leaders tell of a share group's deliveries."""

from typing import Any

import pytest
from broker_world import World, part
from share_consumers import Member, acquired, initialise, made_world, produce

from skidway.errors import ErrorCode
from skidway.shares.figures import Figures, figures
from skidway.steps import Steps

ACCEPT, RELEASE = 1, 2
API = "DescribeShareDelivery"


@pytest.fixture
def world() -> World:
    world = made_world()
    initialise(world)
    return world


def ask(world: World, *indexes: int, topic_id: bytes | None = None) -> list[Any]:
    topic_id = topic_id or world.node.image.topics["t"].id
    response = world.peer().call(API, group_id="g", topics=[part(API, "DeliveryTopic", topic_id, list(indexes))])
    assert response.error_code == 0
    (topic,) = response.topics
    return list(topic.partitions)


def counts(entry: Any) -> dict[int, int]:
    return {each.count: each.records for each in entry.counts}


def finished(steps: Steps[Figures]) -> Figures:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            value: Figures = end.value
            return value


def test_what_is_locked_settling_and_waiting_is_counted(world: World) -> None:
    assert [(each.in_use, each.locked, each.counts) for each in ask(world, 0)] == [(False, 0, [])]
    produce(world, 10)
    ann, bob = Member(world, "ann"), Member(world, "bob")
    assert acquired(ann.fetch(0)) == [(0, 9, 1)]
    ann.acknowledge(0, [(0, 0, [ACCEPT]), (2, 5, [RELEASE]), (7, 7, [ACCEPT])])
    (entry,) = ask(world, 0)
    assert (entry.in_use, entry.start_offset, entry.end_offset) == (True, 1, 10)
    assert (entry.locked, entry.settling, entry.waiting, counts(entry)) == (4, 0, 4, {1: 8})
    assert acquired(bob.fetch(0, max_records=2, share_acquire_mode=1)) == [(2, 3, 2)]
    (entry,) = ask(world, 0)
    assert (entry.locked, entry.waiting, counts(entry)) == (6, 2, {1: 6, 2: 2})
    ann.acknowledge_later(0, [(8, 9, [ACCEPT])])
    (share,) = world.node.rooms.services.share_fetches.partitions.of_group("g")
    assert share.delivery is not None
    found = finished(figures(share.delivery))
    assert (found.locked, found.settling) == (4, 2), "on its way to the store"


def test_a_partition_that_is_not_here_is_refused_alone(world: World) -> None:
    first, second = ask(world, 0, 7)
    assert (first.error_code, second.error_code) == (0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    (foreign,) = ask(world, 0, topic_id=b"\x01" * 16)
    assert foreign.error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_a_request_about_too_many_is_refused(world: World) -> None:
    topic = part(API, "DeliveryTopic", world.node.image.topics["t"].id, [0] * 10_001)
    assert world.peer().call(API, group_id="g", topics=[topic]).error_code == ErrorCode.POLICY_VIOLATION
