"""How far one partition of a dead-letter topic has been replayed.

`offset` is behind the last letter that was looked at. Letters before it that could not be sent, because their topic did
not exist, are in `left`: the next replay tries these again, and no others before `offset`. All of it is one committed
offset: the offset, and in its metadata `left 3,17-20`. Brokers bound that text, so that not every set of letters fits:
those that do not are counted in `forgotten`, and only a replay from an earlier place finds them.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

TEXT_MAX = 4_000
"""Kafka's brokers take 4096 bytes of metadata."""
_WORD = "left "
_RANGES = re.compile(r"left ([0-9]{1,19}(?:-[0-9]{1,19})?(?:,[0-9]{1,19}(?:-[0-9]{1,19})?)*)")

Range = tuple[int, int]
"""First and last."""


@dataclass(slots=True)
class Position:
    offset: int = 0
    left: list[Range] = field(default_factory=list)
    """In order, apart from one another, all before `offset`."""
    again: list[Range] = field(default_factory=list)
    """Left by an earlier replay, and not looked at by this one yet."""

    @property
    def start(self) -> int:
        """Where to begin to read."""
        return self.again[0][0] if self.again else self.offset

    def wants(self, offset: int) -> bool:
        return offset >= self.offset or any(first <= offset <= last for first, last in self.again)

    def count_again(self, log_start: int) -> int:
        """Of those left by an earlier replay, how many can still be there."""
        return sum(max(0, last + 1 - max(first, log_start)) for first, last in self.again)

    def note(self, offset: int, *, stays: bool) -> None:
        """A letter was looked at; letters come in order. What was left before it and did not come is gone."""
        while self.again and self.again[0][0] <= offset:
            first, last = self.again.pop(0)
            if last > offset:
                self.again.insert(0, (max(first, offset + 1), last))
        if stays and self.left and self.left[-1][1] == offset - 1:
            self.left[-1] = (self.left[-1][0], offset)
        elif stays:
            self.left.append((offset, offset))
        self.offset = max(self.offset, offset + 1)

    @property
    def text(self) -> str:
        """For the metadata of a committed offset."""
        kept = ",".join(str(first) if first == last else f"{first}-{last}" for first, last in self._remembered())
        return _WORD + kept if kept else ""

    @property
    def forgotten(self) -> int:
        """Letters that `text` has no room for."""
        known = sum(last + 1 - first for first, last in self._remembered())
        return sum(last + 1 - first for first, last in (*self.left, *self.again)) - known

    def _remembered(self) -> Iterator[Range]:
        room = TEXT_MAX - len(_WORD)
        for first, last in (*self.left, *self.again):
            room -= len(str(first)) + len(str(last)) + 2
            if room < 0:
                return
            yield first, last


def read_position(offset: int, metadata: str) -> Position:
    """Metadata that no replay wrote is passed over."""
    found = _RANGES.fullmatch(metadata)
    ranges: list[Range] = []
    for text in found[1].split(",") if found and len(metadata) <= TEXT_MAX else ():
        first, _, last = text.partition("-")
        ranges.append((int(first), int(last or first)))
    behind = [-1, *(last for _, last in ranges)]
    sound = all(before < first <= last < offset for before, (first, last) in zip(behind, ranges, strict=False))
    return Position(offset, again=ranges if sound else [])
