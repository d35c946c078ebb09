"""Schedules over three real nodes that are killed while messages fall due: each message comes exactly once, by value.

The coordinator of the schedules is killed, and leaders of the queue's partitions, one node at a time; each comes back
before the next one is killed. What the queue has at the end is read by a Kafka client from its topic, where nothing
that came twice could be hidden by an acknowledgement.
"""

import json
import random
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from test_fifo_kills import Client

from skidway.testing import Cluster
from waiting import eventually

QUEUE = "jobs"
SCHEDULES = f"/v1/queues/{QUEUE}/schedules"
STATES = "__queue_schedule"
MESSAGES = 240
SPAN_MS = 40_000
AHEAD_MS = 12_000


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(3, http="127.0.0.1:0", network=False) as started:
        yield started


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


def messages_in(cluster: Cluster, partitions: int) -> list[tuple[str, int, int]]:
    """Value, when it was due, and when it was written: of all that is in the queue's topic."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "reader", "enable.auto.commit": False})
    found: list[tuple[str, int, int]] = []
    try:
        places = [TopicPartition(QUEUE, index, OFFSET_BEGINNING) for index in range(partitions)]
        consumer.assign(places)
        ends = {each.partition: consumer.get_watermark_offsets(each, timeout=60)[1] for each in places}
        left = {index for index, end in ends.items() if end}
        while left:
            message: Any = consumer.poll(60)
            assert message is not None, f"partitions {left} cannot be read"
            assert message.error() is None, message.error()
            headers = dict(message.headers())
            found.append((message.value().decode(), int(headers["skidway.schedule-due"]), message.timestamp()[1]))
            if message.offset() + 1 >= ends[message.partition()]:
                left.discard(message.partition())
    finally:
        consumer.close()
    return found


def coordinator(cluster: Cluster) -> int:
    """The node that coordinates the queue's schedules."""
    from skidway.broker.coordinators.schedules import SETTINGS
    from skidway.groups.placement import partition_of

    return cluster.leader_of(STATES, partition_of(QUEUE, SETTINGS.state_partitions))


def test_each_message_comes_once_whoever_is_killed(cluster: Cluster) -> None:
    client, chance = Client(cluster), random.Random(7)
    client.ask("PUT", f"/v1/queues/{QUEUE}", {"partitions": 3})
    begin_ms = wall_ms() + AHEAD_MS
    wanted: dict[str, int] = {}
    for number in range(MESSAGES):
        due_ms = begin_ms + 60_000 + chance.randrange(SPAN_MS)
        body: dict[str, Any] = {"id": f"s{number}", "body": f"m{number}", "deliverAt": due_ms}
        if number % 3:
            body["key"] = f"k{number % 7}"
        assert client.ask("POST", SCHEDULES, body)["dueAt"] == due_ms
        wanted[f"m{number}"] = due_ms
    for number in range(0, MESSAGES, 10):
        path = f"{SCHEDULES}/s{number}"
        assert client.ask("DELETE", path)["done"]
        del wanted[f"m{number}"]

    first_ms, last_ms = min(wanted.values()), max(wanted.values())
    eventually(lambda: wall_ms() > first_ms, 120)
    killed: list[int] = []
    while wall_ms() < last_ms or len(killed) < 3:
        victim = coordinator(cluster) if len(killed) % 2 == 0 else cluster.leader_of(QUEUE, chance.randrange(3))
        cluster.kill(victim)
        killed.append(victim)
        cluster.start(victim)

    def all_came() -> Any:
        return client.ask("GET", SCHEDULES)["schedules"] == []

    eventually(all_came, 240)
    found = messages_in(cluster, 3)
    counts = Counter(value for value, _, _ in found)
    assert [value for value, count in counts.items() if count > 1] == [], f"twice; killed: {killed}"
    assert sorted(counts) == sorted(wanted), f"lost, or cancelled and here; killed: {killed}"
    for value, due_ms, written_ms in found:
        assert due_ms == wanted[value]
        assert written_ms >= due_ms, "before it was due"
    print(json.dumps({"messages": len(found), "killed": killed}))
