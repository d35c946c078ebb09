"""Opening what is in a data directory when a node starts: some of it in every turn, because a node with thousands of
partitions has to vote, to answer and to send heartbeats meanwhile.

Every partition is opened as the metadata describes it when its turn comes. A log that no topic knows is set aside,
never deleted: metadata that was lost must not take the data with it. One whose topic was removed meanwhile, or that has
moved to other nodes, is deleted.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skidway.broker.hosting import Hosting, Key

TURN_MS_MAX = 30
"""So long a turn may be busy opening partitions; one is opened in any case."""
SETTLING_MAX = 128
"""So many may wait for their syncs after a crash: each has a descriptor or two open."""


class Opening:
    def __init__(self, hosting: Hosting, keys: list[Key]) -> None:
        self._hosting = hosting
        self._steps = self._all(keys)
        self._all_begun = False
        self._removed: set[bytes] = set()
        """Topics that went meanwhile."""
        self.stopped = False
        self.done = False

    def go_on(self) -> bool:
        """Open for a while; true if there are more that wait for nothing but a turn."""
        hosting = self._hosting
        until_ms = hosting.clock.monotonic_ms() + TURN_MS_MAX
        while not self._all_begun and not self.stopped and hosting.settling_count < SETTLING_MAX:
            if next(self._steps, None) is None:
                break
            if hosting.clock.monotonic_ms() >= until_ms:
                return True
        self.check_done()
        return False

    def check_done(self) -> None:
        if self._all_begun and not self._hosting.settling_count and not self.done:
            self.done = True
            self._hosting.on_started()

    def on_removed(self, topic_id: bytes) -> None:
        if not self.done:
            self._removed.add(topic_id)

    def _all(self, keys: list[Key]) -> Iterator[int]:
        """A step each. Only who comes to the end of it has begun all: an error in between leaves the node fenced."""
        hosting = self._hosting
        for topic_id, index in keys:
            hosting.open_now(topic_id, index, hosting.clock.wall_ms(), expected=True)
            yield index
        for name, index in list(hosting.logs.found):
            if (name, index) not in hosting.logs.found:
                continue
            try:
                self.sort_out(name, index)
            except OSError as error:
                hosting.on_trouble(f"{name}-{index}: no topic knows this log; it stays where it is: {error}")
            yield index
        self._all_begun = True

    def sort_out(self, name: str, index: int) -> None:
        """A log that was found, and that is not what the metadata means by its name, gives the name up."""
        hosting = self._hosting
        logs, topic = hosting.logs, hosting.image.topics.get(name)
        topic_id, unborn = logs.found[name, index], logs.is_unborn(name, index)
        if topic_id in self._removed or (unborn and logs.is_empty(name, index)):
            logs.discard(name, index, hosting.clock.wall_ms())
        elif unborn or topic is None or index >= len(topic.partitions) or topic_id not in (None, topic.id):
            kept = logs.set_aside(name, index)
            hosting.on_trouble(f"{name}-{index}: no topic knows this log; kept as {kept}, not deleted")
        elif not hosting.is_replica(topic, index):
            logs.discard(name, index, hosting.clock.wall_ms())
