"""What members of the quorum say to each other as Kafka's messages: Vote v2, BeginQuorumEpoch v1, EndQuorumEpoch v1,
Fetch v18 and FetchSnapshot v1, there and back.

What comes from outside and is not a message between members of this quorum raises: InconsistentClusterId,
InvalidRequest, or for answers UnknownServerError; whoever carries messages turns that into `refusal`, or takes the
request for unanswered.
"""

from collections.abc import Sequence
from typing import Any

from skidway.errors import ErrorCode, InconsistentClusterId, InvalidRequest, UnknownServerError
from skidway.limits import INT32_MAX, INT64_MAX, MIB
from skidway.ports import FileSlice
from skidway.quorum.control import LISTENER
from skidway.quorum.messages import (
    NO_LEADER,
    Answer,
    BeginEpoch,
    EndEpoch,
    EpochAnswer,
    EpochEnd,
    Fetch,
    FetchAnswer,
    FetchSnapshot,
    Request,
    SnapshotAnswer,
    Vote,
    VoteAnswer,
)
from skidway.quorum.voters import Member, Voter
from skidway.wire.message import Message
from skidway.wire.schema import begin_quorum_epoch, end_quorum_epoch, fetch, fetch_snapshot, vote

METADATA_TOPIC = "__cluster_metadata"
METADATA_TOPIC_ID = bytes(15) + b"\x01"
FETCH_BYTES_MAX = 8 * MIB
"""What one answer may carry, of the log or of a snapshot."""

_Module = Any
_NO_EPOCH_END = EpochEnd(-1, -1)

# --- requests ---


def request_to_wire(request: Request, me: Voter, cluster_id: str, *, wait_ms: int = 0) -> Message:
    """`wait_ms`: how long a leader may hold back the answer to a fetch that finds nothing new."""
    match request:
        case Vote():
            return _vote_to_wire(request, cluster_id)
        case BeginEpoch():
            return _begin_epoch_to_wire(request, me, cluster_id)
        case EndEpoch():
            return _end_epoch_to_wire(request, me, cluster_id)
        case Fetch():
            return _fetch_to_wire(request, cluster_id, wait_ms)
        case FetchSnapshot():
            return _fetch_snapshot_to_wire(request, cluster_id)


def request_from_wire(message: Message, cluster_id: str) -> Request:
    if getattr(message, "cluster_id", None) not in (None, cluster_id):
        raise InconsistentClusterId(f"this node belongs to the cluster {cluster_id}: check the settings of the peer")
    match message:
        case vote.VoteRequest():
            return _vote_from_wire(message)
        case begin_quorum_epoch.BeginQuorumEpochRequest():
            return _begin_epoch_from_wire(message)
        case end_quorum_epoch.EndQuorumEpochRequest():
            return _end_epoch_from_wire(message)
        case fetch.FetchRequest():
            return _fetch_from_wire(message)
        case fetch_snapshot.FetchSnapshotRequest():
            return _fetch_snapshot_from_wire(message)
    raise InvalidRequest(f"{type(message).__name__} is not a message between members of the quorum")


def is_metadata_fetch(message: fetch.FetchRequest) -> bool:
    """Whether a replica asks for the metadata log, and for nothing else."""
    return message.replica_state.replica_id >= 0 and [topic.topic_id for topic in message.topics] == [METADATA_TOPIC_ID]


def _only_partition(topics: Sequence[Any], partitions: str = "partitions") -> Any:
    """The one partition a message between members speaks about."""
    if len(topics) != 1 or len(getattr(topics[0], partitions)) != 1:
        raise InvalidRequest(f"exactly one partition was expected: {METADATA_TOPIC}-0")
    topic, partition = topics[0], getattr(topics[0], partitions)[0]
    if isinstance(topic, fetch.FetchTopic | fetch.FetchableTopicResponse):
        known = topic.topic_id == METADATA_TOPIC_ID
    elif isinstance(topic, fetch_snapshot.RequestTopicSnapshot | fetch_snapshot.ResponseTopicSnapshot):
        known = topic.name == METADATA_TOPIC
    else:
        known = topic.topic_name == METADATA_TOPIC
    index = getattr(partition, "partition_index", getattr(partition, "partition", getattr(partition, "index", None)))
    if not known or index != 0:
        raise InvalidRequest(f"another partition than {METADATA_TOPIC}-0")
    return partition


def _require(condition: bool, what: str) -> None:
    if not condition:
        raise InvalidRequest(what)


def _vote_to_wire(request: Vote, cluster_id: str) -> Message:
    partition = vote.RequestPartitionData(
        partition_index=0,
        replica_epoch=request.epoch,
        replica_id=request.candidate.node_id,
        replica_directory_id=request.candidate.directory_id,
        voter_directory_id=request.to.directory_id,
        last_offset_epoch=request.last_epoch,
        last_offset=request.end_offset,
        pre_vote=request.pre_vote,
    )
    topics = [vote.RequestTopicData(topic_name=METADATA_TOPIC, partitions=[partition])]
    return vote.VoteRequest(cluster_id=cluster_id, voter_id=request.to.node_id, topics=topics)


def _vote_from_wire(message: vote.VoteRequest) -> Vote:
    data: vote.RequestPartitionData = _only_partition(message.topics)
    _require(message.voter_id >= 0, "a vote is asked of nobody: the voter's id is missing")
    _require(data.replica_id >= 0, "a vote is asked for nobody: the candidate's id is missing")
    # In the epoch it stands for, a candidate cannot have written anything yet.
    newest = data.replica_epoch if data.pre_vote else data.replica_epoch - 1
    _require(
        0 <= data.last_offset_epoch <= newest and data.last_offset >= 0,
        f"a log that ends at {data.last_offset} in epoch {data.last_offset_epoch} cannot stand in {data.replica_epoch}",
    )
    return Vote(
        to=Member(message.voter_id, data.voter_directory_id),
        candidate=Member(data.replica_id, data.replica_directory_id),
        epoch=data.replica_epoch,
        last_epoch=data.last_offset_epoch,
        end_offset=data.last_offset,
        pre_vote=data.pre_vote,
    )


def _begin_epoch_to_wire(request: BeginEpoch, me: Voter, cluster_id: str) -> Message:
    schema = begin_quorum_epoch
    partition = schema.RequestPartitionData(
        partition_index=0,
        voter_directory_id=request.to.directory_id,
        leader_id=request.leader,
        leader_epoch=request.epoch,
    )
    return schema.BeginQuorumEpochRequest(
        cluster_id=cluster_id,
        voter_id=request.to.node_id,
        topics=[schema.RequestTopicData(topic_name=METADATA_TOPIC, partitions=[partition])],
        leader_endpoints=[schema.LeaderEndpoint(name=LISTENER, host=me.host, port=me.port)],
    )


def _begin_epoch_from_wire(message: begin_quorum_epoch.BeginQuorumEpochRequest) -> BeginEpoch:
    data: begin_quorum_epoch.RequestPartitionData = _only_partition(message.topics)
    _require(message.voter_id >= 0, "an epoch is begun with nobody: the voter's id is missing")
    _require(data.leader_id >= 0 and data.leader_epoch >= 0, "an epoch without a leader")
    return BeginEpoch(Member(message.voter_id, data.voter_directory_id), data.leader_id, data.leader_epoch)


def _end_epoch_to_wire(request: EndEpoch, me: Voter, cluster_id: str) -> Message:
    schema = end_quorum_epoch
    partition = schema.RequestPartitionData(
        partition_index=0,
        leader_id=request.leader,
        leader_epoch=request.epoch,
        preferred_candidates=[
            schema.ReplicaInfo(candidate_id=member.node_id, candidate_directory_id=member.directory_id)
            for member in request.candidates
        ],
    )
    return schema.EndQuorumEpochRequest(
        cluster_id=cluster_id,
        topics=[schema.RequestTopicData(topic_name=METADATA_TOPIC, partitions=[partition])],
        leader_endpoints=[schema.LeaderEndpoint(name=LISTENER, host=me.host, port=me.port)],
    )


def _end_epoch_from_wire(message: end_quorum_epoch.EndQuorumEpochRequest) -> EndEpoch:
    data: end_quorum_epoch.RequestPartitionData = _only_partition(message.topics)
    _require(data.leader_id >= 0 and data.leader_epoch >= 0, "an epoch without a leader")
    candidates = [Member(known.candidate_id, known.candidate_directory_id) for known in data.preferred_candidates]
    return EndEpoch(data.leader_id, data.leader_epoch, tuple(candidates))


def _fetch_to_wire(request: Fetch, cluster_id: str, wait_ms: int) -> Message:
    partition = fetch.FetchPartition(
        partition=0,
        current_leader_epoch=request.epoch,
        fetch_offset=request.offset,
        last_fetched_epoch=request.last_epoch,
        log_start_offset=-1,
        partition_max_bytes=FETCH_BYTES_MAX,
        replica_directory_id=request.replica.directory_id,
        high_watermark=request.high_watermark,
    )
    return fetch.FetchRequest(
        cluster_id=cluster_id,
        replica_state=fetch.ReplicaState(replica_id=request.replica.node_id, replica_epoch=-1),
        max_wait_ms=wait_ms,
        min_bytes=0,
        max_bytes=FETCH_BYTES_MAX,
        session_id=0,
        session_epoch=-1,
        topics=[fetch.FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=[partition])],
    )


def _fetch_from_wire(message: fetch.FetchRequest) -> Fetch:
    data: fetch.FetchPartition = _only_partition(message.topics)
    _require(message.replica_state.replica_id >= 0, "a fetch of the metadata log by no replica")
    _require(
        data.fetch_offset >= 0 and data.last_fetched_epoch >= 0 and data.current_leader_epoch >= 0,
        f"a fetch from offset {data.fetch_offset} after epoch {data.last_fetched_epoch} in {data.current_leader_epoch}",
    )
    return Fetch(
        replica=Member(message.replica_state.replica_id, data.replica_directory_id),
        epoch=data.current_leader_epoch,
        offset=data.fetch_offset,
        last_epoch=data.last_fetched_epoch,
        high_watermark=data.high_watermark,
    )


def _fetch_snapshot_to_wire(request: FetchSnapshot, cluster_id: str) -> Message:
    schema = fetch_snapshot
    partition = schema.RequestPartitionSnapshot(
        partition=0,
        current_leader_epoch=request.epoch,
        snapshot_id=schema.SnapshotId(end_offset=request.snapshot.end_offset, epoch=request.snapshot.epoch),
        position=request.position,
        replica_directory_id=request.replica.directory_id,
    )
    return schema.FetchSnapshotRequest(
        cluster_id=cluster_id,
        replica_id=request.replica.node_id,
        max_bytes=FETCH_BYTES_MAX,
        topics=[schema.RequestTopicSnapshot(name=METADATA_TOPIC, partitions=[partition])],
    )


def _fetch_snapshot_from_wire(message: fetch_snapshot.FetchSnapshotRequest) -> FetchSnapshot:
    data: fetch_snapshot.RequestPartitionSnapshot = _only_partition(message.topics)
    _require(message.replica_id >= 0, "a snapshot is fetched by no replica")
    snapshot = EpochEnd(data.snapshot_id.epoch, data.snapshot_id.end_offset)
    _require(
        snapshot.epoch >= 0 and snapshot.end_offset >= 0 and data.position >= 0 and data.current_leader_epoch >= 0,
        f"position {data.position} of the snapshot at {snapshot.end_offset} in epoch {snapshot.epoch}",
    )
    replica = Member(message.replica_id, data.replica_directory_id)
    return FetchSnapshot(replica, data.current_leader_epoch, snapshot, data.position)


# --- answers ---


def answer_to_wire(request: Request, answer: Answer, leader: Voter | None = None) -> Message:
    """`leader`: the one the answer names, so that who does not know its address can find it."""
    known = leader is not None and leader.host and leader.member.node_id == answer.leader
    match request, answer:
        case Vote(), VoteAnswer():
            voted = vote.ResponsePartitionData(
                partition_index=0,
                error_code=answer.error,
                leader_id=answer.leader,
                leader_epoch=answer.epoch,
                vote_granted=answer.granted,
            )
            topics = [vote.ResponseTopicData(topic_name=METADATA_TOPIC, partitions=[voted])]
            response: Any = vote.VoteResponse(topics=topics)
            schema: _Module = vote
        case ((BeginEpoch() | EndEpoch()), EpochAnswer()):
            schema = begin_quorum_epoch if isinstance(request, BeginEpoch) else end_quorum_epoch
            data = schema.ResponsePartitionData(
                partition_index=0, error_code=answer.error, leader_id=answer.leader, leader_epoch=answer.epoch
            )
            topics = [schema.ResponseTopicData(topic_name=METADATA_TOPIC, partitions=[data])]
            begun = isinstance(request, BeginEpoch)
            response = (schema.BeginQuorumEpochResponse if begun else schema.EndQuorumEpochResponse)(topics=topics)
        case Fetch(), FetchAnswer():
            schema, response = fetch, _fetch_answer_to_wire(answer)
        case FetchSnapshot(), SnapshotAnswer():
            schema, response = fetch_snapshot, _snapshot_answer_to_wire(answer)
        case _:
            raise AssertionError(f"{answer} does not answer {request}")
    if known:
        assert leader is not None
        endpoint = schema.NodeEndpoint(node_id=leader.member.node_id, host=leader.host, port=leader.port)
        response.node_endpoints = [endpoint]
    return response  # type: ignore[no-any-return]


def _fetch_answer_to_wire(answer: FetchAnswer) -> Message:
    data = fetch.PartitionData(
        partition_index=0,
        error_code=answer.error,
        high_watermark=answer.high_watermark,
        last_stable_offset=answer.high_watermark,
        current_leader=fetch.LeaderIdAndEpoch(leader_id=answer.leader, leader_epoch=answer.epoch),
        aborted_transactions=[],
        records=answer.records,
    )
    if answer.diverging is not None:
        end = answer.diverging
        data.diverging_epoch = fetch.EpochEndOffset(epoch=end.epoch, end_offset=end.end_offset)
    if answer.snapshot is not None:
        data.snapshot_id = fetch.SnapshotId(end_offset=answer.snapshot.end_offset, epoch=answer.snapshot.epoch)
    topic = fetch.FetchableTopicResponse(topic_id=METADATA_TOPIC_ID, partitions=[data])
    return fetch.FetchResponse(responses=[topic])


def _snapshot_answer_to_wire(answer: SnapshotAnswer) -> Message:
    schema = fetch_snapshot
    data = schema.ResponsePartitionSnapshot(
        index=0,
        error_code=answer.error,
        snapshot_id=schema.SnapshotId(end_offset=answer.snapshot.end_offset, epoch=answer.snapshot.epoch),
        current_leader=schema.LeaderIdAndEpoch(leader_id=answer.leader, leader_epoch=answer.epoch),
        size=answer.size,
        position=answer.position,
        unaligned_records=answer.data,
    )
    return schema.FetchSnapshotResponse(topics=[schema.ResponseTopicSnapshot(name=METADATA_TOPIC, partitions=[data])])


def refusal(message: Message, error: ErrorCode) -> Message:
    """The answer to a request that `request_from_wire` refused."""
    match message:
        case vote.VoteRequest():
            return vote.VoteResponse(error_code=error)
        case begin_quorum_epoch.BeginQuorumEpochRequest():
            return begin_quorum_epoch.BeginQuorumEpochResponse(error_code=error)
        case end_quorum_epoch.EndQuorumEpochRequest():
            return end_quorum_epoch.EndQuorumEpochResponse(error_code=error)
        case fetch.FetchRequest():
            return fetch.FetchResponse(error_code=error)
        case fetch_snapshot.FetchSnapshotRequest():
            return fetch_snapshot.FetchSnapshotResponse(error_code=error)
    raise AssertionError(f"{type(message).__name__} is not a message between members of the quorum")


def answer_from_wire(request: Request, message: Message) -> Answer:
    top_level = _error(getattr(message, "error_code", 0))
    if top_level:
        raise UnknownServerError(f"the peer refused {type(request).__name__}: {top_level.name}")
    try:
        return _answer_from_wire(request, message)
    except InvalidRequest as error:
        raise UnknownServerError(f"an answer to {type(request).__name__} that is none: {error}") from error


def _answer_from_wire(request: Request, message: Message) -> Answer:
    match request, message:
        case Vote(), vote.VoteResponse():
            voted: vote.ResponsePartitionData = _only_partition(message.topics)
            epoch, leader = _leadership(voted)
            return VoteAnswer(epoch, leader, voted.vote_granted, _error(voted.error_code))
        case BeginEpoch(), begin_quorum_epoch.BeginQuorumEpochResponse():
            begun: begin_quorum_epoch.ResponsePartitionData = _only_partition(message.topics)
            return EpochAnswer(*_leadership(begun), _error(begun.error_code))
        case EndEpoch(), end_quorum_epoch.EndQuorumEpochResponse():
            ended: end_quorum_epoch.ResponsePartitionData = _only_partition(message.topics)
            return EpochAnswer(*_leadership(ended), _error(ended.error_code))
        case Fetch(), fetch.FetchResponse():
            return _fetch_answer_from_wire(_only_partition(message.responses))
        case FetchSnapshot(), fetch_snapshot.FetchSnapshotResponse():
            return _snapshot_answer_from_wire(_only_partition(message.topics))
    raise InvalidRequest(f"it is a {type(message).__name__}")


def _error(code: int) -> ErrorCode:
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def _leadership(data: Any) -> tuple[int, int]:
    """Epoch and leader, as an answer tells them."""
    epoch, leader = data.leader_epoch, data.leader_id
    _require(epoch >= 0 and leader >= NO_LEADER, f"leader {leader} in epoch {epoch}")
    return epoch, leader


def _fetch_answer_from_wire(data: fetch.PartitionData) -> FetchAnswer:
    epoch, leader = _leadership(data.current_leader)
    records = data.records if data.records is not None else b""
    assert not isinstance(records, FileSlice), "what was received is in memory"
    diverging = EpochEnd(data.diverging_epoch.epoch, data.diverging_epoch.end_offset)
    snapshot = EpochEnd(data.snapshot_id.epoch, data.snapshot_id.end_offset)
    return FetchAnswer(
        epoch,
        leader,
        high_watermark=min(data.high_watermark, INT64_MAX),
        records=records,
        diverging=_whole(diverging),
        snapshot=_whole(snapshot),
        error=_error(data.error_code),
    )


def _whole(end: EpochEnd) -> EpochEnd | None:
    if end == _NO_EPOCH_END:
        return None
    _require(0 <= end.epoch <= INT32_MAX and end.end_offset >= 0, f"offset {end.end_offset} of epoch {end.epoch}")
    return end


def _snapshot_answer_from_wire(data: fetch_snapshot.ResponsePartitionSnapshot) -> SnapshotAnswer:
    epoch, leader = _leadership(data.current_leader)
    records = data.unaligned_records
    assert not isinstance(records, FileSlice), "what was received is in memory"
    _require(data.position >= 0 and data.size >= 0, f"position {data.position} of {data.size} bytes")
    return SnapshotAnswer(
        epoch,
        leader,
        snapshot=EpochEnd(data.snapshot_id.epoch, data.snapshot_id.end_offset),
        size=data.size,
        position=data.position,
        data=records,
        error=_error(data.error_code),
    )


# --- addresses ---


def leader_address(answer: Any) -> tuple[int, str, int] | None:
    """(node id, host, port) of the leader, where an answer tells them."""
    endpoints: Sequence[Any] = getattr(answer, "node_endpoints", ())
    usable = [known for known in endpoints if known.node_id >= 0 and known.host and 0 < known.port < 65_536]
    return (usable[0].node_id, usable[0].host, usable[0].port) if usable else None
