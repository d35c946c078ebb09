"""Replicas that are not in sync may be held to a rate; those that are in sync never are."""

import pytest
from broker_world import World, batch, part
from follower_by_hand import Follower, replicated_topic
from msgspec.structs import replace

from skidway.errors import ErrorCode
from skidway.replica.throttle import UNBOUNDED, Throttle

ORDERS = ("orders", 0)
BROKER = 4


def set_rate(world: World, side: str, rate: str, broker: str = "1") -> int:
    entry = part("IncrementalAlterConfigs", "AlterableConfig", f"{side}.replication.throttled.rate", 0, rate)
    asked = part("IncrementalAlterConfigs", "AlterConfigsResource", BROKER, broker, [entry])
    (result,) = world.peer().call("IncrementalAlterConfigs", resources=[asked]).responses
    return int(result.error_code)


@pytest.fixture
def world() -> World:
    """Broker 2 follows `orders`, fell out of sync, and has ten batches of a kilobyte to fetch."""
    world = World(session_timeout_ms=10**9, replica_lag_ms=1_000)
    world.second = Follower(world, 2)  # type: ignore[attr-defined]
    replicated_topic(world, "orders", [[1, 2]], flush="os", min_insync_replicas="1")
    for _ in range(10):
        world.peer().produce("orders", batch(b"x" * 1_000), acks=1)
    for _ in range(3):
        world.pass_time(2_000)
        world.settle()
    assert world.partition("orders").leader.in_sync == [1]
    return world


def sent_bytes(world: World, offset: int, **fields: int) -> int:
    second: Follower = world.second  # type: ignore[attr-defined]
    told = second.ask({ORDERS: offset}, **fields).get(ORDERS)
    return len(told.records) if told is not None else 0


def test_a_leader_sends_no_more_than_its_rate(world: World) -> None:
    assert world.peer().alter("orders", leader_replication_throttled_replicas="*") == 0
    assert set_rate(world, "leader", "1000") == 0
    assert sent_bytes(world, 0) > 10_000, "a debt may be made once"
    assert sent_bytes(world, 0) == 0
    world.pass_time(5_000)
    assert sent_bytes(world, 0) == 0
    world.pass_time(6_000)
    assert sent_bytes(world, 0) > 10_000


def test_only_the_replicas_that_are_named_are_held_back(world: World) -> None:
    assert world.peer().alter("orders", leader_replication_throttled_replicas="0:2,1:1") == 0
    assert set_rate(world, "leader", "10", broker="") == 0
    for _ in range(3):
        assert sent_bytes(world, 0) > 0
    assert world.peer().alter("orders", leader_replication_throttled_replicas="0:1") == 0
    sent_bytes(world, 0)
    assert sent_bytes(world, 0) == 0
    assert set_rate(world, "leader", str(UNBOUNDED), broker="") == 0
    assert sent_bytes(world, 0) > 0


def test_who_is_in_sync_is_never_held_back(world: World) -> None:
    assert world.peer().alter("orders", leader_replication_throttled_replicas="*") == 0
    assert set_rate(world, "leader", "0") == 0
    assert sent_bytes(world, 0) == 0
    sent_bytes(world, 10)
    world.pass_time(0)
    world.settle()
    assert world.partition("orders").leader.in_sync == [1, 2]
    world.peer().produce("orders", batch(b"x"), acks=1)
    assert sent_bytes(world, 10) > 0


def test_a_fetch_that_is_held_back_waits_until_there_is_room_again(world: World) -> None:
    second: Follower = world.second  # type: ignore[attr-defined]
    assert world.peer().alter("orders", leader_replication_throttled_replicas="*") == 0
    assert set_rate(world, "leader", "100000") == 0
    assert sent_bytes(world, 0) > 10_000
    world.node.rooms.hosting.topic_settings.leader_throttle.took(100_000, world.clock.now_ms)
    second.fetch({}, max_wait_ms=500)
    world.end_turn()
    assert second.peer.replies() == []
    world.pass_time(200)
    assert len(second.reply()[ORDERS].records) > 10_000


def test_a_follower_rests_when_it_took_too_much(world: World) -> None:
    replicated_topic(world, "theirs", [[2, 1]], follower_replication_throttled_replicas="0:1")
    assert set_rate(world, "follower", "1000") == 0
    partition, now_ms = world.partition("theirs"), world.clock.now_ms
    assert partition.rest_ms(5_000, now_ms) == 0, "it is in sync"
    partition.follow(replace(partition.role, in_sync=[2]), now_ms)
    assert partition.rest_ms(500, now_ms) == 0
    assert partition.rest_ms(1_000, now_ms) == 501
    assert partition.rest_ms(0, now_ms + 600) == 0


@pytest.mark.parametrize("rate", ["-1", "much"])
def test_rates_that_are_none(world: World, rate: str) -> None:
    assert set_rate(world, "leader", rate) == ErrorCode.INVALID_REQUEST


def test_what_was_not_used_is_kept_for_a_second_only() -> None:
    throttle = Throttle(1_000)
    assert throttle.wait_ms(100_000) == 0
    throttle.took(1_500, 100_000)
    assert throttle.wait_ms(100_000) == 501
    assert throttle.wait_ms(100_501) == 0
