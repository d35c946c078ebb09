"""Group tests run where the broker speaks of groups: they are skipped, with the reason, while it does not.

`newer_protocol` marks what needs ConsumerGroupHeartbeat (KIP-848); everything here needs JoinGroup.
"""

import os
import uuid

import pytest
from group_calls import await_coordinators
from raw import Connection

JOIN_GROUP = 11
CONSUMER_GROUP_HEARTBEAT = 68


@pytest.fixture(scope="session")
def served(bootstrap: str) -> set[int]:
    with Connection(bootstrap) as wire:
        keys = {api["api_key"] for api in wire.call("ApiVersions", 2)["api_keys"]}
        if JOIN_GROUP in keys:
            await_coordinators(wire)
        return keys


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "newer_protocol: needs the consumer group protocol of KIP-848")


@pytest.fixture(autouse=True)
def groups_are_served(request: pytest.FixtureRequest, served: set[int]) -> None:
    needed = {JOIN_GROUP}
    if request.node.get_closest_marker("newer_protocol"):
        needed.add(CONSUMER_GROUP_HEARTBEAT)
    if not needed <= served:
        # A foreign broker may lack them; ours must not.
        assert "SKIDWAY_CONFORMANCE_BOOTSTRAP" in os.environ, f"the broker does not serve the APIs {needed - served}"
        pytest.skip(f"this broker does not serve the APIs {needed - served}")


@pytest.fixture
def group() -> str:
    return f"g-{uuid.uuid4().hex[:12]}"
