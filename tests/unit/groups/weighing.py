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
    pending = coordinator.offsets.pending
    waiting = [
        (group_id, partition, producer_id, each)
        for producer_id, groups in pending.by_producer.items()
        for group_id, group in groups.items()
        for partition, each in group.items()
    ]
    offsets += [each for *_, each in waiting]
    assert coordinator.offsets.bytes == sum(OFFSET_BYTES + len(each.metadata) for each in offsets)
    for group_id, of_group in pending.by_group.items():
        mine = [each for name, *_, each in waiting if name == group_id]
        assert of_group.bytes == sum(OFFSET_BYTES + len(each.metadata) for each in mine)
    open_here = {
        (group_id, partition, producer_id)
        for group_id, of_group in pending.by_group.items()
        for partition, producers in of_group.producers.items()
        for producer_id in producers
    }
    assert open_here == {(group_id, partition, producer_id) for group_id, partition, producer_id, _ in waiting}
    assert all(of_group.producers and all(of_group.producers.values()) for of_group in pending.by_group.values())
    assert all(groups and all(groups.values()) for groups in pending.by_producer.values())
    assert pending.counts == {
        producer_id: sum(map(len, groups.values())) for producer_id, groups in pending.by_producer.items()
    }
