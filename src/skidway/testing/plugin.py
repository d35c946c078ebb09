"""The pytest plugin: fixtures that hand a test a real broker.

- `broker`: one for the whole session (one per worker under pytest-xdist); started when first asked for.
- `fresh_broker`: one of its own for the test, on an empty data directory.
- `kafka_topic`: the name of a new topic with one partition on `broker`.
- `share_group`: the name of a new share group on `broker`, which begins with what a topic has already.
- `cluster`: three brokers that are one cluster, for this test alone; nodes can be killed, paused and cut off.

Settings: override the session fixture `broker_settings` to return keywords for `skidway.testing.Broker`, or mark a
test that uses `fresh_broker` or `cluster` with `@pytest.mark.skidway(flush="os")`; a cluster also takes `nodes=5`.
"""

import secrets
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from skidway.testing.broker import Broker
    from skidway.testing.cluster import Cluster


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "skidway(**settings): settings of what `fresh_broker` or `cluster` starts")


@pytest.fixture(scope="session")
def broker_settings() -> dict[str, Any]:
    """Keywords for every broker of the session; override it in conftest.py."""
    return {}


@pytest.fixture(scope="session")
def broker(broker_settings: dict[str, Any]) -> "Iterator[Broker]":
    """A running broker that all tests of the session share."""
    from skidway.testing.broker import Broker

    with Broker(**broker_settings) as running:
        yield running


@pytest.fixture
def fresh_broker(request: pytest.FixtureRequest, broker_settings: dict[str, Any]) -> "Iterator[Broker]":
    """A running broker that no other test has touched."""
    from skidway.testing.broker import Broker

    marker = request.node.get_closest_marker("skidway")
    with Broker(**{**broker_settings, **(marker.kwargs if marker else {})}) as running:
        yield running


@pytest.fixture
def cluster(request: pytest.FixtureRequest, broker_settings: dict[str, Any]) -> "Iterator[Cluster]":
    """Three running brokers that are one cluster."""
    from skidway.testing.cluster import Cluster

    marker = request.node.get_closest_marker("skidway")
    with Cluster(**{**broker_settings, **(marker.kwargs if marker else {})}) as running:
        yield running


@pytest.fixture
def kafka_topic(broker: "Broker") -> str:
    """The name of a topic made for this test, with one partition, on the shared broker."""
    from skidway.blocking_client.admin import Admin
    from skidway.blocking_client.cluster import Cluster

    name = f"topic-{secrets.token_hex(6)}"
    with Cluster(broker.bootstrap) as cluster:
        Admin(cluster).create_topic(name, partitions=1)
    return name


@pytest.fixture
def share_group(broker: "Broker") -> str:
    """The name of a share group for this test on the shared broker. Other share groups begin with what comes after
    their first member has joined: a test would have to wait for that."""
    from skidway.blocking_client.admin import SET, Admin, ConfigChange
    from skidway.blocking_client.cluster import Cluster

    name = f"group-{secrets.token_hex(6)}"
    with Cluster(broker.bootstrap) as cluster:
        Admin(cluster).alter_group(name, [ConfigChange("share.auto.offset.reset", SET, "earliest")])
    return name
