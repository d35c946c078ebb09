"""What groups are said to take is what their members and offsets take, one by one."""

from skidway.groups.bounds import OFFSET_BYTES
from skidway.groups.consumer_group import ConsumerGroup, bytes_of_member
from skidway.groups.coordinator import GroupCoordinator
from skidway.groups.members import ClassicGroup


def check_weights(coordinator: GroupCoordinator) -> None:
    for group in coordinator.groups.values():
        if isinstance(group, ConsumerGroup):
            assert group.member_bytes == sum(bytes_of_member(member) for member in group.members.values())
        else:
            assert isinstance(group, ClassicGroup)
            assert group.member_bytes == sum(member.bytes for member in group.members.values())
    assert coordinator.group_bytes == sum(group.bytes for group in coordinator.groups.values())
    offsets = [each for group in coordinator.offsets.by_group.values() for each in group.values()]
    assert coordinator.offsets.bytes == sum(OFFSET_BYTES + len(each.metadata) for each in offsets)
