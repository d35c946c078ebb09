"""What a node does now and then: retention, checkpoints, and removing what was deleted.

A checkpoint bounds what a crash leaves to scan. Everything that touches files for long leaves as tickets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from skidway.errors import StorageError
from skidway.log.logs import FilesTicket
from skidway.log.sync import SyncTicket
from skidway.quorum.snapshots import SnapshotTicket

if TYPE_CHECKING:
    from skidway.broker.node import Node
    from skidway.broker.partition import Partition
    from skidway.broker.quorum_host import QuorumHost

LEAP_MS = 60_000
"""By so much a clock is ahead of itself when it was set, or the machine was asleep."""


class Upkeep:
    def __init__(self, node: Node) -> None:
        self.node = node
        self._looked_ms = self._looked_wall_ms = 0
        """When producers were last looked through, by both clocks."""
        self._retention_due_ms = 0
        self._checkpoint_due_ms = 0
        self._tickets: list[tuple[Partition | QuorumHost | Upkeep, SyncTicket | FilesTicket | SnapshotTicket]] = []
        self._saving: FilesTicket | None = None
        self._save_again = False
        """Something changed while the files were being written."""

    def __repr__(self) -> str:
        return "the offset checkpoints"

    def start(self, now_ms: int) -> None:
        self._retention_due_ms = now_ms + self.node.settings.retention_check_ms
        self._checkpoint_due_ms = now_ms + self.node.settings.checkpoint_ms
        self._looked_ms, self._looked_wall_ms = now_ms, self.node.clock.wall_ms()

    def run(self, now_ms: int, wall_ms: int) -> None:
        node = self.node
        if node.failure is not None:
            return
        if now_ms >= self._retention_due_ms:
            self._retention_due_ms = now_ms + node.settings.retention_check_ms
            self._apply_retention(now_ms, wall_ms)
        if now_ms >= self._checkpoint_due_ms:
            self._checkpoint_due_ms = now_ms + node.settings.checkpoint_ms
            self._checkpoint()
        if (ticket := node.quorum.begin_snapshot(wall_ms)) is not None:
            self._tickets.append((node.quorum, ticket))
        self.save_offsets(wall_ms)

    def save_offsets(self, wall_ms: int) -> None:
        """The files that speak about all logs, and the directories of deleted ones."""
        if self._saving is not None:
            self._save_again = True
        elif (ticket := self.node.logs.begin_save(wall_ms)) is not None:
            self._saving = ticket
            self._tickets.append((self, ticket))

    def on_saved(self, error: OSError | None) -> None:
        assert self._saving is not None
        self.node.logs.finish_save(self._saving)
        self._saving = None
        save_again, self._save_again = self._save_again, False
        self.node.hosting.retry(self.node.clock.wall_ms())
        if error is not None:
            # The files of the last time are still whole, and good enough: more is scanned after a crash.
            self.node.on_trouble(f"offset checkpoints could not be saved, tried again later: {error}")
        elif save_again:
            self.save_offsets(self.node.clock.wall_ms())
            self.node.on_work()

    def take_tickets(self) -> list[tuple[Partition | QuorumHost | Upkeep, SyncTicket | FilesTicket | SnapshotTicket]]:
        tickets, self._tickets = self._tickets, []
        return tickets

    def _apply_retention(self, now_ms: int, wall_ms: int) -> None:
        node = self.node
        node.hosting.retry(wall_ms)
        waited_ms = now_ms - self._looked_ms
        leap_ms = wall_ms - self._looked_wall_ms - waited_ms
        self._looked_ms, self._looked_wall_ms = now_ms, wall_ms
        for partition in node.partitions:
            log = partition.log
            if leap_ms > LEAP_MS:
                log.producers.bear_leap(leap_ms, wall_ms - waited_ms)
            log.producers.expire(wall_ms)
            try:
                removed = log.apply_retention(wall_ms)
            except StorageError as error:
                node.on_trouble(f"{partition}: retention could not be applied: {error}")
                continue
            log.delete_scheduled(wall_ms)
            if removed:
                node.on_event(f"{partition}: {len(removed)} segment(s) removed, begins at {log.start_offset} now")
            if log.dirty:
                node.turn.wants_sync(partition)

    def _checkpoint(self) -> None:
        for partition in [self.node.quorum, *self.node.partitions]:
            ticket = partition.begin_checkpoint()
            if ticket is not None:
                self._tickets.append((partition, ticket))
