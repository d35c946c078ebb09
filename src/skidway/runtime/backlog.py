"""Steps that wait for their turn, in order: some are taken at the end of every turn.

For work that takes a millisecond or so each, and of which there may be thousands of steps: files of partitions that
come and go, machines that are loaded.
"""

from collections import deque
from collections.abc import Callable

from skidway.ports import Clock
from skidway.runtime.slices import for_a_while

TURN_MS_MAX = 20
"""A turn spends at most this long on it, but takes one step in any case."""

Step = Callable[[], None]


class Backlog:
    def __init__(self, clock: Clock, on_work: Callable[[], None]) -> None:
        """`on_work` is called when there is something for `work`."""
        self._clock = clock
        self._on_work = on_work
        self.steps: deque[Step] = deque()
        """Those that wait."""

    def later(self, step: Step) -> None:
        self.steps.append(step)
        self._on_work()

    def when_done(self, step: Step) -> None:
        """Call it when everything that waits now is done."""
        if self.steps:
            self.steps.append(step)
        else:
            step()

    def work(self) -> bool:
        """The share of this turn; true if there is more."""
        return bool(self.steps) and for_a_while(self._clock, TURN_MS_MAX, self._take)

    def _take(self) -> bool:
        self.steps.popleft()()
        return bool(self.steps)
