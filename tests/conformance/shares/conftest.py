"""A broker whose share groups may have short locks and sessions, and groups that read one partition.

Apache Kafka is given the same by `python -m bench.kafka serve group.share.min.record.lock.duration.ms=1000
group.share.record.lock.duration.ms=15000 group.share.min.session.timeout.ms=1000 group.share.session.timeout.ms=8000
group.share.min.heartbeat.interval.ms=300 group.share.heartbeat.interval.ms=300 auto.create.topics.enable=false
log.cleaner.backoff.ms=500`, and the like for consumer groups.
"""

import os
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from raw import Connection

for folder in ("groups", "transactions"):
    place = str(Path(__file__).parents[1] / folder)
    if place not in sys.path:
        sys.path.insert(0, place)

from share_brokers import share_settings, warm  # noqa: E402
from share_calls import NewReader, Place, ShareReader, open_group, place_of  # noqa: E402

QUICK = {"checkpoint_ms": 100, "compaction_check_ms": 100}


@pytest.fixture(scope="session")
def bootstrap() -> Iterator[str]:
    given = os.environ.get("SKIDWAY_CONFORMANCE_BOOTSTRAP")
    if given:
        warm(given)
        yield given
        return
    from skidway.testing import Broker

    with Broker(retention_check_ms=500, **QUICK, **share_settings()) as broker:
        warm(broker.bootstrap)
        yield broker.bootstrap


@pytest.fixture
def group() -> str:
    return f"g-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def other(bootstrap: str) -> Iterator[Connection]:
    """A second connection, because a fetch that waits holds up what comes behind it."""
    with Connection(bootstrap) as connection:
        yield connection


@pytest.fixture
def at(wire: Connection, topic: str) -> Place:
    return place_of(wire, topic)


@pytest.fixture
def opened(wire: Connection, group: str, topic: str) -> str:
    """The group, which reads the topic from its beginning."""
    open_group(wire, group, topic)
    return group


@pytest.fixture
def reader(wire: Connection, opened: str, at: Place) -> ShareReader:
    return ShareReader(wire, opened, at)


@pytest.fixture
def new_reader(bootstrap: str, opened: str, at: Place) -> Iterator[NewReader]:
    """Makes another reader of the same partition, on a connection of its own."""
    made: list[Connection] = []

    def make() -> ShareReader:
        made.append(Connection(bootstrap))
        return ShareReader(made[-1], opened, at)

    yield make
    for connection in made:
        connection.socket.close()
