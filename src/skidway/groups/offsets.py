"""Committed offsets: what is kept, and the decisions about it that do not depend on the group's protocol.

An offset lives until it is deleted, its topic or group is, or it was retained long enough: since its commit, or since
the group became empty; as long as a member subscribes to its topic it does not expire.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from skidway.errors import ErrorCode
from skidway.groups.operations import CommitOffsets, FetchedOffset, FetchOffsets, OffsetToCommit
from skidway.groups.records import GroupRecord
from skidway.wire.schema.group_records import OffsetCommitKey, OffsetCommitValue

Partition = tuple[str, int]


@dataclass(slots=True)
class CommittedOffset:
    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    """Wall time."""
    expire_ms: int = -1
    """Wall time, asked for by an old client; -1 for the coordinator's own retention."""


@dataclass(slots=True)
class Offsets:
    by_group: dict[str, dict[Partition, CommittedOffset]] = field(default_factory=dict)

    def apply(self, key: OffsetCommitKey, value: OffsetCommitValue | None) -> None:
        partition = (key.topic, key.partition)
        if value is not None:
            committed = CommittedOffset(
                value.offset, value.leader_epoch, value.metadata, value.commit_timestamp, value.expire_timestamp
            )
            self.by_group.setdefault(key.group, {})[partition] = committed
            return
        offsets = self.by_group.get(key.group)
        if offsets is None:
            return
        offsets.pop(partition, None)
        if not offsets:
            del self.by_group[key.group]

    def of(self, group_id: str) -> dict[Partition, CommittedOffset]:
        return self.by_group.get(group_id, {})

    def pending(self, group_id: str, partition: Partition) -> bool:
        """Whether an open transaction has committed an offset here. There are no transactions yet."""
        return False

    def fetch(self, operation: FetchOffsets) -> list[FetchedOffset]:
        offsets = self.of(operation.group_id)
        asked = sorted(offsets) if operation.partitions is None else operation.partitions
        return [self._fetched(operation, offsets, partition) for partition in asked]

    def _fetched(
        self, operation: FetchOffsets, offsets: dict[Partition, CommittedOffset], partition: Partition
    ) -> FetchedOffset:
        if operation.require_stable and self.pending(operation.group_id, partition):
            return FetchedOffset(*partition, error=ErrorCode.UNSTABLE_OFFSET_COMMIT)
        found = offsets.get(partition)
        if found is None:
            return FetchedOffset(*partition)
        return FetchedOffset(*partition, found.offset, found.leader_epoch, found.metadata)

    def tombstones(self, group_id: str, partitions: Iterable[Partition] | None = None) -> list[GroupRecord]:
        """For all of the group's offsets, or for those of the partitions that have one."""
        offsets = self.of(group_id)
        gone = offsets if partitions is None else [each for each in dict.fromkeys(partitions) if each in offsets]
        return [_tombstone(group_id, partition) for partition in gone]

    def tombstones_of_topics(self, topics: Iterable[str]) -> list[GroupRecord]:
        names = set(topics)
        return [
            _tombstone(group_id, partition)
            for group_id, offsets in self.by_group.items()
            for partition in offsets
            if partition[0] in names
        ]


def commit_records(
    operation: CommitOffsets, metadata_bytes_max: int, wall_ms: int
) -> tuple[list[GroupRecord], list[ErrorCode]]:
    expire_ms = -1 if operation.retention_ms == -1 else wall_ms + operation.retention_ms
    records, codes = [], []
    for each in operation.offsets:
        if len(each.metadata) > metadata_bytes_max:
            codes.append(ErrorCode.OFFSET_METADATA_TOO_LARGE)
            continue
        codes.append(ErrorCode.NONE)
        records.append(_commit_record(operation.group_id, each, wall_ms, expire_ms))
    return records, codes


def _commit_record(group_id: str, commit: OffsetToCommit, wall_ms: int, expire_ms: int) -> GroupRecord:
    return GroupRecord(
        OffsetCommitKey(group_id, commit.topic, commit.partition),
        # The version with an expiry has no room for the epoch, so the memory must not have it either.
        OffsetCommitValue(
            commit.offset, -1 if expire_ms != -1 else commit.leader_epoch, commit.metadata, wall_ms, expire_ms
        ),
    )


def _tombstone(group_id: str, partition: Partition) -> GroupRecord:
    return GroupRecord(OffsetCommitKey(group_id, *partition), None)


def has_expired(committed: CommittedOffset, retained_since_ms: int, retention_ms: int, wall_ms: int) -> bool:
    if committed.expire_ms != -1:
        return wall_ms >= committed.expire_ms
    return wall_ms - retained_since_ms >= retention_ms
