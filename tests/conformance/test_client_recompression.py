"""Idempotent producers of librdkafka with requests in flight, to topics whose batches the broker compresses again.

A worker thread unpacks and packs each batch, so a request is not over when the next one of its connection is there.
"""

import confluent_kafka as ck
import pytest
from client_confluent import ConfluentClient
from clients import BEGINNING
from raw import Connection, MakeTopic
from raw_batches import read
from wire_calls import fetch_bytes

MESSAGES = 3_000
PER_BATCH = 40
ZSTD = 4


@pytest.mark.parametrize("codec", ["none", "gzip", "lz4"])
def test_order_is_kept_and_nothing_is_lost_or_doubled(
    bootstrap: str, make_topic: MakeTopic, wire: Connection, codec: str
) -> None:
    topic = make_topic(configs={"compression.type": "zstd", "compression.zstd.level": "12"})
    producer = ck.Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "max.in.flight.requests.per.connection": 5,
            "compression.type": codec,
            "batch.num.messages": PER_BATCH,
            "linger.ms": 1,
        }
    )
    values = [b"%06d " % number + b"compressible text " * 50 for number in range(MESSAGES)]
    placed: list[tuple[int | None, bytes | None]] = []

    def delivered(error: ck.KafkaError | None, message: ck.Message) -> None:
        assert error is None, error
        placed.append((message.offset(), message.value()))

    for value in values:
        producer.produce(topic, value, partition=0, on_delivery=delivered)
        producer.poll(0)
    assert producer.flush(60) == 0
    assert placed == list(enumerate(values)), "acknowledged in the order they were sent in"
    found = ConfluentClient(bootstrap).read(topic, {0: BEGINNING}, MESSAGES)
    assert [(got.offset, got.value) for got in found] == list(enumerate(values))
    batches = read(fetch_bytes(wire, topic))
    assert {batch.codec for batch in batches} == {ZSTD}, "each of them was compressed again"
    assert all(batch.count <= PER_BATCH for batch in batches)
