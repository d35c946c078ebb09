"""Turns of a served node: its `TurnDriver` on an event loop, with threads for its jobs.

Each lane of jobs has threads of its own: `sync_threads` for syncs, so that acknowledgements of many partitions come
together; one for maintenance, so that no acknowledgement waits behind a checkpoint; one for compaction, so that no
checkpoint waits for minutes; `REQUEST_THREADS` that unpack and pack batches, so that no sync waits for a client's
compressed bytes. Finished jobs come back to the loop together, with one wake-up.
"""

import asyncio
import errno
import logging
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from time import perf_counter_ns

from skidway.ports import Clock
from skidway.runtime.jobs import Job, Lane
from skidway.runtime.turn import TurnDriver
from skidway.server.collecting import Collecting
from skidway.server.measures import ShellMeasures
from skidway.server.served import ServedNode

log = logging.getLogger("skidway.turn")

Queue = SimpleQueue[Job | None]

REQUEST_THREADS = 2
RETRY_S = 0.1
"""After a bug at the end of a turn."""


class Turn:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        node: ServedNode,
        clock: Clock,
        *,
        sync_threads: int = 4,
        send_ready: Callable[[], None] = lambda: None,
    ) -> None:
        """`send_ready` sends the replies of all connections that the node has called ready."""
        self.send_ready = send_ready
        self.in_flight = 0
        self._loop = loop
        self._node = node
        self._clock = clock
        self._timer: asyncio.TimerHandle | None = None
        self._queues: dict[Lane, Queue] = {lane: SimpleQueue() for lane in Lane}
        self._finished: deque[tuple[Job, OSError | None, int]] = deque()
        """With the nanoseconds that each took."""
        self.measures = ShellMeasures()
        self._turn_begun_ns = 0
        """0: nothing of this turn has come yet."""
        self._wake_sent = False
        self._idle: asyncio.Future[None] | None = None
        self.collecting = Collecting()
        counts = {Lane.SYNC: sync_threads, Lane.REQUEST: REQUEST_THREADS}
        lanes = [(lane, number) for lane in Lane for number in range(counts.get(lane, 1))]
        self._threads = {
            threading.Thread(
                target=self._work, args=(self._queues[lane],), name=f"skidway-{lane.value}-{number}", daemon=True
            ): self._queues[lane]
            for lane, number in lanes
        }
        for thread in self._threads:
            thread.start()
        self._driver = driver = TurnDriver(node, clock, self)
        self.schedule, self.settle, self.check_deadline = driver.schedule, driver.end, driver.check_deadline

    async def finish(self, timeout_s: float) -> bool:
        """Wait until no job is under way and none is wanted; false if that took too long."""
        deadline = self._loop.time() + timeout_s
        self.settle()
        while self.in_flight:
            self._share_maintenance()
            self._idle = self._loop.create_future()
            try:
                await asyncio.wait_for(self._idle, max(0.0, deadline - self._loop.time()))
            except TimeoutError:
                return False
            self.settle()
        return True

    def close(self) -> None:
        """Stop the threads after the jobs they have; nothing is reported to the node any more."""
        if self._timer is not None:
            self._timer.cancel()
        self.collecting.end()
        for queue in self._threads.values():
            queue.put(None)
        for thread in self._threads:
            thread.join(timeout=5)

    # --- what the driver calls ---

    def end_turn_soon(self) -> None:
        self._turn_begun_ns = self._turn_begun_ns or perf_counter_ns()
        self._loop.call_soon(self._driver.end_scheduled)

    def start_job(self, job: Job) -> None:
        self.in_flight += 1
        self._queues[job.lane].put(job)

    def turn_ended(self) -> None:
        self.send_ready()
        self.collecting.follow(self._node.has_long_work, self._clock)
        if self._turn_begun_ns:
            self.measures.turns.add(perf_counter_ns() - self._turn_begun_ns)
            self._turn_begun_ns = 0

    def wake_at(self, deadline_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        # At least a millisecond: uvloop counts in whole ones from a cached time, and zero would spin.
        wait_ms = max(1, deadline_ms - self._clock.monotonic_ms())
        self._timer = self._loop.call_later(wait_ms / 1000, self._driver.on_timer, deadline_ms)

    def attempt(self, step: Callable[..., None], *arguments: object) -> bool:
        """A bug in one step must not stop the loop's other work."""
        try:
            step(*arguments)
        except Exception:
            log.exception("the node failed at the end of a turn of the event loop")
            return False
        return True

    def retry_soon(self) -> None:
        self._loop.call_later(RETRY_S, self.schedule)

    # --- threads ---

    def _share_maintenance(self) -> None:
        """At the end nobody is left to be held up by maintenance: all threads do it."""
        with suppress(Empty):
            while True:
                self._queues[Lane.SYNC].put(self._queues[Lane.MAINTENANCE].get_nowait())

    def _work(self, queue: Queue) -> None:
        while (job := queue.get()) is not None:
            error: OSError | None = None
            begun_ns = perf_counter_ns()
            try:
                job.run()
            except OSError as failure:
                error = failure
            except BaseException as failure:
                # Nobody knows what reached the disk: the same as a failed sync.
                log.exception("%r failed unexpectedly", job)
                error = OSError(errno.EIO, f"unexpected: {failure!r}")
            self._finished.append((job, error, perf_counter_ns() - begun_ns))
            del job  # else an idle thread would keep the files of its ticket open
            # The collector clears the flag before it looks, so a result appended above is never left behind.
            if not self._wake_sent:
                self._wake_sent = True
                try:
                    self._loop.call_soon_threadsafe(self._collect)
                except RuntimeError:  # the loop is closed: the process is on its way out
                    return

    def _collect(self) -> None:
        self._wake_sent = False
        self._turn_begun_ns = self._turn_begun_ns or perf_counter_ns()
        finished: list[tuple[Job, OSError | None]] = []
        while self._finished:
            job, error, took_ns = self._finished.popleft()
            self.measures.job_took(job.lane, took_ns)
            finished.append((job, error))
        self.in_flight -= len(finished)
        self._driver.finish_jobs(finished)
        if self.in_flight == 0 and self._idle is not None and not self._idle.done():
            self._idle.set_result(None)
