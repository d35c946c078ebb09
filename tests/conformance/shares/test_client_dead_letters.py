"""Dead letters of share groups, with confluent-kafka's ShareConsumer: what a letter says, and when there is none."""

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, AcknowledgeType, Consumer, Message, ShareConsumer, TopicPartition
from raw import Connection, MakeTopic
from raw_batches import Record, build, now_ms
from share_brokers import share_settings, warm
from share_calls import NONE, SET, alter, configure, start_of
from wire_calls import create_topic, produce

from skidway.testing import Broker
from waiting import eventually

ENABLED = {"errors.deadletterqueue.group.enable": "true"}
POLL_S = 0.2
REJECT, RELEASE = AcknowledgeType.REJECT, AcknowledgeType.RELEASE
Settle = Callable[[Message], AcknowledgeType]


@pytest.fixture
def letters(make_topic: MakeTopic, topic: str) -> str:
    return make_topic(partitions=2, configs=ENABLED, name=f"dlq.{topic}")


@contextlib.contextmanager
def consuming(bootstrap: str, group: str, topic: str, **options: Any) -> Iterator[ShareConsumer]:
    settings = {"bootstrap.servers": bootstrap, "group.id": group, "share.acknowledgement.mode": "explicit"}
    consumer = ShareConsumer({**settings, **options})
    consumer.subscribe([topic])
    try:
        yield consumer
    finally:
        consumer.close()


def settle_all(consumer: ShareConsumer, settle: Settle, until: Callable[[], bool]) -> None:
    def done() -> bool:
        for message in consumer.poll(POLL_S):
            if message.error() is None:
                consumer.acknowledge(message, settle(message))
        consumer.commit_sync(30.0)
        return until()

    eventually(done, seconds=60)


def read(bootstrap: str, topic: str) -> list[Message]:
    """All that is in the topic now."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "enable.partition.eof": True})
    partitions = consumer.list_topics(topic, 10).topics[topic].partitions
    consumer.assign([TopicPartition(topic, index, OFFSET_BEGINNING) for index in partitions])
    found, ended = list[Message](), 0
    while ended < len(partitions):
        message = consumer.poll(10)
        assert message is not None
        if message.error() is None:
            found.append(message)
        else:
            ended += 1
    consumer.close()
    return found


def told(letter: Message) -> dict[str, str]:
    headers: Any = letter.headers() or []
    return {name: value.decode() for name, value in headers if name.startswith("__dlq.")}


def own(letter: Message) -> list[tuple[str, bytes]]:
    headers: Any = letter.headers() or []
    return [header for header in headers if not header[0].startswith("__dlq.")]


def test_a_rejected_record_becomes_a_letter(
    bootstrap: str, wire: Connection, group: str, topic: str, letters: str
) -> None:
    configure(wire, group, share_auto_offset_reset="earliest", errors_deadletterqueue_topic_name=letters)
    forged = [("__dlq.errors.topic", b"forged"), ("dlq.offset", b"77"), ("__dlq.errors.copied", b"false")]
    bad = Record(b"bad", key=b"k", headers=[("a", b"1"), *forged, ("a", b"2"), ("dlq.replays", b"2")])
    sent_ms = now_ms() - 60_000
    produce(wire, topic, build([Record(b"fine"), bad], timestamp=sent_ms))
    with consuming(bootstrap, group, topic) as consumer:
        settle_all(
            consumer,
            lambda message: REJECT if message.value() == b"bad" else AcknowledgeType.ACCEPT,
            lambda: start_of(wire, group, topic).lag == 0,
        )
    (letter,) = read(bootstrap, letters)
    assert (letter.key(), letter.value(), letter.partition()) == (b"k", b"bad", 0)
    assert own(letter) == [("a", b"1"), ("a", b"2"), ("dlq.replays", b"2")]
    headers = told(letter)
    first, last = (int(headers.pop(f"__dlq.errors.failed.{which}")) for which in ("first", "last"))
    assert 0 < first <= last <= letter.timestamp()[1]
    assert headers == {
        "__dlq.errors.topic": topic,
        "__dlq.errors.partition": "0",
        "__dlq.errors.offset": "1",
        "__dlq.errors.timestamp": str(sent_ms),
        "__dlq.errors.group": group,
        "__dlq.errors.delivery.count": "1",
        "__dlq.errors.disposition": "CLIENT_REJECTED",
        "__dlq.errors.message": "Offset rejected by client.",
    }


def test_a_record_that_was_delivered_too_often_becomes_a_letter_in_its_partition(
    bootstrap: str, wire: Connection, group: str, make_topic: MakeTopic
) -> None:
    topic = make_topic(partitions=4)
    letters = make_topic(partitions=2, configs=ENABLED, name=f"dlq.{topic}")
    configure(
        wire,
        group,
        share_auto_offset_reset="earliest",
        share_delivery_count_limit=2,
        errors_deadletterqueue_topic_name=letters,
        errors_deadletterqueue_copy_record_enable="false",
    )
    produce(wire, topic, build([b"a", b"b"]), partition=3)
    with consuming(bootstrap, group, topic) as consumer:
        settle_all(consumer, lambda message: RELEASE, lambda: start_of(wire, group, topic, 3).lag == 0)
    found = read(bootstrap, letters)
    assert [(letter.partition(), letter.key(), letter.value()) for letter in found] == [(1, None, None)] * 2
    assert [told(letter)["__dlq.errors.offset"] for letter in found] == ["0", "1"]
    assert {told(letter)["__dlq.errors.disposition"] for letter in found} == {"MAX_DELIVERY_ATTEMPTS_REACHED"}
    assert {told(letter)["__dlq.errors.delivery.count"] for letter in found} == {"2"}
    assert {told(letter)["__dlq.errors.copied"] for letter in found} == {"false"}


def test_a_letter_that_cannot_be_written_holds_its_record_and_no_other(
    bootstrap: str, wire: Connection, group: str, topic: str, make_topic: MakeTopic
) -> None:
    letters = f"dlq.{topic}"
    configure(wire, group, share_auto_offset_reset="earliest", errors_deadletterqueue_topic_name=letters)
    produce(wire, topic, build([b"bad", b"fine"]))
    seen: list[bytes | None] = []

    def settle(message: Message) -> AcknowledgeType:
        seen.append(message.value())
        return REJECT if message.value() == b"bad" else AcknowledgeType.ACCEPT

    with consuming(bootstrap, group, topic) as consumer:
        settle_all(consumer, settle, lambda: len(seen) == 2)
        produce(wire, topic, build([b"more"]))
        settle_all(consumer, settle, lambda: len(seen) == 3)
        assert start_of(wire, group, topic).offset == 0
        make_topic(configs=ENABLED, name=letters)
        settle_all(consumer, settle, lambda: start_of(wire, group, topic).lag == 0)
    assert seen == [b"bad", b"fine", b"more"]
    assert [letter.value() for letter in read(bootstrap, letters)] == [b"bad"]


@pytest.mark.parametrize("why", ["missing", "forbidden", "prefix", "too large"])
def test_a_group_may_give_up_letters_that_cannot_be_written(
    why: str, bootstrap: str, wire: Connection, group: str, topic: str, make_topic: MakeTopic
) -> None:
    letters = f"letters.{topic}" if why == "prefix" else f"dlq.{topic}"
    if why != "missing":
        configs = {} if why == "forbidden" else {**ENABLED, "max.message.bytes": "300"}
        make_topic(configs=configs, name=letters)
    configure(
        wire,
        group,
        share_auto_offset_reset="earliest",
        errors_deadletterqueue_topic_name=letters,
        errors_deadletterqueue_on_failure="archive",
    )
    produce(wire, topic, build([b"bad" * 100]))
    with consuming(bootstrap, group, topic) as consumer:
        settle_all(consumer, lambda message: REJECT, lambda: start_of(wire, group, topic).lag == 0)
    if why != "missing":
        assert read(bootstrap, letters) == []


def test_names_of_the_brokers_own_topics_are_refused(wire: Connection, group: str) -> None:
    for name in ("__consumer_offsets", "__mine", "a b"):
        refused = alter(wire, group, ("errors.deadletterqueue.topic.name", SET, name))
        assert refused["error_code"] != NONE, name
    refused = alter(wire, group, ("errors.deadletterqueue.on.failure", SET, "forget"))
    assert refused["error_code"] != NONE


def test_each_dead_record_has_one_letter_after_kills() -> None:
    """The broker makes their topic, and is killed again and again, soon after it has begun to write letters."""
    if "SKIDWAY_CONFORMANCE_BOOTSTRAP" in os.environ:
        pytest.skip("the broker is somebody else's")
    topic, group, letters, count = "work", "workers", "dlq.work", 60
    with Broker(**share_settings()) as broker:
        with Connection(broker.bootstrap) as wire:
            warm(broker.bootstrap)
            create_topic(wire, topic, 1, None)
            configure(wire, group, share_auto_offset_reset="earliest", errors_deadletterqueue_topic_name=letters)
            make_letter_topics(wire)
            for number in range(count):
                produce(wire, topic, build([b"%d" % number]))
        for _ in range(3):
            with consuming(broker.bootstrap, group, topic, **{"max.poll.records": 10}) as consumer:
                rejected = 0

                def reject(message: Message) -> AcknowledgeType:
                    nonlocal rejected
                    rejected += 1
                    return REJECT

                settle_all(consumer, reject, lambda: rejected >= 5)  # noqa: B023
                broker.restart(kill=True)
        with Connection(broker.bootstrap) as wire, consuming(broker.bootstrap, group, topic) as consumer:
            settle_all(consumer, lambda message: REJECT, lambda: start_of(wire, group, topic).lag == 0)
        found = read(broker.bootstrap, letters)
    assert sorted(int(letter.value() or b"") for letter in found) == list(range(count))


def make_letter_topics(wire: Connection) -> None:
    change = {"name": "errors.deadletterqueue.auto.create.topics.enable", "config_operation": SET, "value": "true"}
    resource = {"resource_type": 4, "resource_name": "", "configs": [change]}
    (answer,) = wire.call("IncrementalAlterConfigs", 1, {"resources": [resource]})["responses"]
    assert answer["error_code"] == NONE, answer
