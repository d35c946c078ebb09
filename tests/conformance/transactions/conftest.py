"""A broker that serves transactions, and producers of both generations on raw connections."""

import os
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from client_aiokafka import AiokafkaClient
from client_confluent import ConfluentClient
from client_kafka_python import KafkaPythonClient
from clients import Client
from raw import Connection
from wire_calls import create_topic

CLIENTS = (ConfluentClient, KafkaPythonClient, AiokafkaClient)
GROUPS = str(Path(__file__).parents[1] / "groups")
if GROUPS not in sys.path:
    sys.path.insert(0, GROUPS)

from group_calls import await_coordinators  # noqa: E402
from group_settings import group_settings  # noqa: E402
from transacting import TRANSACTING, Transacting  # noqa: E402
from transaction_calls import (  # noqa: E402
    GENERATIONS,
    Generation,
    NewProducer,
    Place,
    RawProducer,
    await_transaction_coordinators,
    new_id,
)


@pytest.fixture(scope="session")
def bootstrap() -> Iterator[str]:
    """Open transactions are looked at more often than by default, so that tests of time-outs are short."""
    given = os.environ.get("SKIDWAY_CONFORMANCE_BOOTSTRAP")
    if given:
        warm(given)
        yield given
        return
    from skidway.testing import Broker

    settings = {"timeout_check_ms": 300, "state_partitions": 5}
    with Broker(transactions=settings, **group_settings()) as broker:
        warm(broker.bootstrap)
        yield broker.bootstrap


def warm(bootstrap: str) -> None:
    with Connection(bootstrap) as wire:
        await_coordinators(wire)
        await_transaction_coordinators(wire)


@pytest.fixture(params=GENERATIONS, ids=lambda generation: generation.name)
def generation(request: pytest.FixtureRequest) -> Generation:
    found: Generation = request.param
    return found


@pytest.fixture(params=TRANSACTING, ids=lambda one: one.name)
def transacting(request: pytest.FixtureRequest, bootstrap: str) -> Transacting:
    found: Transacting = request.param
    return found


@pytest.fixture
def client(transacting: Transacting, bootstrap: str) -> Client:
    """Reads with the same library that writes."""
    (made,) = [one for one in CLIENTS if one.name == transacting.name]
    return made(bootstrap)


@pytest.fixture
def new_producer(wire: Connection, generation: Generation) -> NewProducer:
    """Makes and initialises a producer of the generation, with an id of its own unless told otherwise."""

    def make(transactional_id: str | None = None, **options: int) -> RawProducer:
        return RawProducer(wire, generation, transactional_id or new_id(), **options).init()

    return make


@pytest.fixture
def producer(new_producer: NewProducer) -> RawProducer:
    return new_producer()


@pytest.fixture
def place(topic: str) -> Place:
    return topic, 0


@pytest.fixture
def group() -> str:
    return f"g-{uuid.uuid4().hex[:12]}"


@pytest.fixture(scope="session")
def shared_place(bootstrap: str) -> Place:
    """For tests that write only because an open transaction needs a partition."""
    topic = f"t-{uuid.uuid4().hex[:12]}"
    with Connection(bootstrap) as wire:
        create_topic(wire, topic, 1, None)
    return topic, 0
