"""Followers fetch: what counts, what they are told, and what becomes of the in-sync set."""

from typing import Any
from unittest.mock import patch

import msgspec.structs
import pytest
from broker_world import Peer, World, batch, code, part
from follower_by_hand import Follower, replicated_topic

from skidway.broker.events import InSyncChange, InSyncChanged
from skidway.broker.replication.follower_fetches import FollowerPoll, FollowerTarget
from skidway.errors import ErrorCode, UnknownLeaderEpoch

ORDERS = ("orders", 0)


@pytest.fixture
def world() -> World:
    """Broker 1 is real and leads `orders`; 2 and 3 follow as told."""
    world = World(session_timeout_ms=10**9, replica_lag_ms=10_000)
    world.followers = {2: Follower(world, 2), 3: Follower(world, 3)}  # type: ignore[attr-defined]
    replicated_topic(world, "orders", [[1, 2, 3]], flush="os", min_insync_replicas="2")
    return world


def followers(world: World) -> tuple[Follower, Follower]:
    return world.followers[2], world.followers[3]  # type: ignore[attr-defined]


def settle(world: World) -> None:
    """Timers that are due, and everything that follows."""
    for _ in range(3):
        world.node.on_time(world.clock.now_ms)
        world.settle()


def write(world: World, *contents: bytes, acks: int = 1) -> None:
    world.peer().produce("orders", batch(*contents), acks=acks)


def in_sync(world: World) -> list[int]:
    return list(world.partition("orders").leader.in_sync)


def test_acks_all_waits_for_the_followers(world: World) -> None:
    second, third = followers(world)
    producer = world.peer()
    producer.produce("orders", batch(b"a", b"b"))
    for follower in (second, third):
        told = follower.ask({ORDERS: 0})[ORDERS]
        assert len(told.records) > 0
        assert told.high_watermark == 0
    assert producer.replies() == []
    second.ask({ORDERS: 2})
    assert producer.replies() == []
    assert third.ask({ORDERS: 2})[ORDERS].high_watermark == 2
    assert code(producer.reply()) == 0
    assert world.partition("orders").log.high_watermark == 2


def test_a_fetch_that_waits_is_woken_by_what_is_written_not_by_what_is_committed(world: World) -> None:
    second, _ = followers(world)
    second.ask({ORDERS: 0})
    second.fetch({}, max_wait_ms=500)
    world.end_turn()
    assert second.peer.replies() == []
    write(world, b"a")
    assert second.peer.replies() == []
    world.end_turn()
    assert len(second.reply()[ORDERS].records) > 0


def test_nothing_new_is_said_at_the_deadline_and_again_only_what_is_new(world: World) -> None:
    second, third = followers(world)
    assert set(second.ask({ORDERS: 0})) == {ORDERS}
    second.fetch({}, max_wait_ms=500)
    world.pass_time(500)
    assert second.reply() == {}
    write(world, b"a")
    world.end_turn()
    third.ask({ORDERS: 0})
    third.ask({ORDERS: 1})
    # It has the record since, so that the watermark moved; the next fetch hears of it although nothing else happened.
    assert second.ask({ORDERS: 1})[ORDERS].high_watermark == 1
    assert second.ask({}) == {}


def test_records_that_were_sent_are_sent_again_until_the_position_moves(world: World) -> None:
    second, _ = followers(world)
    write(world, b"a")
    first = bytes(second.ask({ORDERS: 0})[ORDERS].records)
    assert bytes(second.ask({})[ORDERS].records) == first
    assert second.ask({ORDERS: 1}) == {}


def test_a_follower_that_lags_leaves_and_joins_again(world: World) -> None:
    second, third = followers(world)
    for follower in (second, third):
        follower.ask({ORDERS: 0})
    write(world, b"a")
    third.ask({ORDERS: 0})
    third.ask({ORDERS: 1})
    for _ in range(3):
        world.pass_time(6_000)
        third.ask({})
        settle(world)
    assert in_sync(world) == [1, 3]
    assert world.partition("orders").log.high_watermark == 1
    assert InSyncChanged([InSyncChange("orders-0", [1, 2, 3], [1, 3])]) in world.reported
    second.ask({ORDERS: 0})
    settle(world)
    assert in_sync(world) == [1, 3]
    second.ask({ORDERS: 1})
    settle(world)
    assert in_sync(world) == [1, 2, 3]
    assert InSyncChanged([InSyncChange("orders-0", [1, 3], [1, 2, 3])]) in world.reported


def test_an_idle_follower_that_asks_all_the_time_is_not_late_when_something_is_written(world: World) -> None:
    """Its fetches name nothing, for hours; they count all the same."""
    second, third = followers(world)
    for follower in (second, third):
        follower.ask({ORDERS: 0})
    for _ in range(20):
        world.pass_time(5_000)
        for follower in (second, third):
            follower.ask({})
    write(world, b"a")
    world.end_turn()
    world.node.rooms.in_sync.check(world.clock.now_ms)
    settle(world)
    assert in_sync(world) == [1, 2, 3]
    # And one that stopped asking is late at once.
    for _ in range(3):
        world.pass_time(5_000)
        third.ask({ORDERS: 1})
        settle(world)
    assert in_sync(world) == [1, 3]


def test_both_followers_join_although_one_proposal_is_under_way_at_a_time(world: World) -> None:
    second, third = followers(world)
    write(world, b"a")
    for _ in range(3):
        world.pass_time(6_000)
        settle(world)
    assert in_sync(world) == [1]
    for follower in (second, third):
        follower.ask({ORDERS: 0})
        follower.ask({ORDERS: 1})
    settle(world)
    for follower in (second, third):
        follower.ask({})
        settle(world)
    assert in_sync(world) == [1, 2, 3]


def test_a_follower_joins_whose_fetch_waited_while_another_was_taken_in(world: World) -> None:
    """Nothing is written and the watermark stays, so nothing else would remind of it."""
    second, third = followers(world)
    for follower in (second, third):
        follower.ask({ORDERS: 0})
        follower.heartbeat(want_fence=True)
    assert in_sync(world) == [1]
    for follower in (second, third):
        follower.heartbeat()
    second.ask({})
    third.fetch({}, max_wait_ms=500)
    settle(world)
    assert in_sync(world) == [1, 2]
    world.pass_time(500)
    third.reply()
    third.ask({})
    settle(world)
    assert in_sync(world) == [1, 2, 3]


def test_too_few_in_sync_refuse_acks_all_and_hold_the_watermark(world: World) -> None:
    write(world, b"a")
    for _ in range(3):
        world.pass_time(6_000)
        settle(world)
    assert in_sync(world) == [1]
    assert world.partition("orders").log.high_watermark == 0
    producer = world.peer()
    producer.produce("orders", batch(b"b"))
    assert code(producer.reply()) == ErrorCode.NOT_ENOUGH_REPLICAS


def test_a_broker_that_was_started_anew_is_not_mistaken_for_what_it_was(world: World) -> None:
    second, _ = followers(world)
    second.ask({ORDERS: 0})
    old_epoch = second.broker_epoch
    second.heartbeat(want_fence=True)
    second.register()
    assert in_sync(world) == [1, 3]
    second.session_id = second.session_epoch = 0
    late = second.ask({ORDERS: 0}, broker_epoch=old_epoch)[ORDERS]
    assert late.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    second.session_id = second.session_epoch = 0
    second.ask({ORDERS: 0}, broker_epoch=-1)
    settle(world)
    assert in_sync(world) == [1, 3], "nobody knows whether it is registered"
    second.ask({}, broker_epoch=second.broker_epoch)
    settle(world)
    assert in_sync(world) == [1, 2, 3]


def test_a_fenced_follower_joins_when_it_is_let_in_although_it_says_nothing_new(world: World) -> None:
    second, _ = followers(world)
    second.ask({ORDERS: 0})
    second.heartbeat(want_fence=True)
    assert in_sync(world) == [1, 3]
    second.ask({})
    settle(world)
    assert in_sync(world) == [1, 3]
    second.heartbeat()
    second.ask({})
    settle(world)
    assert in_sync(world) == [1, 2, 3]


def test_a_diverging_log_is_told_so_and_does_not_count(world: World) -> None:
    second, third = followers(world)
    partition = world.partition("orders")
    write(world, b"a")
    world.end_turn()
    epoch = partition.leader.epoch
    partition.log.begin_epoch(epoch + 2)  # as if an election had come between
    told = second.ask({ORDERS: 5}, last_epoch=epoch)[ORDERS]
    assert (told.diverging_epoch.epoch, told.diverging_epoch.end_offset) == (epoch, 1)
    third.ask({ORDERS: 0})
    third.ask({ORDERS: 1}, last_epoch=epoch)
    assert partition.log.high_watermark == 0, "a position in another log says nothing"
    second.ask({ORDERS: 1}, last_epoch=epoch)
    assert partition.log.high_watermark == 1


def test_a_follower_hears_of_the_watermark_after_its_log_was_cut(world: World) -> None:
    """Of an answer that tells it to cut nothing else counts; there may be nothing more to hear for days."""
    second, third = followers(world)
    partition = world.partition("orders")
    write(world, b"a")
    world.end_turn()
    epoch = partition.leader.epoch
    for follower in (second, third):
        follower.ask({ORDERS: 0})
        follower.ask({ORDERS: 1}, last_epoch=epoch)
    assert partition.log.high_watermark == 1
    second.session_id = second.session_epoch = 0
    assert second.ask({ORDERS: 5}, last_epoch=epoch)[ORDERS].diverging_epoch.end_offset == 1
    assert second.ask({ORDERS: 1}, last_epoch=epoch)[ORDERS].high_watermark == 1
    assert second.ask({}) == {}


def test_a_follower_hears_of_the_watermark_again_in_a_new_epoch(world: World) -> None:
    """What it was told in the old one may have come when it followed in the new one already."""
    second, _ = followers(world)
    partition = world.partition("orders")
    told = second.ask({ORDERS: 0})[ORDERS]
    assert told.high_watermark == 0
    role = partition.role
    partition.lead(msgspec.structs.replace(role, leader_epoch=role.leader_epoch + 1), world.clock.now_ms)
    assert second.ask({ORDERS: 0})[ORDERS].high_watermark == 0
    assert second.ask({}) == {}


@pytest.mark.parametrize(
    ("offset", "leader_epoch", "expected"),
    [
        (0, 7, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (9, None, ErrorCode.OFFSET_OUT_OF_RANGE),
    ],
)
def test_what_is_refused(world: World, offset: int, leader_epoch: int | None, expected: int) -> None:
    second, _ = followers(world)
    told = second.ask({ORDERS: offset}, leader_epoch=leader_epoch, max_wait_ms=500)[ORDERS]
    assert told.error_code == expected
    assert second.ask({ORDERS: 0})[ORDERS].error_code == 0


def test_a_reader_that_knows_a_later_epoch_is_not_told_that_its_offset_is_out_of_range(world: World) -> None:
    """A leader that was replaced and does not know it yet: "out of range" would make a consumer begin anew."""
    partition = world.partition("orders")
    with pytest.raises(UnknownLeaderEpoch):
        partition.divergence(partition.role.leader_epoch + 1, 316)
    assert partition.divergence(partition.role.leader_epoch, 316) is not None


def test_somebody_who_is_no_replica_is_refused(world: World) -> None:
    stranger = Follower(world, 4)
    assert stranger.ask({ORDERS: 0})[ORDERS].error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_a_session_begun_anew_takes_over_what_the_last_one_watched(world: World) -> None:
    second, _ = followers(world)
    second.ask({ORDERS: 0})
    polls = world.node.rooms.replica_polls
    second.session_id = second.session_epoch = 0  # its connection was lost
    second.ask({ORDERS: 0})
    targets = [target for session in polls.sessions.open.values() for target in session.targets.values()]
    assert len([target for target in targets if target.session.owner == 2]) == 1
    world.clock.now_ms += 200_000
    polls.expire(world.clock.now_ms)
    assert polls.sessions.open == {}
    assert not world.partition("orders").watched


def test_a_fetch_that_was_given_up_and_comes_late_does_not_starve_the_session_that_took_its_place(world: World) -> None:
    """A network that was cut delivers it behind the ones that were sent after it, on another connection."""
    second, _ = followers(world)
    second.ask({ORDERS: 0})
    second.fetch({}, max_wait_ms=500)
    late = second.again()
    late.fetch({ORDERS: 0}, max_wait_ms=500)
    late.peer.connection.closed()
    write(world, b"a")
    world.end_turn()
    assert second.reply() == {}, "a wait for nothing is over at once"
    second.fetch({}, max_wait_ms=500)
    world.end_turn()
    assert second.peer.reply().error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    second.session_epoch = 0
    assert len(second.ask({ORDERS: 0})[ORDERS].records) > 0
    assert [session.owner for session in world.node.rooms.replica_polls.sessions.open.values()] == [2]


def test_a_partition_can_be_left_out_for_a_while(world: World) -> None:
    second, _ = followers(world)
    second.ask({ORDERS: 0})
    write(world, b"a")
    assert second.ask({}, forget=[ORDERS]) == {}
    assert len(second.ask({ORDERS: 0})[ORDERS].records) > 0


def test_a_topic_that_is_deleted_ends_the_wait(world: World) -> None:
    second, _ = followers(world)
    second.ask({ORDERS: 0})
    second.fetch({}, max_wait_ms=500)
    world.end_turn()
    topic_id = world.node.image.topics["orders"].id
    world.peer().delete("orders")
    world.settle()
    response = second.peer.reply()
    (topic,) = response.responses
    assert bytes(topic.topic_id) == topic_id
    assert topic.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_a_fetch_looks_only_at_partitions_in_which_something_happened(world: World) -> None:
    """A thousand partitions in a session, and three of them busy."""
    second, _ = followers(world)
    replicated_topic(world, "wide", [[1, 2]] * 1000, flush="os")
    second.ask({("wide", index): 0 for index in range(1000)})
    second.ask({})
    looks: list[int] = []
    look_at = FollowerPoll.look_at

    def look(poll: FollowerPoll, target: FollowerTarget) -> Any:
        looks.append(target.index)
        return look_at(poll, target)

    with patch.object(FollowerPoll, "look_at", look):
        assert second.ask({}) == {}
        assert looks == []
        for index in (7, 70, 700):
            world.peer().produce("wide", batch(b"x"), acks=1, index=index)
        world.end_turn()
        assert len(second.ask({})) == 3
        assert looks == [7, 70, 700]
        second.ask({("wide", index): 1 for index in (7, 70, 700)})
        assert second.ask({}) == {}
        assert len(looks) <= 12


def delete_records(world: World, offset: int, timeout_ms: int = 1_000) -> Peer:
    peer = world.peer()
    asked = part("DeleteRecords", "DeleteRecordsPartition", 0, offset)
    topics = [part("DeleteRecords", "DeleteRecordsTopic", "orders", [asked])]
    peer.send("DeleteRecords", topics=topics, timeout_ms=timeout_ms)
    world.settle()
    return peer


def deleted(peer: Peer) -> tuple[int, int]:
    (result,) = peer.reply().topics[0].partitions
    return result.error_code, result.low_watermark


def test_deleted_records_are_gone_when_every_follower_has_said_so(world: World) -> None:
    second, third = followers(world)
    write(world, b"a")
    for follower in (second, third):
        follower.ask({ORDERS: 0})
        follower.ask({ORDERS: 1})
    second.fetch({}, max_wait_ms=500)
    peer = delete_records(world, 1)
    assert peer.replies() == []
    assert second.reply()[ORDERS].log_start_offset == 1, "who waits is told at once"
    second.ask({ORDERS: 1}, start_offset=1)
    assert peer.replies() == []
    third.ask({ORDERS: 1}, start_offset=1)
    assert deleted(peer) == (0, 1)


def test_a_follower_that_is_fenced_does_not_hold_up_a_deletion(world: World) -> None:
    second, third = followers(world)
    write(world, b"a")
    for follower in (second, third):
        follower.ask({ORDERS: 0})
        follower.ask({ORDERS: 1})
    peer = delete_records(world, -1)
    second.ask({ORDERS: 1}, start_offset=1)
    third.heartbeat(want_fence=True)
    assert deleted(peer) == (0, 1)
    late = delete_records(world, 0)
    assert deleted(late) == (0, 1)


def test_a_deletion_that_takes_too_long_is_told_so(world: World) -> None:
    second, third = followers(world)
    write(world, b"a")
    for follower in (second, third):
        follower.ask({ORDERS: 0})
        follower.ask({ORDERS: 1})
    peer = delete_records(world, 1)
    world.pass_time(1_000)
    assert deleted(peer) == (ErrorCode.REQUEST_TIMED_OUT, -1)
    assert world.partition("orders").log.start_offset == 1


# --- what a follower asks for twice ---


@pytest.mark.parametrize("position", [3, 8, 16, 17, 61, 100], ids=["offset", "length", "magic", "crc", "first", "last"])
def test_what_a_follower_asks_for_again_is_looked_at_and_not_sent_if_it_is_damaged(world: World, position: int) -> None:
    second, third = followers(world)
    write(world, b"x" * 40)
    write(world, b"second")
    for follower in (second, third):
        follower.ask({ORDERS: 2})
    settle(world)
    (segment,) = world.partition("orders").log.segments
    world.disk.corrupt(segment.path(".log"), position)
    third.ask({ORDERS: 0})
    told = third.ask({ORDERS: 0})[ORDERS]
    assert ErrorCode(told.error_code) == ErrorCode.KAFKA_STORAGE_ERROR
    for _ in range(3):  # 3 leaves the in-sync set meanwhile, as it went back
        settle(world)
        world.clock.now_ms += 200
    described = world.node.image.topics["orders"].partitions[0]
    assert (described.leader, described.isr, described.eligible_leader_replicas) == (2, [2], [])


def test_a_sound_batch_is_sent_as_often_as_it_is_asked_for(world: World) -> None:
    second, _ = followers(world)
    write(world, b"a")
    write(world, b"b")
    first, again = (second.ask({ORDERS: 0})[ORDERS] for _ in range(2))
    assert bytes(first.records) == bytes(again.records)
    assert not again.error_code
    settle(world)
    assert world.node.image.topics["orders"].partitions[0].leader == 1
