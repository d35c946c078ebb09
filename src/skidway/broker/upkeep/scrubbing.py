"""Scrubbing: everything stored is read and checked once in a while, whether or not anybody asks for it.

One slice of one segment at a time, on a worker, and between two of them a pause that keeps the rate at or below
`scrub_bytes_per_second`. A pass goes over all partitions, from another one on each time; the next begins when
`scrub_interval_ms` have passed since it did. What is damaged goes the way of all damage (`damaged`): where there are
other replicas, one of them leads and the copy is fetched anew; where there are none, and of the metadata log, the
operator is told, and nothing is dropped.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from skidway.broker.cluster.quorum_host import QuorumHost
from skidway.broker.partitions.catalog import Partitions
from skidway.broker.partitions.partition import Partition
from skidway.broker.upkeep.news import BatchesChecked, MetadataDamaged, SegmentUnread
from skidway.broker.world import World
from skidway.log.scrubbing import CheckTicket, SegmentCheck, next_check
from skidway.replica.news import CopyDamaged, Remedy
from skidway.runtime.jobs import Job, Lane
from skidway.runtime.timers import Timer

FIRST_MS_MAX = 600_000
"""How long after its start a node begins at the latest: at first there are others to catch up with."""
RETRY_MS = 1_000
SLICE_COST_MIN = 64 << 10
"""What a slice counts for, however short: a thousand small files are no small matter for a disk."""
LOOKS_PER_TURN_MAX = 500


class Pass:
    """Once over everything."""

    __slots__ = ("begun_ms", "bytes_read", "check", "damaged", "partition", "rest", "segments", "told", "unread")

    def __init__(self, partitions: list[Partition | QuorumHost], now_ms: int) -> None:
        self.begun_ms = now_ms
        self.rest = deque(partitions)
        self.partition: Partition | QuorumHost | None = None
        self.check: SegmentCheck | None = None
        self.bytes_read = self.segments = self.damaged = self.unread = 0
        self.told: Partition | QuorumHost | None = None
        """The last one of which a segment could not be read."""

    def leave_partition(self) -> None:
        self.partition = self.check = None

    def advance(self) -> CheckTicket | None:
        """The next slice. None: nothing at this place; look at the next one, if `rest` has any."""
        if self.partition is None:
            self.partition = self.rest.popleft()
        check, partition = self.check, self.partition
        if check is None or check.is_void or check.is_done:
            after = -1 if check is None else check.segment.base_offset
            check = self.check = None if partition.removed else next_check(partition.log, after)
            if check is None:
                self.leave_partition()
                return None
            self.segments += 1
        return check.begin()

    @property
    def is_over(self) -> bool:
        return self.partition is None and not self.rest


class Scrubbing:
    def __init__(
        self,
        world: World,
        partitions: Partitions,
        quorum: QuorumHost,
        serving: Callable[[], bool],
        on_damaged: Callable[[Partition, str], None],
    ) -> None:
        """Nothing is read before the node is `serving`; `on_damaged` is told of copies that others may replace."""
        self._world = world
        self._partitions = partitions
        self._quorum = quorum
        self._serving = serving
        self._on_damaged_copy = on_damaged
        self.stopping = False
        self._pass: Pass | None = None
        self._begun_ms = 0
        """When the slice under way was handed out."""
        self._timer: Timer | None = None

    def __repr__(self) -> str:
        return "the check of stored batches"

    def start(self, now_ms: int) -> None:
        interval_ms = self._world.settings.scrub_interval_ms
        if interval_ms:
            self._arm(now_ms + min(interval_ms, FIRST_MS_MAX))

    def stop(self) -> None:
        """Begin nothing more. A slice under way ends soon, and means nothing."""
        self.stopping = True
        if self._timer is not None:
            self._timer.cancel()

    def _on_done(self, ticket: CheckTicket, error: OSError | None, now_ms: int) -> None:
        if self.stopping:
            return
        under_way = self._pass
        assert under_way is not None
        assert under_way.partition is not None
        assert under_way.check is not None
        under_way.bytes_read += ticket.bytes_read
        partition = under_way.partition
        if error is not None:
            self._on_unread(under_way, partition, under_way.check, error)
        elif (damage := under_way.check.finish(ticket)) is not None and not partition.removed:
            self._on_damage(under_way, partition, damage)
        cost = max(ticket.bytes_read, SLICE_COST_MIN)
        wait_ms = -(-cost * 1000 // self._world.settings.scrub_bytes_per_second)
        # A disk that takes its time is left to others for as long again.
        self._arm(max(self._begun_ms + wait_ms, now_ms + (now_ms - self._begun_ms)))

    # --- inside ---

    def _on_unread(
        self, under_way: Pass, partition: Partition | QuorumHost, check: SegmentCheck, error: OSError
    ) -> None:
        if check.is_void or partition.removed:
            return
        check.give_up()
        under_way.unread += 1
        # Once for all its segments: whatever it is, they most likely share it.
        if under_way.told is not partition:
            under_way.told = partition
            path = check.segment.path(".log")
            self._world.report(SegmentUnread(str(partition), path, str(error)))

    def _on_damage(self, under_way: Pass, partition: Partition | QuorumHost, damage: str) -> None:
        under_way.damaged += 1
        # Told each time, and not once for all: it stays as it is until somebody does something about it.
        if not isinstance(partition, Partition):
            self._world.report(MetadataDamaged(damage))
            return
        if partition.alone:
            self._world.report(CopyDamaged(str(partition), damage, Remedy.RESTORE))
            return
        # All of it is fetched anew.
        under_way.leave_partition()
        self._on_damaged_copy(partition, damage)

    def _arm(self, due_ms: int) -> None:
        self._timer = self._world.timers.at(due_ms, self._go_on)

    def _go_on(self) -> None:
        now_ms = self._world.clock.monotonic_ms()
        if self.stopping or self._world.failure is not None:
            return
        if not self._serving():
            self._arm(now_ms + RETRY_MS)
            return
        if self._pass is None:
            self._pass = Pass(self._all_partitions(), now_ms)
        for _ in range(LOOKS_PER_TURN_MAX):
            if self._pass.is_over:
                self._end(self._pass, now_ms)
                return
            ticket = self._pass.advance()
            if ticket is not None:
                self._begun_ms = now_ms
                self._world.hand_out(Job(Lane.MAINTENANCE, ticket, self._on_done))
                return
        self._arm(now_ms)  # in another turn

    def _all_partitions(self) -> list[Partition | QuorumHost]:
        """From any one on: a node that is started anew too often to come to the end gets to all of them some time."""
        partitions = [self._quorum, *self._partitions]
        first = self._world.random.randrange(len(partitions))
        return partitions[first:] + partitions[:first]

    def _end(self, over: Pass, now_ms: int) -> None:
        self._pass = None
        if over.segments:
            self._world.report(BatchesChecked(over.bytes_read, over.segments, over.damaged, over.unread))
        self._arm(max(over.begun_ms + self._world.settings.scrub_interval_ms, now_ms + RETRY_MS))
