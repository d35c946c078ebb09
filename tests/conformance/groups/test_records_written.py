"""What a group of the newer protocol leaves in `__consumer_offsets`, for tools and brokers that read it there."""

import struct
from collections.abc import Callable
from typing import Any

import confluent_kafka as ck
import pytest
from group_calls import NONE, ConsumerMember
from raw import Connection, MakeTopic
from wire_calls import topic_id

from skidway.groups.consumer.metadata_hash import metadata_hash
from waiting import eventually

pytestmark = pytest.mark.newer_protocol
OFFSETS_TOPIC = "__consumer_offsets"
METADATA, REGULAR_EXPRESSION = 3, 16
FRESH_S = 60
"""Kafka looks for new topics that a regular expression takes every ten seconds at most."""

Key = tuple[int, bytes]


@pytest.fixture
def written(bootstrap: str) -> Callable[[str], dict[Key, bytes | None]]:
    """The newest value of every key that names the group: (kind, rest of the key behind the group's name)."""

    def read(group: str) -> dict[Key, bytes | None]:
        settings = {"bootstrap.servers": bootstrap, "group.id": "reader", "enable.partition.eof": True, "log_level": 0}
        consumer = ck.Consumer({**settings, "enable.auto.commit": False, "auto.offset.reset": "earliest"})
        name = struct.pack(">h", len(group)) + group.encode()
        newest: dict[Key, bytes | None] = {}
        try:
            partitions = consumer.list_topics(OFFSETS_TOPIC, timeout=30).topics[OFFSETS_TOPIC].partitions
            consumer.assign([ck.TopicPartition(OFFSETS_TOPIC, number, 0) for number in partitions])
            ended = 0
            while ended < len(partitions):
                message = consumer.poll(9)
                assert message is not None, "the end of every partition"
                error, key = message.error(), message.key()
                if error is not None:
                    assert error.code() == ck.KafkaError._PARTITION_EOF, error
                    ended += 1
                    continue
                assert key is not None
                if key[2 : 2 + len(name)] == name:
                    kind = int.from_bytes(key[:2], "big")
                    newest[kind, key[2 + len(name) :]] = message.value()
        finally:
            consumer.close()
        return newest

    return read


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def beat_until(member: ConsumerMember, done: Callable[[], bool]) -> None:
    def step() -> bool:
        assert member.reconcile(1) is not None
        return done()

    eventually(step, seconds=FRESH_S)


def test_the_epoch_with_the_hash_of_the_topics(
    wire: Connection, group: str, make_topic: MakeTopic, written: Any
) -> None:
    one, two = make_topic(partitions=3), make_topic(partitions=1)
    expected = {one: (topic_id(wire, one), 3), two: (topic_id(wire, two), 1)}
    member = ConsumerMember(wire, group, [one, two, "nobody-made-this"])
    assert member.join()["error_code"] == NONE
    value = struct.pack(">hi", 0, member.epoch) + b"\x01\x00\x08" + struct.pack(">q", metadata_hash(expected))
    assert written(group)[METADATA, b""] == value
    member.leave()
    assert written(group)[METADATA, b""] == struct.pack(">hi", 0, member.epoch + 1) + b"\x00", "no topics, no hash"


def test_what_a_regular_expression_takes(
    wire: Connection, group: str, make_topic: MakeTopic, name: str, written: Any
) -> None:
    first = make_topic(name=f"{name}-a")
    regex = f"{name}-.*"
    member = ConsumerMember(wire, group, subscribed_topic_regex=regex)
    assert member.join()["error_code"] == NONE
    key = (REGULAR_EXPRESSION, text(regex))

    def taken(*topics: str) -> bytes:
        """Up to the metadata's version and the time of day, which nobody can foretell."""
        listed = b"".join(bytes([len(topic) + 1]) + topic.encode() for topic in topics)
        return struct.pack(">h", 0) + bytes([len(topics) + 1]) + listed

    found = written(group)[key]
    assert found[:-17] == taken(first)
    assert len(found) == len(taken(first)) + 17
    assert found[-1:] == b"\x00"
    second = make_topic(name=f"{name}-b")
    beat_until(member, lambda: len(member.owned) == 2)
    assert sorted(found := written(group)[key][:-17]) == sorted(taken(first, second)), found
    member.leave()
    assert written(group)[key] is None, "with the last member that had it"
