"""Which partition is compacted next: one at a time, the dirtiest first, as the topics' settings allow.

The long work leaves as tickets; what a ticket made takes its place in the log between two of them, on the loop.
"""

from __future__ import annotations

from collections.abc import Callable

from skidway.broker.partitions.hosting import Hosting
from skidway.broker.partitions.partition import Partition
from skidway.broker.upkeep.news import CompactionFailed, LogCompacted, SegmentNotRolled
from skidway.broker.world import World
from skidway.errors import StorageError
from skidway.log.compaction import cleaning
from skidway.log.compaction.cleaning import CleanTicket, Compaction, Compactor, SwapTicket, roll_overdue
from skidway.metadata.broker_configs import number
from skidway.runtime.jobs import Job, Lane
from skidway.runtime.turn import TurnNotes

RETRY_MS = 600_000
"""How long a partition rests after its compaction failed: most often the disk was full."""


class Compactions:
    def __init__(
        self,
        world: World,
        turn: TurnNotes[Partition],
        hosting: Hosting,
        compactor: Compactor,
        fail: Callable[[str], None],
        on_damaged: Callable[[Partition, str], None],
    ) -> None:
        """`fail` says that the data directory takes no more writes, `on_damaged` that a log is not what it was."""
        self._world = world
        self._turn = turn
        self._hosting = hosting
        self.compactor = compactor
        self._fail = fail
        self._on_damaged = on_damaged
        self.stopping = False
        self.running: tuple[Partition, Compaction] | None = None
        self._due_ms = 0
        self._resting: dict[Partition, int | None] = {}
        """Until when (None: a restart) a partition is passed over."""

    def run(self, now_ms: int, wall_ms: int) -> None:
        """Look for work, if it is time to."""
        if now_ms < self._due_ms:
            return
        self._due_ms = now_ms + number("log.cleaner.backoff.ms", self._hosting.topic_settings.defaults)
        for partition in self._hosting.partitions:
            try:
                roll_overdue(partition.log, wall_ms)
            except StorageError as error:
                self._world.report(SegmentNotRolled(str(partition), str(error)))
        self._begin(now_ms, wall_ms)

    def _on_done(self, ticket: CleanTicket | SwapTicket, error: OSError | None, now_ms: int) -> None:
        assert self.running is not None
        partition, compaction = self.running
        next_ticket: SwapTicket | None = None
        if isinstance(ticket, CleanTicket):
            if compaction.abandoned and ticket.result is None:
                compaction.end()  # its segments were cut under it
            elif error is not None or ticket.result is None:
                self._on_failed(partition, ticket.damage, error, now_ms)
                compaction.end()
            elif self.stopping or partition.removed:
                compaction.end()
            else:
                next_ticket = compaction.on_cleaned(ticket.result)
        elif error is not None:
            # It was decided and is half done: a restart completes it.
            self._fail(f"{partition}: cannot replace segments with their compacted form: {error}")
        else:
            next_ticket = compaction.on_swapped(ticket, stopping=self.stopping or partition.removed)
        if next_ticket is not None:
            self._world.hand_out(Job(Lane.MAINTENANCE, next_ticket, self._on_done))
            return
        self._end(partition, compaction, now_ms)

    def on_removed(self, partition: Partition) -> None:
        self._resting.pop(partition, None)
        if self.running is not None and self.running[0] is partition:
            self.compactor.stop()

    def stop(self) -> None:
        """Begin nothing more; what is being cleaned is given up, what is being swapped is completed."""
        self.stopping = True
        if self.running is not None:
            self.compactor.stop()

    def _begin(self, now_ms: int, wall_ms: int) -> None:
        if self.running is not None or self.stopping or self._world.failure is not None:
            return
        best: tuple[bool, float, Partition] | None = None
        for partition in self._hosting.partitions:
            if not partition.log.settings.compact or self._rests(partition, now_ms):
                continue
            found = cleaning.candidate(partition.log, wall_ms)
            if found is not None and (best is None or (found.overdue, found.dirty_ratio) > best[:2]):
                best = found.overdue, found.dirty_ratio, partition
        if best is None:
            return
        partition = best[2]
        compaction = cleaning.begin(partition.log, wall_ms, self._world.random.randbytes(8).hex())
        if compaction is None:
            return
        partition.compacting = True
        self.running = partition, compaction
        self._world.hand_out(Job(Lane.COMPACTION, compaction.clean(self.compactor), self._on_done))

    def _rests(self, partition: Partition, now_ms: int) -> bool:
        until = self._resting.get(partition, 0)
        return until is None or now_ms < until

    def _on_failed(self, partition: Partition, damage: str | None, error: OSError | None, now_ms: int) -> None:
        if self.stopping or partition.removed:
            return
        self._resting[partition] = None if damage is not None else now_ms + RETRY_MS
        self._world.report(CompactionFailed(str(partition), damage or str(error), retried=damage is None))
        if damage is not None:
            self._on_damaged(partition, damage)

    def _end(self, partition: Partition, compaction: Compaction, now_ms: int) -> None:
        self.running = None
        partition.compacting = False
        result = compaction.result
        if result is not None:
            dropped, kept = result.records_dropped, result.records_kept
            self._world.report(LogCompacted(str(partition), result.end_offset, dropped, kept))
        wall_ms = self._world.age_clock.wall_ms()
        if partition.removed:
            self._hosting.finish_removal(partition, wall_ms)
        elif partition.log.dirty and self._world.failure is None:
            self._turn.wants_sync(partition)
        if result is not None:
            # Where one log is dirty, others often are.
            self._begin(now_ms, wall_ms)
