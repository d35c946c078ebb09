"""Requests that wait: for an offset to be committed, or for bytes to read; always with a deadline.

`OffsetParking` holds acks=all replies, `BytesParking` long-poll fetches. Both are keyed by partition (any hashable
the owner chooses) and are told of progress by `wake(key, ...)` when that partition's high watermark moves. A wake
costs one dictionary lookup when nobody waits there; otherwise only requests waiting on that very partition are
looked at, each with one comparison. Every parked request is answered exactly once, or cancelled.
"""

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from skidway.errors import ProtocolError, RequestTimedOut
from skidway.runtime.timers import Timer, Timers

Key = TypeVar("Key", bound=Hashable)

NOTHING_FAILED: Mapping[Any, ProtocolError] = MappingProxyType({})


class ParkedOffsets(Generic[Key]):
    """One request that waits for offsets in one or more partitions."""

    __slots__ = ("_answer", "_failed", "_open", "_timer")

    def __init__(self, keys: Iterable[Key], answer: Callable[[Mapping[Key, ProtocolError]], None]) -> None:
        self._open = dict.fromkeys(keys)
        self._failed: dict[Key, ProtocolError] | None = None
        self._answer = answer
        self._timer: Timer | None = None

    @property
    def waiting(self) -> bool:
        return bool(self._open)


class _OffsetQueue(Generic[Key]):
    """The waiters of one partition in the order of parking; `dead` of them are answered or cancelled already.

    Appends make offsets rise, so only the first has to be looked at. A retried batch may wait for an older offset
    than the one before it; it then leaves together with that one, which is on its way to disk already.
    """

    __slots__ = ("dead", "waiters")

    def __init__(self) -> None:
        self.waiters: deque[tuple[int, ParkedOffsets[Key]]] = deque()
        self.dead = 0


class OffsetParking(Generic[Key]):
    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._queues: dict[Key, _OffsetQueue[Key]] = {}

    def park(
        self,
        offsets: Mapping[Key, int],
        deadline_ms: int,
        answer: Callable[[Mapping[Key, ProtocolError]], None],
    ) -> ParkedOffsets[Key]:
        """Wait until every partition's committed offset has reached the one given for it (an exclusive end).

        `answer` gets what failed, by partition: nothing when all is committed, RequestTimedOut for each partition
        that was not when the deadline came, or what `fail` said. The caller parks only what is not committed yet.
        """
        assert offsets, "nothing to wait for"
        parked = ParkedOffsets(offsets, answer)
        for key, offset in offsets.items():
            queue = self._queues.get(key)
            if queue is None:
                queue = self._queues[key] = _OffsetQueue()
            queue.waiters.append((offset, parked))
        parked._timer = self._timers.at(deadline_ms, lambda: self._expire(parked))
        return parked

    def wake(self, key: Key, committed_offset: int) -> None:
        queue = self._queues.get(key)
        if queue is None:
            return
        waiters = queue.waiters
        while waiters and waiters[0][0] <= committed_offset:
            parked = waiters.popleft()[1]
            if key in parked._open:
                self._settle(parked, key, None)
            else:
                queue.dead -= 1
        # An answer may have parked again, or dropped the queue.
        if not waiters and self._queues.get(key) is queue:
            del self._queues[key]

    def fail(self, key: Key, error: ProtocolError) -> None:
        """The partition will not commit what is waited for: it is gone, its disk failed, or it has a new leader."""
        queue = self._queues.pop(key, None)
        if queue is None:
            return
        for _, parked in queue.waiters:
            if key in parked._open:
                self._settle(parked, key, error)

    def cancel(self, parked: ParkedOffsets[Key]) -> None:
        """Nobody wants the answer any more."""
        if not parked.waiting:
            return
        left = list(parked._open)
        self._close(parked)
        self._bury(left)

    def __bool__(self) -> bool:
        return bool(self._queues)

    def __contains__(self, key: Key) -> bool:
        """Whether somebody may wait for this one."""
        return key in self._queues

    @property
    def keys(self) -> list[Key]:
        """Partitions that are waited for."""
        return list(self._queues)

    def __len__(self) -> int:
        """Waits of all partitions, for metrics."""
        return sum(len(queue.waiters) - queue.dead for queue in self._queues.values())

    def _settle(self, parked: ParkedOffsets[Key], key: Key, error: ProtocolError | None) -> None:
        del parked._open[key]
        if error is not None:
            parked._failed = {**(parked._failed or {}), key: error}
        if not parked._open:
            self._close(parked)
            parked._answer(parked._failed or NOTHING_FAILED)

    def _expire(self, parked: ParkedOffsets[Key]) -> None:
        late = list(parked._open)
        failed = {**(parked._failed or {}), **{key: RequestTimedOut() for key in late}}
        self._close(parked)
        self._bury(late)
        parked._answer(failed)

    @staticmethod
    def _close(parked: ParkedOffsets[Key]) -> None:
        parked._open.clear()
        if parked._timer is not None:
            parked._timer.cancel()

    def _bury(self, keys: Iterable[Key]) -> None:
        """Count the dead, and clear a queue of which they are the larger part: a partition that commits nothing
        for hours must not collect every request that timed out on it."""
        for key in keys:
            queue = self._queues.get(key)
            if queue is None:
                continue
            queue.dead += 1
            if queue.dead * 2 > len(queue.waiters):
                queue.waiters = deque(waiter for waiter in queue.waiters if key in waiter[1]._open)
                queue.dead = 0
                if not queue.waiters:
                    del self._queues[key]


class ParkedBytes(Generic[Key]):
    """One request that waits until its partitions together have enough new bytes."""

    __slots__ = ("_keys", "_resume", "_timer", "missing_bytes")

    def __init__(self, keys: Sequence[Key], missing_bytes: int, resume: Callable[[], None]) -> None:
        self._keys = keys
        self.missing_bytes = missing_bytes
        self._resume: Callable[[], None] | None = resume
        self._timer: Timer | None = None

    @property
    def waiting(self) -> bool:
        return self._resume is not None


class BytesParking(Generic[Key]):
    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        # Dictionaries, not sets: waking in the order of parking is fair, and the same in every run.
        self._waiting: dict[Key, dict[ParkedBytes[Key], None]] = {}
        self.waits = 0
        """Partitions named by all parked requests: a measure of the memory they take."""

    def park(
        self, keys: Sequence[Key], missing_bytes: int, deadline_ms: int, resume: Callable[[], None]
    ) -> ParkedBytes[Key]:
        """Call `resume` once: when `missing_bytes` more can be read in these partitions together, when one of them
        is disturbed, or at the deadline. The caller then reads again and answers with whatever is there. Who knows by
        other ways what happens in its partitions names none, counts down `missing_bytes` and calls `finish`."""
        parked = ParkedBytes(keys, missing_bytes, resume)
        self.waits += len(keys)
        waiting = self._waiting
        for key in keys:
            waiters = waiting.get(key)
            if waiters is None:
                waiting[key] = {parked: None}
            else:
                waiters[parked] = None
        parked._timer = self._timers.at(deadline_ms, lambda: self.finish(parked))
        return parked

    def wake(self, key: Key, added_bytes: int) -> None:
        """`added_bytes` more can be read in this partition than at the last wake."""
        waiters = self._waiting.get(key)
        if waiters is None:
            return
        ready: list[ParkedBytes[Key]] = []
        for parked in waiters:
            parked.missing_bytes -= added_bytes
            if parked.missing_bytes <= 0:
                ready.append(parked)
        for parked in ready:
            self.finish(parked)

    def disturb(self, key: Key) -> None:
        """Something else than bytes happened: the partition is gone, failed, or changed leader."""
        for parked in list(self._waiting.get(key, ())):
            self.finish(parked)

    def finish(self, parked: ParkedBytes[Key]) -> None:
        """Its wait is over, whatever there is."""
        resume = parked._resume
        if resume is not None:
            self._detach(parked)
            resume()

    def cancel(self, parked: ParkedBytes[Key]) -> None:
        """Nobody wants the answer any more."""
        if parked.waiting:
            self._detach(parked)

    def __len__(self) -> int:
        """Waits of all partitions, for metrics."""
        return sum(map(len, self._waiting.values()))

    def _detach(self, parked: ParkedBytes[Key]) -> None:
        parked._resume = None
        if parked._timer is not None:
            parked._timer.cancel()
        self.waits -= len(parked._keys)
        waiting = self._waiting
        for key in parked._keys:
            waiters = waiting.get(key)
            # The same partition may be named twice in one request.
            if waiters is not None and waiters.pop(parked, parked) is None and not waiters:
                del waiting[key]
