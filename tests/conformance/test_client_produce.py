"""Producing with every client: what was sent is what is read, at the offsets that were acknowledged."""

import itertools
import random

import pytest
from clients import BEGINNING, CODEC_IDS, CODECS, Client, Message, Placement, ProducerOptions, Received, Refused
from raw import Connection, MakeTopic
from raw_batches import now_ms, read
from wire_calls import fetch_bytes

MESSAGE_TOO_LARGE = 10
UNKNOWN_TOPIC_OR_PARTITION = 3
INVALID_TOPIC = 17
LIMIT_BYTES = 10_000

ACKS = {"acks=0": 0, "acks=1": 1, "acks=all": -1}


def sent_and_read(client: Client, topic: str, messages: list[Message], **options: object) -> list[Received]:
    """Produces to partition 0 of an empty topic and reads it back from the start."""
    placed = client.produce(topic, messages, **options)
    assert placed == [Placement(0, offset) for offset in range(len(messages))]
    found = client.read(topic, {0: BEGINNING}, len(messages))
    assert [(got.partition, got.offset) for got in found] == [(0, offset) for offset in range(len(messages))]
    return found


def as_sent(found: list[Received]) -> list[Message]:
    return [Message(got.value, got.key, got.headers) for got in found]


@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_keeps_messages_and_reaches_the_log_compressed(
    client: Client, topic: str, wire: Connection, codec: str
) -> None:
    if reason := client.lacks_codec(codec):
        pytest.skip(reason)
    messages = [Message(b"%04d " % index + b"compressible " * 20, b"key-%d" % index) for index in range(300)]
    found = sent_and_read(client, topic, messages, codec=codec)
    assert as_sent(found) == messages
    batches = read(fetch_bytes(wire, topic))
    assert {batch.codec for batch in batches} == {CODEC_IDS[codec]}
    assert sum(batch.count for batch in batches) == len(messages)


def test_compression_survives_noise_and_runs(client: Client, topic: str) -> None:
    source = random.Random(7)
    runs = [Message(b"x" * size) for size in (0, 1, 2, 127, 128, 16_383, 16_384, 65_536)]
    noise = [Message(source.randbytes(size)) for size in (1, 3, 255, 4_096, 70_000)]
    assert as_sent(sent_and_read(client, topic, runs + noise, codec="lz4")) == runs + noise


def test_null_and_empty_are_different(client: Client, topic: str) -> None:
    messages = [
        Message(b"", b""),
        Message(b"", None),
        Message(None, b"a grave"),
        Message(None, b""),
        Message(b"v", b"k"),
    ]
    assert as_sent(sent_and_read(client, topic, messages)) == messages


def test_headers_keep_order_and_duplicates(client: Client, topic: str) -> None:
    headers = (("trace", b"1"), ("trace", b"2"), ("empty", b""), ("übung", b"\x00\xff"), ("", b"nameless"))
    messages = [Message(b"v", headers=headers), Message(b"plain")]
    assert as_sent(sent_and_read(client, topic, messages)) == messages


def test_a_header_without_a_value(client: Client, topic: str) -> None:
    messages = [Message(b"v", headers=(("empty", b""), ("nothing", None), ("after", b"1")))]
    assert as_sent(sent_and_read(client, topic, messages)) == messages


def test_the_producers_timestamp_is_kept(client: Client, topic: str) -> None:
    base = now_ms() - 3_600_000
    messages = [Message(b"v", timestamp_ms=base + delta) for delta in (0, 5, 3, 10_000)]
    found = sent_and_read(client, topic, messages)
    assert [(got.timestamp_ms, got.timestamp_type) for got in found] == [
        (base + delta, 0) for delta in (0, 5, 3, 10_000)
    ]


@pytest.mark.parametrize("size", [1, 100, 10_000, 999_000])
def test_small_to_large_messages(client: Client, topic: str, size: int) -> None:
    messages = [Message(random.Random(size).randbytes(size)), Message(b"after")]
    assert as_sent(sent_and_read(client, topic, messages)) == messages


def test_a_message_of_eight_megabytes_where_the_topic_allows_it(client: Client, make_topic: MakeTopic) -> None:
    topic = make_topic(configs={"max.message.bytes": "9000000"})
    messages = [Message(random.Random(8).randbytes(8_000_000))]
    assert as_sent(sent_and_read(client, topic, messages)) == messages


def test_the_size_limit_is_exact_and_a_refused_message_takes_no_offset(
    client: Client, make_topic: MakeTopic, wire: Connection
) -> None:
    """max.message.bytes counts the whole batch, headers and all."""
    topic = make_topic(configs={"max.message.bytes": str(LIMIT_BYTES)})
    client.produce(topic, [Message(b"v" * 9_000)])
    overhead = len(fetch_bytes(wire, topic)) - 9_000
    client.produce(topic, [Message(b"v" * (LIMIT_BYTES - overhead))])
    with pytest.raises(Refused) as refused:
        client.produce(topic, [Message(b"v" * (LIMIT_BYTES - overhead + 1))])
    assert refused.value.code == MESSAGE_TOO_LARGE
    assert client.produce(topic, [Message(b"next")]) == [Placement(0, 2)]


@pytest.mark.parametrize("acks", ACKS.values(), ids=ACKS)
def test_acks(client: Client, topic: str, acks: int) -> None:
    messages = [Message(b"%d" % index) for index in range(100)]
    placed = client.produce(topic, messages, acks=acks)
    if acks != 0:
        assert placed == [Placement(0, offset) for offset in range(100)]
    assert as_sent(client.read(topic, {0: BEGINNING}, 100)) == messages


def test_idempotent_producer_over_many_batches(client: Client, make_topic: MakeTopic, wire: Connection) -> None:
    topic = make_topic(partitions=3)
    messages = [Message(b"%d" % index, partition=index % 3) for index in range(3_000)]
    with client.producer(ProducerOptions(idempotent=True)) as producer:
        for start in range(0, 3_000, 300):
            placed = producer.send(topic, messages[start : start + 300])
            assert [place.offset for place in placed] == [(start + index) // 3 for index in range(300)]
    for partition in range(3):
        found = client.read(topic, {partition: BEGINNING}, 1_000)
        assert [got.value for got in found] == [b"%d" % index for index in range(partition, 3_000, 3)]
        batches = read(fetch_bytes(wire, topic, partition))
        assert {batch.producer_id for batch in batches} == {batches[0].producer_id}
        assert batches[0].producer_id >= 0
        sequences = [(batch.base_sequence, batch.count) for batch in batches]
        assert sequences[0][0] == 0
        assert all(after[0] == before[0] + before[1] for before, after in itertools.pairwise(sequences))


def test_unkeyed_messages_use_many_partitions_and_keyed_ones_stay_put(client: Client, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=24)
    keyed = [Message(b"%d" % index, b"key-%d" % (index % 50)) for index in range(500)]
    placed = client.produce(topic, keyed)
    homes: dict[bytes | None, set[int]] = {}
    for message, place in zip(keyed, placed, strict=True):
        homes.setdefault(message.key, set()).add(place.partition)
    assert all(len(partitions) == 1 for partitions in homes.values())
    assert len(set().union(*homes.values())) > 12
    found = client.read(topic, dict.fromkeys(range(24), BEGINNING), 500)
    by_place = {(got.partition, got.offset): got.value for got in found}
    assert [by_place[place.partition, place.offset] for place in placed] == [message.value for message in keyed]


def test_every_partition_of_a_wide_topic_takes_messages(client: Client, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=100)
    messages = [Message(b"%d" % (index // 100), partition=index % 100) for index in range(300)]
    placed = client.produce(topic, messages)
    assert placed == [Placement(index % 100, index // 100) for index in range(300)]
    found = client.read(topic, dict.fromkeys(range(100), BEGINNING), 300)
    assert sorted((got.partition, got.offset, got.value) for got in found) == [
        (partition, offset, b"%d" % offset) for partition in range(100) for offset in range(3)
    ]


def test_an_unknown_topic_is_made_on_first_use(client: Client, name: str) -> None:
    assert client.produce(name, [Message(b"first")]) == [Placement(0, 0)]
    assert as_sent(client.read(name, {0: BEGINNING}, 1)) == [Message(b"first")]
