"""Batches on their way to the brokers: whatever happens there, each is stored once and in order, or it is an error."""

import random
import threading
from typing import Any

import pyarrow as pa
import pytest
from flaky_path import LOSE_REPLY, LOSE_REQUEST, PASS, STORE_AND_TIME_OUT, broker_behind
from topic_contents import new_topic, read_topic, values_of

from skidway.blocking_client.errors import BrokerError, ClientError, Unreachable
from skidway.errors import ErrorCode
from skidway.spark.client_settings import ClientSettings
from skidway.spark.codec.encoding import EncodedBatch, encode_batches
from skidway.spark.sink.options import SinkOptions
from skidway.spark.sink.producing import BatchProducer, DeliveryFailed
from skidway.testing import Broker
from waiting import eventually

NOW_MS = 1_700_000_000_000


def options(bootstrap: str, *, request_timeout_ms: int = 30_000, **changes: Any) -> SinkOptions:
    return SinkOptions(ClientSettings(bootstrap, request_timeout_ms=request_timeout_ms), **changes)


def batch(*values: bytes) -> EncodedBatch:
    encoded = encode_batches(pa.array(values), None, None, timestamp_ms=NOW_MS, batch_bytes=2**20, codec=0)
    assert len(encoded) == 1
    return encoded[0]


def by_partition(bootstrap: str, topic: str) -> dict[int, list[bytes | None]]:
    seen: dict[int, list[bytes | None]] = {}
    for one in read_topic(bootstrap, topic):
        seen.setdefault(one.partition, []).append(one.value)
    return seen


def test_receipts_say_where_the_rows_are(bootstrap: str) -> None:
    topic = new_topic(bootstrap, partitions=2)
    with BatchProducer(options(bootstrap)) as producer:
        producer.topic(topic)
        producer.put(topic, 1, batch(b"a", b"b"))
        producer.put(topic, 1, batch(b"c"))
        producer.flush()
        producer.put(topic, 0, batch(b"d"))
        producer.flush()
        receipts = producer.receipts
    assert (receipts[topic, 1].start_offset, receipts[topic, 1].end_offset, receipts[topic, 1].records) == (0, 3, 3)
    assert (receipts[topic, 0].start_offset, receipts[topic, 0].end_offset, receipts[topic, 0].records) == (0, 1, 1)
    assert by_partition(bootstrap, topic) == {0: [b"d"], 1: [b"a", b"b", b"c"]}


@pytest.mark.parametrize("seed", range(4))
def test_on_a_bad_path_every_batch_is_stored_once_and_in_order(seed: int) -> None:
    dice = random.Random(seed)
    troubles: list[str | int] = [
        LOSE_REPLY,
        LOSE_REQUEST,
        STORE_AND_TIME_OUT,
        int(ErrorCode.NOT_LEADER_OR_FOLLOWER),
        int(ErrorCode.NOT_ENOUGH_REPLICAS),
    ]
    with broker_behind(lambda _: dice.choice(troubles) if dice.random() < 0.15 else PASS) as (broker, path):
        topic = new_topic(broker.bootstrap, partitions=3)
        expected: dict[int, list[bytes]] = {0: [], 1: [], 2: []}
        with BatchProducer(options(path.bootstrap)) as producer:
            producer.topic(topic)
            for number in range(240):
                values = [b"%d-%d" % (number, row) for row in range(dice.randrange(1, 5))]
                partition = dice.randrange(3)
                expected[partition] += values
                producer.put(topic, partition, batch(*values))
                if dice.random() < 0.5:
                    producer.pump()
            producer.flush()
            rows = {partition: producer.receipts[topic, partition].records for partition in expected}
        assert path.produced > 80
        assert rows == {partition: len(values) for partition, values in expected.items()}
        path.judge = lambda _: PASS
        assert by_partition(broker.bootstrap, topic) == expected


def test_what_comes_behind_a_refused_first_batch_waits_for_it() -> None:
    verdicts = {1: int(ErrorCode.NOT_LEADER_OR_FOLLOWER)}
    with broker_behind(lambda number: verdicts.get(number, PASS)) as (broker, path):
        topic = new_topic(broker.bootstrap)
        with BatchProducer(options(path.bootstrap)) as producer:
            producer.topic(topic)
            for number in range(4):
                producer.put(topic, 0, batch(b"%d" % number))
            producer.flush()
        assert values_of(broker.bootstrap, topic) == [b"0", b"1", b"2", b"3"]


def test_a_batch_sent_many_times_is_still_known_to_the_broker() -> None:
    """The broker remembers five batches of a producer: no more may be stored behind one that is to be sent again."""
    # The first opens the partition, then five are on their way; one is stored four times, and nobody says so.
    verdicts = dict.fromkeys((2, 7, 8, 9), STORE_AND_TIME_OUT)
    with broker_behind(lambda number: verdicts.get(number, PASS)) as (broker, path):
        topic = new_topic(broker.bootstrap)
        with BatchProducer(options(path.bootstrap)) as producer:
            producer.topic(topic)
            for number in range(30):
                producer.put(topic, 0, batch(b"%d" % number))
            producer.flush()
        assert values_of(broker.bootstrap, topic) == [b"%d" % number for number in range(30)]


def test_a_broker_that_is_killed_and_comes_back_has_every_row_once(fresh_broker: Broker) -> None:
    topic = new_topic(fresh_broker.bootstrap, partitions=2)
    expected: dict[int, list[bytes]] = {0: [], 1: []}
    with BatchProducer(options(fresh_broker.bootstrap)) as producer:
        producer.topic(topic)
        for number in range(400):
            expected[number % 2].append(b"%d" % number)
            producer.put(topic, number % 2, batch(b"%d" % number))
            producer.pump()
            if number % 100 == 50:
                # Batches are on their way; some are stored, some are not, and nobody will say which.
                fresh_broker.kill()
                comeback = threading.Timer(0.1, fresh_broker.start)
                comeback.start()
            if number % 100 == 99:
                producer.flush()
                comeback.join()
    assert by_partition(fresh_broker.bootstrap, topic) == expected


def test_a_broker_that_hangs_is_asked_again(fresh_broker: Broker) -> None:
    topic = new_topic(fresh_broker.bootstrap)
    with BatchProducer(options(fresh_broker.bootstrap, request_timeout_ms=2_000)) as producer:
        producer.topic(topic)
        producer.put(topic, 0, batch(b"before"))
        producer.flush()
        fresh_broker.pause()
        producer.put(topic, 0, batch(b"during"))
        flushing = threading.Thread(target=producer.flush)
        flushing.start()
        lane = producer._lanes[topic, 0]
        eventually(lambda: lane.reason)
        assert "did not answer" in lane.reason
        fresh_broker.resume()
        flushing.join()
    assert values_of(fresh_broker.bootstrap, topic) == [b"before", b"during"]


def test_what_cannot_be_delivered_in_time_is_an_error_with_its_reason(fresh_broker: Broker) -> None:
    topic = new_topic(fresh_broker.bootstrap)
    settings = options(fresh_broker.bootstrap, request_timeout_ms=2_000, delivery_timeout_ms=5_000)
    with BatchProducer(settings) as producer:
        producer.topic(topic)
        producer.put(topic, 0, batch(b"before"))
        producer.flush()
        fresh_broker.kill()
        producer.put(topic, 0, batch(b"never"))
        with pytest.raises(DeliveryFailed) as failed:
            producer.flush()
    text = str(failed.value)
    assert text.startswith(f"cannot write to {topic}-0: not acknowledged within 5000 ms (kafka.delivery.timeout.ms): ")
    assert "connection" in text


def test_a_row_that_the_topic_does_not_take_is_named(bootstrap: str) -> None:
    topic = new_topic(bootstrap, max__message__bytes="1000")
    with BatchProducer(options(bootstrap)) as producer:
        producer.topic(topic)
        producer.put(topic, 0, batch(b"x" * 2000))
        with pytest.raises(
            DeliveryFailed, match=rf"{topic}-0: a batch of \d+ bytes \(a single row\) is above the topic's"
        ):
            producer.flush()


def test_a_batch_that_the_topic_does_not_take_goes_in_parts(bootstrap: str) -> None:
    topic = new_topic(bootstrap, max__message__bytes="1000")
    values = [b"%03d" % number * 30 for number in range(200)]
    with BatchProducer(options(bootstrap)) as producer:
        producer.topic(topic)
        for start in range(0, 200, 50):
            producer.put(topic, 0, batch(*values[start : start + 50]))
        producer.flush()
        assert producer.batch_bytes(topic) <= 1000, "what is encoded next fits"
        assert producer.unacknowledged_bytes == 0
        assert producer.receipts[topic, 0].records == 200
    assert values_of(bootstrap, topic) == values


def test_a_batch_above_what_a_broker_reads_is_not_sent(bootstrap: str) -> None:
    topic = new_topic(bootstrap)
    with BatchProducer(options(bootstrap, request_bytes_max=1000)) as producer:
        producer.topic(topic)
        with pytest.raises(DeliveryFailed, match=rf"{topic}-0: a batch of \d+ bytes .* above kafka.max.request.size"):
            producer.put(topic, 0, batch(b"x" * 2000))


def test_an_error_for_good_is_not_tried_again() -> None:
    with broker_behind(lambda _: int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)) as (broker, path):
        topic = new_topic(broker.bootstrap)
        with BatchProducer(options(path.bootstrap)) as producer:
            producer.topic(topic)
            producer.put(topic, 0, batch(b"x"))
            with pytest.raises(DeliveryFailed, match=f"{topic}-0: TOPIC_AUTHORIZATION_FAILED"):
                producer.flush()
        assert path.produced == 1


def test_memory_is_bounded(bootstrap: str) -> None:
    topic = new_topic(bootstrap, partitions=2)
    most = 0
    with BatchProducer(options(bootstrap, buffer_bytes=100_000)) as producer:
        producer.topic(topic)
        for number in range(100):
            producer.put(topic, number % 2, batch(b"x" * 10_000))
            most = max(most, producer.unacknowledged_bytes)
        producer.flush()
        assert producer.unacknowledged_bytes == 0
    assert 50_000 < most <= 100_000
    assert len(values_of(bootstrap, topic)) == 100


def test_a_topic_is_created_by_asking_where_brokers_do_that(fresh_broker: Broker) -> None:
    with BatchProducer(options(fresh_broker.bootstrap)) as producer:
        assert len(producer.topic("new").partitions) == 1
        producer.put("new", 0, batch(b"x"))
        producer.flush()
    assert values_of(fresh_broker.bootstrap, "new") == [b"x"]


@pytest.mark.skidway(auto_create_topics=False)
def test_a_topic_that_nobody_creates_is_an_error(fresh_broker: Broker) -> None:
    with (
        BatchProducer(options(fresh_broker.bootstrap, topic_wait_ms=100)) as producer,
        pytest.raises(ClientError, match=r"topic new does not exist .* create it \(skidway topic create new\)"),
    ):
        producer.topic("new")


def test_a_name_that_no_topic_can_have_is_an_error_at_once(bootstrap: str) -> None:
    with BatchProducer(options(bootstrap)) as producer, pytest.raises(BrokerError, match="INVALID_TOPIC"):
        producer.topic("no/such name")


def test_a_broker_that_is_still_starting_is_waited_for(fresh_broker: Broker) -> None:
    topic = new_topic(fresh_broker.bootstrap)
    fresh_broker.kill()
    starting = threading.Timer(0.3, fresh_broker.start)
    starting.start()
    with BatchProducer(options(fresh_broker.bootstrap)) as producer:
        producer.topic(topic)
        producer.put(topic, 0, batch(b"x"))
        producer.flush()
    starting.join()
    assert values_of(fresh_broker.bootstrap, topic) == [b"x"]


def test_no_broker_at_all_is_an_error_that_names_the_address() -> None:
    with (
        BatchProducer(options("127.0.0.1:1", topic_wait_ms=50)) as producer,
        pytest.raises(Unreachable, match=r"cannot reach 127\.0\.0\.1:1"),
    ):
        producer.topic("t")
