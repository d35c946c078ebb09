"""Requests about very many groups are begun one group at a time."""

import gc
from collections.abc import Iterator
from typing import Any

import pytest
from broker_world import World, part

from skidway.broker.api.many_groups import each_once


def test_names_are_looked_at_one_at_a_time() -> None:
    looked_at: list[str] = []

    def names() -> Iterator[str]:
        for name in ("a", "b", "a", "c", "b"):
            looked_at.append(name)
            yield name

    once = each_once(names())
    assert next(once) == "a"
    assert looked_at == ["a"]
    assert list(once) == ["b", "c"]


def test_a_group_that_is_named_twice_is_described_once() -> None:
    peer = World().peer()
    answer = peer.call("DescribeGroups", version=6, groups=["a", "b", "a"])
    assert [group.group_id for group in answer.groups] == ["a", "b"]


@pytest.mark.parametrize("name", ["DescribeGroups", "OffsetFetch", "DeleteGroups"])
@pytest.mark.parametrize("prepared", [True, False], ids=["unknown group", "no coordinator"])
def test_refused_groups_leave_nothing_to_the_garbage_collector(name: str, prepared: bool) -> None:
    """A large request is worked on while the collector pauses, and one ring for each group would be freed at once."""
    groups = 300
    peer = World().peer()
    if prepared:
        peer.call("FindCoordinator", version=4, key_type=0, coordinator_keys=["g"])
    names = [f"group-{number}" for number in range(groups)]
    asked: dict[str, Any] = {
        "DescribeGroups": {"version": 6, "groups": names},
        "OffsetFetch": {"version": 9, "groups": [part("OffsetFetch", "OffsetFetchRequestGroup", one) for one in names]},
        "DeleteGroups": {"version": 2, "groups_names": names},
    }
    peer.call(name, **asked[name])
    gc.collect()
    gc.disable()
    try:
        peer.call(name, **asked[name])
        assert gc.collect() < groups
    finally:
        gc.enable()
