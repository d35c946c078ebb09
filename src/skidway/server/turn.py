"""The end of a loop turn: one sync for everything appended in it, timers, and the replies that became ready.

The node says through `on_work` that it wants to be asked. Its sync tickets then run on a few threads, one queue for
all; tickets marked as maintenance run on a thread of their own, so that no acknowledgement waits behind a checkpoint.
Finished tickets come back to the loop together, with one wake-up.
"""

import asyncio
import errno
import logging
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any

from skidway.ports import Clock
from skidway.server.served import ServedNode

log = logging.getLogger("skidway.turn")

Job = tuple[Any, Any]
Finished = tuple[Any, Any, OSError | None]


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
        self._scheduled = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._maintenance: SimpleQueue[Job | None] = SimpleQueue()
        self._finished: deque[Finished] = deque()
        self._wake_sent = False
        self._idle: asyncio.Future[None] | None = None
        queues = [self._jobs] * sync_threads + [self._maintenance]
        self._threads = [
            threading.Thread(target=self._work, args=(queue,), name=f"skidway-sync-{number}", daemon=True)
            for number, queue in enumerate(queues)
        ]
        for thread in self._threads:
            thread.start()
        node.on_work = self.schedule

    def schedule(self) -> None:
        """Look after the node once this turn's sockets are done with."""
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._end)

    def settle(self) -> None:
        """Hand out the syncs that are wanted, send what became ready, and keep the timer right."""
        if not self._guard(self._hand_out):
            # Whatever it was, others wait for their syncs.
            self._loop.call_later(RETRY_S, self.schedule)
        self.send_ready()
        self.check_deadline()

    def check_deadline(self) -> None:
        """Cheap, called after every received pass: a timer that fires too early does no harm, so it only moves down."""
        deadline_ms = self._node.deadline_ms
        if deadline_ms is None or (self._timer is not None and self._timer_ms <= deadline_ms):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ms = deadline_ms
        # At least a millisecond: uvloop counts in whole ones from a cached time, and zero would spin.
        wait_ms = max(1, deadline_ms - self._clock.monotonic_ms())
        self._timer = self._loop.call_later(wait_ms / 1000, self._on_timer)

    async def finish(self, timeout_s: float) -> bool:
        """Wait until no ticket is under way and none is wanted; false if that took too long."""
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
        """Stop the threads after the tickets they have; nothing is reported to the node any more."""
        if self._timer is not None:
            self._timer.cancel()
        for _ in self._threads[:-1]:
            self._jobs.put(None)
        self._maintenance.put(None)
        for thread in self._threads:
            thread.join(timeout=5)

    def _end(self) -> None:
        self._scheduled = False
        self.settle()

    def _hand_out(self) -> None:
        for key, ticket in self._node.take_sync():
            self.in_flight += 1
            queue = self._maintenance if getattr(ticket, "maintenance", False) else self._jobs
            queue.put((key, ticket))

    def _share_maintenance(self) -> None:
        """At the end nobody is left to be held up by maintenance: all threads do it."""
        with suppress(Empty):
            while True:
                self._jobs.put(self._maintenance.get_nowait())

    def _on_timer(self) -> None:
        self._timer = None
        self._guard(lambda: self._node.on_time(self._clock.monotonic_ms()))
        self.settle()

    def _work(self, queue: "SimpleQueue[Job | None]") -> None:
        while (job := queue.get()) is not None:
            key, ticket = job
            error: OSError | None = None
            try:
                ticket.run()
            except OSError as failure:
                error = failure
            except BaseException as failure:
                # Nobody knows what reached the disk: the same as a failed sync.
                log.exception("a sync ticket failed in an unexpected way")
                error = OSError(errno.EIO, f"unexpected: {failure!r}")
            self._finished.append((key, ticket, error))
            del job, key, ticket  # else an idle thread would keep the ticket's files open
            # The collector clears the flag before it looks, so a result appended above is never left behind.
            if not self._wake_sent:
                self._wake_sent = True
                try:
                    self._loop.call_soon_threadsafe(self._collect)
                except RuntimeError:  # the loop is closed: the process is on its way out
                    return

    def _collect(self) -> None:
        self._wake_sent = False
        now_ms = self._clock.monotonic_ms()
        while self._finished:
            key, ticket, error = self._finished.popleft()
            self.in_flight -= 1
            try:
                self._node.on_synced(key, ticket, error, now_ms)
            except Exception:
                log.exception("the node failed to take note of a sync of %s", key)
        self.settle()
        if self.in_flight == 0 and self._idle is not None and not self._idle.done():
            self._idle.set_result(None)

    def _guard(self, step: Callable[[], None]) -> bool:
        """A bug in one step must not stop the loop's other work; false if there was one."""
        try:
            step()
        except Exception:
            log.exception("the node failed at the end of a turn")
            return False
        return True
