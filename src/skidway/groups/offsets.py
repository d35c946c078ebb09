"""Committed offsets: what is kept, and the decisions about it that do not depend on the group's protocol.

An offset lives until it is deleted, its topic or group is, or it was retained long enough: since its commit, or since
the group became empty; as long as a member subscribes to its topic it does not expire. A topic that was deleted and
made again under its name is another topic: what was committed for the first is not an offset of the second.

What is committed within a transaction is pending until the marker of its producer comes (`groups.pending`). Deleting an
offset deletes what is pending for it as well, and nothing expires where something is pending. Which of two records is
later is a matter of their order in the log, not of the time in them.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from skidway.errors import ErrorCode, InvalidCommitOffsetSize
from skidway.groups.bounds import OFFSET_BYTES
from skidway.groups.committed import CommittedOffset, Partition
from skidway.groups.operations import (
    CommitOffsets,
    CommitOffsetsInTransaction,
    FetchedOffset,
    FetchOffsets,
    OffsetToCommit,
    PreparedCommit,
)
from skidway.groups.pending import PendingOffsets
from skidway.groups.records import GroupRecord, encode
from skidway.limits import INT64_MAX
from skidway.records.batch import HEADER_BYTES
from skidway.runtime.log_store import Producer
from skidway.runtime.replicated import Operation
from skidway.steps import Steps
from skidway.wire.message import ZERO_UUID
from skidway.wire.schema.group_records import OffsetCommitKey, OffsetCommitValue

TopicId = Callable[[str], bytes | None]
RECORD_BYTES = 16
"""Of a record in a batch beside its key and value, at most: lengths, deltas, attributes."""


Doomed = tuple[str, Partition, int]
"""An offset that is to be forgotten: its group, its partition and the last record that may be so."""


@dataclass(slots=True)
class Offsets:
    by_group: dict[str, dict[Partition, CommittedOffset]] = field(default_factory=dict)
    pending: PendingOffsets = field(default_factory=PendingOffsets)
    """Of open transactions."""
    committed_bytes: int = 0
    applied: int = field(default=0, compare=False)
    """How many records of offsets there were so far. A log that was compacted has fewer of them, in the same order."""

    @property
    def bytes(self) -> int:
        """Of memory; an estimate."""
        return self.committed_bytes + self.pending.bytes

    def apply(self, key: OffsetCommitKey, value: OffsetCommitValue | None, producer: Producer | None = None) -> None:
        partition = (key.topic, key.partition)
        self.applied += 1
        if value is not None:
            committed = CommittedOffset(
                value.offset,
                value.leader_epoch,
                value.metadata,
                value.commit_timestamp,
                value.expire_timestamp,
                value.topic_id,
                self.applied,
            )
            if producer is None:
                self._keep(key.group, partition, committed)
            else:
                self.pending.add(producer.id, key.group, partition, committed)
            return
        self.pending.forget(key.group, partition)
        known = self.by_group.get(key.group)
        if known is None:
            return
        gone = known.pop(partition, None)
        if gone is not None:
            self.committed_bytes -= OFFSET_BYTES + len(gone.metadata)
        if not known:
            del self.by_group[key.group]

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """A marker: what the producer has pending counts from now on, or never. It does not take the place of an offset
        of a later record: somebody has moved the group since, whatever the transaction came to."""
        for group_id, pending in self.pending.take(producer_id).items():
            known = self.of(group_id)
            for partition, offset in pending.items() if committed else ():
                before = known.get(partition)
                if before is None or before.order < offset.order:
                    self._keep(group_id, partition, offset)

    def _keep(self, group_id: str, partition: Partition, committed: CommittedOffset) -> None:
        offsets = self.by_group.setdefault(group_id, {})
        before = offsets.get(partition)
        self.committed_bytes += len(committed.metadata) + (OFFSET_BYTES if before is None else -len(before.metadata))
        offsets[partition] = committed

    def of(self, group_id: str) -> dict[Partition, CommittedOffset]:
        return self.by_group.get(group_id, {})

    def growth(self, group_id: str, commits: Mapping[Partition, OffsetToCommit]) -> int:
        """Bytes in addition, at most, when these are committed. Nothing for an offset that only moves on."""
        known = self.of(group_id)
        growth = 0
        for partition, commit in commits.items():
            before = known.get(partition)
            if before is None:
                growth += OFFSET_BYTES + len(commit.metadata)
            elif len(commit.metadata) > len(before.metadata):
                growth += len(commit.metadata) - len(before.metadata)
        return growth

    def pending_growth(
        self, asked: CommitOffsetsInTransaction, commits: Mapping[Partition, OffsetToCommit]
    ) -> tuple[int, int]:
        """Offsets and bytes in addition, at most, when these are pending as well."""
        sizes = {partition: len(commit.metadata) for partition, commit in commits.items()}
        return self.pending.growth(asked.producer.id, asked.group_id, sizes)

    def copy_of(self, group_id: str) -> "Offsets":
        """Those of one group, as they are now. What was committed is replaced, never changed, so this is cheap."""
        return Offsets({group_id: self.of(group_id).copy()}, self.pending.copy_of(group_id))

    def fetch(self, operation: FetchOffsets, topic_id: TopicId) -> list[FetchedOffset]:
        fetched = list(self.fetch_each(operation, topic_id))
        if operation.partitions is None:
            fetched.sort(key=lambda each: (each.topic, each.partition))
        return fetched

    def fetch_each(self, operation: FetchOffsets, topic_id: TopicId) -> Iterator[FetchedOffset]:
        """One by one, for a copy, which does not change meanwhile; all of the group's in no order."""
        offsets = self.of(operation.group_id)
        if operation.partitions is not None:
            for each in operation.partitions:
                yield self._fetched(operation, offsets.get(each), each, topic_id)
            return
        for each, committed in offsets.items():
            fetched = self._fetched(operation, committed, each, topic_id)
            if fetched.offset != -1 or fetched.error:
                yield fetched
        if operation.require_stable:
            for each in self.pending.partitions(operation.group_id):
                if each not in offsets:
                    yield self._fetched(operation, None, each, topic_id)

    def _fetched(
        self, operation: FetchOffsets, found: CommittedOffset | None, partition: Partition, topic_id: TopicId
    ) -> FetchedOffset:
        if operation.require_stable and self.pending.has(operation.group_id, partition):
            return FetchedOffset(*partition, error=ErrorCode.UNSTABLE_OFFSET_COMMIT)
        if found is None or not _same_topic(found.topic_id, topic_id(partition[0])):
            return FetchedOffset(*partition)
        return FetchedOffset(*partition, found.offset, found.leader_epoch, found.metadata)

    def tombstones(self, group_id: str, partitions: Iterable[Partition] | None = None) -> list[GroupRecord]:
        """For all of the group's offsets, or for those of the partitions that have one, pending or not."""
        offsets = self.of(group_id)
        if partitions is None:
            gone = list(dict.fromkeys([*offsets, *self.pending.partitions(group_id)]))
        else:
            asked = dict.fromkeys(partitions)
            gone = [each for each in asked if each in offsets or self.pending.has(group_id, each)]
        return [_tombstone(group_id, partition) for partition in gone]

    def of_topics(self, topics: Iterable[str]) -> list[Doomed]:
        names = set(topics)
        return [
            (group_id, partition, self.applied)
            for group_id in dict.fromkeys([*self.by_group, *self.pending.by_group])
            for partition in dict.fromkeys([*self.of(group_id), *self.pending.partitions(group_id)])
            if partition[0] in names
        ]

    def tombstones_of(self, doomed: Iterable[Doomed]) -> list[GroupRecord]:
        """For those that were not committed anew meanwhile: a topic may come back under its name."""
        return [
            _tombstone(group_id, partition)
            for group_id, partition, last in doomed
            if 0 < self._last_order(group_id, partition) <= last
        ]

    def _last_order(self, group_id: str, partition: Partition) -> int:
        """Of the latest record here, pending or not; 0 where there is nothing."""
        committed = self.of(group_id).get(partition)
        return max(0 if committed is None else committed.order, self.pending.last_order(group_id, partition))


class CopyOffsets(Operation[Offsets]):
    """The group's offsets as they are now, for a fetch of so many that it is answered in steps: the copy stays as it
    is while commits go on. The same refusals as for the fetch."""

    asked: FetchOffsets


def _same_topic(committed: bytes, current: bytes | None) -> bool:
    return committed in (ZERO_UUID, current) or current is None


def prepare(
    operation: CommitOffsets | CommitOffsetsInTransaction,
    metadata_bytes_max: int,
    wall_ms: int,
    topic_id: TopicId,
    bytes_max: int = INT64_MAX,
) -> Steps[PreparedCommit]:
    """What is to be committed, and a code for each offset in the request. The last word on a partition counts, however
    often the request speaks of it. Refused if it is more than the group's partition takes at once."""
    commits: dict[Partition, OffsetToCommit] = {}
    codes: list[ErrorCode] = []
    for each in operation.offsets:
        if codes:
            yield None
        if len(each.metadata) > metadata_bytes_max:
            codes.append(ErrorCode.OFFSET_METADATA_TOO_LARGE)
        else:
            codes.append(ErrorCode.NONE)
            commits[each.topic, each.partition] = each
    expire_ms, producer = -1, None
    if isinstance(operation, CommitOffsetsInTransaction):
        producer = operation.producer
    elif operation.retention_ms != -1:
        expire_ms = min(wall_ms + operation.retention_ms, INT64_MAX)
    prepared = PreparedCommit(operation, commits, codes, [], HEADER_BYTES)
    for each in commits.values():
        if prepared.records:
            yield None
        record = _commit_record(operation.group_id, each, wall_ms, expire_ms, topic_id(each.topic))
        record.producer = producer
        key, value = record.encoded = encode(record)
        prepared.records.append(record)
        prepared.bytes += RECORD_BYTES + len(key) + len(value or b"")
    if prepared.bytes > bytes_max:
        raise InvalidCommitOffsetSize(f"{prepared.bytes} bytes where the group's partition allows {bytes_max}")
    return prepared


def _commit_record(
    group_id: str, commit: OffsetToCommit, wall_ms: int, expire_ms: int, topic_id: bytes | None
) -> GroupRecord:
    value = OffsetCommitValue(commit.offset, commit.leader_epoch, commit.metadata, wall_ms, expire_ms)
    if expire_ms != -1:
        # The version that can say so has no room for the epoch and the topic, so the memory must not have them either.
        value.leader_epoch = -1
    elif topic_id is not None:
        value.topic_id = topic_id
    return GroupRecord(OffsetCommitKey(group_id, commit.topic, commit.partition), value)


def _tombstone(group_id: str, partition: Partition) -> GroupRecord:
    return GroupRecord(OffsetCommitKey(group_id, *partition), None)
