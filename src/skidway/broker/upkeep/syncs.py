"""Syncs and checkpoints of partitions and of the metadata log: handed out as jobs, and what comes of each.

A failed sync is final for the whole node: nobody can tell what the kernel did with the pages. Four kinds of errors are
no failed sync: too many open files (the sync is begun again later), a full disk while a checkpoint was saved (the next
checkpoint tries again), files that another program removed (that partition alone is damaged), and any error of a
partition that is just being opened (it alone stays closed).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

from skidway.broker.partitions.hosting import Hosting
from skidway.broker.partitions.partition import Partition
from skidway.broker.partitions.room import NO_ROOM
from skidway.broker.upkeep.news import SyncPutOff, SyncWithoutCheckpoint, UpkeepNews
from skidway.log.durability.sync import NO_DESCRIPTORS, SyncTicket
from skidway.ports import Clock
from skidway.runtime.jobs import Job, Lane
from skidway.runtime.timers import Timers
from skidway.runtime.turn import Synced, TurnNotes

RETRY_MS = 100


class Outcomes(Protocol):
    """What a sync may lead to."""

    def fail(self, reason: str) -> None:
        """No sync of this node is to be believed any more."""
        ...

    def on_stored(self, partition: Partition) -> None:
        """Something of the partition was synced."""
        ...

    def on_files_removed(self, partition: Partition, error: FileNotFoundError) -> None: ...

    def on_settled(self) -> None:
        """A partition that is being opened had its first sync."""
        ...


class SyncJob(Job):
    __slots__ = ("_syncs", "hosted")
    ticket: SyncTicket

    def __init__(self, syncs: Syncs, hosted: Synced, ticket: SyncTicket) -> None:
        self.lane = Lane.MAINTENANCE if ticket.is_checkpoint else Lane.SYNC
        self.ticket = ticket
        self.hosted = hosted
        self._syncs = syncs

    def __repr__(self) -> str:
        return f"SyncJob({self.hosted})"

    def done(self, error: OSError | None, now_ms: int) -> None:
        self._syncs.on_done(self.hosted, self.ticket, error)


class Syncs:
    def __init__(
        self,
        turn: TurnNotes[Partition],
        timers: Timers,
        clock: Clock,
        hosting: Hosting,
        outcomes: Outcomes,
        report: Callable[[UpkeepNews], None],
    ) -> None:
        self._turn = turn
        self._timers = timers
        self._clock = clock
        self._hosting = hosting
        self._outcomes = outcomes
        self._report = report
        self.done = self.failed = 0
        """Syncs and checkpoints that workers have run, for metrics."""

    def take_jobs(self) -> list[Job]:
        """The syncs that were wanted in this turn."""
        jobs: list[Job] = []
        for hosted in self._turn.take_unsynced():
            try:
                ticket = hosted.begin_sync()
                if ticket is not None:
                    jobs.append(self.job(hosted, ticket))
                due = hosted.log.saved.is_due(hosted.log.settings.checkpoint_bytes) and not self._settles(hosted)
                if due and (ticket := hosted.begin_checkpoint()) is not None:
                    jobs.append(self.job(hosted, ticket))
            except OSError as error:
                self._retry(hosted, error)
        return jobs

    def job(self, hosted: Synced, ticket: SyncTicket) -> Job:
        return SyncJob(self, hosted, ticket)

    def is_of_settling(self, job: Job) -> bool:
        """Whether it is the first sync of a partition that is being opened: its failure concerns that one alone."""
        return isinstance(job, SyncJob) and self._settles(job.hosted)

    def _settles(self, hosted: Synced) -> bool:
        """Until it has, nothing else of it is saved."""
        return isinstance(hosted, Partition) and self._hosting.lives.is_settling(hosted)

    def _retry(self, hosted: Synced, error: OSError) -> None:
        """A file could not be opened: there may be too many open ones for now."""
        self._report(SyncPutOff(str(hosted), str(error)))
        self._timers.at(self._clock.monotonic_ms() + RETRY_MS, partial(self._turn.wants_sync, hosted))

    def on_done(self, hosted: Synced, ticket: SyncTicket, error: OSError | None) -> None:
        self.done += 1
        self.failed += error is not None
        if not isinstance(hosted, Partition):
            self._finish(hosted, ticket, error)
        elif self._hosting.lives.is_settling(hosted):
            self._settle(hosted, ticket, error)
        elif hosted.removed:
            # Its files are on their way out: no error of theirs matters to anybody.
            hosted.finish_sync(ticket)
            self._hosting.finish_removal(hosted, self._clock.wall_ms())
            self._outcomes.on_stored(hosted)
        elif isinstance(error, FileNotFoundError) and not ticket.synced:
            hosted.give_up_sync(ticket)
            self._outcomes.on_files_removed(hosted, error)
        elif self._finish(hosted, ticket, error):
            self._outcomes.on_stored(hosted)

    def _settle(self, partition: Partition, ticket: SyncTicket, error: OSError | None) -> None:
        self._hosting.on_synced(partition, ticket, error)
        if error is not None and error.errno in NO_DESCRIPTORS and not ticket.synced:
            self._retry(partition, error)
        self._outcomes.on_settled()

    def _finish(self, hosted: Synced, ticket: SyncTicket, error: OSError | None) -> bool:
        """False when the node has failed."""
        if error is None:
            hosted.finish_sync(ticket)
        elif ticket.synced and (error.errno in NO_ROOM or isinstance(error, FileNotFoundError)):
            # The log's own files were there when they were synced. If they are gone by now, the next sync notices.
            self._report(SyncWithoutCheckpoint(str(hosted), str(error)))
            hosted.finish_sync(ticket, housekept=False)
        elif error.errno in NO_DESCRIPTORS:
            hosted.give_back_sync(ticket)
            self._retry(hosted, error)
        else:
            self._outcomes.fail(f"fsync of {hosted} failed: {error}")
            return False
        return True
