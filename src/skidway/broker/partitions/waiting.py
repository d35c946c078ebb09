"""Calls that wait for something to happen in partitions, whoever made them."""

from __future__ import annotations

from skidway.broker.partitions.partition import Partition
from skidway.errors import ProtocolError
from skidway.runtime.parking import BytesParking, OffsetParking
from skidway.runtime.timers import Timers


class Waiting:
    __slots__ = ("acknowledgements", "deletions", "polls", "questioned_bytes", "stable_polls")

    def __init__(self, timers: Timers) -> None:
        self.acknowledgements: OffsetParking[Partition] = OffsetParking(timers)
        """Until what they appended is committed."""
        self.deletions: OffsetParking[Partition] = OffsetParking(timers)
        """Until all replicas have forgotten what they deleted."""
        self.polls: BytesParking[Partition] = BytesParking(timers)
        """Until there is enough to read."""
        self.stable_polls: BytesParking[Partition] = BytesParking(timers)
        """The same of those who read no open transactions."""
        self.questioned_bytes = 0
        """Of requests that wait for their transaction's coordinator, with batches or offsets."""

    def refuse(self, partition: Partition, why: ProtocolError) -> None:
        """What they asked for will not come about here. Readers may still wait."""
        self.acknowledgements.fail(partition, why)
        self.deletions.fail(partition, why)

    def wake(self, partition: Partition, added_bytes: int, stable_bytes: int) -> None:
        """So much more is committed, so much more is stable."""
        self.acknowledgements.wake(partition, partition.log.high_watermark)
        self.polls.wake(partition, added_bytes)
        if stable_bytes:
            self.stable_polls.wake(partition, stable_bytes)

    def disturb_polls(self, partition: Partition) -> None:
        self.polls.disturb(partition)
        self.stable_polls.disturb(partition)

    def look_at_deletions(self) -> None:
        """The low watermark of any partition may have risen."""
        for partition in self.deletions.keys:
            self.deletions.wake(partition, partition.low_watermark)
