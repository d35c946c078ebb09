"""A broker that may open few files, and a client whose topic begins a new segment with every batch."""

import os
import resource
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from attack import CREATE_TOPICS, LIST_OFFSETS, PRODUCE, Peer, batch_of, create_topic, part_of, produce_frame, request

from skidway.testing import Broker
from skidway.testing import broker as starting
from waiting import eventually

NONE, KAFKA_STORAGE_ERROR, POLICY_VIOLATION = 0, 56, 44


@contextmanager
def scarce_broker(descriptors: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    def lower() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))

    broker = Broker(flush="os", checkpoint_ms=600_000)
    really_start: Any = subprocess.Popen

    def start(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        started: subprocess.Popen[bytes] = really_start(*arguments, **options, preexec_fn=lower)
        return started

    with monkeypatch.context() as patched:
        patched.setattr(starting.subprocess, "Popen", start)
        broker.start()
    with broker:
        yield broker


def open_files(broker: Broker) -> int:
    return len(os.listdir(f"/proc/{broker.pid}/fd"))


def codes_of(peer: Peer, frame: bytes) -> Counter[int]:
    (topic,) = peer.ask(PRODUCE, 8, frame).responses
    return Counter(partition.error_code for partition in topic.partition_responses)


def to_all(topic: str, partitions: int) -> bytes:
    data = [part_of(PRODUCE, "PartitionProduceData")(number, batch_of(b"x")) for number in range(partitions)]
    topic_data = [part_of(PRODUCE, "TopicProduceData")(topic, partition_data=data)]
    return request(PRODUCE, 8, acks=1, timeout_ms=10_000, topic_data=topic_data)


def stored(peer: Peer, topic: str, partitions: int) -> int:
    asked = [part_of(LIST_OFFSETS, "ListOffsetsPartition")(number, timestamp=-1) for number in range(partitions)]
    found = peer.call(LIST_OFFSETS, 4, topics=[part_of(LIST_OFFSETS, "ListOffsetsTopic")(topic, asked)])
    return sum(partition.offset for partition in found.topics[0].partitions)


@pytest.mark.parametrize(
    ("descriptors", "partitions", "requests"),
    [(200, 20, 40), pytest.param(2_000, 100, 260, marks=pytest.mark.chaos)],
)
def test_a_new_segment_with_every_batch(
    monkeypatch: pytest.MonkeyPatch, descriptors: int, partitions: int, requests: int
) -> None:
    """Every segment has a file that is open until it is synced: for want of descriptors batches may be refused, but
    only of the topic that takes them, and only until the next sync."""
    with scarce_broker(descriptors, monkeypatch) as broker:
        create_topic(broker, "good", flush="os")
        create_topic(broker, "many", partitions, flush="os", internal_segment_bytes="100")
        flood, good = to_all("many", partitions), produce_frame("good", batch_of(b"x"))
        with Peer(broker, 60) as peer, Peer(broker, 60) as other:
            codes: Counter[int] = Counter()
            for _ in range(requests):
                codes += codes_of(peer, flood)
                assert codes_of(other, good) == {NONE: 1}, "others are served"
                assert open_files(broker) < descriptors
            assert set(codes) <= {NONE, KAFKA_STORAGE_ERROR}

            for number in range(partitions):
                frame = produce_frame("many", batch_of(b"x"), partition=number)
                eventually(lambda: codes_of(peer, frame) == {NONE: 1})  # noqa: B023
            codes[NONE] += partitions
            assert stored(peer, "many", partitions) == codes[NONE]
        assert "accepts no more writes" not in broker.output
        broker.kill()
        broker.start()
        with Peer(broker, 60) as peer:
            assert stored(peer, "many", partitions) == codes[NONE], "a start opens them all, one after another"


def test_more_partitions_than_files_may_be_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """A partition that is idle needs no descriptor; how many there may be follows from the limit of the process."""
    with scarce_broker(200, monkeypatch) as broker:
        new_topic = part_of(CREATE_TOPICS, "CreatableTopic")
        with Peer(broker, 60) as peer:
            (refused,) = peer.call(CREATE_TOPICS, 7, topics=[new_topic("many", 200, 1)]).topics
            assert (refused.error_code, "limit of 114" in refused.error_message) == (POLICY_VIOLATION, True)
            (made,) = peer.call(CREATE_TOPICS, 7, topics=[new_topic("many", 110, 1)]).topics
            assert made.error_code == NONE
            for _ in range(3):
                for number in range(110):
                    frame = produce_frame("many", batch_of(b"x"), partition=number)
                    eventually(lambda: codes_of(peer, frame) == {NONE: 1})  # noqa: B023
                    assert open_files(broker) < 200
            assert stored(peer, "many", 110) == 330
        assert "accepts no more writes" not in broker.output
