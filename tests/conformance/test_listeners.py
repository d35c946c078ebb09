"""Several listeners of real brokers: each client hears the addresses of the listener by which it came."""

import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from skidway.testing.broker import Broker
from waiting import eventually

NODES = 3
PATIENCE_S = 30.0
NOWHERE = "127.0.0.1:1"
"""Nobody listens there."""


def addresses_heard(bootstrap: str) -> set[str]:
    brokers = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=PATIENCE_S).brokers.values()
    return {f"{broker.host}:{broker.port}" for broker in brokers}


def there_and_back(bootstrap: str, topic: str, value: bytes) -> None:
    """A message to a topic, and by a group out of it."""
    failures: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    producer.produce(topic, value, on_delivery=lambda error, _: failures.extend([error] if error else []))
    assert producer.flush(PATIENCE_S) == 0
    assert failures == []
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": f"of-{value.decode()}", "auto.offset.reset": "earliest"}
    )
    with closing(consumer):
        consumer.subscribe([topic])
        read: list[bytes | None] = []

        def poll() -> bool:
            if (message := consumer.poll(0.1)) is not None and message.error() is None:
                read.append(message.value())
            return value in read

        eventually(poll, PATIENCE_S)


def held_ports(stack: ExitStack, count: int) -> list[int]:
    """Free ports that nobody else gets, and that a broker can listen on: bound here and never listened to."""
    ports = []
    for _ in range(count):
        held = stack.enter_context(socket.socket())
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        ports.append(int(held.getsockname()[1]))
    return ports


def test_a_client_hears_the_addresses_of_its_listener() -> None:
    with Broker(arguments=("--listen", "OUTSIDE=127.0.0.1:0", "--advertise", "OUTSIDE=localhost:0")) as broker:
        pattern = r"ready on \S+; OUTSIDE=127\.0\.0\.1:(\d+), advertised to clients as (\S+) "
        ready = re.search(pattern, broker.output)
        assert ready is not None, broker.output
        outside = f"localhost:{ready[1]}"
        assert ready[2] == outside
        assert addresses_heard(broker.bootstrap) == {broker.bootstrap}
        assert addresses_heard(outside) == {outside}
        there_and_back(broker.bootstrap, "by-inside", b"inside")
        there_and_back(outside, "by-outside", b"outside")


@pytest.fixture
def outside() -> Iterator[list[str]]:
    """Three nodes that reach each other only by NODES. What PLAINTEXT advertises is a dead end."""
    with ExitStack() as stack:
        nodes, clients = held_ports(stack, NODES), held_ports(stack, NODES)
        voters = ",".join(f"{number}@127.0.0.1:{port}" for number, port in enumerate(nodes, 1))
        brokers = [
            Broker(
                arguments=(
                    *("--node-id", str(number), "--voters", voters),
                    *("--listen", f"NODES=127.0.0.1:{node}", "--listen", f"OUTSIDE=127.0.0.1:{client}"),
                    *("--advertise", NOWHERE, "--set", "inter_broker_listener=NODES"),
                )
            )
            for number, (node, client) in enumerate(zip(nodes, clients, strict=True), 1)
        ]
        for broker in brokers:
            stack.enter_context(closing(broker))
            broker.launch()
        for broker in brokers:
            broker.await_ready()
        yield [f"127.0.0.1:{port}" for port in clients]


def test_nodes_speak_by_a_listener_of_their_own(outside: list[str]) -> None:
    bootstrap = ",".join(outside)

    def complete() -> bool:
        try:
            return addresses_heard(bootstrap) == set(outside)
        except KafkaException:
            return False  # nodes that are not members yet hang up

    eventually(complete, PATIENCE_S)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for created in admin.create_topics([NewTopic("orders", 3, NODES)]).values():
        created.result(PATIENCE_S)

    def all_in_sync() -> bool:
        topic = admin.list_topics("orders", timeout=PATIENCE_S).topics["orders"]
        return [len(partition.isrs) for partition in topic.partitions.values()] == [NODES] * 3

    eventually(all_in_sync, PATIENCE_S)
    there_and_back(bootstrap, "orders", b"replicated")
