"""A broker to test: Skidway in a process of its own, or whatever SKIDWAY_CONFORMANCE_BOOTSTRAP points at.

The tests were written against Apache Kafka and run against it unchanged; `skidway_only` marks the few that ask for
what Kafka does not have. Every test makes topics of its own, so they may run in any order and share one broker.
"""

import os
import uuid
from collections.abc import Iterator, Mapping

import pytest
from client_aiokafka import AiokafkaClient
from client_confluent import ConfluentClient
from client_kafka_python import KafkaPythonClient
from clients import Admin, Client, NotInThisClient
from group_settings import group_settings
from raw import Connection, MakeTopic
from raw_batches import build
from wire_calls import create_topic, produce

GIVEN = os.environ.get("SKIDWAY_CONFORMANCE_BOOTSTRAP")
CLIENTS = (ConfluentClient, KafkaPythonClient, AiokafkaClient)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "skidway_only: asks for something Apache Kafka does not have")


def pytest_runtest_setup(item: pytest.Item) -> None:
    if GIVEN and item.get_closest_marker("skidway_only"):
        pytest.skip("only Skidway has this")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    try:
        return (yield)
    except NotInThisClient as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="session")
def bootstrap() -> Iterator[str]:
    if GIVEN:
        yield GIVEN
        return
    from skidway.testing import Broker

    with Broker(retention_check_ms=500, **group_settings()) as broker:
        yield broker.bootstrap


@pytest.fixture(params=CLIENTS, ids=lambda made: made.name)
def client(request: pytest.FixtureRequest, bootstrap: str) -> Client:
    return request.param(bootstrap)


@pytest.fixture
def admin(client: Client) -> Iterator[Admin]:
    with client.admin() as opened:
        yield opened


@pytest.fixture
def wire(bootstrap: str) -> Iterator[Connection]:
    with Connection(bootstrap) as connection:
        yield connection


@pytest.fixture
def name() -> str:
    return f"t-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def make_topic(bootstrap: str) -> MakeTopic:
    """Makes a topic over a raw connection and returns its name once every partition can be read."""

    def make(partitions: int = 1, configs: Mapping[str, str] | None = None, name: str | None = None) -> str:
        topic = name or f"t-{uuid.uuid4().hex[:12]}"
        with Connection(bootstrap) as connection:
            create_topic(connection, topic, partitions, configs)
        return topic

    return make


@pytest.fixture
def topic(make_topic: MakeTopic) -> str:
    return make_topic()


@pytest.fixture
def filled(make_topic: MakeTopic, wire: Connection) -> str:
    """Two partitions of ten records."""
    topic = make_topic(partitions=2)
    for partition in range(2):
        produce(wire, topic, build([b"%d" % number for number in range(10)]), partition=partition)
    return topic
