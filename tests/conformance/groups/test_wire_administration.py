"""ListGroups, DescribeGroups and DeleteGroups on the wire, every version."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from group_calls import (
    GROUP_ID_NOT_FOUND,
    METADATA,
    NON_EMPTY_GROUP,
    NONE,
    ClassicMember,
    NewMember,
    commit,
    committed,
    delete_group,
    describe,
    listed,
    stable_group,
)
from raw import Connection

from waiting import eventually


@pytest.fixture
def member(bootstrap: str, group: str) -> Iterator[NewMember]:
    with ExitStack() as opened:
        yield lambda **options: opened.enter_context(ClassicMember(bootstrap, group, **options))


@pytest.mark.parametrize("version", range(6))
def test_groups_are_listed(member: NewMember, wire: Connection, group: str, version: int) -> None:
    assert listed(wire, group, version) is None
    stable_group([member()])
    expected = {"group_id": group, "protocol_type": "consumer"}
    if version >= 4:
        expected["group_state"] = "Stable"
    if version >= 5:
        expected["group_type"] = "classic"
    assert listed(wire, group, version) == expected


@pytest.mark.parametrize("version", [4, 5])
def test_groups_are_listed_by_state(member: NewMember, wire: Connection, group: str, topic: str, version: int) -> None:
    one = member()
    one.join()

    def found(*states: str) -> bool:
        return listed(wire, group, version, states_filter=list(states)) is not None

    assert found("CompletingRebalance")
    assert not found("Stable")
    one.sync({one.id: b""})
    assert found("Stable")
    assert found("stable"), "in any case"
    assert found("Empty", "Stable")
    assert not found("Empty")
    assert not found("NoSuchState")
    one.leave()
    assert found("Empty")


def test_groups_are_listed_by_type(member: NewMember, wire: Connection, group: str) -> None:
    stable_group([member()])
    assert listed(wire, group, types_filter=["classic"])
    assert listed(wire, group, types_filter=["Classic"]), "in any case"
    assert listed(wire, group, types_filter=["consumer", "classic"])
    assert not listed(wire, group, types_filter=["consumer"])
    assert not listed(wire, group, types_filter=["nonsense"])
    assert listed(wire, group, types_filter=["classic"], states_filter=["Stable"])
    assert not listed(wire, group, types_filter=["classic"], states_filter=["Empty"])


@pytest.mark.parametrize("version", range(7))
def test_groups_are_described(member: NewMember, wire: Connection, group: str, version: int) -> None:
    one, two = member(), member(instance="two")
    stable_group([one, two])
    found = describe(wire, group, version)
    assert (found["error_code"], found["group_id"], found["group_state"]) == (NONE, group, "Stable")
    assert (found["protocol_type"], found["protocol_data"]) == ("consumer", "range")
    by_id = {each["member_id"]: each for each in found["members"]}
    assert by_id.keys() == {one.id, two.id}
    assert (by_id[one.id]["member_metadata"], by_id[one.id]["member_assignment"]) == (METADATA, b"0")
    assert (by_id[two.id]["client_id"], by_id[two.id]["client_host"]) == ("raw", "/127.0.0.1")
    if version >= 3:
        assert found["authorized_operations"] == -(2**31)
    if version >= 4:
        assert (by_id[one.id]["group_instance_id"], by_id[two.id]["group_instance_id"]) == (None, "two")


def test_the_states_of_a_group(member: NewMember, wire: Connection, group: str) -> None:
    one, two = member(), member()
    one.join()
    found = describe(wire, group)
    assert found["group_state"] == "CompletingRebalance"
    assert found["protocol_data"] == "", "only a stable group has one"
    assert (found["members"][0]["member_metadata"], found["members"][0]["member_assignment"]) == (b"", b"")
    one.sync({one.id: b"mine"})
    assert describe(wire, group)["group_state"] == "Stable"
    two.ask_to_join()
    eventually(lambda: describe(wire, group)["group_state"] == "PreparingRebalance")
    assert describe(wire, group)["protocol_data"] == ""
    one.leave()
    two.joined()
    two.leave()
    found = describe(wire, group)
    assert (found["group_state"], found["protocol_type"], found["members"]) == ("Empty", "consumer", [])


@pytest.mark.parametrize("version", range(7))
def test_a_group_that_is_not_there_is_described_as_dead(wire: Connection, group: str, version: int) -> None:
    found = describe(wire, group, version)
    assert (found["group_state"], found["protocol_type"], found["members"]) == ("Dead", "", [])
    if version < 6:
        assert found["error_code"] == NONE
    else:
        assert found["error_code"] == GROUP_ID_NOT_FOUND
        assert group in found["error_message"]


def test_several_groups_are_described(member: NewMember, wire: Connection, group: str) -> None:
    stable_group([member()])
    names = [group, group + "-nowhere"]
    answer = wire.call("DescribeGroups", 5, {"groups": names})["groups"]
    assert {found["group_id"]: found["group_state"] for found in answer} == dict(
        zip(names, ["Stable", "Dead"], strict=True)
    )


def test_authorized_operations_on_request(member: NewMember, wire: Connection, group: str) -> None:
    stable_group([member()])
    body = {"groups": [group], "include_authorized_operations": True}
    (found,) = wire.call("DescribeGroups", 5, body)["groups"]
    read, delete, describe_, describe_configs, alter_configs = 3, 6, 8, 10, 11
    expected = sum(1 << operation for operation in (read, delete, describe_, describe_configs, alter_configs))
    assert found["authorized_operations"] == expected


@pytest.mark.parametrize("version", range(3))
def test_groups_are_deleted(member: NewMember, wire: Connection, group: str, topic: str, version: int) -> None:
    one = member()
    stable_group([one])
    one.commit(topic, {0: 5})
    assert delete_group(wire, group, version) == NON_EMPTY_GROUP
    assert committed(wire, group, topic, [0]) == {0: 5}
    one.leave()
    assert delete_group(wire, group, version) == NONE
    assert listed(wire, group) is None
    assert committed(wire, group, topic, [0]) == {0: -1}
    assert delete_group(wire, group, version) == GROUP_ID_NOT_FOUND


def test_a_group_of_commits_alone_is_deleted(wire: Connection, group: str, topic: str) -> None:
    commit(wire, group, topic, {0: 5})
    assert delete_group(wire, group) == NONE
    assert listed(wire, group) is None


def test_several_groups_are_deleted(wire: Connection, group: str, topic: str) -> None:
    commit(wire, group, topic, {0: 5})
    answer = wire.call("DeleteGroups", 2, {"groups_names": [group, group + "-nowhere"]})
    assert {found["group_id"]: found["error_code"] for found in answer["results"]} == {
        group: NONE,
        group + "-nowhere": GROUP_ID_NOT_FOUND,
    }


def test_a_deleted_group_starts_anew(member: NewMember, wire: Connection, group: str) -> None:
    one = member()
    stable_group([one])
    one.leave()
    delete_group(wire, group)
    again = member()
    assert again.join()["generation_id"] == 1
