"""Where in a topic to begin or to stop, as a person writes it:

beginning, end      the ends of the log
1234                an offset
-10                 ten before the end, in each partition
10m, 2h, 1.5d       that long ago
2026-01-31T12:00    a time (local unless it says otherwise: Z, +02:00), or @1769860800000 in milliseconds
"""

import re
import time
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from skidway.cli.output import misused

if TYPE_CHECKING:
    from skidway.blocking_client.cluster import Cluster

_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_AGO = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|w)(?: ago)?")
EXPECTED = "beginning, end, an offset, -N for the last N, an age such as 10m, or a time such as 2026-01-31T12:00"


@dataclass(slots=True, frozen=True)
class Beginning:
    pass


@dataclass(slots=True, frozen=True)
class End:
    pass


@dataclass(slots=True, frozen=True)
class AtOffset:
    offset: int


@dataclass(slots=True, frozen=True)
class BeforeEnd:
    count: int


@dataclass(slots=True, frozen=True)
class AtTime:
    timestamp_ms: int


Place = Beginning | End | AtOffset | BeforeEnd | AtTime


def parse_place(text: str, now_ms: int) -> Place:
    """ValueError, with what was expected, when it is none of these."""
    word = text.strip().lower()
    if word in ("beginning", "start", "earliest"):
        return Beginning()
    if word in ("end", "latest", "now"):
        return End()
    if word.isascii() and word.isdigit():
        return AtOffset(int(word))
    if re.fullmatch(r"-\d+", word):
        return BeforeEnd(-int(word))
    if re.fullmatch(r"@\d{1,18}", word):
        return AtTime(int(word[1:]))
    ago = _AGO.fullmatch(word)
    if ago:
        return AtTime(max(0, now_ms - parse_age_ms(word)))
    try:
        # Never negative: to a broker such times are special places, -1 the end of the log.
        return AtTime(max(0, int(datetime.fromisoformat(text.strip()).timestamp() * 1000)))
    except (ValueError, OverflowError, OSError):
        raise ValueError(f"{text!r} is not a place in a topic; expected {EXPECTED}") from None


def parse_age_ms(text: str) -> int:
    """ValueError, with what was expected, when it is no age."""
    ago = _AGO.fullmatch(text.strip().lower())
    if ago is None:
        raise ValueError(f"{text!r} is not an age; expected e.g. 30s, 10m or 2h")
    return int(float(ago[1]) * _UNITS_MS[ago[2]])


def place_option(text: str | None, otherwise: Place) -> Place:
    """The place an option names; what is none ends the command."""
    if text is None:
        return otherwise
    try:
        return parse_place(text, time.time_ns() // 1_000_000)
    except ValueError as error:
        misused(str(error))


def find(cluster: "Cluster", topic: str, partitions: list[int], place: Place, isolation_level: int) -> dict[int, int]:
    """The offset of the place in each partition, never outside its log."""
    from skidway.blocking_client.offsets import EARLIEST, LATEST, offsets_at

    match place:
        case AtTime(timestamp_ms):
            return offsets_at(cluster, topic, partitions, timestamp_ms, isolation_level)
        case Beginning():
            return offsets_at(cluster, topic, partitions, EARLIEST, isolation_level)
        case End():
            return offsets_at(cluster, topic, partitions, LATEST, isolation_level)
    starts = offsets_at(cluster, topic, partitions, EARLIEST, isolation_level)
    ends = offsets_at(cluster, topic, partitions, LATEST, isolation_level)
    wanted = {
        partition: place.offset if isinstance(place, AtOffset) else ends[partition] - place.count
        for partition in partitions
    }
    return {partition: min(max(offset, starts[partition]), ends[partition]) for partition, offset in wanted.items()}
