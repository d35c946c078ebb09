"""ShareFetch and ShareAcknowledge on a real node, from frames to what is stored, with its own share coordinator."""

from typing import Any

import pytest
from broker_world import World, part
from share_consumers import Member, acquired, count_of_records, initialise, made_world, only, produce

from skidway.broker.shares import reading, share_partition
from skidway.errors import ErrorCode

ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4
LOCK_MS = 30_000
LOCKS_MAX = 2_000
FOREIGN = b"\x01" * 16


@pytest.fixture
def world() -> World:
    world = made_world(2)
    initialise(world)
    return world


def state_of(world: World, group_id: str = "g") -> Any:
    place = (world.node.image.topics["t"].id, 0)
    return world.node.rooms.services.share_fetches.partitions.find(group_id, place)


def test_records_are_leased_to_one_member_and_accepted(world: World) -> None:
    produce(world, 3, 2)
    ann, bob = Member(world, "ann"), Member(world, "bob")
    first = ann.fetch(0)
    assert acquired(first) == [(0, 4, 1)]
    assert (count_of_records(first), first.acquisition_lock_timeout_ms) == (5, LOCK_MS)
    assert acquired(bob.fetch(0)) == []
    assert only(ann.acknowledge(0, [(0, 4, [ACCEPT])])).error_code == 0
    assert state_of(world).delivery.durable.start_offset == 5


def test_what_is_released_goes_to_another_member_and_only_that_much_is_sent(world: World) -> None:
    produce(world, 3, 3)
    ann, bob = Member(world, "ann"), Member(world, "bob")
    ann.fetch(0)
    assert only(ann.acknowledge(0, [(0, 3, [ACCEPT]), (4, 4, [RELEASE]), (5, 5, [REJECT])])).error_code == 0
    again = bob.fetch(0)
    assert acquired(again) == [(4, 4, 2)]
    assert count_of_records(again) == 3, "the batch of it, and no other"


def test_an_answered_acknowledgement_survives_a_restart_and_nothing_else_is_lost(world: World) -> None:
    produce(world, 4)
    ann = Member(world)
    ann.fetch(0)
    assert only(ann.acknowledge(0, [(0, 1, [ACCEPT])])).error_code == 0
    world.node.close(clean=False)
    restarted = World(world.disk, clock=world.clock)
    restarted.settle()
    bob = Member(restarted, "bob")
    bob.fetch_later(0, max_wait_ms=5_000)
    for _ in range(20):
        restarted.settle()
        restarted.pass_time(100)
    response = bob.peer.reply()
    assert acquired(response) == [(2, 3, 2)], "the count of the first delivery rode along"


def test_an_acknowledgement_is_answered_when_it_is_stored_and_not_before(world: World) -> None:
    produce(world, 1)
    ann = Member(world)
    ann.fetch(0)
    ann.acknowledge_later(0, [(0, 0, [ACCEPT])])
    world.end_turn()
    assert ann.peer.replies() == []
    world.settle()
    assert only(ann.peer.reply()).error_code == 0


def test_a_fetch_waits_for_records(world: World) -> None:
    ann = Member(world)
    ann.fetch_later(0, max_wait_ms=1_000)
    world.settle()
    assert ann.peer.replies() == []
    produce(world, 2)
    world.settle()
    assert acquired(ann.peer.reply()) == [(0, 1, 1)]


def test_a_fetch_waits_no_longer_than_it_says_and_is_told_of_its_partitions_once(world: World) -> None:
    ann = Member(world)
    ann.fetch_later(0, max_wait_ms=1_000)
    world.settle()
    world.pass_time(999)
    assert ann.peer.replies() == []
    world.pass_time(1)
    assert only(ann.peer.reply()).error_code == 0
    assert ann.fetch(0).responses == [], "nothing new"


def test_a_waiting_fetch_gets_what_is_released_and_what_nobody_acknowledged(world: World) -> None:
    produce(world, 2)
    ann, bob = Member(world, "ann"), Member(world, "bob")
    ann.fetch(0)
    bob.fetch_later(0, max_wait_ms=60_000)
    world.settle()
    ann.acknowledge(0, [(0, 0, [RELEASE])])
    world.settle()
    assert acquired(bob.peer.reply()) == [(0, 0, 2)]
    bob.fetch_later(0, max_wait_ms=60_000)
    world.pass_time(LOCK_MS)
    world.settle()
    assert acquired(bob.peer.reply())[-1] == (1, 1, 2)


def test_leases_end_with_the_connection(world: World) -> None:
    produce(world, 2)
    ann, bob = Member(world, "ann"), Member(world, "bob")
    ann.fetch(0)
    bob.fetch_later(0, max_wait_ms=60_000)
    world.settle()
    ann.peer.connection.closed()
    world.settle()
    assert acquired(bob.peer.reply()) == [(0, 1, 2)]


def test_a_session_begun_anew_by_another_connection_goes_on(world: World) -> None:
    produce(world, 2)
    old, new = Member(world, "ann"), Member(world, "ann")
    old.fetch(0)
    new.fetch(0)
    old.peer.connection.closed()
    world.settle()
    assert only(new.acknowledge(0, [(0, 1, [ACCEPT])])).error_code == 0


def test_the_last_request_of_a_session_acknowledges_and_releases(world: World) -> None:
    produce(world, 3)
    ann, bob = Member(world, "ann"), Member(world, "bob")
    bob.fetch(1)
    ann.fetch(0)
    assert only(ann.acknowledge(0, [(0, 0, [ACCEPT])], epoch=-1)).error_code == 0
    assert acquired(bob.fetch(0)) == [(1, 2, 2)]
    assert ann.fetch(0, epoch=1).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND


def test_a_group_is_forgotten_with_its_last_session_and_delivered_from_where_it_was(world: World) -> None:
    produce(world, 3)
    ann = Member(world)
    ann.fetch(0)
    ann.acknowledge(0, [(0, 0, [ACCEPT])], epoch=-1)
    world.settle()
    assert state_of(world) is None
    assert world.node.rooms.services.share_fetches.partitions.count == 0
    bob = Member(world, "bob")
    bob.fetch_later(0, max_wait_ms=1_000)
    world.settle()
    assert acquired(bob.peer.reply()) == [(1, 2, 2)]


def test_acknowledgements_ride_on_a_fetch(world: World) -> None:
    produce(world, 2, 2)
    ann = Member(world)
    ann.fetch(0, max_records=1)
    response = ann.fetch(0, acks=[(0, 1, [ACCEPT])])
    assert (only(response).acknowledge_error_code, acquired(response)) == (0, [(2, 3, 1)])
    refused = ann.fetch(0, acks=[(0, 3, [ACCEPT])], max_wait_ms=0)
    assert only(refused).acknowledge_error_code == 0, "below the start there is nothing to do, the rest is held"


def test_a_strict_fetch_gets_no_more_than_it_asks_for(world: World) -> None:
    produce(world, 5)
    assert acquired(Member(world).fetch(0, max_records=2, share_acquire_mode=1)) == [(0, 1, 1)]
    assert acquired(Member(world, "bob").fetch(0, max_records=2)) == [(2, 4, 1)]


def test_a_lock_is_renewed(world: World) -> None:
    produce(world, 1)
    ann, bob = Member(world, "ann"), Member(world, "bob")
    ann.fetch(0)
    world.pass_time(LOCK_MS - 1)
    assert only(ann.acknowledge(0, [(0, 0, [RENEW])], is_renew_ack=True)).error_code == 0
    world.pass_time(LOCK_MS - 1)
    assert acquired(bob.fetch(0, max_wait_ms=0)) == []
    world.pass_time(1)
    assert acquired(bob.fetch(0)) == [(0, 0, 2)]


def test_a_partition_without_acknowledgements_is_not_named(world: World) -> None:
    ann = Member(world)
    ann.fetch(0)
    response = ann.acknowledge(0, [])
    assert (response.error_code, response.responses) == (0, [])


def test_strangers_settle_nothing(world: World) -> None:
    produce(world, 2)
    ann, bob = Member(world, "ann"), Member(world, "bob")
    bob.fetch(1)
    ann.fetch(0)
    assert only(bob.acknowledge(0, [(0, 0, [ACCEPT])])).error_code == ErrorCode.INVALID_RECORD_STATE
    assert only(ann.acknowledge(0, [(0, 1, [ACCEPT])])).error_code == 0


def test_a_start_that_nobody_has_resolved_is_resolved_once_and_stored(world: World) -> None:
    produce(world, 3, index=1)
    initialise(world, index=1, start=-1)
    ann = Member(world)
    ann.fetch_later(1, max_wait_ms=1_000)
    world.settle()
    produce(world, 2, index=1)
    world.settle()
    assert acquired(ann.peer.reply()) == [(3, 4, 1)], "the latest when it was resolved"
    place = (world.node.image.topics["t"].id, 1)
    share = world.node.rooms.services.share_fetches.partitions.find("g", place)
    assert share is not None
    assert share.delivery is not None
    assert share.delivery.durable.start_offset == 3


def test_a_waiting_fetch_gets_what_there_is_room_for_when_records_are_deleted(world: World) -> None:
    produce(world, LOCKS_MAX, 3)
    ann, bob = Member(world, "ann"), Member(world, "bob")
    assert acquired(ann.fetch(0, max_records=LOCKS_MAX)) == [(0, LOCKS_MAX - 1, 1)]
    bob.fetch_later(0, max_wait_ms=LOCK_MS // 2)
    world.settle()
    assert bob.peer.replies() == [], "as much is locked as may be"
    delete(world, LOCKS_MAX)
    assert acquired(bob.peer.reply()) == [(LOCKS_MAX, LOCKS_MAX + 2, 1)]
    assert state_of(world).delivery.durable.start_offset == LOCKS_MAX


def test_a_start_follows_the_logs_though_nobody_fetches(world: World) -> None:
    produce(world, 2, 3)
    ann = Member(world)
    ann.fetch(0, max_records=1)
    delete(world, 1)
    assert state_of(world).delivery.durable.start_offset == 1, "by an administrator"
    assert world.peer().alter("t", retention_bytes="0") == 0
    world.clock.now_ms += world.node.settings.retention_check_ms
    world.node.maintain(world.clock.now_ms, world.clock.wall_ms())
    world.settle()
    assert world.partition("t").log.start_offset == 5
    assert state_of(world).delivery.durable.start_offset == 5, "by retention"


def delete(world: World, offset: int) -> None:
    topic = part(
        "DeleteRecords", "DeleteRecordsTopic", "t", [part("DeleteRecords", "DeleteRecordsPartition", 0, offset)]
    )
    peer = world.peer()
    peer.send("DeleteRecords", topics=[topic], timeout_ms=1_000)
    world.settle()
    assert peer.reply().topics[0].partitions[0].error_code == 0


def test_a_deleted_topic_ends_the_wait(world: World) -> None:
    ann = Member(world)
    ann.fetch_later(0, max_wait_ms=60_000)
    world.settle()
    world.peer().delete("t")
    world.settle()
    assert only(ann.peer.reply()).error_code in (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert world.node.rooms.services.share_fetches.partitions.count == 0


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"group_id": None}, ErrorCode.INVALID_REQUEST),
        ({"group_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"member_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"member_id": "m" * 37}, ErrorCode.INVALID_REQUEST),
        ({"acks": [(0, 0, [1])]}, ErrorCode.INVALID_REQUEST),
        ({"is_renew_ack": True}, ErrorCode.INVALID_REQUEST),
        ({"share_acquire_mode": 2}, ErrorCode.INVALID_REQUEST),
        ({"epoch": 1}, ErrorCode.SHARE_SESSION_NOT_FOUND),
        ({"epoch": -1}, ErrorCode.SHARE_SESSION_NOT_FOUND),
    ],
)
def test_a_request_without_sense_is_refused_as_a_whole(world: World, fields: dict[str, Any], error: ErrorCode) -> None:
    assert Member(world).fetch(0, **fields).error_code == error


@pytest.mark.parametrize(
    "acks",
    [
        [(1, 0, [1])],
        [(0, 1, [1]), (1, 1, [1])],
        [(1, 1, [1]), (0, 0, [1])],
        [(0, 0, [5])],
        [(0, 0, [-1])],
        [(0, 0, [RENEW])],
        [(0, 1, [1, 1, 1])],
        [(0, 1, [])],
        [(0, 9, [1])],
        [(0, 2**63 - 1, [1])],
    ],
)
def test_acknowledgements_without_sense_change_nothing(world: World, acks: Any) -> None:
    produce(world, 2)
    ann = Member(world)
    ann.fetch(0)
    assert only(ann.acknowledge(0, acks)).error_code == ErrorCode.INVALID_REQUEST
    assert only(ann.acknowledge(0, [(0, 1, [ACCEPT])])).error_code == 0


def test_sessions_go_on_with_the_next_epoch_only(world: World) -> None:
    ann = Member(world)
    ann.fetch(0)
    assert ann.fetch(0, epoch=2).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert ann.acknowledge(0, [], epoch=0).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert ann.fetch(0, epoch=1).error_code == 0


def test_one_session_too_many_is_refused_when_its_wait_is_over(world: World) -> None:
    world.node.rooms.services.share_fetches.sessions_max = 1
    Member(world, "ann").fetch(0)
    bob = Member(world, "bob")
    bob.fetch_later(0, max_wait_ms=500)
    world.settle()
    assert bob.peer.replies() == []
    world.pass_time(500)
    assert bob.peer.reply().error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED


def test_partitions_that_are_not_here_are_named_with_their_error(world: World) -> None:
    ann = Member(world)
    assert only(ann.fetch(9)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    response = ann.fetch(0, topic_id=FOREIGN)
    codes = [data.error_code for each in response.responses for data in each.partitions]
    assert sorted(codes) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID]


def test_a_state_that_was_begun_again_is_loaded_again(world: World) -> None:
    produce(world, 4)
    ann = Member(world)
    ann.fetch(0)
    initialise(world, start=2, epoch=2)
    assert only(ann.acknowledge(0, [(0, 0, [ACCEPT])])).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    ann.fetch_later(0, max_wait_ms=1_000)
    world.settle()
    assert acquired(ann.peer.reply()) == [(2, 3, 1)]


def test_all_acknowledgements_of_a_turn_are_one_write(world: World) -> None:
    produce(world, 6)
    ann = Member(world)
    ann.fetch(0)
    loaded = world.node.rooms.services.share_fetches.states.shares.loaded
    before = sum(partition.log.end_offset for partition in loaded)
    for offset in (0, 1, 2, 4, 5):
        ann.acknowledge_later(0, [(offset, offset, [ACCEPT])])
    world.settle()
    assert [only(response).error_code for _, response in ann.peer.replies()] == [0] * 5
    assert sum(partition.log.end_offset for partition in loaded) == before + 1
    assert state_of(world).delivery.durable.start_offset == 3


def test_a_fetch_looks_at_no_more_batches_than_it_takes(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    produce(world, *[2] * 10)
    seen: list[int] = []

    def look(*arguments: Any) -> Any:
        found = reading.look(*arguments)
        seen.append(0 if found is None else len(found.spans))
        return found

    monkeypatch.setattr(share_partition, "look", look)
    assert acquired(Member(world).fetch(0, max_records=4)) == [(0, 3, 1)]
    assert max(seen) == 2


def test_settings_of_a_group_that_change_are_obeyed_at_once(world: World) -> None:
    produce(world, 4)
    rules = world.node.rooms.services.share_fetches.rules
    before = rules("g").delivery
    for lock_ms in (20_000, 25_000):
        resource = part("IncrementalAlterConfigs", "AlterConfigsResource", 32, "g", [])
        name = "share.record.lock.duration.ms"
        resource.configs = [part("IncrementalAlterConfigs", "AlterableConfig", name, 0, str(lock_ms))]
        peer = world.peer()
        peer.send("IncrementalAlterConfigs", version=1, resources=[resource], validate_only=False)
        world.settle()
        assert peer.reply().responses[0].error_code == 0
        assert rules("g").delivery.lock_ms == lock_ms
        assert rules("g") is rules("g")
    assert rules("other").delivery == before


def test_a_range_for_each_record_is_stored_as_one(world: World) -> None:
    produce(world, 5)
    ann = Member(world)
    ann.fetch(0)
    said = [(1, 1, [ACCEPT]), (2, 2, [ACCEPT]), (3, 3, [REJECT]), (4, 4, [ACCEPT])]
    assert only(ann.acknowledge(0, said)).error_code == 0
    batches = state_of(world).delivery.durable.batches()
    assert [(each.first, each.end, each.state) for each in batches if each.state] == [(1, 3, 2), (3, 4, 4), (4, 5, 2)]
    assert only(ann.acknowledge(0, [(0, 0, [ACCEPT]), (0, 0, [ACCEPT])])).error_code == ErrorCode.INVALID_REQUEST
