"""What is forgotten by age: offsets that were retained long enough, and empty groups without offsets.

An open transaction stops that (KAFKA-19163): its offsets may count at any moment, for the group they were committed to.
An offset in `__transaction_state` is the number of the last batch that a Spark query has committed. Such a mark stays
for a year at least: without it a query that was at rest for a week could not tell whether its next batch is written.
"""

from collections.abc import Mapping

from skidway.groups.committed import CommittedOffset, Partition
from skidway.groups.kinds import Group
from skidway.groups.offsets import Offsets
from skidway.groups.operations import GroupType
from skidway.groups.records import GroupRecord

MARKED_TOPIC = "__transaction_state"
MARK_RETENTION_MS = 365 * 24 * 3_600_000
EXPIRED_RECORDS_PER_TICK_MAX = 1_000
"""A decision is one batch; what more has expired waits for the next tick, which is at once."""


def expired(
    groups: Mapping[str, Group], offsets: Offsets, retention_ms: int, wall_ms: int
) -> tuple[list[GroupRecord], bool]:
    """The tombstones, and whether there may be more."""
    records: list[GroupRecord] = []
    for group in groups.values():
        gone = _expired_offsets(group, offsets, retention_ms, wall_ms)
        records += offsets.tombstones(group.group_id, gone)
        if len(gone) == len(offsets.of(group.group_id)) and _may_expire(group, offsets):
            records += group.tombstones()
        if len(records) >= EXPIRED_RECORDS_PER_TICK_MAX:
            return records, True
    return records, False


def _may_expire(group: Group, offsets: Offsets) -> bool:
    if group.type == GroupType.SHARE:
        return False  # its states would stay behind
    return group.is_empty and group.deadline_ms is None and group.group_id not in offsets.pending.by_group


def _expired_offsets(group: Group, offsets: Offsets, retention_ms: int, wall_ms: int) -> list[Partition]:
    gone = []
    for partition, committed in offsets.of(group.group_id).items():
        since_ms = group.retained_since_ms(committed)
        if since_ms is None or offsets.pending.has(group.group_id, partition):
            continue
        at_least_ms = MARK_RETENTION_MS if partition[0] == MARKED_TOPIC else 0
        if not _has_expired(committed, since_ms, max(retention_ms, at_least_ms), wall_ms):
            continue
        # Last, because it is dear: every member of the group is asked.
        if not group.is_subscribed(partition[0]):
            gone.append(partition)
    return gone


def _has_expired(committed: CommittedOffset, retained_since_ms: int, retention_ms: int, wall_ms: int) -> bool:
    if committed.expire_ms != -1:
        return wall_ms >= committed.expire_ms
    return wall_ms - retained_since_ms >= retention_ms
