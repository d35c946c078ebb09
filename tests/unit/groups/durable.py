"""The durable part of groups has one writer, the records: a coordinator that lived through everything and one that has
only read the log agree on it, after every operation."""

from dataclasses import fields
from typing import Any

from skidway.groups.classic.group import ClassicGroup
from skidway.groups.classic.states import SETTLED
from skidway.groups.consumer.group import ConsumerGroup
from skidway.groups.coordinator import GroupCoordinator
from skidway.groups.kinds import Group
from skidway.groups.share.group import ShareGroup

NOT_DURABLE = {"live", "matches"}


def check_durable(lived: GroupCoordinator, read: GroupCoordinator) -> None:
    assert lived.offsets == read.offsets
    assert set(lived.groups) == set(read.groups)
    for group_id, group in lived.groups.items():
        assert durable(group) == durable(read.groups[group_id])
        if isinstance(group, ClassicGroup):
            assert (group.live.current is group.durable) == isinstance(group.live.state, SETTLED)


def durable(group: Group) -> Any:
    if isinstance(group, ClassicGroup):
        return group.durable
    assert isinstance(group, ConsumerGroup | ShareGroup)
    return {each.name: getattr(group, each.name) for each in fields(group) if each.name not in NOT_DURABLE}
