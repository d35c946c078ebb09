"""Readers read from a replica in their own rack, and lose nothing by it."""

import json
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from skidway.testing.cluster import Cluster
from waiting import eventually

RACKS = {1: "east", 2: "west", 3: "north"}


def test_a_reader_reads_in_its_own_rack_and_goes_on_elsewhere_when_that_is_gone() -> None:
    with Cluster(3, node_settings={node: {"rack": rack} for node, rack in RACKS.items()}) as cluster:
        settings: dict[str, Any] = {"bootstrap.servers": cluster.bootstrap}
        admin = AdminClient(settings)
        admin.create_topics([NewTopic("orders", 1, 3)])["orders"].result(30)
        near = cluster.followers_of("orders")[0]
        producer = Producer({**settings, "acks": "all"})
        reads_from: list[int] = []

        def on_statistics(text: str) -> None:
            topics: dict[str, Any] = json.loads(text)["topics"]
            reads_from.append(topics.get("orders", {}).get("partitions", {}).get("0", {}).get("broker", -1))

        reader = Consumer(
            {
                **settings,
                "group.id": "readers",
                "client.rack": RACKS[near],
                "enable.auto.commit": False,
                "statistics.interval.ms": 100,
                "stats_cb": on_statistics,
            }
        )
        reader.assign([TopicPartition("orders", 0, 0)])
        read: list[bytes] = []

        def write_and_read(first: int, end: int) -> None:
            for number in range(first, end):
                producer.produce("orders", str(number).encode())
            assert producer.flush(60) == 0
            eventually(lambda: _read_on(reader, read, end))

        write_and_read(0, 500)
        eventually(lambda: _read_on(reader, read, 500) and reads_from[-1:] == [near])
        write_and_read(500, 1000)
        cluster.kill(near)
        write_and_read(1000, 1500)
        eventually(lambda: _read_on(reader, read, 1500) and reads_from[-1] != near)
        assert read == [str(number).encode() for number in range(1500)]
        reader.close()


def _read_on(reader: Consumer, read: list[bytes], end: int) -> bool:
    for message in reader.consume(200, 0.1):
        if message.error() is None:
            read.append(message.value() or b"")
    return len(read) >= end
