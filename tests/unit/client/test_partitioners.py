"""A key goes to the partition where Java and kafka-python would put it."""

import random

import pytest
from kafka.partitioner.default import murmur2 as peer_murmur2

from skidway.blocking_client.partitioners import Sticky, murmur2, partition_of_key


@pytest.mark.parametrize("length", range(40))
def test_murmur2_agrees_with_kafka_python_for_every_tail_length(length: int) -> None:
    randomness = random.Random(length)
    for _ in range(50):
        key = randomness.randbytes(length)
        assert murmur2(key) == peer_murmur2(key) & 0xFFFFFFFF


# From the tests of Apache Kafka's own Utils.murmur2, as signed 32-bit numbers.
@pytest.mark.parametrize(
    ("key", "signed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_agrees_with_java(key: bytes, signed: int) -> None:
    assert murmur2(key) == signed & 0xFFFFFFFF
    assert partition_of_key(key, 7) == (signed & 0x7FFFFFFF) % 7


def test_a_key_stays_in_its_partition_and_keys_spread() -> None:
    chosen = {partition_of_key(b"key-%d" % number, 8) for number in range(200)}
    assert chosen == set(range(8))


def test_sticky_fills_one_partition_and_then_moves_on() -> None:
    sticky = Sticky(seed=7)
    first = sticky.choose([0, 1, 2])
    assert all(sticky.choose([0, 1, 2]) == first for _ in range(10))
    sticky.batch_full([0, 1, 2])
    assert sticky.choose([0, 1, 2]) != first


def test_sticky_with_one_partition_has_nowhere_else_to_go() -> None:
    sticky = Sticky()
    sticky.choose([0])
    sticky.batch_full([0])
    assert sticky.choose([0]) == 0
