"""The assignor of share groups, `simple`: who reads which partitions.

Members share partitions where there are more members than partitions, so everybody has something to do. All have the
same number of partitions, and all partitions the same number of members, give or take one; what somebody had before
stays, as far as that allows. Where members subscribe to different topics, that holds topic by topic.
"""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from skidway.groups.consumer.reconciliation import Partition, Partitions


class Subscriber(Struct):
    topics: frozenset[bytes]
    """Ids of topics that exist."""
    current: Partitions


def assign_simple(members: Mapping[str, Subscriber], partitions: Iterable[Partition]) -> dict[str, Partitions]:
    wanted = sorted(partitions)
    assigned: dict[str, set[Partition]] = {member_id: set() for member_id in sorted(members)}
    if len({member.topics for member in members.values()}) <= 1:
        parts = [wanted]
    else:
        topics = sorted({topic_id for topic_id, _ in wanted})
        parts = [[each for each in wanted if each[0] == topic_id] for topic_id in topics]
    for part in parts:
        topic_ids = {topic_id for topic_id, _ in part}
        row = [member_id for member_id in assigned if topic_ids <= members[member_id].topics]
        current = {member_id: members[member_id].current for member_id in row}
        if part and row:
            share = _many_partitions if len(part) >= len(row) else _many_members
            for partition, member_id in share(row, part, current):
                assigned[member_id].add(partition)
    return {member_id: frozenset(taken) for member_id, taken in assigned.items()}


def _many_partitions(
    row: list[str], part: list[Partition], current: Mapping[str, Partitions]
) -> list[tuple[Partition, str]]:
    """Each partition has one member."""
    quota, extra = divmod(len(part), len(row))
    known, holder = frozenset(part), dict[Partition, str]()
    counts = dict.fromkeys(row, 0)
    for member_id in row:
        for partition in sorted(current[member_id] & known):
            has_room = counts[member_id] < quota or (counts[member_id] == quota and extra > 0)
            if partition not in holder and has_room:
                extra -= counts[member_id] == quota
                counts[member_id] += 1
                holder[partition] = member_id
    needy = [member_id for member_id in row for _ in range(quota - counts[member_id])]
    needy += [member_id for member_id in row if counts[member_id] <= quota][:extra]
    left = (partition for partition in part if partition not in holder)
    return [*holder.items(), *zip(left, needy, strict=True)]


def _many_members(
    row: list[str], part: list[Partition], current: Mapping[str, Partitions]
) -> list[tuple[Partition, str]]:
    """Each member has one partition."""
    quota, extra = divmod(len(row), len(part))
    known, kept = frozenset(part), dict[str, Partition]()
    counts = dict.fromkeys(part, 0)
    for member_id in row:
        for partition in sorted(current[member_id] & known):
            if counts[partition] < quota or (counts[partition] == quota and extra > 0):
                extra -= counts[partition] == quota
                counts[partition] += 1
                kept[member_id] = partition
                break
    free = [partition for partition in part for _ in range(quota - counts[partition])]
    free += [partition for partition in part if counts[partition] <= quota][:extra]
    left = (member_id for member_id in row if member_id not in kept)
    pairs = [(partition, member_id) for member_id, partition in kept.items()]
    return [*pairs, *zip(free, left, strict=True)]
