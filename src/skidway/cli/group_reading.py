"""`consume --group`: read as a member of a group, from where it committed, and commit what was handed out.

A message counts as handed out when the next poll is asked for: then it has been printed. So a reader that dies prints
some messages again next time and never leaves one out. Offsets are committed once a second, when a partition is taken
away, and at the end. Ctrl-C and SIGTERM wait until what is being printed is noted: nothing of it comes again.
"""

import time
from collections.abc import Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from skidway.blocking_client.groups import Groups
from skidway.blocking_client.membership import Membership
from skidway.blocking_client.offsets import LATEST, offsets_at
from skidway.blocking_client.reader import Consumed, Place, Reader, by_topic
from skidway.cli.interrupts import Interrupts
from skidway.cli.output import warn
from skidway.cli.places import Place as Where
from skidway.cli.places import find
from skidway.cli.reachable import Partials

if TYPE_CHECKING:
    from skidway.blocking_client.cluster import Cluster

COMMIT_EVERY_S = 1.0
IDLE_S = 0.1


@dataclass(slots=True)
class GroupOptions:
    group: str
    topics: list[str]
    pattern: str | None
    begin: Where
    """Where to begin in partitions for which the group has committed nothing."""
    follow: bool
    commit: bool
    isolation_level: int


class GroupReading:
    def __init__(self, cluster: "Cluster", options: GroupOptions, partials: Partials) -> None:
        self.cluster = cluster
        self.options = options
        self.membership = Membership(
            cluster, options.group, options.topics, pattern=options.pattern, on_revoked=self._revoked
        )
        self.reader = Reader(
            cluster,
            {},
            isolation_level=options.isolation_level,
            on_gone=partials.tell_gone,
            on_damaged=partials.leave_out,
        )
        self._known: set[Place] = set()
        self._ends: dict[Place, int] = {}
        self._handed_out: dict[Place, int] = {}
        self._committed: dict[Place, int] = {}
        self._committed_s = time.monotonic()

    def polls(self, count: int | None) -> Generator[list[Consumed], None, None]:
        """A poll's worth at a time, at most `count` messages in all. Ends at the end as it was when each partition was
        assigned, or never with `follow`."""
        with Interrupts() as interrupts:
            yield from self._polls(count, interrupts)

    def _polls(self, count: int | None, interrupts: Interrupts) -> Generator[list[Consumed], None, None]:
        left = count
        try:
            while left is None or left > 0:
                self.membership.beat()
                self._take_up()
                if not self.reader.positions:
                    if not self.options.follow and self._nothing_left():
                        return
                    time.sleep(IDLE_S)
                    continue
                polled = self._poll()
                messages = polled if left is None else polled[:left]
                with interrupts.held():
                    yield messages
                    self._note(messages, all_of_them=len(messages) == len(polled))
                if left is not None:
                    left -= len(messages)
                if time.monotonic() - self._committed_s >= COMMIT_EVERY_S:
                    self._commit()
        except KeyboardInterrupt:
            self.cluster.close()  # replies to what was asked before are not taken for those to the last commit
            raise
        finally:
            self._commit()
            self.membership.leave()

    def _take_up(self) -> None:
        """Begin to read what was assigned since the last look."""
        for topic, partitions in by_topic(self.membership.owned - self._known).items():
            places = [(topic, partition) for partition in partitions]
            committed = self.membership.groups.committed_of(self.options.group, places)
            new = [partition for partition in partitions if (topic, partition) not in committed]
            level = self.options.isolation_level
            starts = find(self.cluster, topic, new, self.options.begin, level) if new else {}
            ends = offsets_at(self.cluster, topic, partitions, LATEST, level)
            for place in places:
                known = committed.get(place)
                self._known.add(place)
                self._ends[place] = ends[place[1]]
                self.reader.positions[place] = known.offset if known is not None else starts[place[1]]
                if known is not None:
                    self._committed[place] = known.offset
        self._drop_finished()

    def _drop_finished(self) -> None:
        if self.options.follow:
            return
        for place, offset in list(self.reader.positions.items()):
            if offset >= self._ends[place]:
                self._handed_out[place] = self._ends[place] if offset > self._ends[place] else offset
                del self.reader.positions[place]

    def _poll(self) -> list[Consumed]:
        messages = self.reader.poll()
        if self.options.follow:
            return messages
        return [message for message in messages if message.offset < self._ends[message.topic, message.partition]]

    def _note(self, messages: list[Consumed], *, all_of_them: bool) -> None:
        for message in messages:
            self._handed_out[message.topic, message.partition] = message.offset + 1
        if all_of_them:
            # Also past what is never shown: control records, aborted transactions.
            self._handed_out |= self.reader.positions
            self._drop_finished()

    def _nothing_left(self) -> bool:
        if self.membership.owned:
            return True
        if Groups(self.cluster).describe(self.options.group).state != "Stable":
            return False
        warn(
            f"group {self.options.group} assigned no partition: its other members have all of them, or no topic matches"
        )
        return True

    def _commit(self) -> None:
        self._committed_s = time.monotonic()
        if not self.options.commit:
            return
        changed = {place: offset for place, offset in self._handed_out.items() if self._committed.get(place) != offset}
        self.membership.commit(changed)
        self._committed |= changed

    def _revoked(self, places: set[Place]) -> None:
        self._commit()
        for place in places:
            for kept in (self.reader.positions, self._ends, self._handed_out, self._committed):
                kept.pop(place, None)
        self._known -= places
