"""What attacks on transactions need: the requests, in short."""

from collections.abc import Iterable, Sequence
from typing import Any

from attack import INIT_PRODUCER_ID, PRODUCE, Peer, batch_of, part_of, request

from waiting import eventually

FIND_COORDINATOR, ADD_PARTITIONS, ADD_OFFSETS, END, WRITE_MARKERS, COMMIT_OFFSETS = 10, 24, 25, 26, 27, 28
DESCRIBE, LIST, COMMIT_TOGETHER = 65, 66, 30000
TIMEOUT_MS = 60_000
Place = tuple[str, int]
Producer = tuple[int, int]


def find(peer: Peer, key: str) -> None:
    """Until there is a coordinator that has loaded."""
    asked = {"key_type": 1, "coordinator_keys": [key]}
    eventually(lambda: peer.call(FIND_COORDINATOR, 4, **asked).coordinators[0].error_code == 0)
    eventually(lambda: peer.call(DESCRIBE, 0, transactional_ids=[key]).transaction_states[0].error_code == 105)


def init_frame(key: str, timeout_ms: int = TIMEOUT_MS, version: int = 5, **fields: Any) -> bytes:
    return request(INIT_PRODUCER_ID, version, transactional_id=key, transaction_timeout_ms=timeout_ms, **fields)


def init(peer: Peer, key: str, timeout_ms: int = TIMEOUT_MS, version: int = 5, **fields: Any) -> Any:
    return peer.ask(INIT_PRODUCER_ID, version, init_frame(key, timeout_ms, version, **fields))


def taken(peer: Peer, key: str) -> Producer:
    """Also from somebody whose transaction has to be aborted first."""

    def ask() -> Any:
        answer = init(peer, key)
        return answer if answer.error_code != 51 else None

    answer = eventually(ask)
    assert answer.error_code == 0, answer
    return answer.producer_id, answer.producer_epoch


def by_topic(key: int, struct: str, places: Iterable[Place]) -> list[Any]:
    topics: dict[str, list[int]] = {}
    for topic, index in places:
        topics.setdefault(topic, []).append(index)
    return [part_of(key, struct)(topic, indexes) for topic, indexes in topics.items()]


def add(peer: Peer, key: str, producer: Producer, places: Sequence[Place], version: int = 3) -> set[int]:
    """The codes of all partitions."""
    answer = peer.call(
        ADD_PARTITIONS,
        version,
        v3_and_below_transactional_id=key,
        v3_and_below_producer_id=producer[0],
        v3_and_below_producer_epoch=producer[1],
        v3_and_below_topics=by_topic(ADD_PARTITIONS, "AddPartitionsToTxnTopic", places),
    )
    topics = answer.results_by_topic_v3_and_below
    return {each.partition_error_code for topic in topics for each in topic.results_by_partition}


def add_offsets(peer: Peer, key: str, producer: Producer, group: str = "g", version: int = 4) -> int:
    fields = {"transactional_id": key, "producer_id": producer[0], "producer_epoch": producer[1], "group_id": group}
    return int(peer.call(ADD_OFFSETS, version, **fields).error_code)


def end(peer: Peer, key: str, producer: Producer, commit: bool = True, version: int = 4) -> int:
    fields = {"transactional_id": key, "producer_id": producer[0], "producer_epoch": producer[1]}
    return int(peer.call(END, version, committed=commit, **fields).error_code)


def commit_offsets(peer: Peer, key: str, producer: Producer, place: Place, group: str = "g", version: int = 4) -> int:
    wanted = part_of(COMMIT_OFFSETS, "TxnOffsetCommitRequestPartition")(place[1], 7, -1, "")
    topics = [part_of(COMMIT_OFFSETS, "TxnOffsetCommitRequestTopic")(place[0], partitions=[wanted])]
    fields = {"transactional_id": key, "producer_id": producer[0], "producer_epoch": producer[1], "group_id": group}
    answer = peer.call(COMMIT_OFFSETS, version, topics=topics, **fields)
    return int(answer.topics[0].partitions[0].error_code)


def produce(peer: Peer, key: str | None, producer: Producer, place: Place, version: int = 11, **options: Any) -> int:
    filled = {"producer_id": producer[0], "producer_epoch": producer[1], "base_sequence": 0, "transactional": True}
    data = part_of(PRODUCE, "PartitionProduceData")(place[1], batch_of(b"x", **{**filled, **options}))
    topics = [part_of(PRODUCE, "TopicProduceData")(place[0], partition_data=[data])]
    answer = peer.call(PRODUCE, version, transactional_id=key, acks=-1, timeout_ms=10_000, topic_data=topics)
    return int(answer.responses[0].partition_responses[0].error_code)


def write_marker(peer: Peer, producer: Producer, place: Place, coordinator_epoch: int = 0, **fields: Any) -> int:
    marker = part_of(WRITE_MARKERS, "WritableTxnMarker")(
        producer_id=producer[0],
        producer_epoch=producer[1],
        transaction_result=fields.pop("commit", False),
        topics=by_topic(WRITE_MARKERS, "WritableTxnMarkerTopic", [place]),
        coordinator_epoch=coordinator_epoch,
        **fields,
    )
    (answered,) = peer.call(WRITE_MARKERS, 2, markers=[marker]).markers
    return int(answered.topics[0].partitions[0].error_code)


def state(peer: Peer, key: str) -> Any:
    (found,) = peer.call(DESCRIBE, 0, transactional_ids=[key]).transaction_states
    return found


def commit_together(peer: Peer, *participants: tuple[str, int, int]) -> Any:
    asked = [part_of(COMMIT_TOGETHER, "TransactionToCommit")(*each) for each in participants]
    return peer.call(COMMIT_TOGETHER, 0, transactions=asked)
