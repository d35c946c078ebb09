"""Voters are described, added and removed while the quorum works; one at a time, and only those who keep up."""

import pytest
from quorum_world import Host, World

from skidway.errors import (
    DuplicateVoter,
    ErrorCode,
    InconsistentClusterId,
    InvalidRequest,
    NotLeaderOrFollower,
    RequestTimedOut,
    VoterNotFound,
)
from skidway.quorum import elections, membership
from skidway.quorum.machine import Quorum
from skidway.quorum.messages import NO_LEADER
from skidway.quorum.voters import NO_DIRECTORY, Member, Voter, Voters
from skidway.wire.schema.add_raft_voter import AddRaftVoterRequest, Listener
from skidway.wire.schema.describe_quorum import (
    DescribeQuorumRequest,
    RequestPartitionData,
    RequestTopicData,
    ResponsePartitionData,
)
from skidway.wire.schema.remove_raft_voter import RemoveRaftVoterRequest

WALL_MS = 1_700_000_000_000


def at_work(*, static: Voters | None = None) -> World:
    """Three voters and two observers that have had a leader for a while."""
    world = World(1, voters=3, observers=2)
    world.latency_ms, world.sync_ms, world.loss = 1, 5, 0.0
    if static is not None:
        world.static = static
        for node_id in world.hosts:
            world.crash(node_id)
            world.restart(node_id)
    world.every(20, world.propose, 20_000)
    world.run(5_000)
    return world


def leading(world: World) -> tuple[Host, Quorum]:
    host = world.leader()
    assert host is not None
    assert host.machine is not None
    return host, host.machine


def settle(world: World, change: membership.VoterChange) -> ErrorCode | None:
    """Run until the change is decided, as its leader sees it."""
    host, machine = leading(world)
    world.pump(host.member.node_id)
    while True:
        result = membership.outcome(machine, change, world.now_ms)
        if result is not None:
            return result
        world.run(world.now_ms + 1)


def test_an_observer_that_keeps_up_becomes_a_voter() -> None:
    world = at_work()
    _, machine = leading(world)
    observer = world.hosts[4].member
    change = membership.add_voter(machine, Voter(observer, "host4", 9004), world.now_ms, 5_000)
    assert membership.outcome(machine, change, world.now_ms) is None
    assert settle(world, change) is ErrorCode.NONE
    world.run(world.now_ms + 2_000)
    for host in world.running:
        assert host.machine is not None
        assert observer in host.machine.voters
    assert world.hosts[4].machine is not None
    assert world.hosts[4].machine.is_voter


def test_who_does_not_keep_up_is_not_added() -> None:
    world = at_work()
    _, machine = leading(world)
    stranger = Voter(Member(9, b"9" * 16), "host9", 9009)
    with pytest.raises(RequestTimedOut, match="caught up"):
        membership.add_voter(machine, stranger, world.now_ms, 5_000)
    lost_disk = Voter(Member(4, b"x" * 16), "host4", 9004)
    with pytest.raises(RequestTimedOut, match="caught up"):
        membership.add_voter(machine, lost_disk, world.now_ms, 5_000)
    world.crash(4)
    world.run(world.now_ms + membership.CAUGHT_UP_MS + 2_000)
    _, machine = leading(world)
    with pytest.raises(RequestTimedOut, match="caught up"):
        membership.add_voter(machine, Voter(world.hosts[4].member, "host4", 9004), world.now_ms, 5_000)


def test_one_change_at_a_time() -> None:
    world = at_work()
    _, machine = leading(world)
    first = membership.add_voter(machine, Voter(world.hosts[4].member, "host4", 9004), world.now_ms, 5_000)
    with pytest.raises(RequestTimedOut, match="under way"):
        membership.add_voter(machine, Voter(world.hosts[5].member, "host5", 9005), world.now_ms, 5_000)
    with pytest.raises(RequestTimedOut, match="under way"):
        membership.remove_voter(machine, world.hosts[4].member, world.now_ms, 5_000)
    assert settle(world, first) is ErrorCode.NONE
    second = membership.add_voter(machine, Voter(world.hosts[5].member, "host5", 9005), world.now_ms, 5_000)
    assert settle(world, second) is ErrorCode.NONE


def test_a_leader_that_is_removed_sees_it_done_and_another_leads() -> None:
    world = at_work()
    host, machine = leading(world)
    change = membership.remove_voter(machine, host.member, world.now_ms, 5_000)
    assert settle(world, change) is ErrorCode.NONE
    world.run(world.now_ms + 3_000)
    successor, _ = leading(world)
    assert successor.member != host.member
    assert not machine.is_voter
    assert machine.leader == successor.member.node_id


def test_a_leader_whose_removal_nobody_heard_of_leads_once_more_to_see_it_done() -> None:
    """Of two voters the one that is left lacks the record, and the other has more of the log than it: as long as that
    is so neither the set of before nor the new one can elect anybody else."""
    world = at_work()
    host, machine = leading(world)
    third = next(voter for voter in machine.voters.members if voter != host.member)
    assert settle(world, membership.remove_voter(machine, third, world.now_ms, 5_000)) is ErrorCode.NONE
    heir = next(voter for voter in machine.voters.members if voter != host.member)
    world.crash(heir.node_id)
    change = membership.remove_voter(machine, host.member, world.now_ms, 5_000)
    world.pump(host.member.node_id)
    world.run(world.now_ms + 6_000)
    assert membership.outcome(machine, change, world.now_ms) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    world.restart(heir.node_id)
    world.run(world.now_ms + 6_000)
    successor, now = leading(world)
    assert successor.member == heir
    assert now.voters.members == [heir]


def test_the_voter_that_is_left_leads_from_its_start_whomever_it_followed() -> None:
    """Its leader has removed itself and is down: nobody else will ever lead, and a node that is alone asks nobody."""
    world = at_work()
    host, machine = leading(world)
    third = next(voter for voter in machine.voters.members if voter != host.member)
    assert settle(world, membership.remove_voter(machine, third, world.now_ms, 5_000)) is ErrorCode.NONE
    heir = next(voter for voter in machine.voters.members if voter != host.member)
    change = membership.remove_voter(machine, host.member, world.now_ms, 5_000)
    world.pump(host.member.node_id)
    before = world.hosts[heir.node_id].machine
    assert before is not None
    while len(before.voters) > 1:
        world.run(world.now_ms + 1)
    assert membership.outcome(machine, change, world.now_ms) is None
    world.crash(host.member.node_id)
    while before.log.synced_offset < change.end_offset:
        world.run(world.now_ms + 1)
    assert before.leader == host.member.node_id
    world.crash(heir.node_id)
    world.restart(heir.node_id)
    after = world.hosts[heir.node_id].machine
    assert after is not None
    assert (after.voters.members, after.leads) == ([heir], True)


def test_who_may_not_be_added_or_removed() -> None:
    world = at_work()
    _, machine = leading(world)
    with pytest.raises(DuplicateVoter):
        membership.add_voter(machine, Voter(Member(2, b"y" * 16), "host2", 9002), world.now_ms, 5_000)
    with pytest.raises(VoterNotFound):
        membership.remove_voter(machine, Member(2, b"y" * 16), world.now_ms, 5_000)
    with pytest.raises(VoterNotFound):
        membership.remove_voter(machine, world.hosts[4].member, world.now_ms, 5_000)
    follower = next(h for h in world.running if h.machine is not None and not h.machine.leads)
    assert follower.machine is not None
    with pytest.raises(NotLeaderOrFollower):
        membership.remove_voter(follower.machine, world.hosts[2].member, world.now_ms, 5_000)


def test_a_voter_stays_whose_removal_the_others_could_not_commit() -> None:
    """One of three is gone: of the two that would be left, both are needed."""
    world = at_work()
    host, machine = leading(world)
    gone, other = [voter for voter in machine.voters.members if voter != host.member]
    world.crash(gone.node_id)
    world.run(world.now_ms + membership.CAUGHT_UP_MS + 2_000)
    assert leading(world)[1] is machine
    for member in (other, host.member):
        with pytest.raises(RequestTimedOut, match=f"start or remove {gone.node_id} first"):
            membership.remove_voter(machine, member, world.now_ms, 5_000)
    assert settle(world, membership.remove_voter(machine, gone, world.now_ms, 5_000)) is ErrorCode.NONE
    assert settle(world, membership.remove_voter(machine, other, world.now_ms, 5_000)) is ErrorCode.NONE
    assert machine.voters.members == [host.member]


def test_a_voter_with_another_directory_does_not_count_as_one_that_is_left() -> None:
    world = at_work()
    host, machine = leading(world)
    wiped, other = [voter for voter in machine.voters.members if voter != host.member]
    assert machine.followers is not None
    machine.followers.on_fetch(Member(wiped.node_id, b"z" * 16), machine.log.end_offset, 0, world.now_ms)
    with pytest.raises(RequestTimedOut, match=f"start or remove {wiped.node_id} first"):
        membership.remove_voter(machine, other, world.now_ms, 5_000)


def test_the_last_voter_stays() -> None:
    world = World(1, voters=1, observers=0)
    world.run(1_000)
    _, machine = leading(world)
    with pytest.raises(InvalidRequest, match="last voter"):
        membership.remove_voter(machine, world.hosts[1].member, world.now_ms, 5_000)


def test_a_change_that_nobody_commits_times_out() -> None:
    world = at_work()
    host, machine = leading(world)
    me = host.member.node_id
    world.cuts |= {(me, other) for other in world.hosts} | {(other, me) for other in world.hosts}
    change = membership.add_voter(machine, Voter(world.hosts[4].member, "host4", 9004), world.now_ms, 500)
    assert settle(world, change) is ErrorCode.REQUEST_TIMED_OUT
    world.run(world.now_ms + 5_000)
    assert membership.outcome(machine, change, world.now_ms) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    world.heal()
    world.run(world.now_ms + 5_000)
    assert world.hosts[4].member not in machine.voters


def test_directories_of_configured_voters_are_learnt_when_all_were_heard_of() -> None:
    static = Voters(Voter(Member(number), f"host{number}", 9000 + number) for number in (1, 2, 3))
    world = at_work(static=static)
    _, machine = leading(world)
    assert [member.directory_id for member in machine.voters.members] == [NO_DIRECTORY] * 3
    change = membership.learn_directories(machine, world.now_ms, 5_000)
    assert change is not None
    assert settle(world, change) is ErrorCode.NONE
    assert machine.voters.members == [world.hosts[number].member for number in (1, 2, 3)]
    assert [voter.host for voter in machine.voters] == ["host1", "host2", "host3"]
    assert membership.learn_directories(machine, world.now_ms, 5_000) is None


def test_directories_are_not_guessed_while_a_voter_is_away() -> None:
    static = Voters(Voter(Member(number), f"host{number}", 9000 + number) for number in (1, 2, 3))
    world = World(2, voters=3, observers=0)
    world.static = static
    for node_id in world.hosts:
        world.crash(node_id)
    world.restart(1)
    world.restart(2)
    world.run(10_000)
    _, machine = leading(world)
    assert machine.may_change_voters is None
    assert membership.learn_directories(machine, world.now_ms) is None


def test_a_voter_with_another_directory_is_another_voter() -> None:
    three = Voters(Voter(Member(number, bytes([number]) * 16)) for number in (1, 2, 3))
    swapped = three.with_voter(Voter(Member(3, b"z" * 16)))
    assert not three.is_next_to(swapped)
    assert three.is_next_to(three.without(3))
    assert three.without(3).is_next_to(swapped)
    assert not three.without(3).without(2).is_next_to(three)
    assert not three.is_next_to(three.without(3).with_voter(Voter(Member(4, b"4" * 16))))


def describe_request() -> DescribeQuorumRequest:
    partitions = [RequestPartitionData(partition_index=0)]
    return DescribeQuorumRequest(topics=[RequestTopicData(topic_name="__cluster_metadata", partitions=partitions)])


def described(machine: Quorum, world: World) -> ResponsePartitionData:
    return membership.describe(machine, describe_request(), world.now_ms, WALL_MS).topics[0].partitions[0]


def test_the_leader_describes_everybody() -> None:
    world = at_work()
    host, machine = leading(world)
    data = described(machine, world)
    assert (data.error_code, data.leader_id, data.leader_epoch) == (0, host.member.node_id, machine.epoch)
    assert data.high_watermark == machine.high_watermark
    assert [state.replica_id for state in data.current_voters] == [1, 2, 3]
    assert [state.replica_id for state in data.observers] == [4, 5]
    for state in [*data.current_voters, *data.observers]:
        assert state.replica_directory_id == world.hosts[state.replica_id].member.directory_id
        assert 0 < state.log_end_offset <= machine.log.end_offset
        assert WALL_MS - 1_000 <= state.last_caught_up_timestamp <= state.last_fetch_timestamp <= WALL_MS
    holders = [state for state in data.current_voters if state.log_end_offset >= machine.high_watermark]
    assert len(holders) >= 2


def test_a_voter_that_was_never_heard_of_is_described_as_such() -> None:
    world = World(3, voters=3, observers=0)
    world.crash(3)
    world.run(10_000)
    _, machine = leading(world)
    state = described(machine, world).current_voters[2]
    assert (state.replica_id, state.log_end_offset, state.last_fetch_timestamp) == (3, -1, -1)


def test_only_the_leader_describes() -> None:
    world = at_work()
    host, _ = leading(world)
    other = next(known for known in world.running if known is not host)
    assert other.machine is not None
    data = described(other.machine, world)
    assert data.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert data.leader_id == host.member.node_id


def test_other_partitions_have_no_quorum_and_each_is_told_so() -> None:
    _, machine = leading(at_work())
    request = describe_request()
    request.topics[0].partitions.append(RequestPartitionData(partition_index=7))
    response = membership.describe(machine, request, 0, 0)
    assert response.error_code == ErrorCode.NONE
    told = [(each.partition_index, each.error_code) for each in response.topics[0].partitions]
    assert told == [(0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), (7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]


def test_very_many_partitions_without_a_quorum_are_refused_together() -> None:
    """The answer to a request of megabytes stays small."""
    _, machine = leading(at_work())
    request = describe_request()
    request.topics[0].partitions *= 1_000
    many_topics = DescribeQuorumRequest(topics=[RequestTopicData(topic_name="other", partitions=[])] * 1_000)
    for each in (request, many_topics):
        response = membership.describe(machine, each, 0, 0)
        assert (response.error_code, response.topics) == (ErrorCode.INVALID_REQUEST, [])
        assert "only __cluster_metadata-0 has a quorum" in (response.error_message or "")


def test_requests_name_voter_directory_address_and_cluster() -> None:
    listener = Listener(name="CONTROLLER", host="here", port=9004)
    asked = AddRaftVoterRequest(cluster_id="c", voter_id=4, voter_directory_id=b"4" * 16, listeners=[listener])
    assert membership.voter_to_add(asked, "c") == Voter(Member(4, b"4" * 16), "here", 9004)
    with pytest.raises(InconsistentClusterId):
        membership.voter_to_add(asked, "d")
    asked.listeners = []
    with pytest.raises(InvalidRequest, match="listener"):
        membership.voter_to_add(asked, "c")
    gone = RemoveRaftVoterRequest(cluster_id=None, voter_id=4, voter_directory_id=bytes(16))
    with pytest.raises(InvalidRequest, match="directory"):
        membership.member_to_remove(gone, "c")


# --- who was away ---


def replace_voters(world: World, *, gone: list[Member], come: list[int]) -> None:
    """One at a time; whoever is removed is shut down."""
    for node_id in come:
        _, machine = leading(world)
        voter = Voter(world.hosts[node_id].member, f"host{node_id}", 9000 + node_id)
        assert settle(world, membership.add_voter(machine, voter, world.now_ms, 5_000)) is ErrorCode.NONE
        world.run(world.now_ms + 1_000)
    for member in gone:
        _, machine = leading(world)
        assert settle(world, membership.remove_voter(machine, member, world.now_ms, 5_000)) is ErrorCode.NONE
        world.run(world.now_ms + 3_000)
        world.crash(member.node_id)
        world.run(world.now_ms + 3_000)


def test_a_voter_that_was_away_while_all_others_were_replaced_is_found_by_the_leader_it_was_started_with() -> None:
    world = at_work()
    host, machine = leading(world)
    away, other = [member for member in machine.voters.members if member != host.member]
    world.crash(away.node_id)
    replace_voters(world, come=[4, 5], gone=[other, host.member])
    world.restart(away.node_id)
    world.run(world.now_ms + 5_000)
    leader, machine = leading(world)
    back = world.hosts[away.node_id].machine
    assert back is not None
    # It has heard of a leader that it has no reason to trust, and knows nobody to ask.
    assert (back.leader, back.epoch) == (NO_LEADER, machine.epoch)
    world.crash(away.node_id)
    world.static = Voters(Voter(world.hosts[number].member) for number in (4, 5))
    world.restart(away.node_id)
    world.run(world.now_ms + 5_000)
    leader, machine = leading(world)
    back = world.hosts[away.node_id].machine
    assert back is not None
    assert (back.leader, back.voters) == (leader.member.node_id, machine.voters)


def test_a_voter_that_does_not_know_the_leader_yet_hears_of_it_from_those_it_knows() -> None:
    world = at_work()
    host, machine = leading(world)
    away = next(member for member in machine.voters.members if member != host.member)
    world.crash(away.node_id)
    replace_voters(world, come=[4], gone=[])
    added = world.hosts[4].machine
    assert added is not None
    elections.begin_epoch(added, world.now_ms)
    world.pump(4)
    world.run(world.now_ms + 3_000)
    assert added.leads
    world.restart(away.node_id)
    world.run(world.now_ms + 5_000)
    back = world.hosts[away.node_id].machine
    assert back is not None
    assert added.leads
    assert (back.leader, back.voters) == (4, added.voters)


def test_an_observer_that_was_away_while_all_voters_were_replaced_asks_whom_it_was_started_with() -> None:
    world = at_work()
    host, machine = leading(world)
    first, second = [member for member in machine.voters.members if member != host.member]
    replace_voters(world, come=[], gone=[first])
    world.crash(5)
    replace_voters(world, come=[4], gone=[second, host.member])
    world.static = Voters([Voter(world.hosts[4].member)])
    world.restart(5)
    world.run(world.now_ms + 5_000)
    _, machine = leading(world)
    back = world.hosts[5].machine
    assert back is not None
    assert (back.leader, back.voters) == (4, machine.voters)
