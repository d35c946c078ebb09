"""Who belongs to the quorum, asked and changed from outside: DescribeQuorum, AddRaftVoter, RemoveRaftVoter.

A change is appended by the leader, holds at once, and is done when it is committed. One at a time: whoever comes while
another is under way is told to try again (RequestTimedOut, as Kafka does). `outcome` tells what became of one.
"""

from msgspec import Struct

from skidway.errors import (
    DuplicateVoter,
    ErrorCode,
    InconsistentClusterId,
    InvalidRequest,
    NotLeaderOrFollower,
    RequestTimedOut,
    VoterNotFound,
)
from skidway.quorum.control import LISTENER
from skidway.quorum.followers import Follower
from skidway.quorum.machine import Quorum
from skidway.quorum.voters import NO_DIRECTORY, Member, Voter, Voters
from skidway.quorum.wire import METADATA_TOPIC
from skidway.wire.schema.add_raft_voter import AddRaftVoterRequest
from skidway.wire.schema.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    ReplicaState,
    ResponsePartitionData,
    ResponseTopicData,
)
from skidway.wire.schema.remove_raft_voter import RemoveRaftVoterRequest

CAUGHT_UP_MS = 10_000
"""An observer may become a voter if it had all of the log within this time: otherwise commits would wait for it."""
HOST_CHARACTERS_MAX = 255
REFUSED_ONE_BY_ONE_MAX = 100
"""Topics and partitions without a quorum that are answered one by one."""


class VoterChange(Struct, frozen=True):
    """A change that was appended; `outcome` says when it is done."""

    epoch: int
    end_offset: int
    """Committed when the high watermark is here."""
    deadline_ms: int


# --- changing ---


def voter_to_add(request: AddRaftVoterRequest, cluster_id: str) -> Voter:
    _check_cluster(request.cluster_id, cluster_id)
    member = _member(request.voter_id, request.voter_directory_id)
    known = [listener for listener in request.listeners if listener.name == LISTENER] or request.listeners
    if not known or not 0 < len(known[0].host) <= HOST_CHARACTERS_MAX or known[0].port == 0:
        raise InvalidRequest("a voter needs a listener with a host and a port, so that the others can reach it")
    return Voter(member, known[0].host, known[0].port)


def member_to_remove(request: RemoveRaftVoterRequest, cluster_id: str) -> Member:
    _check_cluster(request.cluster_id, cluster_id)
    return _member(request.voter_id, request.voter_directory_id)


def _check_cluster(told: str | None, cluster_id: str) -> None:
    if told not in (None, cluster_id):
        raise InconsistentClusterId(f"this node belongs to the cluster {cluster_id}")


def _member(voter_id: int, directory_id: bytes) -> Member:
    if voter_id < 0 or directory_id == NO_DIRECTORY:
        raise InvalidRequest("a voter is named by its node id and the id of its metadata directory")
    return Member(voter_id, directory_id)


def add_voter(quorum: Quorum, voter: Voter, now_ms: int, timeout_ms: int) -> VoterChange:
    check_addable(quorum, voter, now_ms)
    return _append(quorum, quorum.voters.with_voter(voter), now_ms, timeout_ms)


def check_addable(quorum: Quorum, voter: Voter, now_ms: int) -> None:
    """As far as the leader knows by itself."""
    _check_free(quorum)
    if quorum.voters.find(voter.member.node_id) is not None:
        raise DuplicateVoter(
            f"node {voter.member.node_id} is a voter already; remove it first to give it a new directory"
        )
    assert quorum.followers is not None
    observer = quorum.followers.find(voter.member)
    if observer is None or observer.caught_up_ms < max(now_ms - CAUGHT_UP_MS, 0):
        raise RequestTimedOut(
            f"node {voter.member.node_id} with that directory does not follow the metadata log closely enough: start "
            "it as an observer, wait until it has caught up, then add it"
        )


def remove_voter(quorum: Quorum, member: Member, now_ms: int, timeout_ms: int) -> VoterChange:
    _check_free(quorum)
    if member not in quorum.voters:
        raise VoterNotFound(f"node {member.node_id} with that directory is not a voter")
    if len(quorum.voters) == 1:
        raise InvalidRequest("the last voter cannot be removed")
    left = quorum.voters.without(member.node_id)
    _check_majority(quorum, member, left, now_ms)
    return _append(quorum, left, now_ms, timeout_ms)


def _check_majority(quorum: Quorum, member: Member, left: Voters, now_ms: int) -> None:
    """The new set has to commit its own record: where too many of it are gone, nothing is committed any more, and no
    voter can be added or removed to mend that. Kafka appends such a record."""
    assert quorum.followers is not None
    present = quorum.followers.keeping_up(left, max(now_ms - CAUGHT_UP_MS, 0))
    if len(present) < left.majority:
        gone = [voter.node_id for voter in left.members if voter not in present]
        raise RequestTimedOut(
            f"without node {member.node_id} {len(present)} of {len(left)} voters would be left that follow the "
            f"metadata log, too few to commit anything: start or remove {', '.join(map(str, gone))} first"
        )


def learn_directories(quorum: Quorum, now_ms: int, timeout_ms: int = 0) -> VoterChange | None:
    """Voters from the configuration are known by their ids alone. Once the leader has heard of each of them, it writes
    down which directory each has: from then on a voter that lost its disk is not taken for the one it was."""
    unknown = [voter for voter in quorum.voters if voter.member.directory_id == NO_DIRECTORY]
    if not unknown or quorum.may_change_voters is not None or quorum.followers is None:
        return None
    heard = {follower.member.node_id: follower.member for follower in quorum.followers}
    heard[quorum.me.node_id] = quorum.me
    learnt = [_learnt(voter, heard.get(voter.member.node_id)) for voter in quorum.voters]
    if any(voter.member.directory_id == NO_DIRECTORY for voter in learnt):
        return None
    return _append(quorum, Voters(learnt), now_ms, timeout_ms)


def _learnt(voter: Voter, heard: Member | None) -> Voter:
    if voter.member.directory_id != NO_DIRECTORY or heard is None:
        return voter
    return Voter(heard, voter.host, voter.port)


def _check_free(quorum: Quorum) -> None:
    if not quorum.leads:
        raise NotLeaderOrFollower(f"node {quorum.leader} leads the quorum in epoch {quorum.epoch}")
    if quorum.may_change_voters is not None:
        raise RequestTimedOut(f"{quorum.may_change_voters}; retry")


def _append(quorum: Quorum, voters: Voters, now_ms: int, timeout_ms: int) -> VoterChange:
    epoch = quorum.epoch
    return VoterChange(epoch, quorum.change_voters(voters, now_ms), now_ms + max(timeout_ms, 0))


def outcome(quorum: Quorum, change: VoterChange, now_ms: int) -> ErrorCode | None:
    """None while it is under way. Who is told of a timeout or of another leader cannot know whether it will hold."""
    if quorum.epoch == change.epoch and quorum.high_watermark >= change.end_offset:
        return ErrorCode.NONE
    if quorum.epoch != change.epoch or not quorum.leads:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return ErrorCode.REQUEST_TIMED_OUT if now_ms >= change.deadline_ms else None


# --- describing ---


def describe(quorum: Quorum, request: DescribeQuorumRequest, now_ms: int, wall_ms: int) -> DescribeQuorumResponse:
    """`now_ms` is the clock of the quorum, `wall_ms` the same moment for people."""
    if not _is_of_metadata(request):
        return _no_quorum(request)
    data = ResponsePartitionData(partition_index=0, leader_id=quorum.leader, leader_epoch=quorum.epoch)
    if not quorum.leads or quorum.followers is None:
        data.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        data.error_message = f"node {quorum.leader} leads the quorum"
    else:
        data.high_watermark = quorum.high_watermark
        known = {follower.member.node_id: follower for follower in quorum.followers}
        shift_ms = wall_ms - now_ms
        data.current_voters = [_voter_state(quorum, voter, known, now_ms, shift_ms) for voter in quorum.voters]
        data.observers = [
            _state(follower.member, follower, shift_ms)
            for follower in quorum.followers
            if follower.member not in quorum.voters
        ]
        if quorum.me not in quorum.voters:
            data.observers.append(_own_state(quorum, wall_ms))
    topics = [ResponseTopicData(topic_name=METADATA_TOPIC, partitions=[data])]
    return DescribeQuorumResponse(topics=topics, nodes=[_node(voter) for voter in quorum.voters if voter.host])


def _is_of_metadata(request: DescribeQuorumRequest) -> bool:
    asked = [topic for topic in request.topics if topic.partitions]
    if len(asked) != 1 or asked[0].topic_name != METADATA_TOPIC:
        return False
    return len(asked[0].partitions) == 1 and asked[0].partitions[0].partition_index == 0


def _no_quorum(request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    """As Kafka says it: of everything that was asked for, one by one, unless that is very much."""
    if len(request.topics) + sum([len(topic.partitions) for topic in request.topics]) > REFUSED_ONE_BY_ONE_MAX:
        return DescribeQuorumResponse(
            error_code=ErrorCode.INVALID_REQUEST,
            error_message=f"only {METADATA_TOPIC}-0 has a quorum, and it is asked for alone",
        )

    def refused(index: int) -> ResponsePartitionData:
        return ResponsePartitionData(partition_index=index, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    topics = [
        ResponseTopicData(topic.topic_name, [refused(each.partition_index) for each in topic.partitions])
        for topic in request.topics
    ]
    return DescribeQuorumResponse(topics=topics)


def _node(voter: Voter) -> Node:
    return Node(node_id=voter.member.node_id, listeners=[Listener(name=LISTENER, host=voter.host, port=voter.port)])


def _voter_state(quorum: Quorum, voter: Voter, known: dict[int, Follower], now_ms: int, shift_ms: int) -> ReplicaState:
    if voter.member.node_id == quorum.me.node_id:
        return _own_state(quorum, now_ms + shift_ms)
    follower = known.get(voter.member.node_id)
    if follower is not None and follower.member not in quorum.voters:
        follower = None
    return _state(follower.member if follower is not None else voter.member, follower, shift_ms)


def _own_state(quorum: Quorum, wall_ms: int) -> ReplicaState:
    return ReplicaState(
        replica_id=quorum.me.node_id,
        replica_directory_id=quorum.me.directory_id,
        log_end_offset=quorum.log.end_offset,
        last_fetch_timestamp=wall_ms,
        last_caught_up_timestamp=wall_ms,
    )


def _state(member: Member, follower: Follower | None, shift_ms: int) -> ReplicaState:
    state = ReplicaState(replica_id=member.node_id, replica_directory_id=member.directory_id, log_end_offset=-1)
    if follower is not None:
        state.log_end_offset = follower.end_offset
        state.last_fetch_timestamp = follower.fetched_ms + shift_ms
        state.last_caught_up_timestamp = follower.caught_up_ms + shift_ms if follower.caught_up_ms >= 0 else -1
    return state
