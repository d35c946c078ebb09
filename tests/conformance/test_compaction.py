"""Compacted topics of a real broker, as real clients see them: the newest value of each key, and nobody waits."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from skidway.testing import Broker
from waiting import eventually

QUICK: dict[str, Any] = {"checkpoint_ms": 100, "compaction_check_ms": 100}
COMPACTED = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "internal.segment.bytes": "20000",
    "flush": "os",
}


@pytest.fixture
def quick() -> Iterator[Broker]:
    with Broker(**QUICK) as broker:
        yield broker


def make_topic(broker: Broker, name: str, **configs: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    settings = {name.replace("_", "."): value for name, value in configs.items()}
    admin.create_topics([NewTopic(name, 1, 1, config={**COMPACTED, **settings})])[name].result(30)


def change(broker: Broker, topic: str, name: str, value: str) -> None:
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.incremental_alter_configs([resource])[resource].result(30)


def read_all(broker: Broker, topic: str) -> list[tuple[int, bytes, bytes | None]]:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "-",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[tuple[int, bytes, bytes | None]] = []
    deadline = time.monotonic() + 60
    try:
        while time.monotonic() < deadline:
            message = consumer.poll(1)
            if message is None:
                continue
            error, offset, key = message.error(), message.offset(), message.key()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                return found
            assert offset is not None
            assert key is not None
            found.append((offset, key, message.value()))
    finally:
        consumer.close()
    raise AssertionError("the end was not reached")


def eventually_compacted(broker: Broker, topic: str, records_max: int) -> list[tuple[int, bytes, bytes | None]]:
    deadline = time.monotonic() + 60
    while True:
        found = read_all(broker, topic)
        if len(found) <= records_max:
            return found
        assert time.monotonic() < deadline, f"{len(found)} records are still there\n{broker.output[-2000:]}"
        time.sleep(0.1)


def test_a_compacted_topic_ends_with_the_newest_values(quick: Broker) -> None:
    make_topic(quick, "state", delete_retention_ms="0")
    producer = Producer({"bootstrap.servers": quick.bootstrap, "enable.idempotence": True, "batch.num.messages": 20})
    written = []
    for number in range(4000):
        key = f"key-{number % 50}".encode()
        value = None if number % 50 == 49 else b"%d " % number + b"v" * 50
        producer.produce("state", value, key)
        written.append((number, key, value))
    assert producer.flush(60) == 0
    # What is in the active segment stays: some 20 kB, 250 records at most.
    found = eventually_compacted(quick, "state", 400)
    assert {key: (offset, value) for offset, key, value in found if value is not None} == {
        key: (offset, value) for offset, key, value in written if value is not None
    }
    assert found == [written[offset] for offset, _, _ in found], "offsets, keys and values as they were written"
    quick.restart(kill=True)
    assert read_all(quick, "state")[-50:] == found[-50:]
    producer = Producer({"bootstrap.servers": quick.bootstrap})
    producer.produce("state", b"last", b"key-0")
    assert producer.flush(60) == 0
    assert read_all(quick, "state")[-1] == (4000, b"key-0", b"last")


def test_records_of_a_compacted_topic_are_not_deleted_by_hand(quick: Broker) -> None:
    make_topic(quick, "kept")
    make_topic(quick, "cut", cleanup_policy="compact,delete")
    producer = Producer({"bootstrap.servers": quick.bootstrap})
    for topic in ("kept", "cut"):
        producer.produce(topic, b"v", b"k")
    assert producer.flush(60) == 0
    admin = AdminClient({"bootstrap.servers": quick.bootstrap})
    asked = [TopicPartition(topic, 0, 1) for topic in ("kept", "cut")]
    kept, cut = admin.delete_records(asked).values()
    with pytest.raises(KafkaException) as refusal:
        kept.result(30)
    assert refusal.value.args[0].code() == KafkaError.POLICY_VIOLATION
    assert cut.result(30).low_watermark == 1


def test_a_topic_can_be_deleted_while_it_is_compacted(quick: Broker) -> None:
    make_topic(quick, "brief", internal_segment_bytes="10000000", min_cleanable_dirty_ratio="1")
    _fill(quick, "brief", 40_000, 10_000, 500)
    change(quick, "brief", "min.cleanable.dirty.ratio", "0.01")
    eventually(lambda: is_being_compacted(quick, "brief") or "brief-0: compacted" in quick.output)
    admin = AdminClient({"bootstrap.servers": quick.bootstrap})
    admin.delete_topics(["brief"])["brief"].result(30)
    make_topic(quick, "brief")
    producer = Producer({"bootstrap.servers": quick.bootstrap})
    producer.produce("brief", b"new", b"k")
    assert producer.flush(60) == 0
    assert [value for _, _, value in read_all(quick, "brief")] == [b"new"]
    assert "Traceback" not in quick.output


def _fill(broker: Broker, topic: str, records: int, keys: int, value_bytes: int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 20, "queue.buffering.max.messages": 10**6})
    value = b"v" * value_bytes
    for number in range(records):
        producer.produce(topic, value, b"key-%d" % (number % keys))
        if number % 1000 == 0:
            producer.poll(0)
    assert producer.flush(60) == 0


def is_being_compacted(broker: Broker, topic: str) -> bool:
    return any((broker.data_dir / f"{topic}-0").glob("*.cleaned"))


def is_checkpointed(broker: Broker, topic: str) -> bool:
    """Whether all closed segments may be compacted: those that a producer snapshot vouches for."""
    directory = broker.data_dir / f"{topic}-0"
    return max(map(_offset, directory.glob("*.snapshot")), default=-1) >= max(map(_offset, directory.glob("*.log")))


def _offset(path: Path) -> int:
    return int(path.stem)


def _latencies_ms(producer: Producer, count_max: int, until: object = None) -> list[float]:
    times = []
    for _ in range(count_max):
        started = time.perf_counter()
        producer.produce("pings", b"ping")
        assert producer.flush(60) == 0
        times.append((time.perf_counter() - started) * 1000)
        if callable(until) and until():
            break
    return sorted(times)


def test_the_broker_answers_while_it_compacts(quick: Broker, record_property: Any) -> None:
    """220 MB with 20,000 keys. The times are noted, not judged: the machine is shared."""
    make_topic(quick, "large", internal_segment_bytes="50000000", min_cleanable_dirty_ratio="1")
    make_topic(quick, "pings", cleanup_policy="delete", internal_segment_bytes="1000000000")
    _fill(quick, "large", 220_000, 20_000, 1000)
    producer = Producer({"bootstrap.servers": quick.bootstrap, "linger.ms": 0, "acks": 1})
    alone = _latencies_ms(producer, 1000)
    # A pass takes what a checkpoint has covered, and leaves the rest to the next one: so that one pass takes all.
    eventually(lambda: is_checkpointed(quick, "large"), 60)
    change(quick, "large", "min.cleanable.dirty.ratio", "0.01")
    meanwhile = 0

    def is_compacted() -> bool:
        nonlocal meanwhile
        meanwhile += is_being_compacted(quick, "large")
        return "large-0: compacted" in quick.output

    started = time.monotonic()
    beside = _latencies_ms(producer, 100_000, is_compacted)
    elapsed_s = time.monotonic() - started
    found = read_all(quick, "large")
    assert len({key for _, key, _ in found}) == 20_000
    assert len(found) < 100_000, "the active segment and the newest values"
    for name, times in (("alone", alone), ("beside", beside)):
        p50, p99 = times[len(times) // 2], times[len(times) * 99 // 100]
        record_property(f"p99_ms_{name}", round(p99, 2))
        print(f"{name}: {len(times)} requests, p50 {p50:.2f} ms, p99 {p99:.2f} ms, largest {times[-1]:.1f} ms")
    print(f"compacted within {elapsed_s:.1f} s")
    assert meanwhile > 10, "the event loop stood still"
