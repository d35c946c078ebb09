"""DeadLetters with real clients, a real broker and real deaths."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer as KafkaConsumer
from confluent_kafka import Producer as KafkaProducer

from skidway.blocking_client.admin import Admin
from skidway.blocking_client.cluster import Cluster
from skidway.blocking_client.consumer import Consumed, Consumer
from skidway.blocking_client.groups import Groups
from skidway.client.dead_letters import Backoff, DeadLetterRefused, DeadLetters, Ended
from skidway.records.dead_letter_headers import own_headers, read_report

QUICK = Backoff(first_ms=20, max_ms=100)
PATIENCE_S = 90


@pytest.fixture
def cluster(group_bootstrap: str) -> Any:
    with Cluster(group_bootstrap) as cluster:
        yield cluster


@pytest.fixture
def topic(cluster: Cluster, name: str) -> str:
    Admin(cluster).create_topic(name, partitions=2)
    Admin(cluster).create_topic(f"{name}-dlq", partitions=1)
    return name


def config(bootstrap: str, topic: str, **more: Any) -> dict[str, Any]:
    named = {key.replace("_", "."): value for key, value in more.items()}
    # With the consumer protocol these are the broker's to say.
    timing = {"session.timeout.ms": 6000, "heartbeat.interval.ms": 300} if "group.protocol" not in named else {}
    return {"bootstrap.servers": bootstrap, "group.id": f"g-{topic}", **timing, **named}


def produce(bootstrap: str, topic: str, partition: int, *values: str) -> None:
    producer = KafkaProducer({"bootstrap.servers": bootstrap})
    for value in values:
        producer.produce(topic, value, key=f"key-{value}", partition=partition, headers={"trace": value.encode()})
    producer.flush()


def records(cluster: Cluster, topic: str) -> list[Consumed]:
    return list(Consumer(cluster, topic, dict.fromkeys(cluster.topic(topic).partitions, 0)).read())


def in_time(enough: Callable[[], bool]) -> Callable[[], bool]:
    deadline = time.monotonic() + PATIENCE_S
    return lambda: enough() or time.monotonic() > deadline


def committed(cluster: Cluster, topic: str) -> dict[int, int]:
    found = Groups(cluster).committed(f"g-{topic}")
    return {partition: entry.offset for (_, partition), entry in found.items()}


def refuse_bad(message: Any) -> None:
    if message.value().startswith(b"bad"):
        raise ValueError("cannot read it")


CONSUMER_GROUP_HEARTBEAT = 68


@pytest.mark.parametrize("protocol", [{}, {"group_protocol": "consumer"}], ids=["classic", "consumer"])
def test_bad_messages_end_in_the_dead_letter_topic(
    cluster: Cluster, group_bootstrap: str, topic: str, protocol: dict[str, str]
) -> None:
    assert CONSUMER_GROUP_HEARTBEAT in cluster.any_broker().served, "ConsumerGroupHeartbeat is not served"
    produce(group_bootstrap, topic, 0, "a", "bad-1", "b")
    produce(group_bootstrap, topic, 1, "bad-2", "c")
    ended: list[tuple[bytes, Ended]] = []
    tried: list[bytes] = []

    def process(message: Any) -> None:
        tried.append(message.value())
        refuse_bad(message)

    with DeadLetters(
        config(group_bootstrap, topic, **protocol),
        [topic],
        process,
        attempts=3,
        backoff=QUICK,
        on_end=lambda message, how: ended.append((message.value(), how)),
    ) as letters:
        letters.run(until=in_time(lambda: len(ended) == 5))
    for partition in ([b"a", b"bad-1", b"b"], [b"bad-2", b"c"]):
        assert [value for value, _ in ended if value in partition] == partition
        assert [value for value in dict.fromkeys(tried) if value in partition] == partition
    assert [tried.count(value) for value in (b"a", b"bad-1", b"bad-2")] == [1, 3, 3]
    assert {value for value, how in ended if how is Ended.DEAD} == {b"bad-1", b"bad-2"}
    dead = {letter.value: letter for letter in records(cluster, f"{topic}-dlq")}
    assert set(dead) == {b"bad-1", b"bad-2"}
    letter = dead[b"bad-1"]
    report = read_report(letter.headers)
    assert report is not None
    assert (report.topic, report.partition, report.offset, report.attempts) == (topic, 0, 1, 3)
    assert (report.error_type, report.error_message, report.group) == ("ValueError", "cannot read it", f"g-{topic}")
    assert report.timestamp_ms <= report.failed_first_ms < report.failed_last_ms
    assert letter.key == b"key-bad-1"
    assert own_headers(letter.headers) == [("trace", b"bad-1")]
    assert committed(cluster, topic) == {0: 3, 1: 2}


def test_a_pause_longer_than_the_poll_interval_keeps_the_partition(
    cluster: Cluster, group_bootstrap: str, topic: str
) -> None:
    produce(group_bootstrap, topic, 0, "bad-1", "a")
    settings = config(group_bootstrap, topic, max_poll_interval_ms=6000)
    lost: list[Any] = []
    with DeadLetters(settings, [topic], refuse_bad, attempts=2, backoff=Backoff(first_ms=7500, jitter=0)) as letters:
        forget = letters._forget

        def note(places: Any) -> None:
            lost.extend(places)
            forget(places)

        letters._forget = note  # type: ignore[method-assign]
        letters.run(until=in_time(lambda: letters.processed == 1))
        assert lost == []
    assert [letter.value for letter in records(cluster, f"{topic}-dlq")] == [b"bad-1"]


VICTIM = """
import os, signal, sys
from skidway.client.dead_letters import Backoff, DeadLetters
bootstrap, topic, moment = sys.argv[1:]
def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)
def process(message):
    if message.value().startswith(b"bad"):
        raise ValueError("cannot read it")
config = {"bootstrap.servers": bootstrap, "group.id": "g-" + topic, "group.instance.id": "i"}
config["session.timeout.ms"] = 6000
letters = DeadLetters(config, [topic], process, attempts=1, backoff=Backoff(20), commit_interval_ms=10**9)
if moment == "before the commit":
    letters._commit = die
else:
    letters._bury = die
letters.run()
"""


@pytest.mark.parametrize("moment", ["before the commit", "before the dead letter"])
def test_killed_in_between(cluster: Cluster, group_bootstrap: str, topic: str, moment: str) -> None:
    """The next one, with the same place in the group, finds the message again."""
    produce(group_bootstrap, topic, 0, "a", "bad-1", "b")
    ended = subprocess.run([sys.executable, "-c", VICTIM, group_bootstrap, topic, moment], timeout=PATIENCE_S)
    assert ended.returncode == -signal.SIGKILL
    left = [letter.value for letter in records(cluster, f"{topic}-dlq")]
    assert left == ([b"bad-1"] if moment == "before the commit" else [])
    assert committed(cluster, topic) == {}
    settings = config(group_bootstrap, topic, group_instance_id="i")
    with DeadLetters(settings, [topic], refuse_bad, attempts=1, backoff=QUICK) as letters:
        letters.run(until=in_time(lambda: letters.processed + letters.dead == 3))
        assert (letters.processed, letters.dead) == (2, 1)
    reports = [read_report(letter.headers) for letter in records(cluster, f"{topic}-dlq")]
    assert {(report.partition, report.offset) for report in reports if report} == {(0, 1)}
    assert len(reports) == len(left) + 1
    assert committed(cluster, topic) == {0: 3}


def test_what_the_dead_letter_topic_refuses_is_not_passed(cluster: Cluster, group_bootstrap: str, name: str) -> None:
    Admin(cluster).create_topic(name, partitions=1)
    Admin(cluster).create_topic(f"{name}-dlq", partitions=1, configs={"max.message.bytes": "1000"})
    produce(group_bootstrap, name, 0, "bad" + "x" * 2000, "after")
    with (
        DeadLetters(config(group_bootstrap, name), [name], refuse_bad, attempts=1, backoff=QUICK) as letters,
        pytest.raises(
            DeadLetterRefused, match=f"{name}-dlq did not accept the dead letter of {name} partition 0 offset 0"
        ),
    ):
        letters.run(until=in_time(lambda: False))
    assert letters.processed == 0
    assert committed(cluster, name) == {}


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
def test_another_member_joins_while_messages_wait(
    cluster: Cluster, group_bootstrap: str, topic: str, assignor: str
) -> None:
    """Whoever gets the partitions, every message ends once or more, and each bad one as a dead letter."""
    good = [f"ok-{number}" for number in range(20)]
    for partition in (0, 1):
        produce(group_bootstrap, topic, partition, *good[:10], f"bad-{partition}", *good[10:])
    settings = config(group_bootstrap, topic, partition_assignment_strategy=assignor)
    seen: list[tuple[int, int]] = []

    def process(message: Any) -> None:
        seen.append((message.partition(), message.offset()))
        refuse_bad(message)

    finished = in_time(lambda: committed(cluster, topic) == {0: 21, 1: 21})
    with DeadLetters(settings, [topic], process, attempts=4, backoff=Backoff(1_000, jitter=0)) as first:
        first.run(until=in_time(lambda: len(first._held) == 2))
        with DeadLetters(settings, [topic], process, attempts=4, backoff=Backoff(1_000, jitter=0)) as second:
            while not finished():
                for _ in range(10):
                    first.step(0.02)
                    second.step(0.02)
            assert second.processed > 0
    assert committed(cluster, topic) == {0: 21, 1: 21}
    assert set(seen) == {(partition, offset) for partition in (0, 1) for offset in range(21)}
    reports = [read_report(letter.headers) for letter in records(cluster, f"{topic}-dlq")]
    assert {(report.partition, report.offset) for report in reports if report} == {(0, 10), (1, 10)}


def test_an_unused_consumer_still_reads_the_topic(group_bootstrap: str, topic: str) -> None:
    """Dead letters are ordinary records: any consumer reads them."""
    produce(group_bootstrap, topic, 0, "bad-1")
    with DeadLetters(config(group_bootstrap, topic), [topic], refuse_bad, attempts=1) as letters:
        letters.run(until=in_time(lambda: letters.dead == 1))
    reader = KafkaConsumer({**config(group_bootstrap, f"{topic}-x"), "auto.offset.reset": "earliest"})
    reader.subscribe([f"{topic}-dlq"])
    try:
        message = reader.poll(PATIENCE_S)
        assert message is not None
        assert dict(message.headers() or [])["dlq.error.type"] == b"ValueError"
    finally:
        reader.close()


def test_stopping_from_inside(group_bootstrap: str, topic: str) -> None:
    produce(group_bootstrap, topic, 0, "a", "b")
    loop: list[DeadLetters] = []
    with DeadLetters(config(group_bootstrap, topic), [topic], lambda message: loop[0].stop()) as letters:
        loop.append(letters)
        began = time.monotonic()
        letters.run()
        assert letters.processed == 1
        assert time.monotonic() - began < PATIENCE_S
