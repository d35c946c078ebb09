"""Exactly once from topic to topic: what was written and how far was read are committed in one transaction.

The copy crashes twice: once before the transaction is committed, so that its rows are aborted and read again, and once
right after. Every row is in the output once.

    python examples/read_process_write.py [BOOTSTRAP]
"""

from collections.abc import Iterator

from confluent_kafka import Consumer, Message, Producer, TopicPartition
from setting import BOOTSTRAP, COUNT, fill, join, new_topic, read_all

BATCH = 3


class Crash(Exception):
    pass


def batches(consumer: Consumer) -> Iterator[list[Message]]:
    """What there is, a few at a time. The first may take as long as joining the group does."""
    patience_s = 30.0
    while (first := consumer.poll(patience_s)) is not None:
        yield [first, *consumer.consume(BATCH - 1, timeout=0.2)]
        patience_s = 1.0


def copy(source: str, target: str, crash: str | None) -> None:
    consumer = join(source, group=source, isolation="read_committed")
    producer = Producer({"bootstrap.servers": BOOTSTRAP, "transactional.id": f"copy-{source}"})
    producer.init_transactions(30)
    try:
        for read in batches(consumer):
            producer.begin_transaction()
            for message in read:
                producer.produce(target, message.value().upper())
            send_position(producer, consumer)
            if crash == "before the commit":
                producer.flush(30)
                raise Crash
            producer.commit_transaction(30)
            if crash == "after the commit":
                raise Crash
    finally:
        consumer.close()


def send_position(producer: Producer, consumer: Consumer) -> None:
    """The group's metadata lets the broker refuse a member that has lost its partitions meanwhile."""
    at = consumer.position(consumer.assignment())
    known = [TopicPartition(one.topic, one.partition, one.offset) for one in at if one.offset >= 0]
    producer.send_offsets_to_transaction(known, consumer.consumer_group_metadata(), 30)


def main() -> None:
    source, target = new_topic(), new_topic()
    fill(source)
    for crash in ("before the commit", "after the commit", None):
        try:
            copy(source, target, crash)
        except Crash:
            print(f"crashed {crash}")
    written = read_all(target, "read_committed")
    attempts = len(read_all(target, "read_uncommitted"))
    print(f"{attempts} rows were written, {len(written)} of them committed: {written}")
    assert written == [f"ORDER {number}" for number in range(COUNT)]
    assert attempts == COUNT + BATCH


main()
