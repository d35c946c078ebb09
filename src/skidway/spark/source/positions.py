"""Which partitions a read covers and where it begins and ends, as its options said it; nothing is looked up here."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from skidway.limits import INT32_MAX, INT64_MAX, MIB
from skidway.spark.client_settings import BadOption

JSON_CHARACTERS_MAX = 64 * MIB
SHOWN_CHARACTERS = 200

Place = tuple[str, int]
"""Topic and partition."""


@dataclass(frozen=True, slots=True)
class Assign:
    """These partitions and no others."""

    places: tuple[Place, ...]


@dataclass(frozen=True, slots=True)
class Subscribe:
    """All partitions of these topics, also those that are added later."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SubscribePattern:
    """All topics whose whole name matches, also those that are made later; never internal ones."""

    pattern: str


@dataclass(frozen=True, slots=True)
class Edge:
    """EARLIEST or LATEST in every partition."""

    place: int


@dataclass(frozen=True, slots=True)
class AtOffsets:
    """An offset for each partition; EARLIEST and LATEST stand for themselves."""

    offsets: Mapping[Place, int]


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first record at or after a time in every partition."""

    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class AtTimes:
    """The first record at or after a time of its own in each partition."""

    timestamps_ms: Mapping[Place, int]


Topics = Assign | Subscribe | SubscribePattern
Position = Edge | AtOffsets | AtTime | AtTimes


def read_partitions(name: str, text: str) -> tuple[Place, ...]:
    """`{"topic": [0, 1]}`, for the option called `name`."""
    expected = '{"topic": [0, 1]}'
    places: dict[Place, None] = {}
    for topic, inner in _topics(name, text, expected):
        if not isinstance(inner, list) or not inner:
            raise BadOption(name, f"topic {topic} has no list of partitions", f"give {expected}")
        for partition in inner:
            if type(partition) is not int or not 0 <= partition <= INT32_MAX:
                raise BadOption(name, f"{partition!r} is no partition of {topic}", f"give {expected}")
            places[topic, partition] = None
    return tuple(places)


def read_offsets(name: str, text: str, *, least: int, expected: str) -> dict[Place, int]:
    """`{"topic": {"0": number}}`, for the option called `name`."""
    offsets: dict[Place, int] = {}
    for topic, inner in _topics(name, text, expected):
        if not isinstance(inner, dict) or not inner:
            raise BadOption(name, f"topic {topic} has no partitions", f"give {expected}")
        for partition, offset in inner.items():
            if not re.fullmatch(r"[0-9]{1,10}", partition) or int(partition) > INT32_MAX:
                raise BadOption(name, f"{partition!r} is no partition of {topic}", f"give {expected}")
            if type(offset) is not int or not least <= offset <= INT64_MAX:
                raise BadOption(name, f"{topic} partition {partition} has {offset!r}", f"give {expected}")
            offsets[topic, int(partition)] = offset
    return offsets


def read_json(name: str, text: str, expected: str) -> object:
    if len(text) > JSON_CHARACTERS_MAX:
        raise BadOption(name, f"it has {len(text)} characters", f"give at most {JSON_CHARACTERS_MAX}")
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise BadOption(name, f"{text[:SHOWN_CHARACTERS]!r} is not what it takes", f"give {expected}") from None


def _topics(name: str, text: str, expected: str) -> Iterator[tuple[str, object]]:
    found = read_json(name, text, expected)
    if not isinstance(found, dict) or not found:
        raise BadOption(name, f"{text[:SHOWN_CHARACTERS]!r} is not what it takes", f"give {expected}")
    yield from found.items()
