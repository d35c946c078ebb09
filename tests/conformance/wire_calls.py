"""Calls over a raw connection that many tests make: produce and fetch one partition, list offsets, topic ids."""

from collections.abc import Mapping
from typing import Any

from raw import Body, Connection

from waiting import eventually

PRODUCE_VERSION = 9
FETCH_VERSION = 12


def topic_id(wire: Connection, topic: str) -> bytes:
    (found,) = wire.call("Metadata", 12, {"topics": [{"name": topic}], "allow_auto_topic_creation": False})["topics"]
    assert found["error_code"] == 0, found
    return bytes(found["topic_id"])


def produce_body(topic: str, data: bytes | None, *, partition: int = 0, acks: int = -1, id_: bytes = b"") -> Body:
    named = {"topic_id": id_} if id_ else {"name": topic}
    written = [{"index": partition, "records": data}]
    return {"acks": acks, "timeout_ms": 8000, "topic_data": [{**named, "partition_data": written}]}


def produce(
    wire: Connection,
    topic: str,
    data: bytes | None,
    *,
    partition: int = 0,
    acks: int = -1,
    version: int = PRODUCE_VERSION,
) -> Body:
    """The answer for the one partition."""
    id_ = topic_id(wire, topic) if version >= 13 else b""
    answer = wire.call("Produce", version, produce_body(topic, data, partition=partition, acks=acks, id_=id_))
    ((one,),) = [answered["partition_responses"] for answered in answer["responses"]]
    return dict(one)


def fetch_body(
    topic: str,
    offset: int = 0,
    *,
    partition: int = 0,
    max_bytes: int = 50_000_000,
    partition_bytes: int = 50_000_000,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    id_: bytes = b"",
    **more: Any,
) -> Body:
    named = {"topic_id": id_} if id_ else {"topic": topic}
    wanted = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": partition_bytes}
    return {
        "max_wait_ms": max_wait_ms,
        "min_bytes": min_bytes,
        "max_bytes": max_bytes,
        "topics": [{**named, "partitions": [wanted]}],
        **more,
    }


def fetch(wire: Connection, topic: str, offset: int = 0, *, version: int = FETCH_VERSION, **options: Any) -> Body:
    """The answer for the one partition."""
    answer = wire.call("Fetch", version, fetch_body(topic, offset, **options))
    assert answer.get("error_code", 0) == 0, answer
    ((one,),) = [answered["partitions"] for answered in answer["responses"]]
    return dict(one)


def fetch_bytes(wire: Connection, topic: str, partition: int = 0) -> bytes:
    answer = fetch(wire, topic, partition=partition)
    assert answer["error_code"] == 0
    return bytes(answer["records"] or b"")


def list_offset(
    wire: Connection, topic: str, timestamp: int, *, partition: int = 0, version: int = 9, epoch: int = -1
) -> Body:
    asked = {"partition_index": partition, "timestamp": timestamp, "current_leader_epoch": epoch}
    body = {"replica_id": -1, "topics": [{"name": topic, "partitions": [asked]}]}
    ((one,),) = [answered["partitions"] for answered in wire.call("ListOffsets", version, body)["topics"]]
    return dict(one)


def end_offset(wire: Connection, topic: str, partition: int = 0) -> int:
    return int(list_offset(wire, topic, -1, partition=partition)["offset"])


def start_offset(wire: Connection, topic: str, partition: int = 0) -> int:
    return int(list_offset(wire, topic, -2, partition=partition)["offset"])


def new_producer_id(wire: Connection) -> tuple[int, int]:
    answer = wire.call("InitProducerId", 4, {"transactional_id": None, "transaction_timeout_ms": 60_000})
    assert answer["error_code"] == 0
    return answer["producer_id"], answer["producer_epoch"]


def eventually_end_offset(wire: Connection, topic: str, expected: int) -> None:
    eventually(lambda: end_offset(wire, topic) == expected)


def create_topic(connection: Connection, topic: str, partitions: int, configs: Mapping[str, str] | None) -> None:
    wanted = {
        "name": topic,
        "num_partitions": partitions,
        "replication_factor": 1,
        "configs": [{"name": key, "value": value} for key, value in (configs or {}).items()],
    }
    answer = connection.call("CreateTopics", 7, {"topics": [wanted], "timeout_ms": 8000})
    (made,) = answer["topics"]
    assert made["error_code"] == 0, made
    asked = {"name": topic, "partitions": [{"partition_index": p, "timestamp": -1} for p in range(partitions)]}

    def every_partition_answers() -> bool:
        (found,) = connection.call("ListOffsets", 7, {"replica_id": -1, "topics": [asked]})["topics"]
        return all(partition["error_code"] == 0 for partition in found["partitions"])

    eventually(every_partition_answers)
