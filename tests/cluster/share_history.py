"""What workers of a share group were given and told, and whether it can be true.

Each worker is a process that writes a line for everything it hears into a file of its own, so that what it knew
outlives it. Times are of the machine's monotonic clock, which all of its processes share.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path

import msgspec

Place = tuple[int, int]
"""Partition and offset."""

ACCEPT, RELEASE, REJECT = 1, 2, 3
UNKNOWN_EPOCH = -1
"""The leader changed, or may have changed, while the question was under way."""


class Got(msgspec.Struct, tag=True):
    """Records of a partition were acquired."""

    worker: str
    partition: int
    first: int
    last: int
    count: int
    epoch: int
    sent: float
    received: float


class Said(msgspec.Struct, tag=True):
    """An acknowledgement goes out."""

    worker: str
    partition: int
    first: int
    last: int
    verdict: int
    sent: float


class Heard(msgspec.Struct, tag=True):
    """And is answered."""

    worker: str
    partition: int
    first: int
    last: int
    verdict: int
    error: int
    received: float


Event = Got | Said | Heard


class Journal:
    """One file; a line is written at once and as a whole."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab", buffering=0)

    def write(self, events: Iterable[Event]) -> None:
        self._file.write(b"".join(msgspec.json.encode(event) + b"\n" for event in events))


def read_journals(folder: Path) -> list[Event]:
    """A process may have died in the middle of its last line."""
    found: list[Event] = []
    for path in sorted(folder.glob("*.journal")):
        for line in path.read_bytes().splitlines():
            try:
                json.loads(line)
            except ValueError:
                continue
            found.append(msgspec.json.decode(line, type=Event))
    return found


class Hold(msgspec.Struct):
    """Somebody had a record for certain from here to there."""

    worker: str
    epoch: int
    begins: float
    ends: float


class History:
    def __init__(self, events: Iterable[Event], lock_s: float) -> None:
        self.gots: dict[Place, list[Got]] = defaultdict(list)
        self.settled: dict[Place, float] = {}
        """When its acceptance or rejection was answered first."""
        self.open: set[Place] = set()
        """An acceptance or rejection went out: it may have been carried out."""
        self.said: dict[tuple[Place, str], list[float]] = defaultdict(list)
        self.lock_s = lock_s
        for event in events:
            for offset in range(event.first, event.last + 1):
                self._enter((event.partition, offset), event)

    def _enter(self, place: Place, event: Event) -> None:
        if isinstance(event, Got):
            self.gots[place].append(event)
        elif isinstance(event, Said):
            self.said[place, event.worker].append(event.sent)
            if event.verdict != RELEASE:
                self.open.add(place)
        elif event.error == 0 and event.verdict != RELEASE:
            self.settled[place] = min(event.received, self.settled.get(place, event.received))

    def holds(self, place: Place) -> list[Hold]:
        """From the answer that brought it to the acknowledgement, but not beyond the lock; if nothing was said, the
        worker may have died at once."""
        found = []
        for got in self.gots[place]:
            said = [sent for sent in self.said[place, got.worker] if sent >= got.received]
            ends = min(min(said, default=got.received), got.sent + self.lock_s)
            found.append(Hold(got.worker, got.epoch, got.received, ends))
        return sorted(found, key=lambda hold: hold.begins)

    def problems(self, limit: int) -> Iterator[str]:
        for place, gots in self.gots.items():
            yield from self._delivered_again(place, gots)
            yield from self._shared(place)
            for got in gots:
                if got.count > limit:
                    yield f"{place} was delivered for the {got.count}th time, the limit is {limit}"

    def _delivered_again(self, place: Place, gots: list[Got]) -> Iterator[str]:
        over = self.settled.get(place)
        for got in gots:
            if over is not None and got.sent > over:
                yield f"{place} was given to {got.worker} after its end was answered"

    def _shared(self, place: Place) -> Iterator[str]:
        known = [hold for hold in self.holds(place) if hold.epoch != UNKNOWN_EPOCH and hold.ends >= hold.begins]
        for one, next_ in pairwise(known):
            if one.epoch == next_.epoch and next_.begins < one.ends:
                yield f"{place} was held by {one.worker} and {next_.worker} at once, in leader epoch {one.epoch}"

    def missing(self, ends: dict[int, int], limit: int) -> list[Place]:
        """Records that nobody settled, may have settled, or had as often as allowed."""
        return [
            (partition, offset)
            for partition, end in ends.items()
            for offset in range(end)
            if (place := (partition, offset)) not in self.settled
            and place not in self.open
            and max((got.count for got in self.gots[place]), default=0) < limit
        ]
