"""What a client finds right after it has produced with `acks=1`: everything it was told is stored.

aiokafka and many applications use `acks=1` by default. The broker answers such a producer before the sync, and whoever
asks for the end of the log next finds the record all the same.
"""

import time

import pytest
from clients import END, Admin, Client, ConsumerOptions, Message, ProducerOptions

ROUNDS = 20


def test_the_end_is_where_the_producer_left_it(client: Client, topic: str) -> None:
    with (
        client.producer(ProducerOptions(acks=1, linger_ms=0)) as producer,
        client.consumer(ConsumerOptions()) as consumer,
    ):
        ends = []
        for _ in range(ROUNDS):
            (placed,) = producer.send(topic, [Message(b"x")])
            ends.append((placed.offset + 1, consumer.watermarks(topic, 0)[1]))
    assert all(told == found for told, found in ends), ends


def test_a_record_is_found_by_its_time_at_once(client: Client, topic: str) -> None:
    begin_ms = int(time.time() * 1000)
    with (
        client.producer(ProducerOptions(acks=1, linger_ms=0)) as producer,
        client.consumer(ConsumerOptions()) as consumer,
    ):
        found = []
        for number in range(ROUNDS):
            (placed,) = producer.send(topic, [Message(b"x", timestamp_ms=begin_ms + number)])
            found.append((placed.offset, consumer.offsets_for_times(topic, {0: begin_ms + number})[0]))
    assert all(told == offset for told, offset in found), found


@pytest.mark.parametrize("by_offset", [True, False], ids=["up to an offset", "up to the end"])
def test_records_can_be_deleted_at_once(client: Client, admin: Admin, topic: str, by_offset: bool) -> None:
    with client.producer(ProducerOptions(acks=1, linger_ms=0)) as producer:
        lows = []
        for _ in range(ROUNDS // 2):
            (placed,) = producer.send(topic, [Message(b"x")])
            end = placed.offset + 1
            lows.append((end, admin.delete_records(topic, {0: end if by_offset else END})[0]))
    assert all(end == low for end, low in lows), lows
