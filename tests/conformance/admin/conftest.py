"""The admin clients themselves, one fixture each, and groups for them to look at.

What all three clients can do alike is in `test_client_admin.py`, offsets and membership in `groups/`; here is the rest
of what each one's AdminClient offers of topics, configs, groups and offsets, a test for each method.
"""

import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from confluent_kafka import admin as cka
from raw import Connection

import kafka

GROUPS = Path(__file__).parents[1] / "groups"
if str(GROUPS) not in sys.path:
    sys.path.append(str(GROUPS))

from group_calls import ClassicMember, ConsumerMember, assignment, await_coordinators, subscription  # noqa: E402


@pytest.fixture
def confluent(bootstrap: str) -> cka.AdminClient:
    return cka.AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


@pytest.fixture
def python(bootstrap: str) -> Iterator[kafka.KafkaAdminClient]:
    admin = kafka.KafkaAdminClient(bootstrap_servers=bootstrap)
    yield admin
    admin.close()


@pytest.fixture
def aio(bootstrap: str) -> Callable[[], AIOKafkaAdminClient]:
    """To be started inside the test's own event loop."""
    return lambda: AIOKafkaAdminClient(bootstrap_servers=bootstrap)


@pytest.fixture(scope="session")
def coordinators(bootstrap: str) -> None:
    with Connection(bootstrap) as wire:
        await_coordinators(wire)


@pytest.fixture
def group(coordinators: None) -> str:
    return f"g-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def classic(bootstrap: str, group: str, filled: str) -> Iterator[ClassicMember]:
    """A classic group with one member, which reads the first partition."""
    with ClassicMember(bootstrap, group, protocols=[("range", subscription([filled]))]) as member:
        member.join()
        member.sync({member.id: assignment({filled: [0]})})
        yield member


@pytest.fixture
def modern(wire: Connection, group: str, filled: str) -> ConsumerMember:
    """A group of the newer protocol with one member, which reads both partitions."""
    member = ConsumerMember(wire, group + "-modern", [filled])
    assert member.join()["error_code"] == 0
    return member


@pytest.fixture
def broker_id(confluent: cka.AdminClient) -> int:
    return confluent.list_topics(timeout=30).controller_id
