"""A turn of the event loop, without I/O: what is noted in it for its end, and the order in which it ends.

Partitions note that they want a sync, that their high watermark moved or that followers have more to fetch; others ask
to be called. The node is asked once at the end of the turn (`end_turn`), so one sync covers everything that was
appended in it, and a long poll is answered once for all of it.

The order: what has come is handled, then the node ends its turn, its jobs go to workers, replies that became ready
leave, and the timer is set. The node says through `on_work` that its turn should end; a finished job and a timer end
one too. The server and the simulator drive a node with this same code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, Protocol, TypeVar

from skidway.limits import INT64_MAX
from skidway.log.durability.sync import SyncTicket
from skidway.log.log import Log
from skidway.ports import Clock
from skidway.runtime.jobs import Job

NEVER = ENOUGH = INT64_MAX


class Synced(Protocol):
    """A partition, or whatever else has a log that is synced."""

    log: Log

    def begin_sync(self) -> SyncTicket | None: ...

    def begin_checkpoint(self) -> SyncTicket | None: ...

    def finish_sync(self, ticket: SyncTicket, *, housekept: bool = True) -> None: ...

    def give_back_sync(self, ticket: SyncTicket) -> None:
        """It was not done, and is to be begun again."""
        ...


Moved = TypeVar("Moved", bound=Synced)
"""Partitions, which are made of what is here."""


class TurnNotes(Generic[Moved]):
    __slots__ = ("calls", "grown", "moved", "on_work", "unstable", "unsynced")

    def __init__(self, on_work: Callable[[], None]) -> None:
        """`on_work` is called when a turn has something to be done at its end."""
        # Dicts as ordered sets: the order of a real set would differ from run to run.
        self.unsynced: dict[Synced, None] = {}
        self.moved: dict[Moved, int] = {}
        """With the bytes that can be read in addition since the turn began."""
        self.unstable: dict[Moved, int] = {}
        """Where transactions hold the last stable offset back: 0, or `ENOUGH` if it has moved all the same."""
        self.grown: dict[Moved, int] = {}
        """With the bytes appended, committed or not: what followers wait for."""
        self.calls: dict[Callable[[int], None], None] = {}
        self.on_work = on_work

    def call_at_end(self, act: Callable[[int], None]) -> None:
        """Once, with the time, however often it was asked for."""
        if not self.calls:
            self.on_work()
        self.calls[act] = None

    def wants_sync(self, synced: Synced) -> None:
        if not self.unsynced and not self.moved and not self.grown:
            self.on_work()
        self.unsynced[synced] = None

    def advance(self, partition: Moved, high_watermark: int) -> None:
        """The watermark of its log rises."""
        if not self.unsynced and not self.moved and not self.grown:
            self.on_work()
        log = partition.log
        transactions = log.producers.transactions
        first_unstable = transactions.first_unstable
        if first_unstable < NEVER:
            was_stable = first_unstable > log.high_watermark
            added_bytes = log.advance_high_watermark(high_watermark)
            # While the first of them goes on, and begins below the watermark, the last stable offset stays there.
            has_moved = was_stable or transactions.first_unstable != first_unstable
            has_moved = has_moved or (partition in self.moved and self.unstable.get(partition) != 0)
            self.unstable[partition] = ENOUGH if has_moved else 0
        else:
            added_bytes = log.advance_high_watermark(high_watermark)
        self.moved[partition] = self.moved.get(partition, 0) + added_bytes

    def has_grown(self, partition: Moved, added_bytes: int) -> None:
        if not self.unsynced and not self.moved and not self.grown:
            self.on_work()
        self.grown[partition] = self.grown.get(partition, 0) + added_bytes

    def take_calls(self) -> list[Callable[[int], None]]:
        calls = list(self.calls)
        self.calls.clear()
        return calls

    def take_unsynced(self) -> list[Synced]:
        unsynced = list(self.unsynced)
        self.unsynced.clear()
        return unsynced

    def take_moved(self) -> list[tuple[Moved, int, int]]:
        """Partitions, how many more bytes are committed, and how many more are stable. How many those are is not known
        where transactions end: enough for everybody."""
        if self.unstable:
            moved = [(each, added, self.unstable.get(each, added)) for each, added in self.moved.items()]
            self.unstable.clear()
        else:
            moved = [(each, added, added) for each, added in self.moved.items()]
        self.moved.clear()
        return moved

    def take_grown(self) -> list[tuple[Moved, int]]:
        grown = list(self.grown.items())
        self.grown.clear()
        return grown


class DrivenNode(Protocol):
    on_work: Callable[[], None]
    """The node calls it when `end_turn` should be called at the end of this turn."""

    @property
    def deadline_ms(self) -> int | None: ...

    def on_time(self, now_ms: int) -> None: ...

    def end_turn(self) -> list[Job]: ...


class Shell(Protocol):
    """What is around a node: loop or virtual time, threads or simulated workers, sockets or a simulated network."""

    def end_turn_soon(self) -> None:
        """Call `TurnDriver.end_scheduled` after what has already come is handled."""
        ...

    def start_job(self, job: Job) -> None:
        """Have a worker of its lane run it, and give the outcome to `TurnDriver.finish_jobs`."""
        ...

    def turn_ended(self) -> None:
        """Send the replies of all connections that the node has called ready."""
        ...

    def wake_at(self, deadline_ms: int) -> None:
        """Call `TurnDriver.on_timer` with that deadline when it has come. It replaces the deadline before."""
        ...

    def attempt(self, step: Callable[..., None], *arguments: object) -> bool:
        """Call it; false if it ended with a bug that the shell has reported."""
        ...

    def retry_soon(self) -> None:
        """Call `TurnDriver.schedule`, but not at once: a turn ended with a bug."""
        ...


class TurnDriver:
    __slots__ = ("_armed_ms", "_clock", "_node", "_scheduled", "_shell")

    def __init__(self, node: DrivenNode, clock: Clock, shell: Shell) -> None:
        self._node = node
        self._clock = clock
        self._shell = shell
        self._scheduled = False
        self._armed_ms: int | None = None
        node.on_work = self.schedule

    def schedule(self) -> None:
        """End the turn once what has come is handled."""
        if not self._scheduled:
            self._scheduled = True
            self._shell.end_turn_soon()

    def end_scheduled(self) -> None:
        self._scheduled = False
        self.end()

    def end(self) -> None:
        """Hand out jobs, send what became ready, keep the timer right."""
        shell = self._shell
        if not shell.attempt(self._hand_out):
            # Whatever it was, others wait for their syncs.
            shell.retry_soon()
        shell.turn_ended()
        self.check_deadline()

    def finish_jobs(self, finished: Iterable[tuple[Job, OSError | None]]) -> None:
        """Workers have run these."""
        now_ms = self._clock.monotonic_ms()
        for job, error in finished:
            self._shell.attempt(job.done, error, now_ms)
        self.end()

    def check_deadline(self) -> None:
        """Cheap, called after everything that happens: a timer that fires too early does no harm, so it only moves
        down."""
        deadline_ms = self._node.deadline_ms
        if deadline_ms is None or (self._armed_ms is not None and self._armed_ms <= deadline_ms):
            return
        self._armed_ms = deadline_ms
        self._shell.wake_at(deadline_ms)

    def on_timer(self, deadline_ms: int) -> None:
        if self._armed_ms != deadline_ms:
            return  # an earlier one was set meanwhile
        self._armed_ms = None
        now_ms, next_ms = self._clock.monotonic_ms(), self._node.deadline_ms
        if next_ms is not None and next_ms <= now_ms:
            self._shell.attempt(self._node.on_time, now_ms)
            self.end()
        else:
            self.check_deadline()  # what it was for is over: most timers are cancelled

    def _hand_out(self) -> None:
        for job in self._node.end_turn():
            self._shell.start_job(job)
