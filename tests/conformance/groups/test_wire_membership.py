"""Heartbeat, LeaveGroup and static members on the wire, every version."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from group_calls import (
    FENCED_INSTANCE_ID,
    ILLEGAL_GENERATION,
    INVALID_GROUP_ID,
    METADATA,
    NONE,
    OTHER_METADATA,
    REBALANCE_IN_PROGRESS,
    UNKNOWN_MEMBER_ID,
    ClassicMember,
    NewMember,
    describe,
    join_body,
    stable_group,
)
from raw import Connection

from waiting import eventually


@pytest.fixture
def member(bootstrap: str, group: str) -> Iterator[NewMember]:
    with ExitStack() as opened:
        yield lambda **options: opened.enter_context(ClassicMember(bootstrap, group, **options))


@pytest.mark.parametrize("version", range(5))
def test_heartbeats(member: NewMember, version: int) -> None:
    one = member()
    one.join()
    assert one.heartbeat(version) == NONE, "already while the group waits for the leader's assignments"
    one.sync({one.id: b"mine"})
    assert one.heartbeat(version) == NONE
    assert one.heartbeat(version, group_id="") == INVALID_GROUP_ID
    assert one.heartbeat(version, group_id="g-nowhere") == UNKNOWN_MEMBER_ID
    assert one.heartbeat(version, member_id="made-up") == UNKNOWN_MEMBER_ID
    assert one.heartbeat(version, generation_id=one.generation + 1) == ILLEGAL_GENERATION
    assert one.heartbeat(version, generation_id=one.generation - 1) == ILLEGAL_GENERATION


def test_a_rebalance_shows_in_heartbeats(member: NewMember) -> None:
    one, other = member(), member()
    stable_group([one])
    other.ask_to_join()
    eventually(lambda: one.heartbeat() == REBALANCE_IN_PROGRESS)
    one.ask_to_join()
    assert one.joined()["generation_id"] == other.joined()["generation_id"]
    assert one.heartbeat() == NONE


@pytest.mark.parametrize("version", range(6))
def test_leaving(member: NewMember, wire: Connection, group: str, version: int) -> None:
    one = member()
    stable_group([one])
    answer = one.leave(version)
    assert answer["error_code"] == NONE
    if version >= 3:
        assert answer["members"] == [{"member_id": one.id, "group_instance_id": None, "error_code": NONE}]
    assert describe(wire, group)["group_state"] == "Empty"
    assert one.heartbeat() == UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", range(6))
def test_leaving_what_one_is_not_in(member: NewMember, version: int) -> None:
    one, stranger = member(), member()
    stable_group([one])
    stranger.id = "made-up"
    answer = stranger.leave(version)
    if version < 3:
        assert answer["error_code"] == UNKNOWN_MEMBER_ID
    else:
        assert (answer["error_code"], answer["members"][0]["error_code"]) == (NONE, UNKNOWN_MEMBER_ID)
    assert one.heartbeat() == NONE


@pytest.mark.parametrize("version", [1, 5])
def test_leaving_a_group_that_is_not_there(member: NewMember, version: int) -> None:
    one = member()
    one.id = "made-up"
    answer = one.leave(version)
    if version < 3:
        assert answer["error_code"] == UNKNOWN_MEMBER_ID
    else:
        assert (answer["error_code"], answer["members"][0]["error_code"]) == (NONE, UNKNOWN_MEMBER_ID)


def test_several_leave_in_one_call(member: NewMember, wire: Connection, group: str) -> None:
    """As an admin tool removes members: by id, or by instance name alone."""
    one, two, three = member(), member(instance="two"), member(instance="three")
    stable_group([one, two, three])
    left = [
        {"member_id": one.id},
        {"member_id": "", "group_instance_id": "two"},
        {"member_id": "", "group_instance_id": "nobody"},
        {"member_id": "made-up", "group_instance_id": "three"},
    ]
    answer = wire.call("LeaveGroup", 5, {"group_id": group, "members": left})
    assert answer["error_code"] == NONE
    assert [found["error_code"] for found in answer["members"]] == [
        NONE,
        NONE,
        UNKNOWN_MEMBER_ID,
        FENCED_INSTANCE_ID,
    ]
    assert [found["member_id"] for found in describe(wire, group)["members"]] == [three.id]


def test_a_member_with_an_id_and_no_join_can_leave(member: NewMember, wire: Connection, group: str) -> None:
    given = wire.call("JoinGroup", 9, join_body(group))["member_id"]
    one = member()
    one.id = given
    assert one.leave()["members"][0]["error_code"] == NONE


def test_the_leaders_leave_makes_another_the_leader(member: NewMember) -> None:
    one, two = member(), member()
    stable_group([one, two])
    leader, follower = sorted((one, two), key=lambda each: not each.leads)
    leader.leave()
    eventually(lambda: follower.heartbeat() == REBALANCE_IN_PROGRESS)
    answer = follower.join()
    assert answer["leader"] == follower.id
    assert [found["member_id"] for found in answer["members"]] == [follower.id]


def test_a_static_member_restarted_moves_nothing(member: NewMember, wire: Connection, group: str) -> None:
    """It gets a new id and its old assignment; the generation stays and the others hear nothing."""
    leader, two = member(instance="one"), member(instance="two")
    stable_group([leader, two])
    if not leader.leads:
        leader, two = two, leader
    generation, old_id = two.generation, two.id
    two.wire.socket.close()
    again = member(instance=two.instance)
    answer = again.join()
    assert (answer["error_code"], answer["generation_id"]) == (NONE, generation)
    assert answer["member_id"] != old_id
    assert (answer["leader"], answer["members"]) == (leader.id, [])
    assert again.sync()["assignment"] == (b"1" if two.instance == "two" else b"0")
    assert leader.heartbeat() == NONE
    assert describe(wire, group)["group_state"] == "Stable"


def test_a_static_leader_restarted_is_told_to_skip_the_assignment(member: NewMember) -> None:
    one, two = member(instance="one"), member(instance="two")
    stable_group([one, two])
    leader, follower = sorted((one, two), key=lambda each: not each.leads)
    leader.wire.socket.close()
    again = member(instance=leader.instance)
    answer = again.join()
    assert (answer["error_code"], answer["generation_id"]) == (NONE, follower.generation)
    assert answer["leader"] == answer["member_id"]
    assert answer["skip_assignment"] is True
    assert len(answer["members"]) == 2, "it leads, so it sees them"
    assert again.sync()["assignment"] != b""
    assert follower.heartbeat() == NONE


def test_an_older_static_leader_restarted_is_not_told_it_leads(member: NewMember) -> None:
    """Versions before 9 cannot be told to skip, so the leader's old id is answered: the client takes itself for a
    follower, and nothing moves."""
    one, two = member(instance="one"), member(instance="two")
    stable_group([one, two])
    leader, follower = sorted((one, two), key=lambda each: not each.leads)
    leader.wire.socket.close()
    again = member(instance=leader.instance, version=7)
    answer = again.join()
    assert (answer["error_code"], answer["generation_id"]) == (NONE, follower.generation)
    assert (answer["leader"], answer["members"]) == (leader.id, [])
    assert again.sync()["assignment"] != b""
    assert follower.heartbeat() == NONE


def test_the_older_of_two_with_one_instance_name_is_fenced(member: NewMember, topic: str) -> None:
    old = member(instance="one")
    stable_group([old])
    young = member(instance="one")
    young.join()
    assert young.id != old.id
    assert old.heartbeat() == FENCED_INSTANCE_ID
    assert old.sync({old.id: b""})["error_code"] == FENCED_INSTANCE_ID
    assert old.join()["error_code"] == FENCED_INSTANCE_ID
    assert old.leave()["members"][0]["error_code"] == FENCED_INSTANCE_ID
    fenced: dict[str, Any] = {"group_instance_id": "one"}
    assert set(old.commit(topic, {0: 1}, **fenced).values()) == {FENCED_INSTANCE_ID}
    assert young.heartbeat() == NONE


def test_a_static_member_restarted_with_other_metadata_moves_nothing_either(member: NewMember) -> None:
    one, two = member(instance="one"), member(instance="two")
    stable_group([one, two])
    again = member(instance="two", protocols=[("range", OTHER_METADATA)])
    assert again.join()["generation_id"] == two.generation
    assert one.heartbeat() == NONE


def test_a_static_member_restarted_that_changes_the_protocol_starts_a_rebalance(member: NewMember) -> None:
    both = [("range", METADATA), ("roundrobin", METADATA)]
    one, two = member(instance="one", protocols=both), member(instance="two", protocols=both)
    stable_group([one, two])
    again = member(instance="two", protocols=both[1:])
    again.ask_to_join()
    eventually(lambda: one.heartbeat() == REBALANCE_IN_PROGRESS)
    one.ask_to_join()
    assert one.joined()["generation_id"] == again.joined()["generation_id"] == two.generation + 1
    assert one.protocol[1] == "roundrobin"


def test_static_members_are_described_with_their_names(member: NewMember, wire: Connection, group: str) -> None:
    stable_group([member(instance="one"), member()])
    names = [found["group_instance_id"] for found in describe(wire, group)["members"]]
    assert sorted(names, key=str) == [None, "one"]
