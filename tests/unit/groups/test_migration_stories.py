"""Groups that change their protocol under way."""

import pytest
from consumer_stories import ClassicClient, Client, Cluster, World

from skidway.errors import (
    GroupIdNotFound,
    GroupMaxSizeReached,
    IllegalGeneration,
    InconsistentGroupProtocol,
    RebalanceInProgress,
    UnknownMemberId,
)
from skidway.groups.classic.group import ClassicGroup
from skidway.groups.consumer.operations import ConsumerDescribe
from skidway.groups.operations import CommitOffsets, JoinReply, OffsetToCommit
from skidway.groups.settings import GroupSettings


@pytest.fixture
def world() -> World:
    return World(Cluster(t=4, u=2))


def classic_pair(world: World) -> tuple[ClassicClient, ClassicClient]:
    """A stable classic group of two with two partitions each."""
    anna, bert = ClassicClient(world, "anna", "t"), ClassicClient(world, "bert", "t")
    anna.join()
    anna.sync(**{anna.member_id: ["t-0", "t-1", "t-2", "t-3"]})
    bert.join()
    assert isinstance(anna.beat(), RebalanceInProgress)
    anna.join()
    bert.joined()
    assert bert.sync() is None
    anna.sync(**{anna.member_id: ["t-0", "t-1"], bert.member_id: ["t-2", "t-3"]})
    assert bert.synced() == "t-2 t-3"
    assert classic(world).state_name == "Stable"
    return anna, bert


def classic(world: World) -> ClassicGroup:
    group = world.host.machine.groups["g"]
    assert isinstance(group, ClassicGroup)
    return group


def test_members_of_a_classic_group_keep_what_they_have_while_others_come(world: World) -> None:
    anna, bert = classic_pair(world)
    generation = anna.generation
    carl = Client(world, "carl", "t")
    assert carl.beat() == f"{generation + 1} "
    assert world.group().state_name == "Reconciling"
    # Bert has to give one up: he is told to join, keeps his generation, and joins again without it.
    assert isinstance(bert.beat(), RebalanceInProgress)
    bert.join()
    assert (bert.generation, bert.sync()) == (generation, "t-2")
    assert isinstance(bert.beat(), RebalanceInProgress)
    assert carl.beat() == f"{generation + 1}"
    bert.join()
    assert (bert.generation, bert.sync()) == (generation + 1, "t-2")
    # Anna has nothing to give.
    assert isinstance(anna.beat(), RebalanceInProgress)
    anna.join()
    assert (anna.generation, anna.sync()) == (generation + 1, "t-0 t-1")
    assert carl.beat() == f"{generation + 1} t-3"
    owned = sorted([*anna.owned, *bert.owned, *carl.owned])
    assert owned == ["t-0", "t-1", "t-2", "t-3"]
    assert anna.beat() is None
    assert bert.beat() is None
    kinds = {member.client_id: member.is_classic for member in world.ask(ConsumerDescribe("g")).members}
    assert kinds == {"anna": True, "bert": True, "": False}


def test_the_last_member_of_the_consumer_protocol_turns_the_group_back(world: World) -> None:
    anna, bert = classic_pair(world)
    carl = Client(world, "carl", "t")
    carl.beat()
    carl.leave()
    group = classic(world)
    assert group.state_name == "PreparingRebalance"
    assert set(group.live.current.members) == {anna.member_id, bert.member_id}
    before = group.live.current.number
    for client in (anna, bert):
        assert isinstance(client.beat(), IllegalGeneration | RebalanceInProgress)
        client.join()
    anna.joined()
    assert bert.generation == anna.generation == before + 1
    bert.sync()
    anna.sync(**{anna.member_id: ["t-0", "t-1"], bert.member_id: ["t-2", "t-3"]})
    assert classic(world).state_name == "Stable"


def test_who_does_not_join_after_that_is_left_behind(world: World) -> None:
    anna, bert = classic_pair(world)
    carl = Client(world, "carl", "t")
    carl.beat()
    carl.leave()
    anna.join()
    world.pass_time(9_999)
    assert len(classic(world).live.current.members) == 2
    world.pass_time(1)
    assert list(classic(world).live.current.members) == [anna.member_id]
    assert isinstance(bert.beat(), UnknownMemberId)


def test_what_a_leader_gave_to_two_goes_to_one(world: World) -> None:
    anna, bert = classic_pair(world)
    anna.topics = ["t", "u"]
    anna.join()
    bert.join()
    anna.joined()
    bert.sync()
    anna.sync(**{anna.member_id: ["t-0", "t-1"], bert.member_id: ["t-1", "t-2"]})
    Client(world, "carl", "t").beat()
    held = [partition for member in world.group().members.values() for partition in member.held]
    assert len(held) == len(set(held)) >= 3


def test_it_turns_back_as_well_when_that_member_falls_silent(world: World) -> None:
    anna, bert = classic_pair(world)
    Client(world, "carl", "t").beat()
    for _ in range(9):
        world.pass_time(5_000)
        for client in (anna, bert):
            # They may be asked to join: they do.
            if client.beat() is not None:
                client.join()
                client.sync()
    assert set(classic(world).live.current.members) == {anna.member_id, bert.member_id}


def test_who_waits_in_a_classic_rebalance_is_told_to_join_the_new_group(world: World) -> None:
    anna, bert = classic_pair(world)
    anna.topics = ["t", "u"]
    assert anna.join() is None
    carl = Client(world, "carl", "t")
    carl.beat()
    assert isinstance(anna.replies[0], RebalanceInProgress)
    assert isinstance(anna.join(), JoinReply)
    assert set(world.group().members) == {anna.member_id, bert.member_id, "carl"}


def test_a_classic_consumer_may_join_a_consumer_group(world: World) -> None:
    carl = Client(world, "carl", "t")
    carl.beat()
    anna = ClassicClient(world, "anna", "t")
    assert isinstance(anna.join(), JoinReply)
    assert anna.generation == 2
    assert anna.sync() == ""
    assert carl.beat() == "1 t-0 t-1"
    assert anna.beat() is None
    assert carl.acknowledge() == "2"
    assert isinstance(anna.beat(), RebalanceInProgress)
    anna.join()
    assert anna.sync() == "t-2 t-3"
    offsets = [OffsetToCommit("t", 2, 1)]
    assert world.ask(CommitOffsets("g", offsets, anna.member_id, None, 2, version=8)) == [0]
    with pytest.raises(IllegalGeneration):
        world.ask(CommitOffsets("g", offsets, anna.member_id, None, 1, version=8))
    assert anna.leave() == [0]
    assert carl.beat() == "3 t-0 t-1 t-2 t-3"


def test_classic_members_of_a_consumer_group_are_over_by_time(world: World) -> None:
    carl = Client(world, "carl", "t")
    carl.beat()
    silent, unsynced, unjoined = (ClassicClient(world, name, "t") for name in ("silent", "unsynced", "unjoined"))
    for client in (silent, unsynced, unjoined):
        client.join()
    silent.join()
    silent.sync()
    unjoined.join()
    unjoined.sync()
    left = []
    for _ in range(8):
        world.pass_time(5_000)
        carl.acknowledge()
        unsynced.beat()
        unjoined.beat()
        left.append(sorted(member.client_id for member in world.group().members.values() if member.classic))
    assert left[0] == ["silent", "unjoined", "unsynced"]
    assert left[2] == ["unjoined", "unsynced"]
    assert left[-1] == []


def test_a_static_member_changes_protocol_and_back(world: World) -> None:
    classic_client = ClassicClient(world, "anna", "t", instance_id="i")
    assert isinstance(classic_client.join() or classic_client.joined(), JoinReply)
    classic_client.sync(**{classic_client.member_id: ["t-0", "t-1", "t-2", "t-3"]})
    modern = Client(world, "anna-2", "t", instance_id="i")
    assert modern.beat() == "2 t-0 t-1 t-2 t-3"
    assert list(world.group().members) == ["anna-2"]
    again = ClassicClient(world, "anna-3", "t", instance_id="i")
    assert isinstance(again.join(), JoinReply)
    assert list(classic(world).live.current.members) == [again.member_id]
    assert isinstance(again.join(), JoinReply)


def test_what_does_not_fit_is_refused(world: World) -> None:
    Client(world, "carl", "t").beat()
    anna, bert = ClassicClient(world, "anna", "t"), ClassicClient(world, "bert", "t")
    anna.join()
    bert.protocols = ["other"]
    assert isinstance(bert.join(), InconsistentGroupProtocol)
    carl = ClassicClient(world, "carl", "t")
    carl.member_id, carl.generation = "carl", 1
    assert isinstance(carl.beat(), UnknownMemberId)
    assert isinstance(carl.sync(), UnknownMemberId)
    assert carl.leave() == [25]


@pytest.mark.parametrize("policy", ["disabled", "downgrade"])
def test_without_leave_to_upgrade_a_classic_group_stays_one(policy: str) -> None:
    settings = GroupSettings(initial_rebalance_delay_ms=0, consumer_migration_policy=policy)
    world = World(Cluster(t=4), settings)
    classic_pair(world)
    with pytest.raises(GroupIdNotFound):
        Client(world, "carl", "t").beat()
    assert classic(world).state_name == "Stable"


def test_without_leave_to_downgrade_a_consumer_group_stays_one() -> None:
    settings = GroupSettings(initial_rebalance_delay_ms=0, consumer_migration_policy="upgrade")
    world = World(Cluster(t=4), settings)
    anna, bert = classic_pair(world)
    carl = Client(world, "carl", "t")
    carl.beat()
    carl.leave()
    assert set(world.group().members) == {anna.member_id, bert.member_id}


def test_a_full_group_takes_no_classic_member_either() -> None:
    world = World(Cluster(t=4), GroupSettings(consumer_size_max=1))
    Client(world, "carl", "t").beat()
    assert isinstance(ClassicClient(world, "anna", "t").join(), GroupMaxSizeReached)


def test_an_empty_group_follows_whoever_comes_next(world: World) -> None:
    carl = Client(world, "carl", "t")
    carl.beat()
    carl.leave()
    anna = ClassicClient(world, "anna", "t")
    anna.join()
    assert classic(world).live.current.members
    anna.leave()
    assert classic(world).is_empty
    assert carl.beat() == "1 t-0 t-1 t-2 t-3"
