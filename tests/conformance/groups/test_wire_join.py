"""JoinGroup and SyncGroup on the wire, every version: ids, generations, the leader's list, and each refusal."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from group_calls import (
    ILLEGAL_GENERATION,
    INCONSISTENT_GROUP_PROTOCOL,
    INVALID_GROUP_ID,
    INVALID_SESSION_TIMEOUT,
    MEMBER_ID_REQUIRED,
    METADATA,
    NONE,
    OTHER_METADATA,
    REBALANCE_IN_PROGRESS,
    UNKNOWN_MEMBER_ID,
    ClassicMember,
    NewMember,
    await_members,
    describe,
    join_body,
    next_generation,
    shortest_session_ms,
    stable_group,
)
from raw import Connection

from waiting import eventually


@pytest.fixture
def member(bootstrap: str, group: str) -> Iterator[NewMember]:
    with ExitStack() as opened:
        yield lambda **options: opened.enter_context(ClassicMember(bootstrap, group, **options))


@pytest.mark.parametrize("version", range(4))
def test_old_joins_are_let_in_at_once(wire: Connection, group: str, version: int) -> None:
    answer = wire.call("JoinGroup", version, join_body(group))
    assert (answer["error_code"], answer["generation_id"], answer["protocol_name"]) == (NONE, 1, "range")
    assert answer["leader"] == answer["member_id"] != ""
    assert answer["members"] == [{"member_id": answer["member_id"], "metadata": METADATA}]


@pytest.mark.parametrize("version", range(4, 10))
def test_new_members_are_given_an_id_first(wire: Connection, group: str, version: int) -> None:
    first = wire.call("JoinGroup", version, join_body(group))
    assert (first["error_code"], first["generation_id"]) == (MEMBER_ID_REQUIRED, -1)
    assert (first["leader"], first["members"]) == ("", [])
    assert first["protocol_name"] == (None if version >= 7 else "")
    assert first["member_id"].startswith("raw-"), "the client's id and something unique"
    answer = wire.call("JoinGroup", version, join_body(group, first["member_id"]))
    assert (answer["error_code"], answer["generation_id"], answer["protocol_name"]) == (NONE, 1, "range")
    assert answer["leader"] == answer["member_id"] == first["member_id"]
    (listed,) = answer["members"]
    assert (listed["member_id"], listed["metadata"]) == (first["member_id"], METADATA)
    if version >= 5:
        assert listed["group_instance_id"] is None
    if version >= 7:
        assert answer["protocol_type"] == "consumer"
    if version >= 9:
        assert answer["skip_assignment"] is False


@pytest.mark.parametrize("version", range(5, 10))
def test_static_members_are_let_in_at_once(wire: Connection, group: str, version: int) -> None:
    answer = wire.call("JoinGroup", version, join_body(group, instance="one"))
    assert (answer["error_code"], answer["generation_id"]) == (NONE, 1)
    assert answer["member_id"].startswith("one-"), "the instance's name and something unique"
    assert [listed["group_instance_id"] for listed in answer["members"]] == ["one"]


@pytest.mark.parametrize("version", [0, 3, 4, 9])
def test_a_member_id_nobody_gave_out(wire: Connection, group: str, version: int, bootstrap: str) -> None:
    answer = wire.call("JoinGroup", version, join_body(group, "made-up"))
    assert (answer["error_code"], answer["generation_id"], answer["member_id"]) == (UNKNOWN_MEMBER_ID, -1, "made-up")
    with ClassicMember(bootstrap, group) as member:
        member.join()
        answer = wire.call("JoinGroup", version, join_body(group, "made-up"))
    assert answer["error_code"] == UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("session_ms", [0, 1, 1_800_001])
def test_session_timeouts_out_of_bounds(wire: Connection, group: str, session_ms: int) -> None:
    answer = wire.call("JoinGroup", 9, join_body(group, session_timeout_ms=session_ms))
    assert (answer["error_code"], answer["member_id"]) == (INVALID_SESSION_TIMEOUT, "")


def test_a_group_without_a_name(wire: Connection) -> None:
    assert wire.call("JoinGroup", 9, join_body(""))["error_code"] == INVALID_GROUP_ID


@pytest.mark.parametrize("more", [{"protocol_type": ""}, {"protocols": []}])
def test_the_first_member_must_name_a_protocol(wire: Connection, group: str, more: dict[str, Any]) -> None:
    answer = wire.call("JoinGroup", 3, join_body(group, **more))
    assert answer["error_code"] == INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize("more", [{"protocol_type": "connect"}, {"protocols": [("sticky", METADATA)]}])
def test_protocols_that_do_not_fit_the_group(
    member: NewMember, wire: Connection, group: str, more: dict[str, Any]
) -> None:
    member().join()
    assert wire.call("JoinGroup", 3, join_body(group, **more))["error_code"] == INCONSISTENT_GROUP_PROTOCOL
    assert len(describe(wire, group)["members"]) == 1


def test_the_protocol_most_members_prefer_wins(member: NewMember) -> None:
    """Of those that all of them know."""
    kind = {"protocol_type": "letters"}
    a = member(**kind, protocols=[("x", b"ax"), ("y", b"ay"), ("z", b"az")])
    b = member(**kind, protocols=[("z", b"bz"), ("y", b"by")])
    c = member(**kind, protocols=[("y", b"cy"), ("z", b"cz")])
    stable_group([a, b])
    c.ask_to_join()
    await_members(a, 3)
    for one in (a, b):
        one.ask_to_join()
    answers = [one.joined() for one in (a, b, c)]
    assert {answer["protocol_name"] for answer in answers} == {"y"}, "a and c like y better than z"
    (leader,) = [one for one in (a, b, c) if one.leads]
    assert sorted(one["metadata"] for one in leader.members) == [b"ay", b"by", b"cy"]
    assert [len(answer["members"]) for answer in answers].count(0) == 2, "only the leader sees the others"


def test_followers_sync_before_and_after_the_leader(member: NewMember) -> None:
    first, second, third = member(), member(), member()
    stable_group([first, second, third])
    next_generation([first, second, third])
    leader, early, late = sorted((first, second, third), key=lambda one: not one.leads)
    early.ask_to_sync()
    assert early.wire.silent_for(0.3)
    assert leader.sync({leader.id: b"L", early.id: b"E", late.id: b"T"})["assignment"] == b"L"
    assert early.synced()["assignment"] == b"E"
    assert late.sync()["assignment"] == b"T"
    assert late.sync()["assignment"] == b"T", "and again"


@pytest.mark.parametrize("version", range(6))
def test_sync_in_every_version(member: NewMember, version: int) -> None:
    one = member()
    one.join()
    answer = one.sync({one.id: b"mine"}, version)
    assert (answer["error_code"], answer["assignment"]) == (NONE, b"mine")
    if version >= 5:
        assert (answer["protocol_type"], answer["protocol_name"]) == ("consumer", "range")


def test_a_member_the_leader_forgot_gets_an_empty_assignment(member: NewMember) -> None:
    one = member()
    one.join()
    answer = one.sync({})
    assert (answer["error_code"], answer["assignment"]) == (NONE, b"")


def test_sync_refusals(member: NewMember, wire: Connection, group: str) -> None:
    one = member()
    one.join()
    right = {"group_id": group, "generation_id": one.generation, "member_id": one.id}
    right |= {"protocol_type": "consumer", "protocol_name": "range"}

    def code(**more: Any) -> int:
        answer: int = wire.call("SyncGroup", 5, {**right, **more})["error_code"]
        return answer

    assert code(group_id="") == INVALID_GROUP_ID
    assert code(group_id=group + "-other") == UNKNOWN_MEMBER_ID
    assert code(member_id="made-up") == UNKNOWN_MEMBER_ID
    assert code(generation_id=2) == ILLEGAL_GENERATION
    assert code(generation_id=0) == ILLEGAL_GENERATION
    assert code(protocol_type="connect") == INCONSISTENT_GROUP_PROTOCOL
    assert code(protocol_name="sticky") == INCONSISTENT_GROUP_PROTOCOL
    assert code(protocol_type=None) == INCONSISTENT_GROUP_PROTOCOL, "from version 5 they must be there"
    assert code(protocol_name=None) == INCONSISTENT_GROUP_PROTOCOL
    assert code() == NONE


def test_a_join_ends_a_waiting_sync(member: NewMember) -> None:
    first, second = member(), member()
    stable_group([first, second])
    next_generation([first, second])
    (follower,) = [one for one in (first, second) if not one.leads]
    follower.ask_to_sync()
    assert follower.wire.silent_for(0.2)
    third = member()
    third.ask_to_join()
    answer = follower.synced()
    assert (answer["error_code"], answer["assignment"]) == (REBALANCE_IN_PROGRESS, b"")
    assert follower.sync()["error_code"] == REBALANCE_IN_PROGRESS, "also when it asks again"


def test_a_follower_joining_unchanged_is_answered_at_once(member: NewMember) -> None:
    first, second = member(), member()
    stable_group([first, second])
    (follower,) = [one for one in (first, second) if not one.leads]
    (leader,) = [one for one in (first, second) if one.leads]
    generation = follower.generation
    answer = follower.join()
    assert (answer["error_code"], answer["generation_id"], answer["members"]) == (NONE, generation, [])
    assert leader.heartbeat() == NONE, "nobody is bothered"


def test_a_leader_joining_starts_a_rebalance(member: NewMember) -> None:
    first, second = member(), member()
    stable_group([first, second])
    (follower,) = [one for one in (first, second) if not one.leads]
    (leader,) = [one for one in (first, second) if one.leads]
    generation = leader.generation
    leader.ask_to_join()
    eventually(lambda: follower.heartbeat() == REBALANCE_IN_PROGRESS)
    follower.ask_to_join()
    assert leader.joined()["generation_id"] == follower.joined()["generation_id"] == generation + 1


def test_a_join_repeated_on_the_same_generation_is_answered_the_same(
    member: NewMember, wire: Connection, group: str
) -> None:
    """The answer to the first may have been lost."""
    one = member()
    answer = one.join()
    again = wire.call("JoinGroup", 9, join_body(group, one.id))
    assert again == answer


def test_changed_metadata_starts_a_rebalance(member: NewMember) -> None:
    first, second = member(), member()
    stable_group([first, second])
    (follower,) = [one for one in (first, second) if not one.leads]
    (leader,) = [one for one in (first, second) if one.leads]
    follower.options = {"protocols": [("range", OTHER_METADATA)]}
    follower.ask_to_join()
    eventually(lambda: leader.heartbeat() == REBALANCE_IN_PROGRESS)
    leader.ask_to_join()
    leader.joined()
    assert {one["metadata"] for one in leader.members} == {METADATA, OTHER_METADATA}


def test_who_does_not_join_in_time_is_left_behind(member: NewMember, wire: Connection, group: str) -> None:
    slow = member(session_timeout_ms=10_000, rebalance_timeout_ms=3_000)
    slow.join()
    slow.sync({slow.id: b"mine"})
    quick = member(rebalance_timeout_ms=3_000)
    answer = quick.join()
    assert (answer["error_code"], answer["generation_id"]) == (NONE, 2)
    assert [one["member_id"] for one in answer["members"]] == [quick.id]
    assert slow.heartbeat() == UNKNOWN_MEMBER_ID


def test_who_is_silent_for_its_session_timeout_is_removed(member: NewMember, wire: Connection, group: str) -> None:
    silent = member(session_timeout_ms=max(4_000, shortest_session_ms(wire)))
    silent.join()
    silent.sync({silent.id: b"mine"})
    silent.wire.socket.close()
    assert describe(wire, group)["group_state"] == "Stable", "a closed connection is not a left group"
    eventually(lambda: describe(wire, group)["group_state"] == "Empty", seconds=45)


def test_other_protocol_types_are_opaque(member: NewMember, wire: Connection, group: str) -> None:
    """As Kafka Connect and schema registries use groups."""
    protocols = [("compatible", b"\x00\x01url"), ("default", b"\xff")]
    one = member(protocol_type="connect", protocols=protocols)
    answer = one.join()
    assert (answer["protocol_type"], answer["protocol_name"]) == ("connect", "compatible")
    assert answer["members"][0]["metadata"] == b"\x00\x01url"
    assert one.sync({one.id: b"\x00anything"})["assignment"] == b"\x00anything"
    found = describe(wire, group)
    assert (found["protocol_type"], found["protocol_data"]) == ("connect", "compatible")
    (listed,) = found["members"]
    assert (listed["member_metadata"], listed["member_assignment"]) == (b"\x00\x01url", b"\x00anything")
    assert one.heartbeat() == NONE


@pytest.mark.skidway_only
@pytest.mark.parametrize("metadata", [b"", b"\x00", b"garbage", b"\x00\x00\x7f\xff\xff\xff"])
def test_a_subscription_that_makes_no_sense_harms_nobody(wire: Connection, group: str, metadata: bytes) -> None:
    """Apache Kafka never answers such a join: its coordinator fails on it inside a timer."""
    answer = wire.call("JoinGroup", 3, join_body(group, protocols=[("range", metadata)]))
    assert (answer["error_code"], answer["members"][0]["metadata"]) == (NONE, metadata)
