"""Opening what is in a data directory when a node starts: some of it in every turn, because a node with thousands of
partitions has to vote, to answer and to send heartbeats meanwhile.

Every partition is opened as the metadata describes it when its turn comes. Then whatever else was found is sorted out
(`found_logs`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from skidway.broker.partitions.found_logs import FoundLogs
from skidway.broker.partitions.lives import Key, Lives
from skidway.ports import Clock
from skidway.runtime.slices import for_a_while

TURN_MS_MAX = 30
"""A turn spends at most this long on opening partitions, but opens one in any case."""
SETTLING_MAX = 128
"""At most this many wait for their syncs after a crash: each has a descriptor or two open."""


class OpeningAtStart:
    def __init__(
        self,
        keys: list[Key],
        open_now: Callable[[bytes, int], None],
        found: FoundLogs,
        lives: Lives,
        clock: Clock,
        on_started: Callable[[], None],
    ) -> None:
        self._open_now = open_now
        self._found = found
        self._lives = lives
        self._clock = clock
        self._on_started = on_started
        self._steps = self._all(keys)
        self._all_begun = False
        self.stopped = False
        self.done = False

    def go_on(self) -> bool:
        """Open for a while; true if there are more that wait for nothing but a turn."""
        if for_a_while(self._clock, TURN_MS_MAX, self._step):
            return True
        self.check_done()
        return False

    def _step(self) -> bool:
        if self._all_begun or self.stopped or self._lives.settling_count >= SETTLING_MAX:
            return False
        return next(self._steps, None) is not None

    def check_done(self) -> None:
        if self._all_begun and not self._lives.settling_count and not self.done:
            self.done = True
            self._on_started()

    def _all(self, keys: list[Key]) -> Iterator[int]:
        """A step each. All are begun only at its end: an error in between leaves the node fenced."""
        for topic_id, index in keys:
            self._open_now(topic_id, index)
            yield index
        for name, index in self._found.places():
            if (name, index) in self._found:
                self._found.sort_out_rest(name, index)
                yield index
        self._found.forget_others()
        self._all_begun = True
