"""Too few replicas of the partition that groups are kept in are in sync: nothing can be committed, and nobody waits."""

from typing import Any

import pytest
from broker_world import World, part
from follower_by_hand import Follower, replicated_topic

from skidway.errors import ErrorCode

GROUP = "billing"
OFFSETS = ("__consumer_offsets", 0)
SESSION_MS = 45_000


@pytest.fixture
def world() -> World:
    """Broker 1 is real and coordinates the group; 2 follows as told, and is needed."""
    world = World(session_timeout_ms=10**9)
    world.second = Follower(world, 2)  # type: ignore[attr-defined]
    world.peer().create("orders", flush="os")
    replicated_topic(world, "__consumer_offsets", [[1, 2]], flush="os", min_insync_replicas="2")
    follow(world)
    return world


def follow(world: World) -> None:
    """The follower is there, and catches up."""
    world.second.heartbeat()  # type: ignore[attr-defined]
    for _ in range(3):
        world.second.ask({OFFSETS: world.partition(*OFFSETS).log.end_offset})  # type: ignore[attr-defined]
        settle(world)


def settle(world: World) -> None:
    for _ in range(3):
        world.node.on_time(world.clock.now_ms)
        world.settle()


def lose_the_follower(world: World) -> None:
    world.second.heartbeat(want_fence=True)  # type: ignore[attr-defined]
    settle(world)
    assert list(world.partition(*OFFSETS).leader.in_sync) == [1]


def send_commit(world: World, offset: int) -> Any:
    entry = part("OffsetCommit", "OffsetCommitRequestPartition", partition_index=0, committed_offset=offset)
    topics = [part("OffsetCommit", "OffsetCommitRequestTopic", name="orders", partitions=[entry])]
    peer = world.peer()
    peer.send("OffsetCommit", version=8, group_id=GROUP, generation_id_or_member_epoch=-1, topics=topics)
    settle(world)
    return peer


def code(peer: Any) -> int:
    return int(peer.reply().topics[0].partitions[0].error_code)


def committed(world: World) -> tuple[int, int]:
    topics = [part("OffsetFetch", "OffsetFetchRequestTopic", name="orders", partition_indexes=[0])]
    reply = world.peer().call("OffsetFetch", version=7, group_id=GROUP, topics=topics)
    return int(reply.error_code), int(reply.topics[0].partitions[0].committed_offset)


def heartbeat(world: World, **fields: Any) -> Any:
    return world.peer().call("ConsumerGroupHeartbeat", version=1, group_id=GROUP, member_id="m", **fields)


def test_commits_are_refused_at_once_and_leave_nothing_behind(world: World) -> None:
    first = send_commit(world, 1)
    follow(world)
    assert code(first) == 0
    lose_the_follower(world)
    log = world.partition(*OFFSETS).log
    for offset in range(2, 12):
        assert code(send_commit(world, offset)) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert log.end_offset == log.high_watermark == 1
    assert committed(world) == (0, 1), "what was committed before can be read"
    follow(world)
    last = send_commit(world, 12)
    follow(world)
    assert code(last) == 0
    assert committed(world) == (0, 12)


def test_nobody_waits_behind_what_was_written_just_before(world: World) -> None:
    waiting = send_commit(world, 1)
    lose_the_follower(world)
    assert waiting.replies() == []
    assert code(send_commit(world, 2)) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert committed(world) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)
    assert world.peer().call("ListGroups", version=4).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    follow(world)
    assert code(waiting) == 0
    assert committed(world) == (0, 1)


def test_a_member_that_went_is_given_up_when_that_can_be_written(world: World) -> None:
    peer = world.peer()
    peer.send(
        "ConsumerGroupHeartbeat",
        version=1,
        group_id=GROUP,
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=1_000,
        subscribed_topic_names=["orders"],
        topic_partitions=[],
    )
    settle(world)
    follow(world)
    epoch = peer.reply().member_epoch
    assert epoch > 0
    lose_the_follower(world)
    world.pass_time(SESSION_MS)
    settle(world)
    assert world.node.deadline_ms is not None
    assert world.node.deadline_ms > world.clock.now_ms, "what is due and cannot be done is not tried all the time"
    assert heartbeat(world, member_epoch=epoch).error_code == 0, "it is still here, as it turns out"
    world.pass_time(SESSION_MS)
    follow(world)
    world.pass_time(1_000)
    follow(world)
    assert heartbeat(world, member_epoch=epoch).error_code == ErrorCode.UNKNOWN_MEMBER_ID
