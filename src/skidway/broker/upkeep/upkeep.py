"""What a node does now and then: retention, checkpoints, and removing what was deleted.

A checkpoint bounds what a crash leaves to scan. Everything that touches files for long leaves as tickets.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from skidway.broker.cluster.quorum_host import QuorumHost
from skidway.broker.partitions.hosting import Hosting
from skidway.broker.partitions.partition import Partition
from skidway.broker.partitions.room import NO_ROOM
from skidway.broker.upkeep.news import (
    CheckpointNotSaved,
    FilesNotClosed,
    FilesNotRemoved,
    OffsetsNotSaved,
    RetentionFailed,
    SegmentsDeleted,
)
from skidway.broker.upkeep.syncs import Syncs
from skidway.broker.world import World
from skidway.errors import StorageError
from skidway.log import retention
from skidway.log.durability import starts
from skidway.log.durability.directory_work import FilesTicket, RemovalTicket
from skidway.log.logs import Logs
from skidway.quorum.snapshots import SnapshotTicket
from skidway.runtime.age_clock import LEAP_MS
from skidway.runtime.jobs import Job, Lane
from skidway.runtime.slices import for_a_while
from skidway.runtime.turn import TurnNotes

_OVER = object()
TURN_MS_MAX = 10
"""How long one turn may spend on partitions; thousands of them, or of their producers, take several turns."""
SPARE_MS = 200
"""While too many files are open, all logs are looked at so often for some that can be closed."""


class Upkeep:
    def __init__(
        self,
        world: World,
        turn: TurnNotes[Partition],
        logs: Logs,
        hosting: Hosting,
        quorum: QuorumHost,
        syncs: Syncs,
        fail: Callable[[str], None],
        on_start_moved: Callable[[Partition], None],
        on_starts_saved: Callable[[], None],
    ) -> None:
        """`fail` says that the data directory takes no more writes, `on_start_moved` that a log begins later,
        `on_starts_saved` that the files that say where logs begin were written."""
        self._world = world
        self._turn = turn
        self._logs = logs
        self._hosting = hosting
        self._quorum = quorum
        self._syncs = syncs
        self._fail = fail
        self._on_start_moved = on_start_moved
        self._on_starts_saved = on_starts_saved
        self._looked_ms = self._looked_wall_ms = 0
        """When producers were last looked through, by both clocks."""
        self._retention_due_ms = self._spare_due_ms = 0
        self._checkpoint_due_ms = 0
        self.passes: deque[Iterator[None]] = deque()
        """Looks at all partitions, one after another, that are not done."""
        self._saving = False
        self._save_again = False
        """Something changed while the files were being written."""

    def start(self, now_ms: int) -> None:
        self._retention_due_ms = now_ms + self._world.settings.retention_check_ms
        self._checkpoint_due_ms = now_ms + self._world.settings.checkpoint_ms
        self._looked_ms, self._looked_wall_ms = now_ms, self._world.clock.wall_ms()

    def run(self, now_ms: int, wall_ms: int) -> None:
        if self._world.failure is not None:
            return
        if now_ms >= self._retention_due_ms:
            self._retention_due_ms = now_ms + self._world.settings.retention_check_ms
            if not self.passes:
                self.passes.append(self._apply_retention(now_ms, wall_ms))
        if now_ms >= self._checkpoint_due_ms:
            self._checkpoint_due_ms = now_ms + self._world.settings.checkpoint_ms
            self.passes.append(self._checkpoint())
        if (ticket := self._quorum.begin_snapshot(self._hosting.image, wall_ms)) is not None:
            self._world.hand_out(Job(Lane.MAINTENANCE, ticket, self._on_snapshot))
        self.go_on()
        # First what makes room: on a full disk the rest may fail.
        if (removal := self._logs.directories.begin_removal(wall_ms)) is not None:
            self._world.hand_out(Job(Lane.MAINTENANCE, removal, self._on_removed))
        self.save_offsets()

    def save_offsets(self) -> None:
        """The files that speak about all logs."""
        if self._saving:
            self._save_again = True
        elif (ticket := self._logs.begin_save()) is not None:
            self._saving = True
            # A DeleteRecords may wait for it, and maintenance may be thousands of checkpoints.
            self._world.hand_out(Job(Lane.SYNC, ticket, self._on_saved))

    def on_stored(self, partition: Partition, *, start_awaited: bool) -> None:
        """Something of it was synced. A start is saved only when everything below it is synced, so there may be one to
        save now. If nobody waits for it (retention has moved it) the next save is early enough; a follower does not
        know whether a deletion waits at its leader."""
        if partition.removed:
            return
        if partition.log.synced_offset < partition.log.start_offset:
            self._turn.wants_sync(partition)
        if starts.is_unsaved(partition.log) and (start_awaited or not partition.leads):
            self.save_offsets()

    def _on_snapshot(self, ticket: SnapshotTicket, error: OSError | None, now_ms: int) -> None:
        if error is None or error.errno in NO_ROOM:
            self._quorum.finish_snapshot(ticket, error)
        else:
            self._fail(f"fsync of {self._quorum} failed: {error}")

    def _on_removed(self, ticket: RemovalTicket, error: OSError | None, now_ms: int) -> None:
        if error is not None:
            self._logs.directories.give_back_removal(ticket)
            self._world.report(FilesNotRemoved(str(error)))

    def _on_saved(self, ticket: FilesTicket, error: OSError | None, now_ms: int) -> None:
        if error is not None and error.errno not in NO_ROOM:
            self._fail(f"fsync of the offset checkpoints failed: {error}")
            return
        self._logs.finish_save(ticket)
        self._saving = False
        save_again, self._save_again = self._save_again, False
        self._hosting.retry(self._world.clock.wall_ms())
        if error is not None:
            # The files of the last time are still whole, and good enough: more is scanned after a crash.
            self._world.report(OffsetsNotSaved(str(error)))
            return
        self._on_starts_saved()
        if save_again:
            self.save_offsets()
            self._world.on_work()

    def spare_files(self, now_ms: int) -> None:
        """Too many files are open: close those that are synced, and sync the others so that they can be."""
        if now_ms < self._spare_due_ms:
            return
        self._spare_due_ms = now_ms + SPARE_MS
        for partition in self._hosting.partitions:
            log = partition.log
            if log.dirty:
                self._turn.wants_sync(partition)
            try:
                log.spare_files()
            except OSError as error:
                self._world.report(FilesNotClosed(str(partition), str(error)))
        self._world.timers.at(self._spare_due_ms, self._world.on_work)

    def go_on(self) -> None:
        """Look at more partitions, for as long as a turn may take; the rest has its turn later."""
        if self.passes and for_a_while(self._world.clock, TURN_MS_MAX, self._look_at_one):
            self._world.on_work()

    def _look_at_one(self) -> bool:
        if next(self.passes[0], _OVER) is _OVER:
            self.passes.popleft()
        return bool(self.passes)

    def _apply_retention(self, now_ms: int, wall_ms: int) -> Iterator[None]:
        self._hosting.retry(wall_ms)
        waited_ms = now_ms - self._looked_ms
        leap_ms = wall_ms - self._looked_wall_ms - waited_ms
        self._looked_ms, self._looked_wall_ms = now_ms, wall_ms
        age_ms = self._world.age_clock.wall_ms()
        for partition in list(self._hosting.partitions):
            if not partition.removed:
                if leap_ms > LEAP_MS:
                    partition.log.producers.compensate_clock_jump(leap_ms, wall_ms - waited_ms)
                self._retain(partition, wall_ms, age_ms)
                yield
        self._hosting.producer_budget.recount()

    def _retain(self, partition: Partition, wall_ms: int, age_ms: int) -> None:
        log = partition.log
        log.producers.expire(wall_ms)
        try:
            removed = retention.apply(log, age_ms)
        except StorageError as error:
            self._world.report(RetentionFailed(str(partition), str(error)))
            return
        log.doomed.schedule(age_ms, log.settings.file_delete_delay_ms)
        if removed:
            self._world.report(SegmentsDeleted(str(partition), len(removed), log.start_offset))
            self._on_start_moved(partition)
        if log.dirty:
            self._turn.wants_sync(partition)

    def _checkpoint(self) -> Iterator[None]:
        for partition in [self._quorum, *self._hosting.partitions]:
            if partition.removed:
                continue
            try:
                ticket = partition.begin_checkpoint()
            except OSError as error:
                self._world.report(CheckpointNotSaved(str(partition), str(error)))
                continue
            if ticket is not None:
                self._world.hand_out(self._syncs.job(partition, ticket))
            yield
