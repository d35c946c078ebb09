"""What the examples share: a topic with ten messages in it, and a consumer that starts with the group's position."""

import os
import secrets
import sys
from collections.abc import Iterator

try:
    from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
    from confluent_kafka.admin import AdminClient, NewTopic
except ImportError:
    sys.exit("the examples need confluent-kafka: pip install 'skidway[client]'")

BOOTSTRAP = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("SKIDWAY_BOOTSTRAP", "127.0.0.1:9092")
COUNT = 10


def new_topic(name: str | None = None, partitions: int = 1) -> str:
    """A fresh topic each time, so that an example can be run twice."""
    topic = name or f"example-{secrets.token_hex(4)}"
    admin = AdminClient({"bootstrap.servers": BOOTSTRAP, "reconnect.backoff.ms": 3000})
    try:
        admin.create_topics([NewTopic(topic, partitions)], request_timeout=10)[topic].result()
    except KafkaException as error:
        sys.exit(f"no topic could be made at {BOOTSTRAP}: {error.args[0].str()}; is a broker running (skidway serve)?")
    return topic


def fill(topic: str) -> None:
    producer = Producer({"bootstrap.servers": BOOTSTRAP, "enable.idempotence": True})
    for number in range(COUNT):
        producer.produce(topic, f"order {number}", headers={"message-id": f"order-{number}"})
    assert producer.flush(30) == 0


def join(topic: str, group: str, isolation: str = "read_uncommitted") -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": BOOTSTRAP,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 6000,
            "isolation.level": isolation,
        }
    )
    consumer.subscribe([topic])
    return consumer


def messages(consumer: Consumer) -> Iterator[Message]:
    """What there is, until nothing has come for a while. The first may take as long as joining the group does."""
    patience_s = 30.0
    while (message := consumer.poll(patience_s)) is not None:
        if message.error():
            raise RuntimeError(message.error())
        patience_s = 2.0
        yield message


def read_all(topic: str, isolation: str) -> list[str]:
    """All values that are there now. Without a group: nothing is committed."""
    consumer = Consumer(
        {
            "bootstrap.servers": BOOTSTRAP,
            "group.id": "unused",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
        }
    )
    partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
    consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
    found: list[str] = []
    ended: set[int] = set()
    try:
        while len(ended) < len(partitions):
            message = consumer.poll(30)
            assert message is not None, "the broker does not answer"
            if (error := message.error()) is None:
                found.append(message.value().decode())
            elif error.code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition())
            else:
                raise RuntimeError(error)
    finally:
        consumer.close()
    return found
