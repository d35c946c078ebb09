"""Pieces of work (`skidway.steps`) that share the event loop with everything else a node does.

A piece of work begins at once, because most of it is over in a moment. What is not over after `FIRST_MS` goes on in
later turns: all that are under way share `TURN_MS` of each turn, `SHARE_MS` at a time, so that a large one does not
hold up a small one. Beside the time the steps are counted, which is the bound where time stands still (in the
simulator).

The node calls `run` at the end of a turn and hands out what `take_jobs` returns to workers. What a worker unpacked may
be large, and the work holds it for a while: so only `OPENED_MAX` pieces of work have a job, or what came of it, at a
time; those that come later wait until one of them is over.
"""

from collections import deque
from collections.abc import Callable
from typing import Any

from skidway.ports import Clock
from skidway.runtime import jobs
from skidway.steps import STEPS_UNTIMED, Job, Question, Steps, first_steps

FIRST_MS = 5
TURN_MS = 10
SHARE_MS = 2
STEPS_MAX = 5_000
"""Of one piece of work in one go, at whatever speed."""
OPENED_MAX = 4


class Work:
    """One piece of work. `done` takes its result, `failed` the error it ended with."""

    __slots__ = ("_done", "_failed", "_slices", "_steps", "_value", "asks", "over", "waits")

    def __init__(
        self,
        slices: "Slices",
        steps: Steps[Any],
        done: Callable[[Any], None],
        failed: Callable[[Exception], None],
    ) -> None:
        self._slices = slices
        self._steps = steps
        self._done = done
        self._failed = failed
        self._value: Any = None
        self.over = False
        self.waits = False
        """For a worker or for an answer."""
        self.asks = False
        """Waits for an answer."""

    def cancel(self) -> None:
        """Nobody wants it any more. Neither `done` nor `failed` is called."""
        if not self.over:
            self._slices._end(self)
            self._steps.close()


def _ignore(_: None) -> None:
    pass


def _must_not_fail(error: Exception) -> None:
    raise error


def _over() -> Work:
    work: Work = Work.__new__(Work)
    work.over = True
    work.waits = work.asks = False
    return work


OVER = _over()
"""Any work that ended as soon as it had begun."""


class Slices:
    def __init__(self, clock: Clock, on_work: Callable[[], None]) -> None:
        """`on_work` is called when there is something for `run` or `take_jobs`."""
        self._clock = clock
        self._on_work = on_work
        self._ready: deque[Work] = deque()
        self._jobs: deque[tuple[Job, Work]] = deque()
        """Those that no worker has yet."""
        self._holders: set[Work] = set()
        self._waiting: dict[Job, Work] = {}
        """Jobs that workers have."""
        self.under_way = 0
        """How many have begun and are not over: those that are ready, and those that wait."""
        self.asking = 0
        """Of those, how many wait for an answer."""

    def __len__(self) -> int:
        """How many are ready to go on."""
        return len(self._ready)

    def begin(self, steps: Steps[Any], done: Callable[[Any], None], failed: Callable[[Exception], None]) -> Work:
        # Most requests are small: they are over before it is worth keeping a record of them.
        until_ms = self._clock.monotonic_ms() + FIRST_MS
        try:
            wanted = first_steps(steps)
        except StopIteration as end:
            done(end.value)
            return OVER
        except Exception as error:
            failed(error)
            return OVER
        work = Work(self, steps, done, failed)
        self.under_way += 1
        if wanted is not None and self._await(work, wanted):
            return work
        if self._clock.monotonic_ms() >= until_ms:
            self._line_up(work)
        else:
            self._go_on(work, until_ms, STEPS_UNTIMED)
        return work

    def begin_unwatched(self, steps: Steps[None]) -> None:
        """Nobody waits for the end of it, and it does not fail."""
        self.begin(steps, _ignore, _must_not_fail)

    def run(self) -> None:
        """The share of this turn."""
        now_ms = self._clock.monotonic_ms()
        until_ms = now_ms + TURN_MS
        for _ in range(len(self._ready)):
            work = self._ready.popleft()
            self._go_on(work, min(until_ms, now_ms + SHARE_MS))
            now_ms = self._clock.monotonic_ms()
            if now_ms >= until_ms:
                break
        if self._ready:
            self._on_work()

    def take_jobs(self) -> list[jobs.Job]:
        taken: list[jobs.Job] = []
        for _ in range(len(self._jobs)):
            job, work = self._jobs.popleft()
            if work.over:
                continue
            if work not in self._holders and len(self._holders) >= OPENED_MAX:
                self._jobs.append((job, work))
                continue
            self._holders.add(work)
            self._waiting[job] = work
            taken.append(jobs.Job(jobs.Lane.REQUEST, job, self._on_done))
        return taken

    def _on_done(self, job: Job, error: OSError | None, now_ms: int) -> None:
        """A worker has run it. Its own errors are for who wanted it: `run` raises none."""
        work = self._waiting.pop(job)
        if not work.over:
            work.waits = False
            self._advance(work, lambda: job.send_to(work._steps), self._clock.monotonic_ms() + SHARE_MS)

    def _go_on(self, work: Work, until_ms: int, taken: int = 0) -> None:
        """`taken` steps of this go are behind it."""
        value, work._value = work._value, None
        if not work.over:
            self._advance(work, lambda: work._steps.send(value), until_ms, taken)

    def _advance(self, work: Work, resume: Callable[[], Any], until_ms: int, taken: int = 0) -> None:
        steps, clock = work._steps, self._clock
        try:
            wanted = resume()
            for number in range(taken + 1, STEPS_MAX):
                if wanted is not None:
                    if self._await(work, wanted):
                        return
                    wanted = None
                    if clock.monotonic_ms() >= until_ms:
                        break
                    value, work._value = work._value, None
                    wanted = steps.send(value)
                    continue
                if not number % STEPS_UNTIMED and clock.monotonic_ms() >= until_ms:
                    break
                wanted = next(steps)
        except StopIteration as end:
            self._end(work)
            work._done(end.value)
            return
        except Exception as error:
            self._end(work)
            work._failed(error)
            return
        if wanted is None or not self._await(work, wanted):
            self._line_up(work)

    def _end(self, work: Work) -> None:
        work.over = True
        self.under_way -= 1
        self._stop_asking(work)
        if not self.under_way:
            self._jobs.clear()  # of those that were cancelled: a job may hold megabytes
        if work in self._holders:
            self._holders.remove(work)
            if self._jobs:
                self._on_work()

    def _line_up(self, work: Work) -> None:
        self._ready.append(work)
        self._on_work()

    def _await(self, work: Work, wanted: Job | Question) -> bool:
        """False if there is nothing to wait for: the question was answered at once, and the work has its answer."""
        work.waits = True
        if isinstance(wanted, Job):
            self._jobs.append((wanted, work))
            self._on_work()
            return True
        is_asked = False

        def answer(value: Any) -> None:
            assert work.waits or work.over, "a question is answered once"
            work.waits = False
            self._stop_asking(work)
            work._value = value
            if is_asked and not work.over:
                self._line_up(work)

        work.asks = True
        self.asking += 1
        wanted.ask(answer)
        is_asked = True
        return work.waits or work.over

    def _stop_asking(self, work: Work) -> None:
        self.asking -= work.asks
        work.asks = False


def for_a_while(clock: Clock, ms_max: int, step: Callable[[], bool]) -> bool:
    """Take steps until one says that there are no more, or for so long; true if there are more. The first is taken in
    any case."""
    until_ms = clock.monotonic_ms() + ms_max
    while step():
        if clock.monotonic_ms() >= until_ms:
            return True
    return False
