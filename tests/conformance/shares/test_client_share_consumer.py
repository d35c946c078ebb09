"""confluent-kafka's ShareConsumer: several consumers of one partition, each record once, retries with counts, close."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import AcknowledgeType, IllegalStateException, Message, ShareConsumer
from raw import Connection, MakeTopic
from raw_batches import build
from share_calls import configure, start_of
from wire_calls import produce

from waiting import eventually

NewConsumer = Callable[..., ShareConsumer]
POLL_S = 0.2


@pytest.fixture
def new_consumer(bootstrap: str, wire: Connection, group: str, topic: str) -> Iterator[NewConsumer]:
    """Makes a consumer of the group, which reads the topic from its beginning."""
    configure(wire, group, share_auto_offset_reset="earliest")
    made: list[ShareConsumer] = []

    def make(mode: str = "explicit", topics: tuple[str, ...] = (), **options: Any) -> ShareConsumer:
        settings = {"bootstrap.servers": bootstrap, "group.id": group, "share.acknowledgement.mode": mode}
        consumer = ShareConsumer({**settings, **options})
        consumer.subscribe(list(topics or (topic,)))
        made.append(consumer)
        return consumer

    yield make
    for consumer in made:
        closed(consumer)


def closed(consumer: ShareConsumer) -> None:
    """Once more, if the test has closed it already."""
    with contextlib.suppress(IllegalStateException):
        consumer.close()


def write(wire: Connection, topic: str, count: int, partition: int = 0) -> None:
    for number in range(count):
        produce(wire, topic, build([b"%d" % number]), partition=partition)


def polled(consumer: ShareConsumer) -> list[Message]:
    """One poll; errors of the client's own (a broker that is not there yet) are passed over."""
    return [message for message in consumer.poll(POLL_S) if message.error() is None]


def gather(consumers: list[ShareConsumer], settle: Callable[[ShareConsumer, Message], object], enough: int) -> None:
    """All poll in turn, and settle what they get, until so many were settled."""
    settled = 0

    def done() -> bool:
        nonlocal settled
        for consumer in consumers:
            for message in polled(consumer):
                settle(consumer, message)
                settled += 1
            results = consumer.commit_sync(30.0)
            assert all(error is None for error in results.values()), results
        return settled >= enough

    eventually(done, seconds=90)


def test_consumers_of_one_partition_get_each_record_once(
    wire: Connection, group: str, topic: str, new_consumer: NewConsumer
) -> None:
    consumers = [new_consumer(**{"max.poll.records": 5}) for _ in range(3)]
    write(wire, topic, 60)
    seen: list[int] = []

    def accept(consumer: ShareConsumer, message: Message) -> None:
        seen.append(message.offset() or 0)
        assert message.delivery_count() == 1
        consumer.acknowledge(message, AcknowledgeType.ACCEPT)

    gather(consumers, accept, 60)
    assert sorted(seen) == list(range(60))
    eventually(lambda: start_of(wire, group, topic).lag == 0)


def test_a_released_record_comes_again_with_its_count(wire: Connection, topic: str, new_consumer: NewConsumer) -> None:
    consumer = new_consumer()
    write(wire, topic, 1)
    counts: list[int | None] = []

    def twice_released(consumer: ShareConsumer, message: Message) -> None:
        counts.append(message.delivery_count())
        released = len(counts) < 3
        consumer.acknowledge(message, AcknowledgeType.RELEASE if released else AcknowledgeType.ACCEPT)

    gather([consumer], twice_released, 3)
    assert counts == [1, 2, 3]
    assert polled(consumer) == []


def test_a_rejected_record_is_gone(wire: Connection, group: str, topic: str, new_consumer: NewConsumer) -> None:
    consumer = new_consumer()
    write(wire, topic, 2)
    gather([consumer], lambda it, message: it.acknowledge(message, AcknowledgeType.REJECT), 2)
    assert polled(consumer) == []
    eventually(lambda: start_of(wire, group, topic).lag == 0)


def test_a_record_acknowledged_by_its_place(
    wire: Connection, group: str, topic: str, new_consumer: NewConsumer
) -> None:
    consumer = new_consumer()
    write(wire, topic, 1)
    gather([consumer], lambda it, message: it.acknowledge_offset(topic, 0, message.offset() or 0), 1)
    eventually(lambda: start_of(wire, group, topic).lag == 0)


def test_the_next_poll_accepts(wire: Connection, group: str, topic: str, new_consumer: NewConsumer) -> None:
    """Without a word of the application's, in the implicit mode."""
    consumer = new_consumer("implicit")
    write(wire, topic, 10)
    seen: list[int | None] = []

    def all_accepted() -> bool:
        seen.extend(message.offset() for message in polled(consumer))
        return len(seen) >= 10 and start_of(wire, group, topic).lag == 0

    eventually(all_accepted, seconds=60)
    assert seen == list(range(10))


def test_closing_releases_what_was_not_acknowledged(
    wire: Connection, group: str, topic: str, new_consumer: NewConsumer
) -> None:
    first = new_consumer()
    write(wire, topic, 3)
    got = eventually(lambda: polled(first), seconds=60)
    first.acknowledge(got[0], AcknowledgeType.ACCEPT)
    first.close()
    second = new_consumer()
    seen: dict[int | None, int | None] = {}

    def accept(consumer: ShareConsumer, message: Message) -> None:
        seen[message.offset()] = message.delivery_count()
        consumer.acknowledge(message, AcknowledgeType.ACCEPT)

    gather([second], accept, 2)
    held = {message.offset() for message in got}
    assert seen == {offset: 2 if offset in held else 1 for offset in range(1, 3)}


def test_the_callback_hears_of_each_acknowledgement(wire: Connection, topic: str, new_consumer: NewConsumer) -> None:
    consumer = new_consumer()
    heard: set[int] = set()
    failures: list[object] = []

    def told(offsets: dict[Any, set[int]], exception: object) -> None:
        heard.update(*offsets.values())
        if exception is not None:
            failures.append(exception)

    consumer.set_acknowledgement_commit_callback(told)
    write(wire, topic, 5)
    acknowledged: list[int | None] = []

    def all_heard() -> bool:
        for message in polled(consumer):
            acknowledged.append(message.offset())
            consumer.acknowledge(message, AcknowledgeType.ACCEPT)
        consumer.commit_async()
        return heard == set(range(5))

    eventually(all_heard, seconds=60)
    assert failures == []


def test_several_topics_with_several_partitions(
    wire: Connection, group: str, make_topic: MakeTopic, new_consumer: NewConsumer
) -> None:
    first, second = make_topic(partitions=3), make_topic(partitions=2)
    for topic, partitions in ((first, 3), (second, 2)):
        for partition in range(partitions):
            write(wire, topic, 4, partition)
    consumers = [new_consumer(topics=(first, second)) for _ in range(2)]
    seen: list[tuple[str | None, int | None, int | None]] = []

    def accept(consumer: ShareConsumer, message: Message) -> None:
        seen.append((message.topic(), message.partition(), message.offset()))
        consumer.acknowledge(message, AcknowledgeType.ACCEPT)

    gather(consumers, accept, 20)
    places = [(topic, partition) for topic, count in ((first, 3), (second, 2)) for partition in range(count)]
    assert sorted(seen, key=str) == sorted([(*place, offset) for place in places for offset in range(4)], key=str)


def test_subscribing_later_to_another_topic(
    wire: Connection, topic: str, make_topic: MakeTopic, new_consumer: NewConsumer
) -> None:
    other = make_topic()
    write(wire, topic, 1)
    write(wire, other, 1)
    consumer = new_consumer()
    seen: list[str | None] = []

    def accept(consumer: ShareConsumer, message: Message) -> None:
        seen.append(message.topic())
        consumer.acknowledge(message, AcknowledgeType.ACCEPT)

    gather([consumer], accept, 1)
    consumer.subscribe([other])
    gather([consumer], accept, 1)
    assert seen == [topic, other]
