"""The order of a turn, without I/O: the server and the simulator drive a node with this same code.

A turn: what has come is handled, then the node ends its turn, its jobs go to workers, replies that became ready leave,
and the timer is set. The node says through `on_work` that its turn should end; a finished job and a timer end one too.
"""

from collections.abc import Callable, Iterable
from typing import Protocol

from skidway.ports import Clock
from skidway.runtime.jobs import Job


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
