"""What one turn of the event loop leaves to be done at its end.

Partitions note here that they want a sync, that their high watermark moved or that followers have more to fetch. The
shell calls the node once at the end of the turn, so one sync covers everything that was appended in it, and a long poll
is answered once for all of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from skidway.broker.partition import Partition
    from skidway.broker.quorum_host import QuorumHost

    Hosted: TypeAlias = Partition | QuorumHost


class Turn:
    __slots__ = ("grown", "moved", "on_work", "unsynced")

    def __init__(self, on_work: Callable[[], None]) -> None:
        """`on_work` is called when a turn has something to be done at its end."""
        # Dicts as ordered sets: the order of a real set would differ from run to run.
        self.unsynced: dict[Hosted, None] = {}
        self.moved: dict[Hosted, int] = {}
        """With the bytes that can be read in addition since the turn began."""
        self.grown: dict[Partition, int] = {}
        """With the bytes appended, committed or not: what followers wait for."""
        self.on_work = on_work

    def wants_sync(self, partition: Hosted) -> None:
        if not self.unsynced and not self.moved and not self.grown:
            self.on_work()
        self.unsynced[partition] = None

    def has_moved(self, partition: Hosted, added_bytes: int) -> None:
        if not self.unsynced and not self.moved and not self.grown:
            self.on_work()
        self.moved[partition] = self.moved.get(partition, 0) + added_bytes

    def has_grown(self, partition: Partition, added_bytes: int) -> None:
        if not self.unsynced and not self.moved and not self.grown:
            self.on_work()
        self.grown[partition] = self.grown.get(partition, 0) + added_bytes

    def take_unsynced(self) -> list[Hosted]:
        partitions = list(self.unsynced)
        self.unsynced.clear()
        return partitions

    def take_moved(self) -> list[tuple[Hosted, int]]:
        moved = list(self.moved.items())
        self.moved.clear()
        return moved

    def take_grown(self) -> list[tuple[Partition, int]]:
        grown = list(self.grown.items())
        self.grown.clear()
        return grown
