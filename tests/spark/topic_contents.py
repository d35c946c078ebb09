"""What is in a topic, read by a client that is not ours."""

import secrets
from collections.abc import Sequence
from typing import Any, NamedTuple

import confluent_kafka

from skidway.blocking_client.admin import Admin
from skidway.blocking_client.cluster import Cluster

PATIENCE_S = 30.0


class Seen(NamedTuple):
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]
    timestamp: tuple[int, int]


def new_topic(bootstrap: str, partitions: int = 1, **configs: str) -> str:
    """`new_topic(bootstrap, max__message__bytes="10000")`: a topic of its own for a test."""
    name = f"sink-{secrets.token_hex(6)}"
    with Cluster(bootstrap) as cluster:
        named = {key.replace("__", "."): value for key, value in configs.items()}
        Admin(cluster).create_topic(name, partitions=partitions, configs=named)
    return name


def read_topic(bootstrap: str, topic: str) -> list[Seen]:
    """All there is now, partition by partition in order of offsets."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False}
    consumer = confluent_kafka.Consumer({**settings, "enable.partition.eof": True, "auto.offset.reset": "error"})
    try:
        partitions = sorted(consumer.list_topics(topic, timeout=PATIENCE_S).topics[topic].partitions)
        consumer.assign([confluent_kafka.TopicPartition(topic, partition, 0) for partition in partitions])
        seen: list[Seen] = []
        ended: set[int] = set()
        while len(ended) < len(partitions):
            messages = consumer.consume(1_000, timeout=0.1)
            for message in messages:
                error, partition, offset = message.error(), message.partition(), message.offset()
                if error is None:
                    assert partition is not None
                    assert offset is not None
                    headers: Any = message.headers() or []
                    seen.append(Seen(partition, offset, message.key(), message.value(), headers, message.timestamp()))
                elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
                    assert partition is not None
                    ended.add(partition)
                else:
                    raise confluent_kafka.KafkaException(error)
        return sorted(seen)
    finally:
        consumer.close()


def values_of(bootstrap: str, topic: str) -> list[bytes | None]:
    return [one.value for one in read_topic(bootstrap, topic)]
