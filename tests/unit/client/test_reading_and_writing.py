"""The client against a real broker: what is written is read, and refusals arrive in words."""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from skidway.blocking_client.admin import APPEND, DELETE, SET, Admin, ConfigChange
from skidway.blocking_client.cluster import Cluster, NoSuchPartition, NoSuchTopic
from skidway.blocking_client.consumer import Consumer
from skidway.blocking_client.errors import BrokerError
from skidway.blocking_client.offsets import EARLIEST, LATEST, find_offsets, offsets_at
from skidway.blocking_client.partitioners import partition_of_key
from skidway.blocking_client.producer import Delivered, Producer
from skidway.errors import ErrorCode
from skidway.records.compression import Codec
from waiting import eventually


@pytest.fixture
def cluster(bootstrap: str) -> Iterator[Cluster]:
    with Cluster(bootstrap, timeout_ms=10_000) as opened:
        yield opened


@pytest.fixture
def admin(cluster: Cluster) -> Admin:
    return Admin(cluster)


def read_all(cluster: Cluster, topic: str) -> list[Any]:
    starts = offsets_at(cluster, topic, list(cluster.topic(topic).partitions), EARLIEST)
    return list(Consumer(cluster, topic, starts).read())


@pytest.mark.parametrize("codec", list(Codec))
def test_every_codec_brings_back_keys_values_headers_and_order(
    cluster: Cluster, admin: Admin, name: str, codec: Codec
) -> None:
    admin.create_topic(name, partitions=3)
    with Producer(cluster, codec=codec) as producer:
        for number in range(300):
            producer.send(name, b"value-%d" % number, key=b"k%d" % (number % 10), headers=[("h", b"x"), ("none", None)])
        producer.send(name, None, key=b"null value")
        producer.send(name, b"", key=b"")
    records = read_all(cluster, name)
    assert len(records) == 302
    for number in range(10):
        key = b"k%d" % number
        mine = [record for record in records if record.key == key]
        assert [record.value for record in mine] == [b"value-%d" % n for n in range(number, 300, 10)]
        assert {record.partition for record in mine} == {partition_of_key(key, 3)}
        assert all(list(record.headers) == [("h", b"x"), ("none", None)] for record in mine)
    assert [record.value for record in records if record.key == b"null value"] == [None]
    assert [record.value for record in records if record.key == b""] == [b""]


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_acks(cluster: Cluster, admin: Admin, name: str, acks: int) -> None:
    admin.create_topic(name, partitions=1)
    receipts: list[Delivered] = []
    with Producer(cluster, acks=acks, on_delivered=receipts.append) as producer:
        for number in range(10):
            producer.send(name, b"%d" % number)
    assert [(receipt.records, receipt.base_offset) for receipt in receipts] == [(10, -1 if acks == 0 else 0)]
    eventually(lambda: len(read_all(cluster, name)) == 10)
    assert [record.value for record in read_all(cluster, name)] == [b"%d" % number for number in range(10)]


def test_full_batches_leave_by_themselves(cluster: Cluster, admin: Admin, name: str) -> None:
    admin.create_topic(name, partitions=2)
    receipts: list[Delivered] = []
    with Producer(cluster, batch_bytes=2_000, on_delivered=receipts.append) as producer:
        for _ in range(100):
            producer.send(name, bytes(100))
        assert receipts, "nobody called flush, but batches were full"
    assert sum(receipt.records for receipt in receipts) == 100
    assert max(receipt.bytes for receipt in receipts) <= 2_100
    assert {receipt.partition for receipt in receipts} == {0, 1}, "the sticky partition changes with each full batch"


def test_a_batch_sent_twice_is_stored_once(cluster: Cluster, admin: Admin, name: str) -> None:
    admin.create_topic(name, partitions=1)
    producer = Producer(cluster)
    sent: list[bytes] = []
    close = producer._close

    def keep(*args: Any) -> Any:
        outgoing = close(*args)
        sent.append(bytes(outgoing.batch))
        return outgoing

    producer._close = keep  # type: ignore[method-assign,assignment]
    producer.send_now(name, b"once")
    again = producer.send_batch(name, 0, sent[0], 1)
    assert again.base_offset == 0
    assert producer.send_now(name, b"next") == (0, 1)
    assert [record.value for record in read_all(cluster, name)] == [b"once", b"next"]


def test_a_message_that_is_too_large_is_refused_and_the_producer_goes_on(
    cluster: Cluster, admin: Admin, name: str
) -> None:
    admin.create_topic(name, partitions=1, configs={"max.message.bytes": "2000"})
    producer = Producer(cluster)
    producer.send_now(name, b"small")
    with pytest.raises(BrokerError) as refused:
        producer.send_now(name, bytes(5_000))
    assert refused.value.code == ErrorCode.MESSAGE_TOO_LARGE
    producer.send_now(name, b"small again")
    assert [record.value for record in read_all(cluster, name)] == [b"small", b"small again"]


def test_positions_by_time(cluster: Cluster, admin: Admin, name: str) -> None:
    admin.create_topic(name, partitions=1)
    now_ms = time.time_ns() // 1_000_000
    producer = Producer(cluster)
    for number in range(10):
        producer.send(name, b"%d" % number, timestamp_ms=now_ms - 10_000 + number * 1_000)
        producer.flush()
    assert find_offsets(cluster, name, {0: now_ms - 7_500}) == {0: 3}
    assert find_offsets(cluster, name, {0: now_ms + 60_000}) == {0: -1}
    assert offsets_at(cluster, name, [0], now_ms + 60_000) == {0: 10}
    assert offsets_at(cluster, name, [0], LATEST) == {0: 10}


def test_following_sees_what_comes_later(cluster: Cluster, admin: Admin, name: str, bootstrap: str) -> None:
    admin.create_topic(name, partitions=2)
    following = Consumer(cluster, name, offsets_at(cluster, name, [0, 1], LATEST)).read(follow=True)
    with Cluster(bootstrap) as other:
        producer = Producer(other)
        for number in range(3):
            producer.send_now(name, b"%d" % number, partition=number % 2)
            assert next(following).value == b"%d" % number


def test_an_offset_outside_the_log(cluster: Cluster, admin: Admin, name: str) -> None:
    admin.create_topic(name, partitions=1)
    with pytest.raises(BrokerError, match="offset 7 is outside the log"):
        Consumer(cluster, name, {0: 7}).poll()


def test_reading_goes_on_where_the_log_starts_when_the_rest_was_deleted(
    cluster: Cluster, admin: Admin, name: str
) -> None:
    admin.create_topic(name, partitions=1)
    producer = Producer(cluster)
    for number in range(5):
        producer.send_now(name, b"%d" % number)
    admin.delete_records(name, {0: 3})
    gone: list[tuple[int, int, int]] = []
    consumer = Consumer(cluster, name, {0: 1}, on_gone=lambda *what: gone.append(what))
    assert [record.offset for record in consumer.read()] == [3, 4]
    assert gone == [(0, 1, 3)]
    with pytest.raises(BrokerError, match="offset 1 is outside the log, which starts at 3"):
        Consumer(cluster, name, {0: 1}).poll()


def test_topics_come_grow_change_and_go(cluster: Cluster, admin: Admin, name: str) -> None:
    admin.create_topic(name, partitions=2, configs={"retention.ms": "1000000"})
    assert name in [topic.name for topic in admin.topics()]
    with pytest.raises(BrokerError, match="TOPIC_ALREADY_EXISTS"):
        admin.create_topic(name)
    admin.grow_topic(name, 3)
    assert len(admin.topic(name).partitions) == 3
    with pytest.raises(BrokerError, match="INVALID_PARTITIONS"):
        admin.grow_topic(name, 1)
    admin.alter_topic(name, [ConfigChange("retention.ms", DELETE), ConfigChange("segment.bytes", SET, "2000000")])
    assert [(config.name, config.value) for config in admin.topic_configs(name) if config.is_set] == [
        ("segment.bytes", "2000000")
    ]
    with pytest.raises(BrokerError, match="INVALID_CONFIG"):
        admin.alter_topic(name, [ConfigChange("retention.ms", APPEND, "1")])
    admin.delete_topic(name)
    with pytest.raises(NoSuchTopic):
        admin.topic(name)
    with pytest.raises(NoSuchTopic):
        admin.delete_topic(name)


def test_a_dry_run_makes_nothing(admin: Admin, name: str) -> None:
    admin.create_topic(name, partitions=1, validate_only=True)
    with pytest.raises(NoSuchTopic):
        admin.topic(name)


def test_deleted_records_are_gone(cluster: Cluster, admin: Admin, name: str) -> None:
    admin.create_topic(name, partitions=1)
    producer = Producer(cluster)
    for number in range(5):
        producer.send_now(name, b"%d" % number)
    assert admin.delete_records(name, {0: 3}) == {0: 3}
    assert [record.offset for record in read_all(cluster, name)] == [3, 4]
    assert admin.partition_bytes(name, [0])[0] > 0


def test_what_is_not_there(cluster: Cluster, admin: Admin, name: str) -> None:
    with pytest.raises(NoSuchTopic, match="no such topic"):
        Producer(cluster).send(name, b"x")
    with pytest.raises(NoSuchTopic):
        admin.topic_configs(name)
    admin.create_topic(name, partitions=2)
    with pytest.raises(NoSuchPartition, match="the topic has 2"):
        Producer(cluster).send(name, b"x", partition=2)


def test_the_brokers_own_settings(cluster: Cluster, admin: Admin) -> None:
    node_id = next(iter(cluster.refresh([]).brokers))
    assert "log.retention.ms" in {config.name for config in admin.broker_configs(node_id)}
