"""What nodes of a cluster say to each other and to its controller, said by somebody who is none of them."""

import struct
from typing import Any

from attack import CREATE_TOPICS, FETCH, METADATA, MIB, Address, Peer, body_of, message, part_of

from skidway.metadata.features import SUPPORTED
from skidway.testing import Broker
from skidway.wire.headers import write_request_header

INT32_MAX, INT64_MAX = 2**31 - 1, 2**63 - 1
ELECT_LEADERS, REASSIGN, LIST_REASSIGNMENTS = 43, 45, 46
VOTE, BEGIN_EPOCH, END_EPOCH, DESCRIBE_QUORUM, ALTER_PARTITION = 52, 53, 54, 55, 56
ENVELOPE, FETCH_SNAPSHOT, REGISTRATION, HEARTBEAT, UNREGISTER, PRODUCER_IDS = 58, 59, 62, 63, 64, 67
ADD_VOTER, REMOVE_VOTER = 80, 81
OF_THE_CLUSTER = (
    *(ELECT_LEADERS, REASSIGN, LIST_REASSIGNMENTS, VOTE, BEGIN_EPOCH, END_EPOCH, DESCRIBE_QUORUM, ALTER_PARTITION),
    *(ENVELOPE, FETCH_SNAPSHOT, REGISTRATION, HEARTBEAT, UNREGISTER, PRODUCER_IDS, ADD_VOTER, REMOVE_VOTER),
)
METADATA_TOPIC, METADATA_TOPIC_ID = "__cluster_metadata", bytes(15) + b"\x01"
NEWEST_FETCH = 18
STRANGER = 77
"""An id nobody has."""


def metadata(broker: Broker | Address) -> Any:
    with Peer(broker) as peer:
        return peer.call(METADATA, 12, topics=None)


def cluster_id(broker: Broker | Address) -> str:
    return str(metadata(broker).cluster_id)


def topic_id(broker: Broker | Address, name: str) -> bytes:
    return next(bytes(topic.topic_id) for topic in metadata(broker).topics if topic.name == name)


def create(broker: Broker | Address, name: str) -> int:
    """The error code. Works only if there is an active controller."""
    topic = part_of(CREATE_TOPICS, "CreatableTopic")(name, 1, 1)
    with Peer(broker) as peer:
        return int(peer.call(CREATE_TOPICS, 7, topics=[topic], timeout_ms=5_000).topics[0].error_code)


def of_quorum(key: int, **data: Any) -> list[Any]:
    """The topics of a message among voters, with its one partition."""
    snapshot = key == FETCH_SNAPSHOT
    topic = part_of(key, "RequestTopicSnapshot" if snapshot else "RequestTopicData")
    partition = part_of(key, "RequestPartitionSnapshot" if snapshot else "RequestPartitionData")
    return [topic(METADATA_TOPIC, [partition(**data)])]


def forged_vote(voter: int, epoch: int, **data: Any) -> dict[str, Any]:
    said = {"replica_epoch": epoch, "replica_id": STRANGER, "last_offset": INT64_MAX, "last_offset_epoch": 1, **data}
    return {"voter_id": voter, "topics": of_quorum(VOTE, **said)}


def forged_begin(voter: int, epoch: int, leader: int = STRANGER) -> dict[str, Any]:
    return {"voter_id": voter, "topics": of_quorum(BEGIN_EPOCH, leader_id=leader, leader_epoch=epoch)}


def forged_end(epoch: int, leader: int = STRANGER, candidates: int = 0) -> dict[str, Any]:
    named = [part_of(END_EPOCH, "ReplicaInfo")(each, bytes(16)) for each in range(candidates)]
    data = {"leader_id": leader, "leader_epoch": epoch, "preferred_candidates": named}
    return {"topics": of_quorum(END_EPOCH, **data)}


def metadata_fetch(
    replica: int = STRANGER, *, epoch: int = 1, offset: int = 0, last_epoch: int = 0, wait_ms: int = 0, seen: int = -1
) -> dict[str, Any]:
    """`seen`: the high watermark that the replica says it knows."""
    partition = part_of(FETCH, "FetchPartition")(
        0,
        current_leader_epoch=epoch,
        fetch_offset=offset,
        last_fetched_epoch=last_epoch,
        partition_max_bytes=MIB,
        high_watermark=seen,
    )
    return replica_fetch(METADATA_TOPIC_ID, [partition], replica, session_epoch=-1, max_wait_ms=wait_ms)


def replica_fetch(
    topic: bytes, partitions: list[Any], replica: int, *, epoch: int = -1, **fields: Any
) -> dict[str, Any]:
    """What a follower asks; `partitions` as indexes or as what is said of them."""
    each = part_of(FETCH, "FetchPartition")
    named = [each(one, partition_max_bytes=MIB) if isinstance(one, int) else one for one in partitions]
    return {
        "replica_state": part_of(FETCH, "ReplicaState")(replica, epoch),
        "max_wait_ms": 0,
        "min_bytes": 1,
        "max_bytes": MIB,
        "topics": [part_of(FETCH, "FetchTopic")(topic_id=topic, partitions=named)],
        **fields,
    }


def registration(broker: Broker, broker_id: int, **fields: Any) -> dict[str, Any]:
    listener = part_of(REGISTRATION, "Listener")("PLAINTEXT", "nowhere.invalid", 1, 0)
    said: dict[str, Any] = {
        "broker_id": broker_id,
        "cluster_id": cluster_id(broker),
        "incarnation_id": struct.pack(">qq", 1, broker_id),
        "listeners": [listener],
        "features": [part_of(REGISTRATION, "Feature")(name, *levels) for name, levels in SUPPORTED.items()],
        "log_dirs": [struct.pack(">qq", 2, broker_id)],
    }
    return {**said, **fields}


def in_envelope(key: int, version: int, **fields: Any) -> bytes:
    return write_request_header(key, version, 1, "attacker") + body_of(key, version, message(key, **fields))
