"""A key belongs to one partition, whichever client asks: murmur2 of the key, as the Java client has it."""

import pytest
from client_aiokafka import AiokafkaClient
from client_confluent import ConfluentClient
from client_kafka_python import KafkaPythonClient
from clients import BEGINNING, Client, Message
from raw import MakeTopic

KEYS = [b"a", b"key-17", b"21", "schlüssel".encode(), b"x" * 1_000, *(b"user-%d" % index for index in range(60))]


def murmur2(data: bytes) -> int:
    """The 32-bit hash of Kafka's default partitioner, written from its definition."""
    multiplier, mask = 0x5BD1E995, 0xFFFFFFFF
    found = (0x9747B28C ^ len(data)) & mask
    whole = len(data) & ~3
    for start in range(0, whole, 4):
        word = int.from_bytes(data[start : start + 4], "little") * multiplier & mask
        word = (word ^ word >> 24) * multiplier & mask
        found = (found * multiplier & mask) ^ word
    if tail := data[whole:]:
        found = (found ^ int.from_bytes(tail, "little")) * multiplier & mask
    found = (found ^ found >> 13) * multiplier & mask
    return found ^ found >> 15


def home(key: bytes, partitions: int) -> int:
    return (murmur2(key) & 0x7FFFFFFF) % partitions


@pytest.mark.parametrize("partitions", [1, 6, 17])
def test_all_clients_agree(bootstrap: str, make_topic: MakeTopic, partitions: int) -> None:
    topic = make_topic(partitions=partitions)
    clients: list[Client] = [made(bootstrap) for made in (ConfluentClient, KafkaPythonClient, AiokafkaClient)]
    expected = [home(key, partitions) for key in KEYS]
    for client in clients:
        placed = client.produce(topic, [Message(client.name.encode(), key) for key in KEYS])
        assert [place.partition for place in placed] == expected
    for client in clients:
        found = client.read(topic, dict.fromkeys(range(partitions), BEGINNING), 3 * len(KEYS))
        assert {(got.partition, got.key) for got in found} == set(zip(expected, KEYS, strict=True))
        assert len({(got.partition, got.offset) for got in found}) == 3 * len(KEYS)
