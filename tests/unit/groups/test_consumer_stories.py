"""The consumer protocol as its members see it, one heartbeat a line."""

from collections.abc import Callable
from typing import Any

import pytest
from consumer_stories import Client, Cluster, World, topic_id

from skidway.errors import (
    FencedInstanceId,
    FencedMemberEpoch,
    GroupIdNotFound,
    GroupMaxSizeReached,
    InvalidRegularExpression,
    InvalidRequest,
    NonEmptyGroup,
    ProtocolError,
    StaleMemberEpoch,
    UnknownMemberId,
    UnreleasedInstanceId,
    UnsupportedAssignor,
    UnsupportedVersion,
)
from skidway.groups.consumer.metadata_hash import metadata_hash
from skidway.groups.consumer.operations import ConsumerDescribe, ConsumerHeartbeat
from skidway.groups.operations import (
    CommitOffsets,
    DeleteGroup,
    DeleteOffsets,
    FetchOffsets,
    ListGroups,
    OffsetToCommit,
)
from skidway.groups.records import GroupRecord
from skidway.groups.settings import GroupSettings
from skidway.wire.schema.group_records import (
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    TopicMetadata,
)


@pytest.fixture
def world() -> World:
    return World(Cluster(t=4, u=2))


def test_a_second_member_gets_its_half_when_the_first_has_given_it_up(world: World) -> None:
    anna, bert = Client(world, "anna", "t"), Client(world, "bert", "t")
    assert anna.beat() == "1 t-0 t-1 t-2 t-3"
    assert anna.acknowledge() == "1"
    assert bert.beat() == "2 "
    assert world.group().state_name == "Reconciling"
    assert anna.beat() == "1 t-0 t-1"
    assert bert.beat() == "2"
    assert anna.beat() == "1"
    assert anna.acknowledge() == "2"
    assert bert.beat() == "2 t-2 t-3"
    assert world.group().state_name == "Stable"


def test_a_member_that_leaves_frees_its_partitions_at_once(world: World) -> None:
    anna, bert = settled(world)
    assert anna.leave() == "-1"
    assert bert.beat() == "3 t-0 t-1 t-2 t-3"
    assert bert.leave() == "-1"
    assert world.group().state_name == "Empty"


def settled(world: World, **fields: Any) -> tuple[Client, Client]:
    anna, bert = Client(world, "anna", "t", **fields), Client(world, "bert", "t")
    anna.beat()
    bert.beat()
    anna.beat()
    anna.acknowledge()
    bert.beat()
    assert world.group().state_name == "Stable"
    return anna, bert


def test_a_silent_member_loses_its_place_with_its_session(world: World) -> None:
    anna, bert = settled(world)
    world.pass_time(44_999)
    bert.beat()
    world.pass_time(1)
    assert list(world.group().members) == ["bert"]
    assert bert.beat() == "3 t-0 t-1 t-2 t-3"
    with pytest.raises(UnknownMemberId):
        anna.beat()


def test_a_member_that_does_not_give_up_in_time_is_fenced_though_it_lives(world: World) -> None:
    anna, bert = Client(world, "anna", "t", rebalance_timeout_ms=20_000), Client(world, "bert", "t")
    anna.beat()
    bert.beat()
    assert anna.beat() == "1 t-0 t-1"
    for _ in range(4):
        world.pass_time(4_000)
        assert anna.beat() == "1"
        assert bert.beat() == "2"
    world.pass_time(4_000)
    with pytest.raises(UnknownMemberId):
        anna.beat()
    assert bert.beat() == "3 t-0 t-1 t-2 t-3"


def test_a_member_that_gave_up_in_time_stays(world: World) -> None:
    anna, bert = Client(world, "anna", "t", rebalance_timeout_ms=20_000), Client(world, "bert", "t")
    anna.beat()
    bert.beat()
    anna.beat()
    world.pass_time(19_999)
    assert anna.acknowledge() == "2"
    bert.beat()
    world.pass_time(30_000)
    assert list(world.group().members) == ["anna", "bert"]


def test_after_a_restart_of_the_coordinator_the_deadlines_begin_anew(world: World) -> None:
    anna, bert = Client(world, "anna", "t"), Client(world, "bert", "t")
    anna.beat()
    bert.beat()
    anna.beat()
    world.pass_time(40_000)
    world.reload()
    world.pass_time(44_999)
    assert list(world.group().members) == ["anna", "bert"]
    anna.beat()
    bert.beat()
    world.pass_time(15_001)
    assert list(world.group().members) == ["bert"]


def test_only_the_epoch_of_now_counts_or_the_one_before_if_the_answer_was_lost(world: World) -> None:
    anna = Client(world, "anna", "t")
    anna.beat()
    anna.acknowledge()
    world.cluster.grow("t", 5)
    assert anna.beat() == "2 t-0 t-1 t-2 t-3 t-4"
    lost = [(topic_id("t"), [0, 1, 2, 3])]
    assert anna.beat(member_epoch=1, owned=lost) == "2"
    with pytest.raises(FencedMemberEpoch):
        anna.beat(member_epoch=1)
    with pytest.raises(FencedMemberEpoch):
        anna.beat(member_epoch=1, owned=[(topic_id("t"), [7])])
    with pytest.raises(FencedMemberEpoch):
        anna.beat(member_epoch=3)
    with pytest.raises(UnknownMemberId):
        anna.beat(member_id="bert")


def test_a_member_whose_first_answer_was_lost_joins_again(world: World) -> None:
    anna = Client(world, "anna", "t")
    assert anna.beat() == "1 t-0 t-1 t-2 t-3"
    anna.epoch = 0
    assert anna.beat() == "1 t-0 t-1 t-2 t-3"


def test_a_member_may_come_without_wanting_anything_yet(world: World) -> None:
    anna = Client(world, "anna", "t")
    assert anna.beat(topics=[]) == "1 "
    assert anna.beat(topics=["u"]) == "2 u-0 u-1"


def test_a_static_member_whose_first_answer_was_lost_is_still_itself(world: World) -> None:
    anna = Client(world, "anna", "t", instance_id="i")
    anna.beat()
    anna.epoch = 0
    assert anna.beat() == "1 t-0 t-1 t-2 t-3"


def test_a_static_member_comes_back_to_its_place_under_another_id(world: World) -> None:
    anna, bert = settled(world, instance_id="i")
    again = Client(world, "carl", "t", instance_id="i")
    with pytest.raises(UnreleasedInstanceId):
        again.beat()
    assert anna.leave(-2) == "-2"
    epoch = world.group().epoch
    assert again.beat() == "2 t-0 t-1"
    assert world.group().epoch == epoch
    assert bert.beat() == "2"
    with pytest.raises(FencedInstanceId):
        anna.beat(member_epoch=2)
    assert list(world.group().members) == ["bert", "carl"]


def test_a_static_member_that_does_not_come_back_is_gone_with_its_session(world: World) -> None:
    anna, bert = settled(world, instance_id="i")
    anna.leave(-2)
    world.pass_time(44_000)
    bert.beat()
    assert len(world.group().members) == 2
    world.pass_time(1_000)
    assert list(world.group().members) == ["bert"]
    assert bert.beat() == "3 t-0 t-1 t-2 t-3"


def test_topics_that_come_grow_and_go_are_seen_with_the_next_heartbeat(world: World) -> None:
    anna = Client(world, "anna", "t", "later")
    assert anna.beat() == "1 t-0 t-1 t-2 t-3"
    world.cluster.grow("other", 1)
    assert anna.beat() == "1"
    world.cluster.grow("later", 1)
    assert anna.beat() == "2 later-0 t-0 t-1 t-2 t-3"
    world.cluster.grow("t", None)
    assert anna.beat() == "2 later-0"
    assert anna.acknowledge() == "3"


def test_a_regular_expression_subscribes_to_what_it_matches_now_and_later(world: World) -> None:
    anna = Client(world, "anna", regex="t|more-.*")
    assert anna.beat() == "1 t-0 t-1 t-2 t-3"
    world.cluster.grow("more-a", 1)
    assert anna.beat() == "2 more-a-0 t-0 t-1 t-2 t-3"
    assert anna.beat(regex="", topics=["u"]) == "2 "
    assert anna.acknowledge() == "3 u-0 u-1"
    with pytest.raises(InvalidRegularExpression):
        anna.beat(regex="(")


def test_members_may_change_what_they_subscribe_to(world: World) -> None:
    anna, bert = settled(world)
    assert anna.beat(topics=["u"]) == "2 "
    assert bert.beat() == "3"
    assert anna.acknowledge() == "3 u-0 u-1"
    assert bert.beat() == "3 t-0 t-1 t-2 t-3"


def test_the_assignor_is_the_one_most_members_ask_for(world: World) -> None:
    anna = Client(world, "anna", "t", "u", assignor="range")
    bert = Client(world, "bert", "t", "u", assignor="range")
    anna.beat()
    bert.beat()
    assert anna.beat() == "1 t-0 t-1 u-0"
    assert anna.acknowledge() == "2"
    assert bert.beat() == "2 t-2 t-3 u-1"
    assert world.ask(ConsumerDescribe("g")).assignor == "range"
    with pytest.raises(UnsupportedAssignor):
        anna.beat(assignor="best")


def test_a_group_that_is_full_takes_nobody_new() -> None:
    world = World(Cluster(t=1), GroupSettings(consumer_size_max=1))
    anna = Client(world, "anna", "t")
    anna.beat()
    with pytest.raises(GroupMaxSizeReached):
        Client(world, "bert", "t").beat()
    assert anna.beat() == "1"


@pytest.mark.parametrize(
    "fields",
    [
        {"group_id": ""},
        {"member_id": ""},
        {"instance_id": ""},
        {"rack_id": ""},
        {"rebalance_timeout_ms": -1},
        {"topics": None},
        {"owned": None},
        {"owned": [(topic_id("t"), [0])]},
        {"member_epoch": -3},
        {"member_epoch": -2},
        {"member_epoch": -1, "member_id": ""},
    ],
)
def test_what_is_not_a_heartbeat_is_refused(world: World, fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        Client(world, "anna", "t").beat(**fields)


def test_the_first_version_lets_the_coordinator_choose_the_id(world: World) -> None:
    reply = world.ask(ConsumerHeartbeat("g", "", 0, None, None, 1_000, topics=["t"], owned=[], version=0))
    assert list(world.group().members) == [reply.member_id]
    assert len(reply.member_id) == 22
    assert reply.heartbeat_interval_ms == 5_000


def test_who_is_unknown_is_told_so(world: World) -> None:
    with pytest.raises(GroupIdNotFound):
        Client(world, "anna", "t").beat(member_epoch=1)
    with pytest.raises(GroupIdNotFound):
        Client(world, "anna", "t").leave()
    with pytest.raises(GroupIdNotFound):
        world.ask(ConsumerDescribe("g"))


def test_offsets_are_committed_by_members_in_their_epoch_only(world: World) -> None:
    anna = Client(world, "anna", "t")
    anna.beat()
    offsets = [OffsetToCommit("t", 0, 7)]
    assert world.ask(CommitOffsets("g", offsets, "anna", None, 1)) == [0]
    refused: list[tuple[CommitOffsets | FetchOffsets, type[ProtocolError]]] = [
        (CommitOffsets("g", offsets, "anna", None, 2), StaleMemberEpoch),
        (CommitOffsets("g", offsets, "anna", None, 1, version=8), UnsupportedVersion),
        (CommitOffsets("g", offsets, "bert", None, 1), UnknownMemberId),
        (CommitOffsets("g", offsets), UnknownMemberId),
        (FetchOffsets("g", None, "anna", 2), StaleMemberEpoch),
        (FetchOffsets("g", None, "bert", 1), UnknownMemberId),
    ]
    for operation, error in refused:
        with pytest.raises(error):
            world.ask(operation)
    assert [each.offset for each in world.ask(FetchOffsets("g", None, "anna", 1))] == [7]
    assert [each.offset for each in world.ask(FetchOffsets("g"))] == [7]


def test_a_group_is_listed_described_and_deleted_when_it_is_empty(world: World) -> None:
    anna = Client(world, "anna", "t", regex="u")
    anna.beat()
    (listed,) = world.ask(ListGroups())
    assert (listed.group_id, listed.protocol_type, listed.state, listed.type) == ("g", "consumer", "Stable", "consumer")
    described = world.ask(ConsumerDescribe("g"))
    (member,) = described.members
    assert (described.state, described.group_epoch, described.assignment_epoch) == ("Stable", 1, 1)
    assert (member.member_id, member.topics, member.regex, member.is_classic) == ("anna", ["t"], "u", False)
    assert member.assignment == member.target_assignment
    assert [(name, numbers) for _, name, numbers in member.assignment] == [("t", [0, 1, 2, 3]), ("u", [0, 1])]
    world.ask(CommitOffsets("g", [OffsetToCommit("t", 0, 7), OffsetToCommit("u", 0, 7)], "anna", None, 1))
    assert world.ask(DeleteOffsets("g", [("t", 0), ("u", 0)])) == [86, 86]
    with pytest.raises(NonEmptyGroup):
        world.ask(DeleteGroup("g"))
    anna.leave()
    world.ask(DeleteGroup("g"))
    assert not world.host.machine.groups
    assert not world.host.machine.offsets.by_group


def test_an_empty_group_goes_with_its_last_offset(world: World) -> None:
    anna = Client(world, "anna", "t")
    anna.beat()
    world.ask(CommitOffsets("g", [OffsetToCommit("t", 0, 7)], "anna", None, 1))
    anna.leave()
    world.pass_time(10_000 * 60_000)
    assert "g" in world.host.machine.groups
    world.pass_time(100 * 60_000)
    assert not world.host.machine.groups
    assert not world.host.machine.offsets.by_group


def test_a_heartbeat_that_changes_nothing_writes_nothing(world: World) -> None:
    anna, bert = settled(world)
    written = world.end_offset
    for client in (anna, bert):
        client.beat()
        client.acknowledge()
        client.beat(topics=["t"], rebalance_timeout_ms=60_000)
    assert world.end_offset == written


def test_what_is_written(world: World) -> None:
    anna, bert = Client(world, "anna", "t"), Client(world, "bert", "t")
    of_t = metadata_hash({"t": (topic_id("t"), 4)})
    assert written_by(world, anna.beat) == [
        "MemberMetadata anna: ['t'] 60000",
        f"Metadata: 1 of {of_t}",
        "TargetAssignmentMember anna: 0 1 2 3",
        "TargetAssignmentMetadata: 1",
        "CurrentMemberAssignment anna: epoch 1 after 0, state 0, 0 1 2 3 /",
    ]
    assert written_by(world, bert.beat) == [
        "MemberMetadata bert: ['t'] 60000",
        f"Metadata: 2 of {of_t}",
        "TargetAssignmentMember anna: 0 1",
        "TargetAssignmentMember bert: 2 3",
        "TargetAssignmentMetadata: 2",
        "CurrentMemberAssignment bert: epoch 2 after 0, state 2, /",
    ]
    assert written_by(world, anna.beat) == ["CurrentMemberAssignment anna: epoch 1 after 1, state 1, 0 1 / 2 3"]
    assert written_by(world, anna.acknowledge) == ["CurrentMemberAssignment anna: epoch 2 after 1, state 0, 0 1 /"]
    assert written_by(world, bert.beat) == ["CurrentMemberAssignment bert: epoch 2 after 2, state 0, 2 3 /"]
    gone = ["CurrentMemberAssignment", "TargetAssignmentMember", "MemberMetadata"]
    assert written_by(world, anna.leave) == [*(f"{kind} anna gone" for kind in gone), f"Metadata: 3 of {of_t}"]
    assert written_by(world, bert.leave) == [*(f"{kind} bert gone" for kind in gone), "Metadata: 4 of 0"]
    assert written_by(world, lambda: world.ask(DeleteGroup("g"))) == [
        "TargetAssignmentMetadata gone",
        "Metadata gone",
    ]


def test_what_is_written_of_regular_expressions(world: World) -> None:
    """What one takes, when it is new or takes something else; nothing of it, when no member has it any more."""
    world.cluster.grow("t-2", 1)
    anna, bert = Client(world, "anna", regex="t.*"), Client(world, "bert", regex="t.*")

    def patterns(act: Callable[[], Any]) -> list[str]:
        return [line for line in written_by(world, act) if line.startswith("Regular")]

    assert patterns(anna.beat) == ["RegularExpression t.*: t t-2"]
    assert patterns(bert.beat) == []
    world.cluster.grow("t-3", 1)
    assert patterns(anna.beat) == ["RegularExpression t.*: t t-2 t-3"]
    assert patterns(bert.beat) == []
    assert patterns(lambda: bert.beat(regex="t-[0-9]")) == ["RegularExpression t-[0-9]: t-2 t-3"]
    assert patterns(lambda: bert.beat(regex="", topics=["t"])) == ["RegularExpression t-[0-9] gone"]
    assert patterns(bert.leave) == []
    assert patterns(anna.leave) == ["RegularExpression t.* gone"]


def test_a_loaded_group_stays_in_its_epoch_unless_its_topics_changed(world: World) -> None:
    anna, bert = settled(world)
    epoch = world.group().epoch
    world.reload()
    anna.beat()
    bert.beat()
    assert world.group().epoch == epoch
    world.reload()
    world.cluster.grow("t", 6)
    anna.beat()
    assert world.group().epoch == epoch + 1
    world.cluster.grow("other", 6)
    anna.beat()
    assert world.group().epoch == epoch + 1, "none of its business"


def test_a_group_of_an_older_broker_is_assigned_anew_once(world: World) -> None:
    """Before 4.1 there was no hash, but a record of the topics, which is taken away."""
    topics = ConsumerGroupPartitionMetadataValue([TopicMetadata(topic_id("t"), "t", 4)])
    old = [
        GroupRecord(ConsumerGroupMetadataKey("g"), ConsumerGroupMetadataValue(7)),
        GroupRecord(ConsumerGroupPartitionMetadataKey("g"), topics),
    ]
    world.append(old, 0)
    world.reload()
    written = written_by(world, Client(world, "anna", "t").beat)
    assert written[1:3] == ["PartitionMetadata gone", f"Metadata: 8 of {metadata_hash({'t': (topic_id('t'), 4)})}"]


def written_by(world: World, act: Callable[[], Any]) -> list[str]:
    before = len(world.read_all())
    act()
    return [shown(record.key, record.value) for record in world.read_all()[before:]]


def shown(key: Any, value: Any) -> str:
    kind = type(key).__name__.removeprefix("ConsumerGroup").removesuffix("Key")
    whose = getattr(key, "member_id", getattr(key, "regular_expression", None))
    name = kind if whose is None else f"{kind} {whose}"
    if value is None:
        return f"{name} gone"

    def numbers(topics: Any) -> str:
        return "".join(f"{number} " for topic in topics for number in topic.partitions)

    match kind:
        case "MemberMetadata":
            said = f"{value.subscribed_topic_names} {value.rebalance_timeout_ms}"
        case "RegularExpression":
            said = " ".join(value.topics)
        case "Metadata":
            said = f"{value.epoch} of {value.metadata_hash}"
        case "TargetAssignmentMetadata":
            said = f"{value.assignment_epoch}"
        case "TargetAssignmentMember":
            said = numbers(value.topic_partitions)
        case _:
            said = f"epoch {value.member_epoch} after {value.previous_member_epoch}, state {value.state}, "
            said += f"{numbers(value.assigned_partitions)}/ {numbers(value.partitions_pending_revocation)}"
    return f"{name}: {said}".strip()
