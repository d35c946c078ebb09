"""ShareGroupHeartbeat and ShareGroupDescribe: joining, epochs, shares, leaving, and each refusal."""

import uuid

import pytest
from group_calls import (
    INCONSISTENT_GROUP_PROTOCOL,
    ClassicMember,
    ConsumerMember,
    broker_config,
    delete_group,
    join_body,
    listed,
)
from raw import Connection, MakeTopic
from share_calls import (
    FENCED_MEMBER_EPOCH,
    GROUP_ID_NOT_FOUND,
    GROUP_MAX_SIZE_REACHED,
    INVALID_GROUP_ID,
    INVALID_REQUEST,
    NON_EMPTY_GROUP,
    NONE,
    UNKNOWN_MEMBER_ID,
    ShareMember,
    configure,
    describe,
    differs,
    joined,
    settle,
)
from wire_calls import create_topic, topic_id

from waiting import eventually


def test_the_first_member_gets_everything(wire: Connection, group: str, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=4)
    member = ShareMember(wire, group, [topic])
    answer = member.join()
    assert (answer["error_code"], answer["error_message"], answer["member_id"]) == (NONE, None, member.id)
    assert answer["member_epoch"] >= 1
    assert answer["heartbeat_interval_ms"] > 0
    assert answer["assignment"] is not None, "it may be empty while the partitions are being initialised"
    member.await_share({topic_id(wire, topic): range(4)})


def test_an_unchanged_heartbeat_brings_no_assignment(wire: Connection, group: str, topic: str) -> None:
    member = joined(wire, group, topic)
    settle(member)
    answer = member.beat()
    assert (answer["error_code"], answer["assignment"], answer["member_epoch"]) == (NONE, None, member.epoch)
    answer = member.beat(subscribed_topic_names=[topic])
    assert answer["assignment"] is not None, "a full one is answered in full"


def test_all_members_share_what_is_too_little(wire: Connection, group: str, topic: str) -> None:
    """One partition, three members: each reads it."""
    members = [ShareMember(wire, group, [topic]) for _ in range(3)]
    for one in members:
        assert one.join()["error_code"] == NONE
    id_ = topic_id(wire, topic)
    for one in members:
        one.await_share({id_: [0]})


def test_partitions_are_spread(wire: Connection, group: str, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=6)
    members = [ShareMember(wire, group, [topic]) for _ in range(3)]
    for one in members:
        assert one.join()["error_code"] == NONE
    id_ = topic_id(wire, topic)

    def spread() -> bool:
        settle(*members)
        return all(len(one.owned.get(id_, ())) == 2 for one in members)

    eventually(spread)
    assert set().union(*(one.owned[id_] for one in members)) == set(range(6))


def test_more_members_than_partitions(wire: Connection, group: str, make_topic: MakeTopic) -> None:
    """Two partitions, five members: nobody idles, and no partition has more than three."""
    topic = make_topic(partitions=2)
    members = [ShareMember(wire, group, [topic]) for _ in range(5)]
    for one in members:
        assert one.join()["error_code"] == NONE
    id_ = topic_id(wire, topic)

    def shares() -> list[int]:
        settle(*members)
        return sorted(partition for one in members for partition in one.owned.get(id_, ()))

    eventually(lambda: shares() and all(one.owned.get(id_) for one in members))
    assert 2 <= shares().count(0) <= 3
    assert 2 <= shares().count(1) <= 3


def test_what_a_leaving_member_had_goes_to_the_others(wire: Connection, group: str, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=4)
    one, two = ShareMember(wire, group, [topic]), ShareMember(wire, group, [topic])
    for member in (one, two):
        assert member.join()["error_code"] == NONE
    id_ = topic_id(wire, topic)

    def halved() -> bool:
        settle(one, two)
        return len(one.owned.get(id_, ())) == len(two.owned.get(id_, ())) == 2

    eventually(halved)
    answer = one.leave()
    assert (answer["error_code"], answer["member_epoch"]) == (NONE, -1)
    two.await_share({id_: range(4)})


def test_the_last_one_leaves_an_empty_group(wire: Connection, group: str, topic: str) -> None:
    member = joined(wire, group, topic)
    assert member.leave()["error_code"] == NONE
    found = describe(wire, group)
    assert (found["error_code"], found["group_state"], found["members"]) == (NONE, "Empty", [])
    assert member.leave()["error_code"] == UNKNOWN_MEMBER_ID


def test_a_described_member(wire: Connection, group: str, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=2)
    member = ShareMember(wire, group, [topic])
    assert member.join(rack_id="r1")["error_code"] == NONE
    member.await_share({topic_id(wire, topic): range(2)})
    settle(member)
    found = describe(wire, group)
    assert (found["error_code"], found["group_id"], found["group_state"]) == (NONE, group, "Stable")
    assert (found["assignor_name"], found["group_epoch"]) == ("simple", member.epoch)
    (one,) = found["members"]
    assert (one["member_id"], one["member_epoch"], one["rack_id"]) == (member.id, member.epoch, "r1")
    assert (one["client_id"], one["subscribed_topic_names"]) == ("raw", [topic])
    assert one["client_host"].endswith("127.0.0.1")
    (held,) = one["assignment"]["topic_partitions"]
    assert (held["topic_id"], held["topic_name"]) == (topic_id(wire, topic), topic)
    assert sorted(held["partitions"]) == [0, 1]


def test_authorized_operations_when_asked(wire: Connection, group: str, topic: str) -> None:
    joined(wire, group, topic)
    assert describe(wire, group)["authorized_operations"] == -(2**31)
    asked = {"group_ids": [group], "include_authorized_operations": True}
    (found,) = wire.call("ShareGroupDescribe", 1, asked)["groups"]
    assert found["authorized_operations"] > 0


def test_groups_that_are_not_there(wire: Connection, group: str) -> None:
    found = describe(wire, group)
    assert (found["error_code"], found["members"]) == (GROUP_ID_NOT_FOUND, [])
    assert found["group_state"] == differs(kafka="", skidway=found["group_state"])
    assert group in found["error_message"]
    (empty,) = wire.call("ShareGroupDescribe", 1, {"group_ids": [""]})["groups"]
    assert empty["error_code"] == INVALID_GROUP_ID


def test_an_unknown_member(wire: Connection, group: str, topic: str) -> None:
    joined(wire, group, topic)
    stranger = ShareMember(wire, group, [topic])
    stranger.epoch = 3
    assert stranger.beat()["error_code"] == UNKNOWN_MEMBER_ID
    assert stranger.leave()["error_code"] == UNKNOWN_MEMBER_ID


def test_an_unknown_group(wire: Connection, group: str, topic: str) -> None:
    member = ShareMember(wire, group, [topic])
    member.epoch = 3
    assert member.beat()["error_code"] == GROUP_ID_NOT_FOUND
    assert member.leave()["error_code"] == GROUP_ID_NOT_FOUND


def test_epochs(wire: Connection, group: str, topic: str, make_topic: MakeTopic) -> None:
    """The current one and the one before are taken; ahead, or further behind, is fenced."""
    second = make_topic()
    member = joined(wire, group, topic)
    settle(member)
    before = member.epoch
    assert member.beat(subscribed_topic_names=[topic, second])["error_code"] == NONE
    ids = {topic_id(wire, topic): [0], topic_id(wire, second): [0]}
    member.await_share(ids)
    settle(member)
    now = member.epoch
    assert now > before
    member.epoch = now + 1
    assert member.beat()["error_code"] == FENCED_MEMBER_EPOCH
    member.epoch = 1 if before > 1 else now + 9
    assert member.beat()["error_code"] == FENCED_MEMBER_EPOCH
    member.epoch = now
    assert member.beat()["error_code"] == NONE


def test_a_lost_answer(wire: Connection, group: str, topic: str) -> None:
    """A member that did not hear of its new epoch beats with the one before."""
    member = joined(wire, group, topic)
    settle(member)
    before = member.epoch
    assert member.beat(subscribed_topic_names=[topic, f"{topic}-later"])["error_code"] == NONE
    now = eventually(lambda: member.epoch if member.beat()["error_code"] == NONE and member.epoch > before else None)
    member.epoch = before
    assert (member.beat()["error_code"], member.epoch) == (NONE, now)


def test_rejoining_with_epoch_0(wire: Connection, group: str, topic: str) -> None:
    member = joined(wire, group, topic)
    settle(member)
    epoch = member.epoch
    answer = member.join()
    assert (answer["error_code"], answer["member_epoch"]) == (NONE, epoch)
    assert answer["assignment"] is not None
    assert len(describe(wire, group)["members"]) == 1


def test_a_silent_member_is_out(wire: Connection, group: str, topic: str) -> None:
    configure(wire, group, share_session_timeout_ms=1_000, share_heartbeat_interval_ms=300)
    member = ShareMember(wire, group, [topic])
    assert member.join()["error_code"] == NONE
    eventually(lambda: describe(wire, group)["members"] == [])
    assert member.beat()["error_code"] == UNKNOWN_MEMBER_ID


def test_the_interval_is_the_group_s_once_all_is_assigned(wire: Connection, group: str, topic: str) -> None:
    configure(wire, group, share_session_timeout_ms=30_000, share_heartbeat_interval_ms=1_234)
    member = joined(wire, group, topic)
    settle(member)
    eventually(lambda: member.beat()["heartbeat_interval_ms"] == 1_234)


def test_a_topic_that_comes_later(wire: Connection, group: str, name: str) -> None:
    member = ShareMember(wire, group, [name])
    assert member.join()["error_code"] == NONE
    assert member.owned == {}
    create_topic(wire, name, 2, None)
    member.await_share({topic_id(wire, name): range(2)})


def test_partitions_that_come_later(wire: Connection, group: str, topic: str) -> None:
    member = joined(wire, group, topic)
    wanted = {"topics": [{"name": topic, "count": 3, "assignments": None}], "timeout_ms": 8_000}
    (grown,) = wire.call("CreatePartitions", 3, wanted)["results"]
    assert grown["error_code"] == NONE
    member.await_share({topic_id(wire, topic): range(3)})


def test_a_topic_that_is_deleted(wire: Connection, group: str, make_topic: MakeTopic) -> None:
    kept, gone = make_topic(), make_topic()
    member = joined(wire, group, kept, gone)
    answer = wire.call("DeleteTopics", 6, {"topics": [{"name": gone}], "timeout_ms": 8_000})
    assert answer["responses"][0]["error_code"] == NONE
    member.await_share({topic_id(wire, kept): [0]})


def test_a_changed_subscription(wire: Connection, group: str, make_topic: MakeTopic) -> None:
    first, second = make_topic(), make_topic()
    member = joined(wire, group, first)
    assert member.beat(subscribed_topic_names=[second])["error_code"] == NONE
    member.await_share({topic_id(wire, second): [0]})
    (described,) = describe(wire, group)["members"]
    assert described["subscribed_topic_names"] == [second]


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param({"group_id": ""}, id="no group"),
        pytest.param({"member_id": ""}, id="no member"),
        pytest.param({"member_epoch": -2}, id="an epoch below -1"),
        pytest.param({"rack_id": ""}, id="an empty rack"),
        pytest.param({"subscribed_topic_names": None}, id="joins without topics"),
        pytest.param({"subscribed_topic_names": []}, id="joins with no topics"),
        pytest.param({"member_id": "m" * 37}, id="a long member id"),
    ],
)
def test_bad_heartbeats(wire: Connection, group: str, topic: str, wrong: dict[str, object]) -> None:
    member = ShareMember(wire, group, [topic])
    answer = member.join(**wrong)
    assert answer["error_code"] == INVALID_REQUEST
    assert describe(wire, group)["error_code"] == GROUP_ID_NOT_FOUND


def test_a_full_group(wire: Connection, group: str, topic: str) -> None:
    """Whoever is in it may stay, and a place that is given up is taken again."""
    limit = broker_config(wire, "group.share.max.size", 200)
    members = [ShareMember(wire, group, [topic]) for _ in range(limit)]
    for one in members:
        assert one.join()["error_code"] == NONE
    newcomer = ShareMember(wire, group, [topic])
    assert newcomer.join()["error_code"] == GROUP_MAX_SIZE_REACHED
    assert members[0].beat()["error_code"] == NONE
    assert members[1].leave()["error_code"] == NONE
    assert newcomer.join()["error_code"] == NONE


def test_a_group_of_another_type(wire: Connection, bootstrap: str, group: str, topic: str) -> None:
    consumer = ConsumerMember(wire, group, [topic])
    assert consumer.join()["error_code"] == NONE
    member = ShareMember(wire, group, [topic])
    assert member.join()["error_code"] == GROUP_ID_NOT_FOUND
    assert describe(wire, group)["error_code"] == GROUP_ID_NOT_FOUND


def test_other_protocols_keep_out_of_a_share_group(wire: Connection, bootstrap: str, group: str, topic: str) -> None:
    joined(wire, group, topic)
    assert ConsumerMember(wire, group, [topic]).join()["error_code"] == GROUP_ID_NOT_FOUND
    with ClassicMember(bootstrap, group) as classic:
        answer = classic.wire.call("JoinGroup", 9, join_body(group))
    assert answer["error_code"] == INCONSISTENT_GROUP_PROTOCOL


def test_share_groups_are_listed(wire: Connection, group: str, topic: str) -> None:
    member = joined(wire, group, topic)
    found = listed(wire, group)
    assert (found["group_type"], found["group_state"], found["protocol_type"]) == ("share", "Stable", "share")
    assert listed(wire, group, types_filter=["share"]) == found
    assert listed(wire, group, types_filter=["consumer", "classic"]) is None
    assert listed(wire, group, states_filter=["Stable"]) == found
    assert listed(wire, group, states_filter=["Empty"]) is None
    member.leave()
    assert listed(wire, group, types_filter=["share"])["group_state"] == "Empty"


def test_share_groups_are_deleted_when_empty(wire: Connection, group: str, topic: str) -> None:
    member = joined(wire, group, topic)
    assert delete_group(wire, group) == NON_EMPTY_GROUP
    member.leave()
    assert delete_group(wire, group) == NONE
    assert describe(wire, group)["error_code"] == GROUP_ID_NOT_FOUND
    assert listed(wire, group) is None
    assert delete_group(wire, group) == GROUP_ID_NOT_FOUND


def test_two_groups_described_at_once(wire: Connection, group: str, topic: str) -> None:
    names = [f"{group}-{number}" for number in range(2)]
    for one in names:
        joined(wire, one, topic)
    found = wire.call("ShareGroupDescribe", 1, {"group_ids": [*names, f"{group}-{uuid.uuid4()}"]})["groups"]
    assert sorted(one["error_code"] for one in found) == [NONE, NONE, GROUP_ID_NOT_FOUND]
