"""How far a table has taken in each partition of a topic, and what that means for a batch. Pure: offsets in, words out.

A partition is known by its topic's id, so a topic that was deleted and made again is another one. A table's commit that
adds rows also sets the positions behind them. So a batch is laid over the positions that the table has: what lies
before them is there already, whatever became of Spark's checkpoint, and is left out.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Place = tuple[str, int]
"""The topic's id as hexadecimal digits, or `NAMED` and its name where brokers know no ids; and the partition."""
Positions = dict[Place, int]
"""The next offset that a table does not have."""

NAMED = "name:"
NO_ID = bytes(16)


def key_of(topic: str, topic_id: bytes) -> str:
    return NAMED + topic if topic_id == NO_ID else topic_id.hex()


@dataclass(slots=True)
class Span:
    """The offsets of a batch: begin <= offset < end. A partition that is new to the stream has no begin."""

    ends: Positions
    begins: Positions = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    """Of the topics, by their ids."""

    def name(self, place: Place) -> tuple[str, int]:
        return self.names.get(place[0], place[0]), place[1]


@dataclass(slots=True)
class Advance:
    """What a commit does with positions: it is good only for a table that has `before`, and leaves `after`."""

    before: Positions
    after: Positions
    names: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Whole:
    """The table has nothing of the batch."""


@dataclass(slots=True)
class Rest:
    """The table has part of the batch: what lies below these offsets, by topic name and partition."""

    below: dict[tuple[str, int], int]


@dataclass(slots=True)
class Known:
    """The table has all of it."""


@dataclass(slots=True)
class Gap:
    """The batch begins behind what the table has: records in between would be in neither."""

    topic: str
    partition: int
    has: int
    begins: int
    below: dict[tuple[str, int], int] = field(default_factory=dict)
    """In other partitions: what the table has of the batch."""


Verdict = Whole | Rest | Known | Gap


def judge(has: Mapping[Place, int], span: Span) -> Verdict:
    if all(end <= has.get(place, -1) for place, end in span.ends.items()):
        return Known()
    below = {
        span.name(place): has[place]
        for place, end in span.ends.items()
        if span.begins.get(place, 0) < min(end, has.get(place, 0))
    }
    for place, begin in sorted(span.begins.items()):
        if begin > has.get(place, begin):
            return Gap(*span.name(place), has[place], begin, below)
    return Rest(below) if below else Whole()


def advance(has: Mapping[Place, int], span: Span) -> Advance:
    """Positions never go back: a batch of an older checkpoint may end before what the table has."""
    before = {place: has[place] for place in span.ends if place in has}
    after = {place: max(end, before.get(place, 0)) for place, end in span.ends.items()}
    return Advance(before, after, span.names)


def is_next(batch: int, last_batch: int, advance: Advance | None, has: Mapping[Place, int]) -> bool:
    """Whether a commit may be laid over a table with this last batch of the query, and these positions."""
    if batch <= last_batch:
        return False
    return advance is None or all(has.get(place) == advance.before.get(place) for place in advance.after)


def to_json(positions: Mapping[Place, int], names: Mapping[str, str]) -> dict[str, Any]:
    """{id: {"topic": name, "next": {"0": 17}}}."""
    document: dict[str, Any] = {}
    for (topic, partition), offset in sorted(positions.items()):
        document.setdefault(topic, {"topic": names.get(topic, ""), "next": {}})["next"][str(partition)] = offset
    return document


def from_json(document: Mapping[str, Any]) -> tuple[Positions, dict[str, str]]:
    positions = {
        (topic, int(partition)): int(offset)
        for topic, inner in document.items()
        for partition, offset in inner["next"].items()
    }
    return positions, {topic: str(inner["topic"]) for topic, inner in document.items()}
