"""Offsets that are committed within transactions: they count when the marker of their producer says so.

They are kept by producer, because a marker ends all that its producer has pending, and by group, because readers ask
whether a partition's offset may still change.
"""

from collections.abc import Iterable, Mapping

import msgspec

from skidway.groups.bounds import OFFSET_BYTES
from skidway.groups.committed import CommittedOffset, Partition


class PendingOfGroup(msgspec.Struct):
    producers: dict[Partition, set[int]] = msgspec.field(default_factory=dict)
    """Who has something pending, for each partition."""
    bytes: int = 0


class PendingOffsets(msgspec.Struct):
    by_producer: dict[int, dict[str, dict[Partition, CommittedOffset]]] = msgspec.field(default_factory=dict)
    by_group: dict[str, PendingOfGroup] = msgspec.field(default_factory=dict)
    counts: dict[int, int] = msgspec.field(default_factory=dict)
    """How many each producer has."""
    bytes: int = 0
    """Of memory; an estimate."""

    def add(self, producer_id: int, group_id: str, partition: Partition, committed: CommittedOffset) -> None:
        group = self.by_group.setdefault(group_id, PendingOfGroup())
        offsets = self.by_producer.setdefault(producer_id, {}).setdefault(group_id, {})
        before = offsets.get(partition)
        self._grow(group, len(committed.metadata) + (OFFSET_BYTES if before is None else -len(before.metadata)))
        if before is None:
            self.counts[producer_id] = self.counts.get(producer_id, 0) + 1
        offsets[partition] = committed
        group.producers.setdefault(partition, set()).add(producer_id)

    def take(self, producer_id: int) -> dict[str, dict[Partition, CommittedOffset]]:
        """The producer's transaction has ended: what it had pending, which is so no more."""
        taken = self.by_producer.pop(producer_id, {})
        for group_id, offsets in taken.items():
            for partition, committed in offsets.items():
                self._close(group_id, partition, producer_id, committed)
        return taken

    def forget(self, group_id: str, partition: Partition) -> None:
        """Of every producer: the offset was deleted."""
        for producer_id in sorted(self.producers(group_id, partition)):
            groups = self.by_producer[producer_id]
            self._close(group_id, partition, producer_id, groups[group_id].pop(partition))
            if not groups[group_id]:
                del groups[group_id]
            if not groups:
                del self.by_producer[producer_id]

    def producers(self, group_id: str, partition: Partition) -> Iterable[int]:
        group = self.by_group.get(group_id)
        return () if group is None else group.producers.get(partition, ())

    def has(self, group_id: str, partition: Partition) -> bool:
        group = self.by_group.get(group_id)
        return group is not None and partition in group.producers

    def partitions(self, group_id: str) -> Iterable[Partition]:
        group = self.by_group.get(group_id)
        return () if group is None else group.producers

    def last_order(self, group_id: str, partition: Partition) -> int:
        """Of the latest record that is pending here; 0 if none is."""
        return max(
            (self.by_producer[each][group_id][partition].order for each in self.producers(group_id, partition)),
            default=0,
        )

    def growth(self, producer_id: int, group_id: str, metadata_bytes: Mapping[Partition, int]) -> tuple[int, int]:
        """Offsets and bytes in addition, at most, when offsets with so much metadata are pending as well."""
        known = self.by_producer.get(producer_id, {}).get(group_id, {})
        count = growth = 0
        for partition, size in metadata_bytes.items():
            before = known.get(partition)
            if before is None:
                count += 1
                growth += OFFSET_BYTES + size
            else:
                growth += max(0, size - len(before.metadata))
        return count, growth

    def bytes_of(self, group_id: str) -> int:
        group = self.by_group.get(group_id)
        return 0 if group is None else group.bytes

    def copy_of(self, group_id: str) -> "PendingOffsets":
        """Which partitions of one group have something pending now, and no more."""
        return PendingOffsets(by_group={group_id: PendingOfGroup({each: set() for each in self.partitions(group_id)})})

    def _grow(self, group: PendingOfGroup, size: int) -> None:
        group.bytes += size
        self.bytes += size

    def _close(self, group_id: str, partition: Partition, producer_id: int, committed: CommittedOffset) -> None:
        group = self.by_group[group_id]
        self._grow(group, -OFFSET_BYTES - len(committed.metadata))
        producers = group.producers[partition]
        producers.remove(producer_id)
        self.counts[producer_id] -= 1
        if not self.counts[producer_id]:
            del self.counts[producer_id]
        if not producers:
            del group.producers[partition]
        if not group.producers:
            del self.by_group[group_id]
