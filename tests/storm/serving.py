"""Whether a broker serves groups, and waiting until it does."""

import pytest
from group_calls import await_coordinators
from raw import Connection

JOIN_GROUP = 11


def serving_groups(address: str) -> str:
    with Connection(address) as wire:
        if JOIN_GROUP not in {api["api_key"] for api in wire.call("ApiVersions", 2)["api_keys"]}:
            pytest.skip("this broker does not serve groups yet: no JoinGroup among its APIs")
        await_coordinators(wire)
    return address
