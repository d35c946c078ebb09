"""Reading with every client: from each kind of position, by time, with small fetches, past the ends, and waiting."""

import itertools
import threading
import time
from collections.abc import Iterable

import pytest
from clients import BEGINNING, END, Client, Consumer, ConsumerOptions, Message, Placement, Received, Refused
from raw import Connection, MakeTopic
from raw_batches import Record, build
from wire_calls import produce

OFFSET_OUT_OF_RANGE = 1
# An hour ago: old enough to tell from now, too young for retention.
START_MS = int(time.time()) * 1000 - 3_600_000


@pytest.fixture
def filled(topic: str, wire: Connection) -> str:
    """Ten batches of ten: offset n holds b"n" and the time START_MS + n seconds."""
    for first in range(0, 100, 10):
        records = [Record(b"%d" % (first + index), timestamp_delta=1_000 * index) for index in range(10)]
        answer = produce(wire, topic, build(records, timestamp=START_MS + 1_000 * first))
        assert (answer["error_code"], answer["base_offset"]) == (0, first)
    return topic


def offsets_and_values(found: Iterable[Received]) -> list[tuple[int, bytes | None]]:
    return [(got.offset, got.value) for got in found]


def numbered(first: int, last: int) -> list[tuple[int, bytes]]:
    return [(offset, b"%d" % offset) for offset in range(first, last)]


def assert_only_later_ones_come(consumer: Consumer, filled: str, wire: Connection) -> None:
    """Clients find the end in their own time: write until something is seen, and see that none of the old came."""
    found: list[Received] = []
    for offset in itertools.count(100):
        produce(wire, filled, build([b"%d" % offset]))
        found = consumer.take(1, timeout_s=0.3)
        if found:
            break
        assert offset < 200, "nothing was seen"
    found += consumer.take(offset - found[0].offset)
    assert offsets_and_values(found) == numbered(found[0].offset, offset + 1)
    assert found[0].offset >= 100


@pytest.mark.parametrize("start", [0, 1, 9, 10, 55, 99])
def test_from_a_given_offset(client: Client, filled: str, start: int) -> None:
    """Also from the middle of a batch, which the broker sends whole."""
    assert offsets_and_values(client.read(filled, {0: start}, 100 - start)) == numbered(start, 100)


def test_from_the_beginning(client: Client, filled: str) -> None:
    assert offsets_and_values(client.read(filled, {0: BEGINNING}, 100)) == numbered(0, 100)


def test_from_the_end_only_what_comes_later(client: Client, filled: str, wire: Connection) -> None:
    with client.consumer(ConsumerOptions(max_wait_ms=200)) as consumer:
        consumer.assign(filled, {0: END})
        assert_only_later_ones_come(consumer, filled, wire)


def test_from_the_end_offset_waits_for_the_next_message(client: Client, filled: str, wire: Connection) -> None:
    with client.consumer(ConsumerOptions(max_wait_ms=200)) as consumer:
        consumer.assign(filled, {0: 100})
        produce(wire, filled, build([b"next"]))
        assert offsets_and_values(consumer.take(1)) == [(100, b"next")]


def test_seek_forth_and_back(client: Client, filled: str) -> None:
    with client.consumer(ConsumerOptions()) as consumer:
        consumer.assign(filled, {0: 0})
        assert offsets_and_values(consumer.take(5)) == numbered(0, 5)
        for target in (70, 3, 99, 0):
            consumer.seek(filled, 0, target)
            assert offsets_and_values(consumer.take(1)) == numbered(target, target + 1)


def test_two_partitions_each_from_its_own_place(client: Client, make_topic: MakeTopic, wire: Connection) -> None:
    topic = make_topic(partitions=2)
    for partition in range(2):
        produce(wire, topic, build([b"%d" % offset for offset in range(10)]), partition=partition)
    found = client.read(topic, {0: 7, 1: 4}, 9)
    assert sorted((got.partition, got.offset, got.value) for got in found) == [
        *((0, offset, b"%d" % offset) for offset in range(7, 10)),
        *((1, offset, b"%d" % offset) for offset in range(4, 10)),
    ]


def test_offsets_by_time(client: Client, filled: str) -> None:
    """The first message that is not older than the time asked, inside its batch too."""
    expected = {-1: 0, 0: 0, 1: 1, 54_001: 55, 55_000: 55, 99_000: 99, 99_001: END}
    with client.consumer(ConsumerOptions()) as consumer:
        found = {after: consumer.offsets_for_times(filled, {0: START_MS + after})[0] for after in expected}
    assert found == expected


def test_a_consumer_starts_at_a_time(client: Client, filled: str) -> None:
    with client.consumer(ConsumerOptions()) as consumer:
        start = consumer.offsets_for_times(filled, {0: START_MS + 42_500})[0]
        consumer.assign(filled, {0: start})
        assert offsets_and_values(consumer.take(3)) == numbered(43, 46)


def test_watermarks(client: Client, filled: str) -> None:
    with client.consumer(ConsumerOptions()) as consumer:
        assert consumer.watermarks(filled, 0) == (0, 100)


def test_a_waiting_fetch_wakes_up_when_a_message_comes(client: Client, topic: str, bootstrap: str) -> None:
    """Long before the consumer is ready to give up waiting."""

    def write_soon() -> None:
        time.sleep(0.7)
        with Connection(bootstrap) as wire:
            produce(wire, topic, build([b"wake up"]))

    with client.consumer(ConsumerOptions(max_wait_ms=28_000)) as consumer:
        consumer.assign(topic, {0: 0})
        writer = threading.Thread(target=write_soon)
        writer.start()
        found = consumer.take(1, timeout_s=20)
        writer.join()
    assert offsets_and_values(found) == [(0, b"wake up")]


@pytest.mark.parametrize("beyond", [101, 5_000])
def test_out_of_range_resets_to_the_earliest(client: Client, filled: str, beyond: int) -> None:
    assert offsets_and_values(client.read(filled, {0: beyond}, 2, reset="earliest")) == numbered(0, 2)


def test_out_of_range_resets_to_the_latest(client: Client, filled: str, wire: Connection) -> None:
    with client.consumer(ConsumerOptions(reset="latest", max_wait_ms=200)) as consumer:
        consumer.assign(filled, {0: 5_000})
        assert_only_later_ones_come(consumer, filled, wire)


def test_out_of_range_without_a_reset_rule_is_an_error(client: Client, filled: str) -> None:
    with client.consumer(ConsumerOptions(reset="none")) as consumer:
        consumer.assign(filled, {0: 5_000})
        with pytest.raises(Refused) as refused:
            consumer.take(1)
    assert refused.value.code == OFFSET_OUT_OF_RANGE


def test_below_the_start_after_records_were_deleted(client: Client, filled: str) -> None:
    with client.admin() as admin:
        assert admin.delete_records(filled, {0: 42}) == {0: 42}
    with client.consumer(ConsumerOptions(reset="earliest")) as consumer:
        assert consumer.watermarks(filled, 0) == (42, 100)
        consumer.assign(filled, {0: 10})
        assert offsets_and_values(consumer.take(58)) == numbered(42, 100)


def test_a_batch_larger_than_the_fetch_still_comes(client: Client, topic: str) -> None:
    messages = [Message(b"a" * 50_000), Message(b"b" * 50_000), Message(b"c")]
    for index, message in enumerate(messages):
        assert client.produce(topic, [message]) == [Placement(0, index)]
    found = client.read(topic, {0: BEGINNING}, 3, partition_bytes=1_000)
    assert [got.value for got in found] == [message.value for message in messages]


def test_log_append_time_is_what_consumers_see(client: Client, make_topic: MakeTopic) -> None:
    topic = make_topic(configs={"message.timestamp.type": "LogAppendTime"})
    before = time.time() * 1000
    client.produce(topic, [Message(b"v", timestamp_ms=START_MS)])
    (found,) = client.read(topic, {0: BEGINNING}, 1)
    assert found.timestamp_type == 1
    assert before - 5 <= found.timestamp_ms <= time.time() * 1000 + 5
