"""What members say to each other, through Kafka's messages as bytes and back; and what is no such message."""

from typing import Any

import pytest
from metadata_logs import member, voter_set

from skidway.errors import ErrorCode, InconsistentClusterId, InvalidRequest, UnknownServerError
from skidway.quorum.messages import (
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
from skidway.quorum.voters import Voter
from skidway.quorum.wire import (
    answer_from_wire,
    answer_to_wire,
    is_metadata_fetch,
    leader_address,
    refusal,
    request_from_wire,
    request_to_wire,
)
from skidway.wire.message import Message
from skidway.wire.registry import codec

ME = Voter(member(1), "here", 9001)
CLUSTER = "a-cluster"

VOTE = Vote(member(2), member(1), 7, 6, 120, pre_vote=False)
PRE_VOTE = Vote(member(2), member(1), 6, 6, 120, pre_vote=True)
BEGIN = BeginEpoch(member(2), 1, 7)
END = EndEpoch(1, 7, (member(3), member(2)))
FETCH = Fetch(member(2), 7, 120, 6, 100)
FETCH_SNAPSHOT = FetchSnapshot(member(2), 7, EpochEnd(5, 90), 4096)
REQUESTS: list[Request] = [VOTE, PRE_VOTE, BEGIN, END, FETCH, FETCH_SNAPSHOT]


def through_bytes(message: Message) -> Any:
    """As it arrives: in the newest version."""
    kind: Any = codec(type(message))
    version = type(message).__versions__.last
    parts: list[Any] = []
    kind.encoder(version)(message, parts)
    data = b"".join(parts)
    found, end = kind.decoder(version)(data, 0)
    assert end == len(data)
    return found


@pytest.mark.parametrize("request_", REQUESTS, ids=str)
def test_requests_arrive_as_they_were_meant(request_: Request) -> None:
    message = through_bytes(request_to_wire(request_, ME, CLUSTER, wait_ms=300))
    assert request_from_wire(message, CLUSTER) == request_


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        (VOTE, VoteAnswer(7, -1, granted=True)),
        (PRE_VOTE, VoteAnswer(8, 3, granted=False, error=ErrorCode.FENCED_LEADER_EPOCH)),
        (BEGIN, EpochAnswer(7, 1)),
        (END, EpochAnswer(8, 2, ErrorCode.FENCED_LEADER_EPOCH)),
        (FETCH, FetchAnswer(7, 1, 100, b"batches")),
        (FETCH, FetchAnswer(7, 1, 100, diverging=EpochEnd(5, 80))),
        (FETCH, FetchAnswer(7, 1, 100, diverging=EpochEnd(0, 0))),
        (FETCH, FetchAnswer(7, 1, 100, snapshot=EpochEnd(5, 90))),
        (FETCH, FetchAnswer(9, 3, error=ErrorCode.FENCED_LEADER_EPOCH)),
        (FETCH, FetchAnswer(9, -1, error=ErrorCode.NOT_LEADER_OR_FOLLOWER)),
        (FETCH_SNAPSHOT, SnapshotAnswer(7, 1, EpochEnd(5, 90), 10_000, 4096, b"some")),
        (FETCH_SNAPSHOT, SnapshotAnswer(7, 1, error=ErrorCode.SNAPSHOT_NOT_FOUND)),
    ],
    ids=str,
)
def test_answers_arrive_as_they_were_meant(request_: Request, answer: Answer) -> None:
    assert answer_from_wire(request_, through_bytes(answer_to_wire(request_, answer))) == answer


def test_whoever_is_told_of_a_leader_is_told_where_it_is() -> None:
    leader = voter_set(3).find(3)
    told: list[tuple[Request, Answer]] = [(VOTE, VoteAnswer(8, 3, granted=False)), (FETCH, FetchAnswer(8, 3))]
    for request, answer in told:
        assert leader_address(through_bytes(answer_to_wire(request, answer, leader))) == (3, "host3", 9003)
        assert leader_address(through_bytes(answer_to_wire(request, answer, ME))) is None
        assert leader_address(through_bytes(answer_to_wire(request, answer))) is None
    assert leader_address(through_bytes(request_to_wire(BEGIN, ME, CLUSTER))) is None


def test_a_metadata_fetch_is_told_from_others() -> None:
    message = through_bytes(request_to_wire(FETCH, ME, CLUSTER))
    assert is_metadata_fetch(message)
    message.topics[0].topic_id = bytes(15) + b"\x02"
    assert not is_metadata_fetch(message)


@pytest.mark.parametrize("request_", REQUESTS, ids=str)
def test_messages_of_another_cluster_are_refused(request_: Request) -> None:
    message = through_bytes(request_to_wire(request_, ME, "another"))
    with pytest.raises(InconsistentClusterId) as caught:
        request_from_wire(message, CLUSTER)
    told = through_bytes(refusal(message, caught.value.code))
    with pytest.raises(UnknownServerError, match="INCONSISTENT_CLUSTER_ID"):
        answer_from_wire(request_, told)


def topics_of(message: Any) -> list[Any]:
    topics: list[Any] = message.topics
    return topics


@pytest.mark.parametrize("request_", REQUESTS, ids=str)
def test_other_partitions_are_refused(request_: Request) -> None:
    def refused(message: Any) -> None:
        with pytest.raises(InvalidRequest, match="__cluster_metadata-0"):
            request_from_wire(message, CLUSTER)

    message = through_bytes(request_to_wire(request_, ME, CLUSTER))
    topics_of(message).append(topics_of(message)[0])
    refused(message)
    topics_of(message).clear()
    refused(message)
    message = through_bytes(request_to_wire(request_, ME, CLUSTER))
    topics_of(message)[0].partitions *= 2
    refused(message)
    message = through_bytes(request_to_wire(request_, ME, CLUSTER))
    topic = topics_of(message)[0]
    name = {"Fetch": "topic_id", "FetchSnapshot": "name"}.get(type(request_).__name__, "topic_name")
    setattr(topic, name, bytes(16) if name == "topic_id" else "another")
    refused(message)


@pytest.mark.parametrize(
    ("request_", "field", "value"),
    [
        (VOTE, "replica_id", -1),
        (VOTE, "last_offset", -1),
        (VOTE, "last_offset_epoch", 7),
        (VOTE, "last_offset_epoch", -1),
        (PRE_VOTE, "last_offset_epoch", 7),
        (BEGIN, "leader_id", -1),
        (END, "leader_epoch", -1),
        (FETCH, "fetch_offset", -1),
        (FETCH, "last_fetched_epoch", -1),
        (FETCH, "current_leader_epoch", -1),
        (FETCH_SNAPSHOT, "position", -1),
    ],
)
def test_impossible_numbers_are_refused(request_: Request, field: str, value: int) -> None:
    message = through_bytes(request_to_wire(request_, ME, CLUSTER))
    setattr(topics_of(message)[0].partitions[0], field, value)
    with pytest.raises(InvalidRequest):
        request_from_wire(message, CLUSTER)


@pytest.mark.parametrize("request_", [VOTE, BEGIN])
def test_a_missing_voter_is_refused(request_: Request) -> None:
    message = through_bytes(request_to_wire(request_, ME, CLUSTER))
    message.voter_id = -1
    with pytest.raises(InvalidRequest, match="voter's id is missing"):
        request_from_wire(message, CLUSTER)


def test_an_answer_to_something_else_is_none() -> None:
    told = through_bytes(answer_to_wire(VOTE, VoteAnswer(7, -1, granted=True)))
    with pytest.raises(UnknownServerError, match="VoteResponse"):
        answer_from_wire(FETCH, told)
    told.topics[0].partitions[0].leader_epoch = -5
    with pytest.raises(UnknownServerError, match="epoch -5"):
        answer_from_wire(VOTE, told)
