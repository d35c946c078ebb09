"""Stories about share groups: who is assigned what, when, and what becomes of the share-partitions' states."""

from itertools import pairwise
from random import Random
from typing import Any

import hypothesis.strategies as st
import pytest
from consumer_stories import topic_id
from hypothesis import given, settings
from share_stories import HEARTBEAT_MS, SESSION_MS, Member, World

from skidway.errors import ErrorCode, GroupIdNotFound, NonEmptyGroup, ProtocolError
from skidway.groups.operations import (
    CommitOffsets,
    DeleteGroup,
    DescribeGroup,
    FetchOffsets,
    JoinGroup,
    ListGroups,
    OffsetToCommit,
    SyncGroup,
    Tick,
)
from skidway.groups.share.assignor import Subscriber, assign_simple
from skidway.groups.share.operations import (
    AlterShareOffsets,
    DeleteShareOffsets,
    DeleteStates,
    InitializeStates,
    KnownShares,
    ShareDescribe,
    ShareHeartbeat,
    StateItem,
    StatesChanged,
)
from skidway.groups.share.protocol import SOON_MS

UNAVAILABLE = ErrorCode.COORDINATOR_NOT_AVAILABLE


def code(reply: Any) -> str:
    assert isinstance(reply, ProtocolError), reply
    return ErrorCode(reply.code).name


# --- joining, leaving ---


def test_a_member_is_assigned_what_has_a_state() -> None:
    world = World(t=2)
    a = Member(world, "a", "t")
    assert a.beat() == {}
    assert a.interval_ms == SOON_MS, "there is something for it any moment"
    (effect,) = world.effects
    assert isinstance(effect, InitializeStates)
    assert [(item.partition, item.start_offset) for item in effect.items] == [(0, -1), (1, -1)]
    assert a.beat() is None, "not yet"
    world.answer()
    assert a.beat() == {"t": [0, 1]}
    assert a.interval_ms == HEARTBEAT_MS
    assert a.beat() is None, "it knows"
    assert world.effects == []
    assert world.group.state_name == "Stable"


def test_members_share_partitions_and_one_heartbeat_takes_each_there() -> None:
    world = World(t=2)
    members = [Member(world, name, "t") for name in "abc"]
    members[0].beat()
    world.answer()
    for member in members:
        member.beat()
    for member in members:
        member.beat()
    taken = [member.assigned["t"] for member in members]
    assert sorted(map(len, taken)) == [1, 1, 1]
    assert {partition for each in taken for partition in each} == {0, 1}
    assert members[2].beat(-1) is None
    assert members[2].epoch == -1
    for member in members[:2]:
        member.beat()
    assert sorted(members[0].assigned["t"] + members[1].assigned["t"]) == [0, 1]


def test_epochs_are_checked() -> None:
    world = World(t=1)
    a = Member(world, "a", "t")
    assert a.beat(3) == "GROUP_ID_NOT_FOUND"
    a.beat()
    world.answer()
    first = a.epoch
    assert a.beat() == {"t": [0]}
    assert a.epoch > first
    assert a.beat(first) == {"t": [0]}, "it has not heard of its last epoch, and is told again"
    assert a.beat(a.epoch + 1) == "FENCED_MEMBER_EPOCH"
    assert Member(world, "b", "t").beat(a.epoch) == "UNKNOWN_MEMBER_ID"
    Member(world, "b", "t").beat()
    a.beat()
    assert a.beat(first) == "FENCED_MEMBER_EPOCH"
    assert a.beat(0) == {"t": [0]}, "a known member joins again"


@pytest.mark.parametrize(
    ("fields", "member_id"),
    [
        ({"epoch": -2}, "a"),
        ({"epoch": 0, "topics": None}, "a"),
        ({"epoch": 0, "topics": []}, "a"),
        ({"epoch": 0, "rack_id": " "}, "a"),
        ({"epoch": 0}, ""),
        ({"epoch": 0}, "x" * 37),
    ],
)
def test_what_makes_no_sense_is_refused(fields: dict[str, Any], member_id: str) -> None:
    world = World(t=1)
    assert Member(world, member_id, "t").beat(**fields) == "INVALID_REQUEST"
    assert "g" not in world.host.machine.groups


def test_a_full_group_takes_no_more() -> None:
    world = World(size_max=1, t=1)
    assert Member(world, "a", "t").beat() == {}
    assert Member(world, "b", "t").beat() == "GROUP_MAX_SIZE_REACHED"
    assert Member(world, "a", "t").beat() == {}, "not a new one"


def test_a_silent_member_is_removed_and_the_group_stays() -> None:
    world = World(t=1)
    a, b = Member(world, "a", "t"), Member(world, "b", "t")
    a.beat()
    world.answer()
    a.beat()
    b.beat()
    world.pass_time(SESSION_MS - 1)
    a.beat()
    world.pass_time(1)
    assert list(world.group.members) == ["a"]
    assert b.beat() == "UNKNOWN_MEMBER_ID"
    world.pass_time(SESSION_MS)
    assert world.group.is_empty
    assert world.group.epoch == world.group.target_epoch
    world.pass_time(10 * 24 * 3_600_000)  # offsets of other groups expire after seven days
    assert world.group.state_name == "Empty", "share groups never expire"
    assert world.group.initialized


def test_a_restart_keeps_everything() -> None:
    world = World(t=2)
    a = Member(world, "a", "t")
    a.beat()
    world.answer()
    a.beat()
    world.restart()
    assert world.effects == []
    assert a.beat() is None
    assert a.beat(0) == {"t": [0, 1]}
    world.pass_time(SESSION_MS)
    assert world.group.is_empty, "the loaded member had a session"


# --- states ---


def test_what_cannot_be_initialised_is_tried_again_as_a_whole_topic() -> None:
    world = World(t=2)
    a = Member(world, "a", "t")
    a.beat()
    (effect,) = world.effects
    world.effects.clear()
    world.store(effect, 0)
    world.ask(StatesChanged("g", effect.number, [ErrorCode.NONE, UNAVAILABLE]))
    assert a.beat() is None
    assert world.group.initialized == frozenset()
    world.end = 200
    world.pass_time(1_000)
    (again,) = world.effects
    assert again.items == effect.items, "the rest of it does not start at 0 as if it came later"
    world.answer()
    assert a.beat() == {"t": [0, 1]}
    assert (world.started("t", 0), world.started("t", 1)) == (100, 200), "what was found first stays"


def test_a_new_coordinator_goes_on_with_what_was_begun() -> None:
    world = World(t=1)
    a = Member(world, "a", "t")
    a.beat()
    (effect,) = world.effects
    world.answer_one(effect)  # stored, and the answer is lost with the coordinator
    assert world.group.initialized
    world = World(t=1)
    a = Member(world, "a", "t")
    a.beat()
    (effect,) = world.effects
    world.store(effect, 0)
    world.end = 500
    world.restart()
    (again,) = world.effects
    assert again.number != effect.number
    world.ask(StatesChanged("g", effect.number, [ErrorCode.NONE]))
    assert world.group.initialized == frozenset(), "an answer to the coordinator before"
    world.answer()
    assert world.started("t", 0) == 100, "resolved once"
    assert a.beat() == {"t": [0]}


def test_partitions_that_come_later_start_at_their_beginning() -> None:
    world = World(t=1)
    a = Member(world, "a", "t")
    a.beat()
    world.answer()
    a.beat()
    world.cluster.grow("t", 3)
    assert a.beat() is None
    assert a.interval_ms == SOON_MS
    world.answer()
    assert a.beat() == {"t": [0, 1, 2]}
    assert [world.started("t", number) for number in range(3)] == [100, 0, 0]


def test_a_topic_that_is_deleted_is_assigned_no_more() -> None:
    world = World(t=1, u=1)
    a = Member(world, "a", "t", "u")
    a.beat()
    world.answer()
    assert a.beat() == {"t": [0], "u": [0]}
    world.cluster.grow("u", None)
    assert a.beat() == {"t": [0]}
    assert {topic for topic, _ in world.group.initialized} == {topic_id("t")}


def test_another_subscription_counts_at_once() -> None:
    world = World(t=1, u=1)
    a = Member(world, "a", "t")
    a.beat()
    world.answer()
    a.beat()
    assert a.beat(topics=["u"]) == {}
    world.answer()
    assert a.beat() == {"u": [0]}
    assert a.beat(topics=["t"]) == {"t": [0]}, "it has a state already"
    assert world.effects == []


def test_an_append_that_fails_leaves_no_trace() -> None:
    world = World(t=1)
    world.refusing = True
    assert Member(world, "a", "t").beat() == "KAFKA_STORAGE_ERROR"
    assert world.effects == []
    assert Member(world, "a", "t").beat() == {}
    assert len(world.effects) == 1


def test_nothing_is_initialised_before_it_is_committed_that_it_should_be() -> None:
    world = World(t=1)
    world.held_back = True
    assert world.ask(ShareHeartbeat("g", "a", 0, topics=["t"])) is None
    assert world.effects == []
    world.held_back = False
    world.committed_offset = world.end_offset
    world.host.on_committed(world.end_offset)
    assert len(world.effects) == 1


# --- admins ---


def test_groups_are_listed_and_described() -> None:
    world = World(t=1)
    Member(world, "a", "t").beat()
    world.answer()
    Member(world, "a", "t").beat()
    (listed,) = world.ask(ListGroups(types=["Share"]))
    assert (listed.group_id, listed.protocol_type, listed.state, listed.type) == ("g", "share", "Stable", "share")
    assert world.ask(ListGroups(types=["consumer"])) == []
    described = world.ask(ShareDescribe("g"))
    (member,) = described.members
    assert (described.state, member.member_id, member.topics) == ("Stable", "a", ["t"])
    assert member.assignment == [(topic_id("t"), "t", [0])]
    assert world.ask(KnownShares("g")) == [(topic_id("t"), "t", [0])]
    assert code(world.ask(ShareDescribe("nobody"))) == "GROUP_ID_NOT_FOUND"


def test_other_protocols_find_no_group_of_theirs() -> None:
    world = World(t=1)
    Member(world, "a", "t").beat()
    join = JoinGroup("g", "", None, "c", "h", 10_000, 10_000, "consumer", [("range", b"")])
    assert code(world.ask(join)) == "INCONSISTENT_GROUP_PROTOCOL"
    assert code(world.ask(SyncGroup("g", "a", None, 1))) == "UNKNOWN_MEMBER_ID"
    assert code(world.ask(DescribeGroup("g"))) == "GROUP_ID_NOT_FOUND"
    assert code(world.ask(CommitOffsets("g", [OffsetToCommit("t", 0, 1)]))) == "GROUP_ID_NOT_FOUND"
    assert code(world.ask(FetchOffsets("g"))) == "GROUP_ID_NOT_FOUND"
    world.ask(CommitOffsets("classic", [OffsetToCommit("t", 0, 1)]))
    assert code(world.ask(ShareHeartbeat("classic", "a", 0, topics=["t"]))) == "GROUP_ID_NOT_FOUND"


def emptied() -> World:
    world = World(t=2, u=1)
    a = Member(world, "a", "t", "u")
    a.beat()
    world.answer()
    a.beat()
    a.beat(-1)
    return world


def test_a_group_is_deleted_with_its_states() -> None:
    world = emptied()
    answers: list[Any] = []
    world.ask(DeleteGroup("g"), answers.append)
    assert answers == [], "not before its states are gone"
    (effect,) = world.effects
    assert isinstance(effect, DeleteStates)
    assert len(effect.items) == 3
    world.answer()
    assert answers == [None]
    assert world.states == {}
    assert world.host.machine.groups == {}


def test_a_deletion_that_fails_is_finished_later() -> None:
    world = emptied()
    answers: list[Any] = []
    world.ask(DeleteGroup("g"), answers.append)
    world.answer(UNAVAILABLE)
    assert code(answers.pop()) == "COORDINATOR_NOT_AVAILABLE"
    world.restart()
    assert world.effects, "whoever coordinates deletes them"
    world.answer()
    assert world.states == {}
    world.ask(DeleteGroup("g"), answers.append)
    assert answers == [None]


def test_who_joins_while_its_group_is_deleted_starts_over() -> None:
    world = emptied()
    answers: list[Any] = []
    world.ask(DeleteGroup("g"), answers.append)
    b = Member(world, "b", "t")
    assert b.beat() == {}
    world.answer()
    assert isinstance(answers[0], NonEmptyGroup)
    world.end = 700
    assert b.beat(0) == {}
    world.answer()
    assert b.beat() == {"t": [0, 1]}
    assert world.started("t", 0) == 700


def test_a_group_with_members_is_left_alone() -> None:
    world = World(t=1)
    Member(world, "a", "t").beat()
    world.answer()
    alter = AlterShareOffsets("g", [StateItem(topic_id("t"), 0, 7)])
    for operation in (DeleteGroup("g"), alter, DeleteShareOffsets("g", [topic_id("t")])):
        assert code(world.ask(operation)) == "NON_EMPTY_GROUP"


def test_offsets_are_altered_in_a_new_state_epoch() -> None:
    world = emptied()
    before = world.states["g", topic_id("t"), 0][0]
    answers: list[Any] = []
    world.ask(AlterShareOffsets("g", [StateItem(topic_id("t"), 0, 7), StateItem(topic_id("t"), 1, 8)]), answers.append)
    assert answers == []
    world.answer()
    assert answers == [[ErrorCode.NONE, ErrorCode.NONE]]
    epoch, start = world.states["g", topic_id("t"), 0]
    assert (epoch > before, start) == (True, 7)
    world.ask(AlterShareOffsets("g", [StateItem(topic_id("t"), 0, 5)]), answers.append)
    world.answer()
    assert world.states["g", topic_id("t"), 0] == (epoch + 1, 5), "again, and again later"
    b = Member(world, "b", "t")
    b.beat()
    assert b.beat() is None
    assert b.assigned == {"t": [0, 1]}
    assert world.started("t", 0) == 5, "who joins does not move it"


def test_offsets_of_a_group_that_is_not_there_make_it() -> None:
    world = World(t=1)
    answers: list[Any] = []
    world.ask(AlterShareOffsets("g", [StateItem(topic_id("t"), 0, 7)]), answers.append)
    world.answer()
    assert answers == [[ErrorCode.NONE]]
    a = Member(world, "a", "t")
    assert a.beat() == {"t": [0]}
    assert world.started("t", 0) == 7


def test_an_alteration_whose_end_nobody_heard_of_counts() -> None:
    world = World(t=1)
    world.ask(AlterShareOffsets("g", [StateItem(topic_id("t"), 0, 7)]), lambda reply: None)
    world.store(world.effects[0], 0)
    world.restart()
    a = Member(world, "a", "t")
    a.beat()
    world.answer()
    assert a.beat() == {"t": [0]}
    assert world.started("t", 0) == 7, "not where the group would have begun by itself"


def test_offsets_of_a_topic_are_deleted() -> None:
    world = emptied()
    answers: list[Any] = []
    world.ask(DeleteShareOffsets("g", [topic_id("t")]), answers.append)
    world.answer()
    assert answers == [[ErrorCode.NONE]]
    assert [key[1] for key in world.states] == [topic_id("u")]
    assert world.ask(KnownShares("g")) == [(topic_id("u"), "u", [0])]
    assert code(world.ask(DeleteShareOffsets("nobody", []))) == "GROUP_ID_NOT_FOUND"


# --- any history ---


@pytest.mark.parametrize("seed", range(10))
def test_whatever_happens_states_are_resolved_once_and_all_is_assigned_in_the_end(seed: int) -> None:
    random = Random(seed)
    world = World(t=2, u=1)
    members = [Member(world, name, *topics) for name, topics in (("a", "t"), ("b", "tu"), ("c", "u"))]
    seen: dict[Any, tuple[int, int]] = {}
    for _ in range(80):
        world.end += 1
        member = random.choice(members)
        match random.randrange(9):
            case 0 | 1 | 2:
                if member.beat() in ("UNKNOWN_MEMBER_ID", "FENCED_MEMBER_EPOCH", "GROUP_ID_NOT_FOUND"):
                    member.epoch = 0
            case 3:
                member.beat(-1)
                member.epoch = 0
            case 4:
                world.answer()
            case 5:
                world.answer(UNAVAILABLE)
            case 6:
                for effect in world.effects[:1]:
                    world.store(effect, 0)
                world.restart()
            case 7:
                world.pass_time(random.choice([500, 2_000, SESSION_MS]))
            case 8:
                size = world.cluster.sizes["t"]
                world.cluster.grow("t", min(size + 1, 5))
        for key, state in world.states.items():
            assert seen.setdefault(key, state) == state, "resolved twice"
    world.refusing = False
    for _ in range(6):
        world.pass_time(1_500)
        world.answer()
        for member in members:
            if member.beat() in ("UNKNOWN_MEMBER_ID", "FENCED_MEMBER_EPOCH", "GROUP_ID_NOT_FOUND"):
                member.beat(0)
    wanted = {("t", number) for number in range(world.cluster.sizes["t"])} | {("u", 0)}
    taken = {(topic, number) for member in members for topic, numbers in member.assigned.items() for number in numbers}
    assert taken == wanted
    assert all(set(member.assigned) <= set(member.topics) for member in members)


# --- the assignor ---


@settings(max_examples=200)
@given(st.data())
def test_the_simple_assignor_is_balanced_and_moves_little(data: st.DataObject) -> None:
    topic = topic_id("t")
    names = data.draw(st.lists(st.sampled_from("abcdefgh"), min_size=1, unique=True))
    partitions = [(topic, number) for number in range(data.draw(st.integers(1, 10)))]
    current: dict[str, frozenset[tuple[bytes, int]]] = dict.fromkeys(names, frozenset())
    for _ in range(3):
        members = {name: Subscriber(frozenset({topic}), current.get(name, frozenset())) for name in names}
        assigned = assign_simple(members, partitions)
        sizes = [len(each) for each in assigned.values()]
        holders = [sum(place in each for each in assigned.values()) for place in partitions]
        assert max(sizes) - min(sizes) <= 1
        assert min(sizes) >= 1 or len(partitions) == 0
        assert max(holders) - min(holders) <= 1
        assert min(holders) >= 1
        again = {name: Subscriber(frozenset({topic}), assigned[name]) for name in names}
        assert assign_simple(again, partitions) == assigned, "nothing moves without a reason"
        current = assigned
        names = data.draw(st.lists(st.sampled_from("abcdefgh"), min_size=1, unique=True))


def test_members_with_different_topics_share_topic_by_topic() -> None:
    t, u = topic_id("t"), topic_id("u")
    members = {
        "a": Subscriber(frozenset({t}), frozenset()),
        "b": Subscriber(frozenset({t, u}), frozenset()),
        "c": Subscriber(frozenset(), frozenset()),
    }
    assigned = assign_simple(members, [(t, 0), (t, 1), (u, 0)])
    assert assigned["c"] == frozenset()
    assert {place for place in assigned["b"] if place[0] == u} == {(u, 0)}
    assert len([place for place in assigned["a"] if place[0] == t]) == 1
    assert assigned["a"] | assigned["b"] == {(t, 0), (t, 1), (u, 0)}


def test_the_clock_does_not_run_backwards_in_epochs() -> None:
    world = World(t=1)
    a, epochs = Member(world, "a", "t"), []
    for step in range(6):
        a.beat(0 if step % 2 else None)
        world.answer()
        epochs.append(world.group.epoch)
        world.ask(Tick())
    assert all(earlier <= later for earlier, later in pairwise(epochs))


def test_unknown_groups_are_not_found() -> None:
    world = World(t=1)
    assert isinstance(world.ask(DeleteGroup("nobody")), GroupIdNotFound)
