"""What groups are said to take is what their members and offsets take, one by one."""

from skidway.groups.bounds import OFFSET_BYTES
from skidway.groups.classic.group import ClassicGroup
from skidway.groups.classic.offers import offered_bytes
from skidway.groups.consumer.group import ConsumerGroup, bytes_of_member
from skidway.groups.coordinator import GroupCoordinator


def check_weights(coordinator: GroupCoordinator) -> None:
    for group in coordinator.groups.values():
        if isinstance(group, ConsumerGroup):
            assert group.member_bytes == sum(bytes_of_member(member) for member in group.members.values())
        else:
            assert isinstance(group, ClassicGroup)
            current, offers = group.live.current, group.live.offers
            assert current.member_bytes == sum(member.bytes for member in current.members.values())
            assert offers.bytes == sum(map(offered_bytes, offers.by_member.values()))
    assert coordinator.group_bytes == sum(group.bytes for group in coordinator.groups.values())
    offsets = [each for group in coordinator.offsets.by_group.values() for each in group.values()]
    assert coordinator.offsets.bytes == sum(OFFSET_BYTES + len(each.metadata) for each in offsets)
