"""DescribeShareGroupOffsets, AlterShareGroupOffsets, DeleteShareGroupOffsets, and FindCoordinator for share state."""

import pytest
from group_calls import ConsumerMember, delete_group, listed
from raw import Connection, MakeTopic
from raw_batches import build
from share_calls import (
    ACCEPT,
    GROUP_ID_NOT_FOUND,
    INVALID_GROUP_ID,
    INVALID_REQUEST,
    NON_EMPTY_GROUP,
    NONE,
    NOT_LEADER_OR_FOLLOWER,
    RELEASE,
    SHARE_KEY,
    UNKNOWN_TOPIC_OR_PARTITION,
    Got,
    Place,
    ShareMember,
    ShareReader,
    alter_starts,
    altered,
    delete_starts,
    describe,
    differs,
    joined,
    open_group,
    place_of,
    share_key,
    start_of,
    starts,
)
from wire_calls import produce, topic_id

from waiting import eventually


def read_some(wire: Connection, group: str, topic: str, accept: int) -> ShareMember:
    """Ten records, the first few accepted; the session is over, so none is held. The member is still there."""
    member = open_group(wire, group, topic)
    produce(wire, topic, build([b"%d" % number for number in range(10)]))
    reader = ShareReader(wire, group, place_of(wire, topic))
    assert reader.some().acquired == [(0, 9, 1)]
    if accept:
        assert reader.ack((0, accept - 1, [ACCEPT])) == NONE
    reader.close()
    return member


def anew(wire: Connection, group: str, topic: str, at: Place) -> Got:
    """What a new reader gets after the group's state was changed under its leader.

    Kafka's leader is not told: it goes on with what it has in memory until one of its writes is refused."""
    reader = ShareReader(wire, group, at)
    if differs(kafka=True, skidway=False):
        produce(wire, topic, build([b"provoke"]))
        stale = reader.some()
        refused = reader.ack(*((first, last, [RELEASE]) for first, last, _ in stale.acquired))
        assert refused == NOT_LEADER_OR_FOLLOWER
    return reader.some()


# ------------------------------------------------------------------------------------------------------ describing


def test_start_and_lag(wire: Connection, group: str, topic: str) -> None:
    read_some(wire, group, topic, 4)
    eventually(lambda: start_of(wire, group, topic).offset == 4)
    found = starts(wire, group, {topic: [0]})
    ((one,),) = [answered["partitions"] for answered in found["topics"]]
    (described,) = found["topics"]
    assert (described["topic_name"], described["topic_id"]) == (topic, topic_id(wire, topic))
    assert (one["start_offset"], one["lag"], one["error_code"], one["error_message"]) == (4, 6, NONE, None)
    assert one["leader_epoch"] == 0


def test_version_0_has_no_lag(wire: Connection, group: str, topic: str) -> None:
    read_some(wire, group, topic, 4)
    found = starts(wire, group, {topic: [0]}, version=0)
    ((one,),) = [answered["partitions"] for answered in found["topics"]]
    assert "lag" not in one
    assert one["error_code"] == NONE


def test_lag_counts_what_was_accepted_out_of_order(wire: Connection, group: str, topic: str, at: Place) -> None:
    read_some(wire, group, topic, 0)
    reader = ShareReader(wire, group, at)
    reader.some()
    assert reader.ack((5, 9, [ACCEPT])) == NONE
    eventually(lambda: start_of(wire, group, topic).lag == 5)
    produce(wire, topic, build([b"more"] * 3))
    eventually(lambda: start_of(wire, group, topic).lag == 8)


def test_all_topics_of_a_group(wire: Connection, group: str, make_topic: MakeTopic) -> None:
    first, second = make_topic(), make_topic(partitions=2)
    open_group(wire, group, first, second)
    found = starts(wire, group, None)
    assert found["error_code"] == NONE
    names = {one["topic_name"]: sorted(p["partition_index"] for p in one["partitions"]) for one in found["topics"]}
    assert names == {first: [0], second: [0, 1]}


def test_an_unknown_topic(wire: Connection, group: str, topic: str, name: str) -> None:
    open_group(wire, group, topic)
    found = starts(wire, group, {name: [0]})
    assert found["error_code"] == NONE
    ((one,),) = [answered["partitions"] for answered in found["topics"]]
    assert (one["start_offset"], one["error_code"]) == (-1, NONE)


def test_a_topic_the_group_does_not_read(wire: Connection, group: str, topic: str, make_topic: MakeTopic) -> None:
    open_group(wire, group, topic)
    other = make_topic()
    found = start_of(wire, group, other)
    assert (found.offset, found.error) == (-1, NONE)


@pytest.mark.skidway_only
def test_an_unknown_partition(wire: Connection, group: str, topic: str) -> None:
    """Kafka answers the same, but looks for the end of it for half a minute before."""
    open_group(wire, group, topic)
    found = start_of(wire, group, topic, 9)
    assert (found.offset, found.error) == (-1, NONE)


def test_an_unknown_group(wire: Connection, group: str, topic: str) -> None:
    """Has no start, and that is no error."""
    found = start_of(wire, group, topic)
    assert (found.offset, found.lag, found.error) == (-1, -1, NONE)
    all_ = starts(wire, group, None)
    assert (all_["error_code"], all_["topics"]) == (NONE, [])
    assert starts(wire, "", {topic: [0]})["error_code"] != NONE


def test_several_groups_at_once(wire: Connection, group: str, topic: str) -> None:
    open_group(wire, group, topic)
    asked = [{"group_id": name, "topics": None} for name in (group, f"{group}-none")]
    found = wire.call("DescribeShareGroupOffsets", 1, {"groups": asked})["groups"]
    assert {one["group_id"]: one["error_code"] for one in found} == {
        group: NONE,
        f"{group}-none": NONE,
    }
    assert {one["group_id"]: len(one["topics"]) for one in found} == {group: 1, f"{group}-none": 0}


# ------------------------------------------------------------------------------------------------------ altering


def test_set_back(wire: Connection, group: str, topic: str, at: Place) -> None:
    member = read_some(wire, group, topic, 10)
    member.leave()
    assert altered(alter_starts(wire, group, topic, {0: 3})) == {0: NONE}
    found = start_of(wire, group, topic)
    assert (found.offset, found.lag) == (3, 7)
    joined(wire, group, topic)
    got = anew(wire, group, topic, at)
    assert got.offsets[:7] == list(range(3, 10))
    assert set(got.counts.values()) == {1}, "counts begin anew"


def test_set_forward(wire: Connection, group: str, topic: str, at: Place) -> None:
    member = read_some(wire, group, topic, 2)
    member.leave()
    assert altered(alter_starts(wire, group, topic, {0: 8})) == {0: NONE}
    found = start_of(wire, group, topic)
    assert (found.offset, found.lag) == (8, 2)
    joined(wire, group, topic)
    assert anew(wire, group, topic, at).offsets[:2] == [8, 9]


def test_not_while_it_has_members(wire: Connection, group: str, topic: str) -> None:
    read_some(wire, group, topic, 2)
    answer = alter_starts(wire, group, topic, {0: 8})
    assert answer["error_code"] == NON_EMPTY_GROUP
    answer = delete_starts(wire, group, topic)
    assert answer["error_code"] == NON_EMPTY_GROUP


def test_altering_makes_the_group(wire: Connection, group: str, topic: str, at: Place) -> None:
    produce(wire, topic, build([b"x"] * 5))
    assert altered(alter_starts(wire, group, topic, {0: 2})) == {0: NONE}
    found = describe(wire, group)
    assert (found["error_code"], found["group_state"]) == (NONE, "Empty")
    assert listed(wire, group)["group_type"] == "share"
    eventually(lambda: start_of(wire, group, topic).offset == 2)
    joined(wire, group, topic)
    assert ShareReader(wire, group, at).some().offsets == [2, 3, 4]


def test_altering_what_is_unknown(wire: Connection, group: str, topic: str, name: str) -> None:
    assert altered(alter_starts(wire, group, name, {0: 2})) == {0: UNKNOWN_TOPIC_OR_PARTITION}
    answer = altered(alter_starts(wire, group, topic, {0: 0, 9: 2}))
    assert answer == {0: NONE, 9: UNKNOWN_TOPIC_OR_PARTITION}


def test_altering_no_group(wire: Connection, topic: str) -> None:
    answer = alter_starts(wire, "", topic, {0: 2})
    assert answer["error_code"] == INVALID_GROUP_ID


@pytest.mark.parametrize("offset", [-5, 500])
def test_a_start_outside_of_the_log(wire: Connection, group: str, topic: str, offset: int) -> None:
    """Kafka takes it as it is, and tells a lag that cannot be."""
    produce(wire, topic, build([b"x"] * 5))
    code = altered(alter_starts(wire, group, topic, {0: offset}))[0]
    assert code == NONE or differs(kafka=False, skidway=True)
    found = start_of(wire, group, topic)
    assert 0 <= found.lag <= 5 or found.lag == -1 or differs(kafka=found.lag == 5 - offset, skidway=False)


def test_altering_a_group_of_another_type(wire: Connection, group: str, topic: str) -> None:
    member = ConsumerMember(wire, group, [topic])
    assert member.join()["error_code"] == NONE
    assert alter_starts(wire, group, topic, {0: 1})["error_code"] == GROUP_ID_NOT_FOUND
    assert delete_starts(wire, group, topic)["error_code"] == GROUP_ID_NOT_FOUND


# ------------------------------------------------------------------------------------------------------ deleting


def deleted(answer: dict[str, object]) -> dict[str, int]:
    assert answer["error_code"] == NONE, answer
    responses = answer["responses"]
    assert isinstance(responses, list)
    return {one["topic_name"]: one["error_code"] for one in responses}


def test_deleted_offsets_are_looked_for_again(wire: Connection, group: str, topic: str, at: Place) -> None:
    member = read_some(wire, group, topic, 10)
    member.leave()
    assert deleted(delete_starts(wire, group, topic)) == {topic: NONE}
    found = starts(wire, group, None)
    assert (found["error_code"], found["topics"]) == (NONE, [])
    joined(wire, group, topic)
    assert anew(wire, group, topic, at).offsets[:10] == list(range(10))


def test_one_topic_of_two(wire: Connection, group: str, make_topic: MakeTopic, name: str) -> None:
    first, second = make_topic(), make_topic()
    open_group(wire, group, first, second).leave()
    assert deleted(delete_starts(wire, group, first, name)) == {first: NONE, name: UNKNOWN_TOPIC_OR_PARTITION}
    assert [one["topic_name"] for one in starts(wire, group, None)["topics"]] == [second]


def test_deleting_of_no_group(wire: Connection, group: str, topic: str) -> None:
    assert delete_starts(wire, group, topic)["error_code"] == GROUP_ID_NOT_FOUND
    assert delete_starts(wire, "", topic)["error_code"] == INVALID_GROUP_ID


def test_deleting_what_it_does_not_read(wire: Connection, group: str, make_topic: MakeTopic) -> None:
    first, second = make_topic(), make_topic()
    open_group(wire, group, first).leave()
    assert deleted(delete_starts(wire, group, second)) == {second: UNKNOWN_TOPIC_OR_PARTITION}


def test_a_deleted_group_forgets_all(wire: Connection, group: str, topic: str, at: Place) -> None:
    read_some(wire, group, topic, 10).leave()
    assert delete_group(wire, group) == NONE
    assert starts(wire, group, None)["topics"] == []
    joined(wire, group, topic)
    if differs(kafka=False, skidway=True):  # Kafka's leader never hears of it: the new group has the old one's epochs
        assert ShareReader(wire, group, at).some().acquired == [(0, 9, 1)]


# ------------------------------------------------------------------------------------------------------ finding


def find(wire: Connection, *keys: str) -> list[dict[str, object]]:
    return list(
        wire.call("FindCoordinator", 6, {"key_type": SHARE_KEY, "coordinator_keys": list(keys)})["coordinators"]
    )


def test_the_coordinator_of_a_share_partition(wire: Connection, group: str, at: Place) -> None:
    key = share_key(group, at)
    (found,) = find(wire, key)
    assert (found["key"], found["error_code"]) == (key, NONE)
    assert found["port"] not in (0, -1)


def test_a_group_with_colons(wire: Connection, group: str, at: Place) -> None:
    (found,) = find(wire, share_key(f"{group}:a:b", at))
    assert found["error_code"] == NONE


@pytest.mark.parametrize("key", ["", "group", "group:0", "group:notanid:0", "group:AAAAAAAAAAAAAAAAAAAAAQ:x"])
def test_malformed_keys(wire: Connection, key: str) -> None:
    (found,) = find(wire, key)
    assert found["error_code"] == INVALID_REQUEST


def test_the_older_form(wire: Connection, group: str, at: Place) -> None:
    """Share coordinators came with version 6."""
    answer = wire.call("FindCoordinator", 5, {"key_type": SHARE_KEY, "coordinator_keys": [share_key(group, at)]})
    (found,) = answer["coordinators"]
    assert found["error_code"] == INVALID_REQUEST
