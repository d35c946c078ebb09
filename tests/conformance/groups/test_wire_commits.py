"""FindCoordinator, OffsetCommit, OffsetFetch and OffsetDelete on the wire, every version."""

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from group_calls import (
    FENCED_INSTANCE_ID,
    GROUP_ID_NOT_FOUND,
    GROUP_SUBSCRIBED_TO_TOPIC,
    ILLEGAL_GENERATION,
    INVALID_REQUEST,
    NONE,
    OFFSET_METADATA_TOO_LARGE,
    REBALANCE_IN_PROGRESS,
    UNKNOWN_MEMBER_ID,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
    ClassicMember,
    assignment,
    commit,
    committed,
    delete_group,
    describe,
    listed,
    stable_group,
    subscription,
)
from raw import Body, Connection, MakeTopic
from wire_calls import topic_id

from waiting import eventually

GROUP, TRANSACTION = 0, 1


# ------------------------------------------------------------------------------------------------- FindCoordinator


def address(wire: Connection) -> tuple[int, str, int]:
    (broker,) = wire.call("Metadata", 12, {"topics": []})["brokers"]
    return broker["node_id"], broker["host"], broker["port"]


@pytest.mark.parametrize("version", range(4))
def test_one_coordinator(wire: Connection, group: str, version: int) -> None:
    answer = wire.call("FindCoordinator", version, {"key": group})
    assert (answer["error_code"], (answer["node_id"], answer["host"], answer["port"])) == (NONE, address(wire))
    if version >= 1:
        assert answer["error_message"] in (None, "", "NONE")


@pytest.mark.parametrize("version", range(4, 7))
def test_several_coordinators(wire: Connection, version: int) -> None:
    names = [f"g-{number}" for number in range(20)]
    answer = wire.call("FindCoordinator", version, {"key_type": GROUP, "coordinator_keys": names})
    assert [found["key"] for found in answer["coordinators"]] == names
    for found in answer["coordinators"]:
        assert (found["error_code"], (found["node_id"], found["host"], found["port"])) == (NONE, address(wire))


@pytest.mark.parametrize("version", range(4, 7))
def test_no_coordinators_asked(wire: Connection, version: int) -> None:
    assert wire.call("FindCoordinator", version, {"key_type": GROUP, "coordinator_keys": []})["coordinators"] == []


@pytest.mark.parametrize("version", [1, 2, 3, 4, 6])
def test_a_coordinator_of_a_kind_that_is_not(wire: Connection, group: str, version: int) -> None:
    if version < 4:
        answer = wire.call("FindCoordinator", version, {"key": group, "key_type": 9})
    else:
        answer = wire.call("FindCoordinator", version, {"key_type": 9, "coordinator_keys": [group]})["coordinators"][0]
    assert (answer["error_code"], answer["node_id"], answer["host"], answer["port"]) == (INVALID_REQUEST, -1, "", -1)


# ---------------------------------------------------------------------------------------------------- OffsetCommit


@pytest.mark.parametrize("version", range(2, 10))
def test_a_commit_without_a_group_is_read_back(wire: Connection, group: str, topic: str, version: int) -> None:
    assert commit(wire, group, topic, {0: 7}, version=version, metadata="where I was", leader_epoch=0) == {0: NONE}
    asked = {"group_id": group, "topics": [{"name": topic, "partition_indexes": [0]}]}
    (found,) = wire.call("OffsetFetch", 8, {"groups": [asked]})["groups"][0]["topics"][0]["partitions"]
    assert found == {
        "partition_index": 0,
        "committed_offset": 7,
        "committed_leader_epoch": 0 if version >= 6 else -1,
        "metadata": "where I was",
        "error_code": NONE,
    }


def test_a_commit_by_topic_id(wire: Connection, group: str, topic: str) -> None:
    id_ = topic_id(wire, topic)
    assert commit(wire, group, id_, {0: 7}, version=10) == {0: NONE}
    assert committed(wire, group, topic, [0]) == {0: 7}
    assert commit(wire, group, uuid.uuid4().bytes, {0: 7}, version=10) == {0: UNKNOWN_TOPIC_ID}


def test_the_last_commit_counts_also_backwards(wire: Connection, group: str, topic: str) -> None:
    for offset in (5, 99_999, 3, 0):
        assert commit(wire, group, topic, {0: offset}) == {0: NONE}
        assert committed(wire, group, topic, [0]) == {0: offset}


def test_commits_for_what_is_not_there(wire: Connection, group: str, topic: str, name: str) -> None:
    found = commit(wire, group, topic, {0: 1, 1: 1, -1: 1})
    assert found == {0: NONE, 1: UNKNOWN_TOPIC_OR_PARTITION, -1: UNKNOWN_TOPIC_OR_PARTITION}
    assert commit(wire, group, name, {0: 1}) == {0: UNKNOWN_TOPIC_OR_PARTITION}
    assert committed(wire, group, topic, [0, 1]) == {0: 1, 1: -1}


def test_a_commit_with_no_metadata_is_read_back_as_empty(wire: Connection, group: str, topic: str) -> None:
    assert commit(wire, group, topic, {0: 1}, metadata=None) == {0: NONE}
    asked = {"group_id": group, "topics": None}
    (found,) = wire.call("OffsetFetch", 8, {"groups": [asked]})["groups"][0]["topics"][0]["partitions"]
    assert found["metadata"] == ""


def test_metadata_has_a_limit(wire: Connection, group: str, topic: str) -> None:
    assert commit(wire, group, topic, {0: 1}, metadata="x" * 4096) == {0: NONE}
    assert commit(wire, group, topic, {0: 2}, metadata="x" * 4097) == {0: OFFSET_METADATA_TOO_LARGE}
    assert committed(wire, group, topic, [0]) == {0: 1}


def test_negative_offsets(wire: Connection, group: str, topic: str) -> None:
    assert commit(wire, group, topic, {0: -1}) == {0: NONE}
    assert committed(wire, group, topic, [0]) == {0: -1}


def test_a_group_without_a_name_can_commit_but_not_be_joined(wire: Connection, topic: str) -> None:
    """Consumers without a group did so once."""
    assert commit(wire, "", topic, {0: 7}) == {0: NONE}
    assert committed(wire, "", topic, [0]) == {0: 7}
    assert describe(wire, "", 5)["group_state"] == "Empty"
    assert delete_group(wire, "") == NONE
    assert delete_group(wire, "") == GROUP_ID_NOT_FOUND


def test_a_simple_commit_makes_an_empty_group(wire: Connection, group: str, topic: str) -> None:
    commit(wire, group, topic, {0: 7})
    found = describe(wire, group)
    assert (found["error_code"], found["group_state"], found["protocol_type"]) == (NONE, "Empty", "")
    assert listed(wire, group) == {
        "group_id": group,
        "protocol_type": "",
        "group_state": "Empty",
        "group_type": "classic",
    }


@pytest.mark.parametrize("version", range(2, 11))
def test_a_members_commit_to_a_group_that_is_not_there(wire: Connection, group: str, topic: str, version: int) -> None:
    stranger: dict[str, Any] = {"member_id": "made-up", "generation_id_or_member_epoch": 1}
    named = topic_id(wire, topic) if version >= 10 else topic
    expected = GROUP_ID_NOT_FOUND if version >= 9 else ILLEGAL_GENERATION
    assert commit(wire, group, named, {0: 7}, version=version, **stranger) == {0: expected}
    assert listed(wire, group) is None


@pytest.fixture
def member(bootstrap: str, group: str) -> Iterator[ClassicMember]:
    with ClassicMember(bootstrap, group) as one:
        stable_group([one])
        yield one


def test_commits_of_members(member: ClassicMember, wire: Connection, group: str, topic: str) -> None:
    for version in range(2, 10):
        assert member.commit(topic, {0: version}, version) == {0: NONE}
        assert committed(wire, group, topic, [0]) == {0: version}
    generation = {"generation_id_or_member_epoch": member.generation + 1}
    assert member.commit(topic, {0: 99}, **generation) == {0: ILLEGAL_GENERATION}
    assert member.commit(topic, {0: 99}, member_id="made-up") == {0: UNKNOWN_MEMBER_ID}
    assert member.commit(topic, {0: 99}, group_instance_id="nobody") == {0: UNKNOWN_MEMBER_ID}
    assert committed(wire, group, topic, [0]) == {0: 9}


def test_a_simple_commit_to_a_living_group_is_refused(
    member: ClassicMember, wire: Connection, group: str, topic: str
) -> None:
    assert commit(wire, group, topic, {0: 7}) == {0: UNKNOWN_MEMBER_ID}
    member.leave()
    assert commit(wire, group, topic, {0: 7}) == {0: NONE}


def test_a_commit_while_the_group_waits_for_assignments(bootstrap: str, group: str, topic: str) -> None:
    """Between join and sync a commit must wait for the next round; while members are still joining it is fine."""
    with ClassicMember(bootstrap, group) as one, ClassicMember(bootstrap, group) as two:
        one.join()
        assert one.commit(topic, {0: 1}) == {0: REBALANCE_IN_PROGRESS}
        one.sync({one.id: b""})
        two.ask_to_join()
        eventually(lambda: one.heartbeat() == REBALANCE_IN_PROGRESS)
        assert one.commit(topic, {0: 2}) == {0: NONE}


def test_a_static_members_commits(bootstrap: str, group: str, topic: str) -> None:
    with ClassicMember(bootstrap, group, instance="one") as one:
        stable_group([one])
        assert one.commit(topic, {0: 1}, group_instance_id="one") == {0: NONE}
        assert one.commit(topic, {0: 1}, group_instance_id="one", member_id="old") == {0: FENCED_INSTANCE_ID}


# ----------------------------------------------------------------------------------------------------- OffsetFetch


def fetch_one_group(wire: Connection, group: str, topics: object, version: int, **more: object) -> Body:
    """In the shape of version 8 and later, whatever was asked."""
    if version >= 8:
        asked = {"group_id": group, "topics": topics}
        (answer,) = wire.call("OffsetFetch", version, {"groups": [asked], **more})["groups"]
        return dict(answer)
    return wire.call("OffsetFetch", version, {"group_id": group, "topics": topics, **more})


def asked_by(version: int, topic: str, id_: bytes, partitions: list[int]) -> list[Body]:
    named = {"topic_id": id_} if version >= 10 else {"name": topic}
    return [{**named, "partition_indexes": partitions}]


@pytest.mark.parametrize("version", range(1, 11))
def test_committed_offsets_in_every_version(wire: Connection, group: str, make_topic: MakeTopic, version: int) -> None:
    topic = make_topic(partitions=3)
    id_ = topic_id(wire, topic)
    commit(wire, group, topic, {0: 11, 2: 13}, metadata="m", leader_epoch=0)
    answer = fetch_one_group(wire, group, asked_by(version, topic, id_, [2, 0, 1]), version)
    (found,) = answer["topics"]
    assert found["topic_id" if version >= 10 else "name"] == (id_ if version >= 10 else topic)
    parts = found["partitions"]
    assert [(p["partition_index"], p["committed_offset"], p["metadata"], p["error_code"]) for p in parts] == [
        (2, 13, "m", NONE),
        (0, 11, "m", NONE),
        (1, -1, "", NONE),
    ]
    if version >= 5:
        assert [p["committed_leader_epoch"] for p in parts] == [0, 0, -1]
    if version >= 2:
        assert answer["error_code"] == NONE


@pytest.mark.parametrize("version", range(2, 11))
def test_all_that_a_group_committed(wire: Connection, group: str, make_topic: MakeTopic, version: int) -> None:
    one, two = make_topic(partitions=2), make_topic()
    ids = {topic_id(wire, name): name for name in (one, two)}
    commit(wire, group, one, {0: 1, 1: 2})
    commit(wire, group, two, {0: 3})
    answer = fetch_one_group(wire, group, None, version)
    found = {
        (ids[t["topic_id"]] if version >= 10 else t["name"], p["partition_index"]): p["committed_offset"]
        for t in answer["topics"]
        for p in t["partitions"]
    }
    assert found == {(one, 0): 1, (one, 1): 2, (two, 0): 3}


@pytest.mark.parametrize("version", range(1, 11))
def test_a_group_that_is_not_there_has_committed_nothing(
    wire: Connection, group: str, topic: str, version: int
) -> None:
    answer = fetch_one_group(wire, group, asked_by(version, topic, topic_id(wire, topic), [0]), version)
    assert answer.get("error_code", NONE) == NONE
    (found,) = answer["topics"][0]["partitions"]
    assert (found["committed_offset"], found["metadata"], found["error_code"]) == (-1, "", NONE)
    if version >= 2:
        answer = fetch_one_group(wire, group, None, version)
        assert (answer["error_code"], answer["topics"]) == (NONE, [])


def test_offsets_of_a_topic_that_is_not_there(wire: Connection, group: str, name: str) -> None:
    answer = fetch_one_group(wire, group, asked_by(9, name, b"", [0]), 9)
    assert [(p["committed_offset"], p["error_code"]) for p in answer["topics"][0]["partitions"]] == [(-1, NONE)]
    id_ = uuid.uuid4().bytes
    answer = fetch_one_group(wire, group, asked_by(10, "", id_, [0]), 10)
    (found,) = answer["topics"]
    assert found["topic_id"] == id_
    assert [(p["committed_offset"], p["error_code"]) for p in found["partitions"]] == [(-1, UNKNOWN_TOPIC_ID)]


@pytest.mark.parametrize("version", range(8, 11))
def test_several_groups_in_one_call(wire: Connection, topic: str, version: int) -> None:
    groups = [f"g-{uuid.uuid4().hex}" for _ in range(5)]
    for number, group in enumerate(groups[:4]):
        commit(wire, group, topic, {0: number})
    id_ = topic_id(wire, topic)
    asked = [{"group_id": group, "topics": asked_by(version, topic, id_, [0])} for group in groups]
    answer = wire.call("OffsetFetch", version, {"groups": asked})["groups"]
    assert {g["group_id"]: g["topics"][0]["partitions"][0]["committed_offset"] for g in answer} == dict(
        zip(groups, [0, 1, 2, 3, -1], strict=True)
    )


@pytest.mark.parametrize("version", range(7, 11))
def test_stable_offsets_when_no_transaction_is_open(wire: Connection, group: str, topic: str, version: int) -> None:
    commit(wire, group, topic, {0: 5})
    asked = asked_by(version, topic, topic_id(wire, topic), [0])
    answer = fetch_one_group(wire, group, asked, version, require_stable=True)
    assert answer["topics"][0]["partitions"][0]["committed_offset"] == 5


def test_offsets_go_with_their_topic(wire: Connection, group: str, make_topic: MakeTopic) -> None:
    topic = make_topic()
    commit(wire, group, topic, {0: 5})
    wire.call("DeleteTopics", 6, {"topics": [{"name": topic}], "timeout_ms": 8000})
    eventually(lambda: fetch_one_group(wire, group, None, 8)["topics"] == [])


# ---------------------------------------------------------------------------------------------------- OffsetDelete


def delete_offsets(wire: Connection, group: str, topic: str, partitions: list[int]) -> tuple[int, dict[int, int]]:
    asked = [{"name": topic, "partitions": [{"partition_index": partition} for partition in partitions]}]
    answer = wire.call("OffsetDelete", 0, {"group_id": group, "topics": asked})
    found = {p["partition_index"]: p["error_code"] for t in answer["topics"] for p in t["partitions"]}
    return answer["error_code"], found


def test_offsets_are_deleted(wire: Connection, group: str, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=2)
    commit(wire, group, topic, {0: 1, 1: 2})
    assert delete_offsets(wire, group, topic, [0]) == (NONE, {0: NONE})
    assert committed(wire, group, topic, [0, 1]) == {0: -1, 1: 2}
    assert delete_offsets(wire, group, topic, [0]) == (NONE, {0: NONE}), "twice does no harm"
    assert delete_offsets(wire, group, topic, [7]) == (NONE, {7: UNKNOWN_TOPIC_OR_PARTITION})


def test_offsets_of_a_group_that_is_not_there_cannot_be_deleted(wire: Connection, group: str, topic: str) -> None:
    assert delete_offsets(wire, group, topic, [0]) == (GROUP_ID_NOT_FOUND, {})


def test_offsets_a_living_group_reads_by_cannot_be_deleted(
    bootstrap: str, wire: Connection, group: str, make_topic: MakeTopic
) -> None:
    read, left = make_topic(), make_topic()
    with ClassicMember(bootstrap, group, protocols=[("range", subscription([read]))]) as one:
        one.join()
        one.sync({one.id: assignment({read: [0]})})
        one.commit(read, {0: 1})
        one.commit(left, {0: 1})
        assert delete_offsets(wire, group, read, [0]) == (NONE, {0: GROUP_SUBSCRIBED_TO_TOPIC})
        assert delete_offsets(wire, group, left, [0]) == (NONE, {0: NONE})
        assert committed(wire, group, read, [0]) == {0: 1}
        assert committed(wire, group, left, [0]) == {0: -1}


# ------------------------------------------------------------------------------------------------- the topic itself


def test_the_topic_of_committed_offsets(wire: Connection, group: str) -> None:
    (found,) = wire.call("Metadata", 12, {"topics": [{"name": "__consumer_offsets"}]})["topics"]
    assert (found["error_code"], found["is_internal"], len(found["partitions"])) == (NONE, True, 50)
    resource = {"resource_type": 2, "resource_name": "__consumer_offsets", "configuration_keys": None}
    (described,) = wire.call("DescribeConfigs", 4, {"resources": [resource]})["results"]
    values = {config["name"]: config["value"] for config in described["configs"]}
    assert values["cleanup.policy"] == "compact"
    assert values["segment.bytes"] == "104857600"
