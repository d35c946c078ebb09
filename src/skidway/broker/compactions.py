"""Which partition is compacted next: one at a time, the dirtiest first, as the topics' settings allow.

The long work leaves as tickets; what a ticket made takes its place in the log between two of them, on the loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from skidway.errors import StorageError
from skidway.log.cleaning import CleanTicket, Compaction, Compactor, SwapTicket, roll_overdue

if TYPE_CHECKING:
    from skidway.broker.node import Node
    from skidway.broker.partition import Partition

RETRY_MS = 600_000
"""How long a partition rests after its compaction failed: most often the disk was full."""


class Compactions:
    def __init__(self, node: Node, compactor: Compactor) -> None:
        self.node = node
        self.compactor = compactor
        self.stopping = False
        self.running: tuple[Partition, Compaction] | None = None
        self._due_ms = 0
        self._resting: dict[Partition, int | None] = {}
        """Until when (None: a restart) a partition is passed over."""
        self._tickets: list[tuple[Compactions, CleanTicket | SwapTicket]] = []

    def run(self, now_ms: int, wall_ms: int) -> None:
        """Look for work, if it is time to."""
        if now_ms < self._due_ms:
            return
        self._due_ms = now_ms + self.node.settings.compaction_check_ms
        for partition in self.node.partitions:
            try:
                roll_overdue(partition.log, wall_ms)
            except StorageError as error:
                self.node.on_trouble(f"{partition}: no new segment could be begun: {error}")
        self._begin(now_ms, wall_ms)

    def take_tickets(self) -> list[tuple[Compactions, CleanTicket | SwapTicket]]:
        tickets, self._tickets = self._tickets, []
        return tickets

    def on_done(self, ticket: CleanTicket | SwapTicket, error: OSError | None, now_ms: int) -> None:
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
            self.node.fail(f"a compaction of {partition} could not be put in place: {error}")
        else:
            next_ticket = compaction.on_swapped(ticket, stopping=self.stopping or partition.removed)
        if next_ticket is not None:
            self._tickets.append((self, next_ticket))
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
        node = self.node
        if self.running is not None or self.stopping or node.failure is not None:
            return
        best: tuple[bool, float, Partition] | None = None
        for partition in node.partitions:
            if not partition.log.settings.compact or self._rests(partition, now_ms):
                continue
            found = partition.log.compaction_candidate(wall_ms)
            if found is not None and (best is None or (found.overdue, found.dirty_ratio) > best[:2]):
                best = found.overdue, found.dirty_ratio, partition
        if best is None:
            return
        partition = best[2]
        compaction = partition.log.begin_compaction(wall_ms, node.random.randbytes(8).hex())
        if compaction is None:
            return
        partition.compacting = True
        self.running = partition, compaction
        self._tickets.append((self, compaction.clean(self.compactor)))
        node.on_work()

    def _rests(self, partition: Partition, now_ms: int) -> bool:
        until = self._resting.get(partition, 0)
        return until is None or now_ms < until

    def _on_failed(self, partition: Partition, damage: str | None, error: OSError | None, now_ms: int) -> None:
        if self.stopping or partition.removed:
            return
        self._resting[partition] = None if damage is not None else now_ms + RETRY_MS
        again = "not tried again before a restart" if damage is not None else "tried again later"
        self.node.on_trouble(f"{partition}: compaction failed, {again}: {damage or error}")
        if damage is not None:
            self.node.damaged.found(partition, damage)

    def _end(self, partition: Partition, compaction: Compaction, now_ms: int) -> None:
        node = self.node
        self.running = None
        partition.compacting = False
        result = compaction.result
        if result is not None:
            node.on_event(
                f"{partition}: compacted to offset {result.end_offset}, {result.records_dropped} of "
                f"{result.records_dropped + result.records_kept} records dropped"
            )
        wall_ms = node.clock.wall_ms()
        if partition.removed:
            node.hosting.finish_removal(partition, wall_ms)
        elif partition.log.dirty and node.failure is None:
            node.turn.wants_sync(partition)
        if result is not None:
            # Where one log is dirty, others often are.
            self._begin(now_ms, wall_ms)
