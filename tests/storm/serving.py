"""Waiting until the coordinators of a broker serve groups."""

from group_calls import await_coordinators
from raw import Connection

JOIN_GROUP = 11


def serving_groups(address: str) -> str:
    with Connection(address) as wire:
        served = {api["api_key"] for api in wire.call("ApiVersions", 2)["api_keys"]}
        assert JOIN_GROUP in served, "this broker does not serve groups: no JoinGroup among its APIs"
        await_coordinators(wire)
    return address
