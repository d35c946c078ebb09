"""Calls that wait for something to happen in partitions, whoever made them."""

from __future__ import annotations

from typing import Protocol

from skidway.broker.partitions.partition import Partition
from skidway.errors import ProtocolError
from skidway.runtime.parking import BytesParking, OffsetParking
from skidway.runtime.timers import Timers


class ShareWaits(Protocol):
    """Fetches of share groups, which wait for more than bytes."""

    def on_moved(self, partition: Partition) -> None:
        """More of it can be read."""
        ...

    def on_start_moved(self, partition: Partition) -> None:
        """Its log begins later than it did."""
        ...

    def on_disturbed(self, partition: Partition) -> None:
        """It has another leader, is gone, or this node stops."""
        ...


class NoShareWaits:
    __slots__ = ()

    def on_moved(self, partition: Partition) -> None:
        pass

    def on_start_moved(self, partition: Partition) -> None:
        pass

    def on_disturbed(self, partition: Partition) -> None:
        pass


class Waiting:
    __slots__ = ("acknowledgements", "deletions", "polls", "questioned_bytes", "shares", "stable_polls")

    def __init__(self, timers: Timers) -> None:
        self.acknowledgements: OffsetParking[Partition] = OffsetParking(timers)
        """Until what they appended is committed."""
        self.deletions: OffsetParking[Partition] = OffsetParking(timers)
        """Until all replicas have forgotten what they deleted."""
        self.polls: BytesParking[Partition] = BytesParking(timers)
        """Until there is enough to read."""
        self.stable_polls: BytesParking[Partition] = BytesParking(timers)
        """The same of those who read no open transactions."""
        self.shares: ShareWaits = NoShareWaits()
        self.questioned_bytes = 0
        """Of requests that wait for their transaction's coordinator, with batches or offsets."""

    def refuse(self, partition: Partition, why: ProtocolError) -> None:
        """What they asked for will not come about here. Readers may still wait."""
        self.acknowledgements.fail(partition, why)
        self.deletions.fail(partition, why)

    def wake_polls(self, partition: Partition, added_bytes: int, stable_bytes: int) -> None:
        """So many more bytes are committed, and so many of them stable."""
        self.polls.wake(partition, added_bytes)
        if stable_bytes:
            self.stable_polls.wake(partition, stable_bytes)
        self.shares.on_moved(partition)

    def disturb_polls(self, partition: Partition) -> None:
        self.polls.disturb(partition)
        self.stable_polls.disturb(partition)
        self.shares.on_disturbed(partition)

    def look_at_deletions(self) -> None:
        """The low watermark of any partition may have risen."""
        for partition in self.deletions.keys:
            self.deletions.wake(partition, partition.low_watermark)
