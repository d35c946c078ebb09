"""Virtual time: a heap of events, one seed, and the place where a broken law ends the run.

Events happen in the order of (time, sequence), so equal times are no accident of memory addresses. Randomness comes in
streams by purpose: what one part draws does not move what another part will draw, so a run that is shrunk (a fault
less, a client less) stays as like the original as it can.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from random import Random

from skidway.sim.trace import Trace

MS = 1_000
SECOND = 1_000_000


class Violation(Exception):
    """A law was broken. `checker` is its name, by which planted bugs are told apart."""

    def __init__(self, checker: str, text: str) -> None:
        super().__init__(f"{checker}: {text}")
        self.checker = checker
        self.text = text


class World:
    def __init__(self, seed: int | str, trace: Trace | None = None) -> None:
        self.seed = seed
        self.trace = Trace() if trace is None else trace
        self.now_us = 0
        self.events = 0
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._sequence = 0
        self.marks: dict[str, int] = {}
        """How often something worth reaching was reached."""

    def stream(self, purpose: str) -> Random:
        # From text: `Random` then hashes with SHA-512, whatever PYTHONHASHSEED says.
        return Random(f"{self.seed}/{purpose}")

    def at(self, when_us: int, what: Callable[[], None]) -> None:
        self._sequence += 1
        heappush(self._heap, (when_us if when_us > self.now_us else self.now_us, self._sequence, what))

    def after(self, delay_us: int, what: Callable[[], None]) -> None:
        self._sequence += 1
        heappush(self._heap, (self.now_us + delay_us if delay_us > 0 else self.now_us, self._sequence, what))

    def run(self, until_us: int) -> None:
        heap = self._heap
        while heap and heap[0][0] <= until_us:
            self.now_us, _, what = heappop(heap)
            self.events += 1
            what()
        self.now_us = until_us

    def run_until(self, condition: Callable[[], bool], timeout_us: int, step_us: int = 50 * MS) -> bool:
        """Whether it came true in time; looked at now and then."""
        limit = self.now_us + timeout_us
        while not condition():
            if self.now_us >= limit:
                return False
            self.run(min(limit, self.now_us + step_us))
        return True

    def say(self, who: str, what: str) -> None:
        self.trace.line(self.now_us, who, what)

    def mark(self, name: str) -> None:
        self.marks[name] = self.marks.get(name, 0) + 1
