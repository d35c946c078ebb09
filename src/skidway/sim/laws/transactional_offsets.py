"""Offsets that are committed within transactions, followed record by record.

| law | meaning |
|---|---|
| pending-offsets | a coordinator has other offsets than its log says, or others that still wait for a marker |

Plain commits count at once. Those of a transaction count when its marker comes, unless a later record has moved the
offset since; those of an aborted one never do.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from skidway.groups.offsets import Offsets
from skidway.groups.records import decode
from skidway.records.batch import BatchHeader
from skidway.records.control import read_marker
from skidway.records.record import read_records
from skidway.sim.world.events import Violation
from skidway.wire.schema.group_records import OffsetCommitKey, OffsetCommitValue

RECORD_BYTES_MAX = 1 << 20
Where = tuple[str, str, int]
"""Group, topic and partition."""
At = tuple[int, int]
"""Where the record stands, and the offset that it tells."""


@dataclass(slots=True)
class OffsetReplay:
    """One partition of `__consumer_offsets`."""

    committed: dict[Where, At] = field(default_factory=dict)
    pending: dict[int, dict[Where, At]] = field(default_factory=dict)
    """By producer id."""

    def take(self, header: BatchHeader, batch: bytes) -> None:
        if header.is_control:
            marker = read_marker(batch)
            for where, at in self.pending.pop(header.producer_id, {}).items():
                if marker is not None and marker.committed and self.committed.get(where, (-1, -1)) < at:
                    self.committed[where] = at
            return
        for record in read_records(batch, decompressed_bytes_max=RECORD_BYTES_MAX):
            found = None if record.key is None else decode(record.key, record.value)
            if found is None or not isinstance(found.key, OffsetCommitKey):
                continue
            where = (found.key.group, found.key.topic, found.key.partition)
            if not isinstance(found.value, OffsetCommitValue):
                self.committed.pop(where, None)
                for of_producer in self.pending.values():
                    of_producer.pop(where, None)
            elif header.is_transactional:
                self.pending.setdefault(header.producer_id, {})[where] = (record.offset, found.value.offset)
            else:
                self.committed[where] = (record.offset, found.value.offset)

    def check(self, who: str, offsets: Offsets) -> None:
        """`offsets`: what a coordinator has made of the same records."""
        has = {
            (group, *partition): committed.offset
            for group, known in offsets.by_group.items()
            for partition, committed in known.items()
        }
        says = {where: offset for where, (_, offset) in self.committed.items()}
        if has != says:
            odd = sorted(set(has.items()) ^ set(says.items()))
            raise Violation("pending-offsets", f"{who} and its log differ in {odd}")
        pending = offsets.pending
        waits = sorted((group, *each) for group in pending.by_group for each in pending.partitions(group))
        told = sorted({where for of_producer in self.pending.values() for where in of_producer})
        if waits != told:
            raise Violation("pending-offsets", f"{who}: {waits} wait for a marker, its log says {told}")
