"""Hot keys are spread, cold ones are not, and memory does not grow with the number of keys."""

import random
from collections import Counter

import pytest
from confluent_kafka import Producer
from hypothesis import given
from hypothesis import strategies as st

from kafka import KafkaProducer
from skidway.blocking_client.admin import Admin
from skidway.blocking_client.cluster import Cluster
from skidway.blocking_client.consumer import Consumer
from skidway.blocking_client.partitioners import partition_of_key
from skidway.client.hot_keys import FrequentKeys, HotKeyPartitioner


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@given(
    events=st.lists(st.sampled_from([bytes([letter]) for letter in b"abcdefghij"]), max_size=300),
    room=st.integers(1, 8),
)
def test_frequent_keys_keep_what_space_saving_promises(events: list[bytes], room: int) -> None:
    counted = FrequentKeys(room)
    for event in events:
        counted.add(event)
    truth = Counter(events)
    assert len(counted) <= room
    for key, count in truth.items():
        assert counted.surely(key) <= count
        if count > len(events) / room:
            assert key in set(counted.keys())


def test_a_key_that_was_hot_once_does_not_keep_out_the_one_that_is_hot_now() -> None:
    counted = FrequentKeys(2)
    for event in [b"x"] * 5 + [b"a", b"a", b"b"] * 20:
        counted.add(event)
    assert b"a" in set(counted.keys())


def test_without_evictions_counts_are_exact() -> None:
    counted = FrequentKeys(3)
    assert [counted.add(key) for key in (b"a", b"b", b"a", b"c", b"a")] == [1, 1, 2, 1, 3]


def test_a_quiet_key_stays_in_its_partition() -> None:
    partitioner = HotKeyPartitioner(threshold_per_s=10, clock=Clock())
    assert {partitioner.choose(b"quiet", 7) for _ in range(10)} == {partition_of_key(b"quiet", 7)}
    assert partitioner.hot_keys() == []


def test_what_comes_beyond_the_threshold_goes_round() -> None:
    clock = Clock()
    partitioner = HotKeyPartitioner(threshold_per_s=10, clock=clock)
    home = partition_of_key(b"hot", 4)
    chosen = [partitioner.choose("hot", 4) for _ in range(18)]
    assert chosen[:10] == [home] * 10
    assert chosen[10:] == [0, 1, 2, 3, 0, 1, 2, 3]
    assert partitioner.spread == 8
    assert partitioner.hot_keys() == [(b"hot", 18.0)]


def test_a_key_cools_down() -> None:
    clock = Clock()
    partitioner = HotKeyPartitioner(threshold_per_s=10, clock=clock)
    for _ in range(40):
        partitioner.choose(b"key", 4)
    clock.now_s += 1.2  # The window before counts for four fifths: 32 a second.
    [(key, rate)] = partitioner.hot_keys()
    assert key == b"key"
    assert rate == pytest.approx(32)
    clock.now_s += 0.7
    assert partitioner.hot_keys() == []
    assert partitioner.choose(b"key", 4) == partition_of_key(b"key", 4)
    clock.now_s += 100
    assert partitioner.choose(b"key", 4) == partition_of_key(b"key", 4)


def test_ninety_percent_on_one_key_is_relieved_and_others_keep_their_partition() -> None:
    clock = Clock()
    partitioner = HotKeyPartitioner(threshold_per_s=100, keys_max=64, clock=clock)
    chance = random.Random(7)
    load: Counter[int] = Counter()
    for _ in range(50_000):
        clock.now_s += 0.0001
        key = b"hot" if chance.random() < 0.9 else f"cold-{chance.randrange(100_000)}".encode()
        partition = partitioner.choose(key, 12)
        load[partition] += 1
        if key != b"hot":
            assert partition == partition_of_key(key, 12)
    assert max(load.values()) < 1.5 * 50_000 / 12
    assert len(partitioner._rates._current) <= 64


def test_without_a_key_partitions_take_turns() -> None:
    partitioner = HotKeyPartitioner(threshold_per_s=10, clock=Clock())
    assert [partitioner(None, [0, 1, 2], [0, 2]) for _ in range(4)] == [0, 2, 0, 2]


def partitions_of(bootstrap: str, topic: str) -> Counter[tuple[bytes | None, int]]:
    with Cluster(bootstrap) as cluster:
        consumer = Consumer(cluster, topic, dict.fromkeys(cluster.topic(topic).partitions, 0))
        return Counter((record.key, record.partition) for record in consumer.read())


def test_with_confluent_kafka(bootstrap: str, name: str) -> None:
    with Cluster(bootstrap) as cluster:
        Admin(cluster).create_topic(name, partitions=3)
    partitioner = HotKeyPartitioner(threshold_per_s=5, window_s=3600)
    producer = Producer({"bootstrap.servers": bootstrap})
    for key in [b"hot"] * 18_003 + [b"cold"] * 9:
        producer.produce(name, b"", key=key, partition=partitioner.choose(key, 3))
    producer.flush()
    found = partitions_of(bootstrap, name)
    home = partition_of_key(b"hot", 3)
    assert {place: count for place, count in found.items() if place[0] == b"hot"} == {
        (b"hot", partition): 1 + 18_000 * (partition == home) for partition in range(3)
    }
    assert found[b"cold", partition_of_key(b"cold", 3)] == 9


def test_with_kafka_python(bootstrap: str, name: str) -> None:
    with Cluster(bootstrap) as cluster:
        Admin(cluster).create_topic(name, partitions=3)
    partitioner = HotKeyPartitioner(threshold_per_s=1, window_s=10, clock=Clock())
    producer = KafkaProducer(bootstrap_servers=bootstrap, partitioner=partitioner.for_kafka_python())
    for _ in range(40):
        producer.send(name, b"", key=b"hot")
    producer.close()
    found = partitions_of(bootstrap, name)
    assert {place[1] for place in found} == {0, 1, 2}
    assert found[b"hot", partition_of_key(b"hot", 3)] == 20
