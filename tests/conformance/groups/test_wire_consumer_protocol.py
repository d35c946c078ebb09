"""ConsumerGroupHeartbeat and ConsumerGroupDescribe (KIP-848) on the wire: epochs, reconciliation, each refusal."""

import uuid
from typing import Any

import pytest
from group_calls import (
    FENCED_INSTANCE_ID,
    FENCED_MEMBER_EPOCH,
    GROUP_ID_NOT_FOUND,
    INCONSISTENT_GROUP_PROTOCOL,
    INVALID_REGULAR_EXPRESSION,
    INVALID_REQUEST,
    NON_EMPTY_GROUP,
    NONE,
    REBALANCE_IN_PROGRESS,
    STALE_MEMBER_EPOCH,
    STATIC_LEAVE_EPOCH,
    UNKNOWN_MEMBER_ID,
    UNRELEASED_INSTANCE_ID,
    UNSUPPORTED_ASSIGNOR,
    ClassicMember,
    ConsumerMember,
    assignment,
    broker_config,
    commit,
    committed,
    delete_group,
    describe,
    describe_consumer,
    join_body,
    listed,
    subscription,
)
from raw import Body, Connection, MakeTopic
from wire_calls import topic_id

from waiting import eventually

pytestmark = pytest.mark.newer_protocol


@pytest.fixture
def topic12(make_topic: MakeTopic) -> str:
    return make_topic(partitions=12)


@pytest.fixture
def id12(wire: Connection, topic12: str) -> bytes:
    return topic_id(wire, topic12)


def settle(*members: ConsumerMember) -> list[int]:
    """Everyone beats until the coordinator calls the group stable; how many partitions each has.

    Kafka 4.3 computes an assignment at most once a second, so a share may be late, and heartbeats quiet meanwhile."""
    first = members[0]

    def stable() -> bool:
        for one in members:
            one.reconcile()
        state: str = describe_consumer(first.wire, first.group)["group_state"]
        return state == "Stable"

    eventually(stable)
    for one in members:
        one.reconcile()
    everything = [(id_, p) for one in members for id_, parts in one.owned.items() for p in parts]
    assert len(everything) == len(set(everything)), "nobody shares a partition"
    return [sum(map(len, one.owned.values())) for one in members]


def test_the_first_member_gets_everything(wire: Connection, group: str, topic12: str, id12: bytes) -> None:
    one = ConsumerMember(wire, group, [topic12])
    answer = one.join()
    assert (answer["error_code"], answer["error_message"], answer["member_id"]) == (NONE, None, one.id)
    assert answer["member_epoch"] >= 1
    assert answer["heartbeat_interval_ms"] > 0
    one.reconcile()
    assert one.owned == {id12: set(range(12))}


def test_version_0_members_may_be_given_an_id(wire: Connection, group: str, topic12: str) -> None:
    one = ConsumerMember(wire, group, [topic12], version=0)
    one.id = ""
    answer = one.join()
    assert answer["error_code"] == NONE
    assert answer["member_id"]
    assert settle(one) == [12]


def test_version_1_members_bring_their_id(wire: Connection, group: str, topic12: str) -> None:
    one = ConsumerMember(wire, group, [topic12])
    one.id = ""
    assert one.join()["error_code"] == INVALID_REQUEST


def test_an_unchanged_heartbeat_brings_no_assignment(wire: Connection, group: str, topic12: str) -> None:
    one = ConsumerMember(wire, group, [topic12])
    one.join()
    one.reconcile()
    answer = one.beat()
    assert (answer["error_code"], answer["assignment"], answer["member_epoch"]) == (NONE, None, one.epoch)
    full = {"rebalance_timeout_ms": 10_000, "subscribed_topic_names": [topic12]}
    held = [{"topic_id": id_, "partitions": sorted(parts)} for id_, parts in one.owned.items()]
    answer = one.beat(**full, topic_partitions=held)
    assert answer["assignment"] is not None, "a full one is answered in full"


def test_partitions_move_only_after_they_were_given_up(wire: Connection, group: str, topic12: str, id12: bytes) -> None:
    one, two = ConsumerMember(wire, group, [topic12]), ConsumerMember(wire, group, [topic12])
    one.join()
    settle(one)
    epoch = one.epoch
    two.join()
    assert two.owned == {}, "all is still the first one's"

    def told_to_give_up() -> bool:
        answer = one.beat()
        return answer["assignment"] is not None

    eventually(told_to_give_up)
    assert one.epoch == epoch, "not before it gave them up"
    one.take_over(one.answer)
    assert len(one.owned[id12]) == 6
    two.take_over(two.beat())
    assert two.owned == {}
    one.beat(topic_partitions=[{"topic_id": id12, "partitions": sorted(one.owned[id12])}])
    assert one.epoch == two.epoch > epoch
    assert settle(one, two) == [6, 6]


def test_four_members_of_twelve_partitions(wire: Connection, group: str, topic12: str) -> None:
    members = [ConsumerMember(wire, group, [topic12]) for _ in range(4)]
    for one in members:
        one.join()
    assert settle(*members) == [3, 3, 3, 3]


def test_a_thirteenth_member_idles(wire: Connection, group: str, topic12: str) -> None:
    members = [ConsumerMember(wire, group, [topic12]) for _ in range(13)]
    for one in members:
        one.join()
    assert sorted(settle(*members)) == [0] + [1] * 12


def test_each_leaving_member_leaves_its_partitions(wire: Connection, group: str, topic12: str) -> None:
    one, two = ConsumerMember(wire, group, [topic12]), ConsumerMember(wire, group, [topic12])
    one.join()
    two.join()
    settle(one, two)
    answer = two.leave()
    assert (answer["error_code"], answer["member_epoch"], answer["member_id"]) == (NONE, -1, two.id)
    eventually(lambda: settle(one) == [12])
    assert two.beat()["error_code"] == UNKNOWN_MEMBER_ID
    one.leave()
    assert describe_consumer(wire, group)["group_state"] == "Empty"


@pytest.mark.parametrize(
    ("name", "expected"),
    [("uniform", NONE), ("range", NONE), ("", UNSUPPORTED_ASSIGNOR), ("none", UNSUPPORTED_ASSIGNOR)],
)
def test_assignors(wire: Connection, group: str, topic12: str, name: str, expected: int) -> None:
    one = ConsumerMember(wire, group, [topic12], server_assignor=name)
    assert one.join()["error_code"] == expected
    if expected == NONE:
        one.reconcile()
        assert describe_consumer(wire, group)["assignor_name"] == name


def test_range_gives_neighbours(wire: Connection, group: str, topic12: str, id12: bytes) -> None:
    members = [ConsumerMember(wire, group, [topic12], server_assignor="range") for _ in range(3)]
    for one in members:
        one.join()
    settle(*members)
    shares = sorted(sorted(one.owned[id12]) for one in members)
    assert shares == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]


def test_range_keeps_partitions_of_the_same_number_together(
    wire: Connection, group: str, make_topic: MakeTopic
) -> None:
    topics = [make_topic(partitions=4), make_topic(partitions=4)]
    members = [ConsumerMember(wire, group, topics, server_assignor="range") for _ in range(2)]
    for one in members:
        one.join()
    settle(*members)
    for one in members:
        first, second = one.owned.values()
        assert first == second


def test_members_with_different_subscriptions(wire: Connection, group: str, make_topic: MakeTopic) -> None:
    a, b = make_topic(partitions=4), make_topic(partitions=4)
    one, two = ConsumerMember(wire, group, [a]), ConsumerMember(wire, group, [a, b])
    one.join()
    two.join()
    settle(one, two)
    assert set(one.owned) == {topic_id(wire, a)}
    assert two.owned[topic_id(wire, b)] == {0, 1, 2, 3}


def test_a_changed_subscription(wire: Connection, group: str, make_topic: MakeTopic) -> None:
    a, b = make_topic(partitions=2), make_topic(partitions=3)
    one = ConsumerMember(wire, group, [a])
    one.join()
    settle(one)
    epoch = one.epoch
    one.take_over(one.beat(subscribed_topic_names=[b]))
    eventually(lambda: settle(one) == [3])
    assert one.epoch > epoch
    assert set(one.owned) == {topic_id(wire, b)}


def test_a_topic_that_comes_later(wire: Connection, group: str, name: str, make_topic: MakeTopic) -> None:
    one = ConsumerMember(wire, group, [name])
    answer = one.join()
    assert (answer["error_code"], one.owned) == (NONE, {})
    make_topic(partitions=2, name=name)
    eventually(lambda: settle(one) == [2])


def test_partitions_that_come_later(wire: Connection, group: str, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=2)
    one = ConsumerMember(wire, group, [topic])
    one.join()
    assert settle(one) == [2]
    wire.call("CreatePartitions", 3, {"topics": [{"name": topic, "count": 5, "assignments": None}], "timeout_ms": 8000})
    eventually(lambda: settle(one) == [5])


# ------------------------------------------------------------------------------------------------------- fencing


def test_epochs_that_do_not_fit(wire: Connection, group: str, topic12: str) -> None:
    one = ConsumerMember(wire, group, [topic12])
    one.join()
    settle(one)
    held = [{"topic_id": id_, "partitions": sorted(parts)} for id_, parts in one.owned.items()]
    body = {"group_id": group, "member_id": one.id, "topic_partitions": held}

    def code(epoch: int, **more: object) -> int:
        answer = wire.call("ConsumerGroupHeartbeat", 1, {**body, "member_epoch": epoch, **more})
        refused: int = answer["error_code"]
        return refused

    assert code(one.epoch + 1) == FENCED_MEMBER_EPOCH, "of the future"
    assert code(one.epoch) == NONE
    assert code(one.epoch, member_id="made-up") == UNKNOWN_MEMBER_ID
    assert code(5, group_id=group + "-nowhere") == GROUP_ID_NOT_FOUND


def test_the_previous_epoch_is_taken_if_its_partitions_are_still_owned(
    wire: Connection, group: str, topic12: str, id12: bytes
) -> None:
    """The answer that told the new epoch may have been lost."""
    one = ConsumerMember(wire, group, [topic12])
    one.join()
    settle(one)
    old = one.epoch
    two = ConsumerMember(wire, group, [topic12])
    two.join()
    settle(one, two)
    epoch = one.epoch
    two.leave()
    eventually(lambda: one.beat()["member_epoch"] > epoch)
    assert one.epoch > epoch > old
    body = {"group_id": group, "member_id": one.id}
    some = [{"topic_id": id12, "partitions": sorted(one.owned[id12])}]
    again = wire.call("ConsumerGroupHeartbeat", 1, {**body, "member_epoch": epoch, "topic_partitions": some})
    assert (again["error_code"], again["member_epoch"]) == (NONE, one.epoch)
    more = [{"topic_id": id12, "partitions": list(range(13))}]
    again = wire.call("ConsumerGroupHeartbeat", 1, {**body, "member_epoch": epoch, "topic_partitions": more})
    assert again["error_code"] == FENCED_MEMBER_EPOCH
    again = wire.call("ConsumerGroupHeartbeat", 1, {**body, "member_epoch": old, "topic_partitions": some})
    assert again["error_code"] == FENCED_MEMBER_EPOCH, "two epochs ago is too long"


def test_a_member_may_join_again_from_epoch_0(wire: Connection, group: str, topic12: str) -> None:
    one = ConsumerMember(wire, group, [topic12])
    one.join()
    settle(one)
    epoch = one.epoch
    answer = one.join()
    assert (answer["error_code"], answer["member_epoch"]) == (NONE, epoch), "nothing changed, so the epoch did not"
    assert settle(one) == [12]


def test_who_is_silent_for_the_session_timeout_is_fenced(
    wire: Connection, group: str, topic12: str, id12: bytes
) -> None:
    session_ms = broker_config(wire, "group.consumer.session.timeout.ms", 45_000)
    if session_ms > 8_000:
        pytest.skip(f"this broker waits {session_ms} ms: group.consumer.session.timeout.ms")
    one, two = ConsumerMember(wire, group, [topic12]), ConsumerMember(wire, group, [topic12])
    one.join()
    two.join()
    settle(one, two)
    eventually(lambda: one.reconcile() == {id12: set(range(12))}, seconds=session_ms / 1000 + 30)
    assert two.beat()["error_code"] == UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    "more",
    [
        {"group_id": ""},
        {"rebalance_timeout_ms": -1},
        {"topic_partitions": None},
        {"topic_partitions": [{"topic_id": bytes(16), "partitions": [0]}]},
        {"subscribed_topic_names": None},
        {"instance_id": ""},
        {"rack_id": ""},
        {"member_epoch": -3},
        {"member_epoch": -2},
    ],
    ids=str,
)
def test_a_first_heartbeat_that_makes_no_sense(wire: Connection, group: str, topic: str, more: Body) -> None:
    body = {
        "group_id": group,
        "member_id": str(uuid.uuid4()),
        "member_epoch": 0,
        "rebalance_timeout_ms": 10_000,
        "subscribed_topic_names": [topic],
        "topic_partitions": [],
        **more,
    }
    answer = wire.call("ConsumerGroupHeartbeat", 1, body)
    assert answer["error_code"] == INVALID_REQUEST, answer
    assert answer["error_message"]


# -------------------------------------------------------------------------------------------------------- static


def test_a_static_member_restarted_keeps_its_partitions(wire: Connection, group: str, topic12: str) -> None:
    one = ConsumerMember(wire, group, [topic12], instance_id="one")
    two = ConsumerMember(wire, group, [topic12], instance_id="two")
    one.join()
    two.join()
    settle(one, two)
    mine, before, epoch = one.owned, two.owned, one.epoch
    answer = two.leave(STATIC_LEAVE_EPOCH, instance_id="two")
    assert (answer["error_code"], answer["member_epoch"]) == (NONE, STATIC_LEAVE_EPOCH)
    assert [one.reconcile() for _ in range(3)][-1] == mine, "nothing moved"
    again = ConsumerMember(wire, group, [topic12], instance_id="two")
    assert again.join()["error_code"] == NONE
    assert settle(one, again) == [6, 6]
    assert (again.owned, again.epoch, one.epoch) == (before, epoch, epoch)


def test_a_static_name_that_is_in_use_is_not_taken_over(wire: Connection, group: str, topic12: str) -> None:
    """Unlike the classic protocol: the member that has it must have left."""
    one = ConsumerMember(wire, group, [topic12], instance_id="one")
    one.join()
    other = ConsumerMember(wire, group, [topic12], instance_id="one")
    assert other.join()["error_code"] == UNRELEASED_INSTANCE_ID
    assert one.beat()["error_code"] == NONE


def test_a_static_member_replaced_is_fenced(wire: Connection, group: str, topic12: str) -> None:
    one = ConsumerMember(wire, group, [topic12], instance_id="one")
    one.join()
    settle(one)
    one.leave(STATIC_LEAVE_EPOCH, instance_id="one")
    again = ConsumerMember(wire, group, [topic12], instance_id="one")
    again.join()
    assert one.beat(instance_id="one")["error_code"] == FENCED_INSTANCE_ID
    assert again.beat(instance_id="one")["error_code"] == NONE


# --------------------------------------------------------------------------------------------------------- regex


def test_a_regex_finds_topics_by_their_whole_name(
    wire: Connection, group: str, name: str, make_topic: MakeTopic
) -> None:
    """Those that come later are found too, as a test with a real client shows: Kafka looks every ten seconds."""
    first = make_topic(partitions=2, name=f"{name}-a")
    make_topic(name=f"x-{name}-a")
    one = ConsumerMember(wire, group, subscribed_topic_regex=f"{name}-.*")
    assert one.join()["error_code"] == NONE
    eventually(lambda: settle(one) == [2])
    assert set(one.owned) == {topic_id(wire, first)}


def test_a_regex_beside_names(wire: Connection, group: str, name: str, make_topic: MakeTopic) -> None:
    make_topic(partitions=2, name=f"{name}-a")
    other = make_topic()
    one = ConsumerMember(wire, group, [other], subscribed_topic_regex=f"{name}-.*")
    assert one.join()["error_code"] == NONE
    eventually(lambda: settle(one) == [3])


def test_a_regex_without_sense(wire: Connection, group: str) -> None:
    one = ConsumerMember(wire, group, subscribed_topic_regex="(unclosed")
    answer = one.join()
    assert answer["error_code"] == INVALID_REGULAR_EXPRESSION
    assert answer["error_message"]


def test_a_regex_is_given_up(wire: Connection, group: str, name: str, make_topic: MakeTopic) -> None:
    make_topic(partitions=2, name=f"{name}-a")
    other = make_topic()
    one = ConsumerMember(wire, group, subscribed_topic_regex=f"{name}-.*")
    one.join()
    eventually(lambda: settle(one) == [2])
    one.take_over(one.beat(subscribed_topic_regex="", subscribed_topic_names=[other]))
    eventually(lambda: settle(one) == [1])


def test_a_regex_finds_internal_topics_too(wire: Connection, group: str) -> None:
    one = ConsumerMember(wire, group, subscribed_topic_regex="__consumer_off.*")
    one.join()
    eventually(lambda: settle(one) == [50])


# ----------------------------------------------------------------------------------------- describing and offsets


@pytest.mark.parametrize("version", [0, 1])
def test_groups_are_described(wire: Connection, group: str, topic12: str, id12: bytes, version: int) -> None:
    one = ConsumerMember(wire, group, [topic12], instance_id="one", rack_id="r1")
    one.join()
    settle(one)
    found = describe_consumer(wire, group, version)
    assert (found["error_code"], found["group_id"], found["group_state"]) == (NONE, group, "Stable")
    assert (found["group_epoch"], found["assignment_epoch"], found["assignor_name"]) == (
        one.epoch,
        one.epoch,
        "uniform",
    )
    (member,) = found["members"]
    everything = {"topic_partitions": [{"topic_id": id12, "topic_name": topic12, "partitions": list(range(12))}]}
    expected = {
        "member_id": one.id,
        "instance_id": "one",
        "rack_id": "r1",
        "member_epoch": one.epoch,
        "client_id": "raw",
        "client_host": "/127.0.0.1",
        "subscribed_topic_names": [topic12],
        "assignment": everything,
        "target_assignment": everything,
    }
    if version >= 1:
        expected["member_type"] = 1
    for part in ("assignment", "target_assignment"):
        member[part]["topic_partitions"][0]["partitions"].sort()
    assert {key: member[key] for key in expected} == expected
    assert member["subscribed_topic_regex"] in (None, "")
    assert found["authorized_operations"] == -(2**31)


def test_a_group_that_is_not_there(wire: Connection, group: str) -> None:
    found = describe_consumer(wire, group)
    assert (found["error_code"], found["members"]) == (GROUP_ID_NOT_FOUND, [])
    assert group in found["error_message"]


def test_the_states_of_a_group(wire: Connection, group: str, topic12: str) -> None:
    one, two = ConsumerMember(wire, group, [topic12]), ConsumerMember(wire, group, [topic12])
    one.join()
    settle(one)
    assert describe_consumer(wire, group)["group_state"] == "Stable"
    two.join()
    assert describe_consumer(wire, group)["group_state"] in ("Assigning", "Reconciling")
    eventually(lambda: two.beat() and describe_consumer(wire, group)["group_state"] == "Reconciling")
    settle(one, two)
    assert describe_consumer(wire, group)["group_state"] == "Stable"


def test_a_classic_group_is_not_described_as_a_consumer_group(bootstrap: str, wire: Connection, group: str) -> None:
    with ClassicMember(bootstrap, group) as one:
        one.join()
        assert describe_consumer(wire, group)["error_code"] == GROUP_ID_NOT_FOUND


def test_a_consumer_group_is_listed_and_not_described_as_a_classic_one(
    wire: Connection, group: str, topic12: str
) -> None:
    one = ConsumerMember(wire, group, [topic12])
    one.join()
    settle(one)
    expected = {"group_id": group, "protocol_type": "consumer", "group_state": "Stable", "group_type": "consumer"}
    assert listed(wire, group) == expected
    assert listed(wire, group, types_filter=["consumer"])
    assert not listed(wire, group, types_filter=["classic"])
    assert describe(wire, group, 5)["group_state"] == "Dead"
    assert describe(wire, group, 6)["error_code"] == GROUP_ID_NOT_FOUND
    assert delete_group(wire, group) == NON_EMPTY_GROUP
    one.leave()
    assert delete_group(wire, group) == NONE


def test_commits_carry_the_member_epoch(wire: Connection, group: str, topic12: str) -> None:
    one = ConsumerMember(wire, group, [topic12])
    one.join()
    settle(one)
    me: Body = {"member_id": one.id, "generation_id_or_member_epoch": one.epoch}
    assert commit(wire, group, topic12, {0: 5}, **me) == {0: NONE}
    assert committed(wire, group, topic12, [0]) == {0: 5}
    newer = {**me, "generation_id_or_member_epoch": one.epoch + 1}
    assert set(commit(wire, group, topic12, {0: 6}, **newer).values()) == {STALE_MEMBER_EPOCH}
    assert commit(wire, group, topic12, {0: 6}, member_id="made-up", generation_id_or_member_epoch=1) == {
        0: UNKNOWN_MEMBER_ID
    }
    assert commit(wire, group, topic12, {0: 6}) == {0: UNKNOWN_MEMBER_ID}, "without being a member"


def test_committed_offsets_are_read_with_the_member_epoch(wire: Connection, group: str, topic12: str) -> None:
    one = ConsumerMember(wire, group, [topic12])
    one.join()
    settle(one)

    def code(member: str | None, epoch: int) -> int:
        asked: Body = {"group_id": group, "member_id": member, "member_epoch": epoch}
        asked["topics"] = [{"name": topic12, "partition_indexes": [0]}]
        refused: int = wire.call("OffsetFetch", 9, {"groups": [asked]})["groups"][0]["error_code"]
        return refused

    assert code(one.id, one.epoch) == NONE
    assert code(None, -1) == NONE, "admin tools do not say who they are"
    assert code(one.id, one.epoch + 1) == STALE_MEMBER_EPOCH
    assert code("made-up", one.epoch) == UNKNOWN_MEMBER_ID


# ----------------------------------------------------------------------------------------------------- migration


def test_an_empty_classic_group_becomes_a_consumer_group(
    bootstrap: str, wire: Connection, group: str, topic12: str
) -> None:
    with ClassicMember(bootstrap, group) as old:
        old.join()
        old.sync({old.id: b""})
        old.commit(topic12, {0: 5})
        old.leave()
    one = ConsumerMember(wire, group, [topic12])
    assert one.join()["error_code"] == NONE
    assert settle(one) == [12]
    assert listed(wire, group)["group_type"] == "consumer"
    assert committed(wire, group, topic12, [0]) == {0: 5}


def test_an_empty_consumer_group_becomes_a_classic_group(
    bootstrap: str, wire: Connection, group: str, topic12: str
) -> None:
    one = ConsumerMember(wire, group, [topic12])
    one.join()
    settle(one)
    commit(wire, group, topic12, {0: 5}, member_id=one.id, generation_id_or_member_epoch=one.epoch)
    one.leave()
    with ClassicMember(bootstrap, group, protocols=[("range", subscription([topic12]))]) as old:
        assert old.join()["error_code"] == NONE
        old.sync({old.id: b""})
        assert listed(wire, group)["group_type"] == "classic"
        assert committed(wire, group, topic12, [0]) == {0: 5}


def test_other_protocol_types_cannot_be_migrated(bootstrap: str, wire: Connection, group: str, topic12: str) -> None:
    with ClassicMember(bootstrap, group, protocol_type="connect", protocols=[("default", b"x")]) as old:
        old.join()
        old.sync({old.id: b""})
        one = ConsumerMember(wire, group, [topic12])
        assert one.join()["error_code"] == GROUP_ID_NOT_FOUND
        assert old.heartbeat() == NONE
    one = ConsumerMember(wire, group + "-new", [topic12])
    one.join()
    answer = wire.call("JoinGroup", 3, join_body(group + "-new", protocol_type="connect"))
    assert answer["error_code"] == INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize(
    ("in_subscription", "in_assignment", "refused"),
    [(None, None, False), (b"", b"", False), (b"some", None, False), (None, b"some", True)],
)
def test_a_group_whose_assignor_gives_data_to_its_members_cannot_be_migrated(
    bootstrap: str, wire: Connection, group: str, topic12: str, in_subscription: Any, in_assignment: Any, refused: bool
) -> None:
    """It would be lost. librdkafka's cooperative-sticky is one of them."""
    told = [("sticky", subscription([topic12], user_data=in_subscription))]
    with ClassicMember(bootstrap, group, protocols=told) as old:
        old.join()
        old.sync({old.id: assignment({topic12: range(12)}, user_data=in_assignment)})
        answer = ConsumerMember(wire, group, [topic12]).join()
        assert answer["error_code"] == (GROUP_ID_NOT_FOUND if refused else NONE)
        assert old.heartbeat() in ([NONE] if refused else [NONE, REBALANCE_IN_PROGRESS])
        old.leave()
    assert ConsumerMember(wire, group, [topic12]).join()["error_code"] == NONE, "when it is empty, it can"
