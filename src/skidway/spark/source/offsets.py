"""Which partitions a read covers now, and offsets in them: at an edge, at a time, as given. Asked of the leaders.

Leaders are asked once for all their partitions, so a thousand of them cost a handful of round trips.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from skidway.blocking_client.cluster import Cluster, NoSuchPartition, NoSuchTopic, Topic
from skidway.blocking_client.connection import Connection
from skidway.blocking_client.errors import check
from skidway.blocking_client.offsets import EARLIEST, LATEST
from skidway.spark.client_settings import BadOption
from skidway.spark.source.positions import Assign, AtOffsets, AtTime, AtTimes, Edge, Place, Position, Subscribe, Topics
from skidway.wire.schema.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

Offsets = dict[Place, int]
NO_ID = bytes(16)
PLACES_SHOWN = 5
FIND_ATTEMPTS = 5


@dataclass(slots=True)
class Found:
    """The partitions that exist of those a read covers."""

    places: list[Place]
    ids: dict[str, bytes]
    """Of their topics: a topic that was deleted and made again has another."""
    missing: list[str] = field(default_factory=list)
    """What was named and does not exist, in words."""


class NothingToRead(Exception):
    """A topic or partition that was named and does not exist."""


class OffsetReader:
    """Not for several threads at once."""

    def __init__(self, cluster: Cluster, topics: Topics, isolation_level: int) -> None:
        self.cluster = cluster
        self.topics = topics
        self.isolation_level = isolation_level

    def find(self) -> Found:
        if isinstance(self.topics, Assign):
            described, missing = self._describe(dict.fromkeys(topic for topic, _ in self.topics.places))
            places = [
                (topic, partition)
                for topic, partition in self.topics.places
                if topic in described and partition in described[topic].partitions
            ]
            existing = set(places)
            missing += [
                f"partition {partition} of topic {topic}"
                for topic, partition in self.topics.places
                if topic in described and (topic, partition) not in existing
            ]
            return Found(sorted(places), _ids(described), missing)
        if isinstance(self.topics, Subscribe):
            described, missing = self._describe(self.topics.topics)
        else:
            picture = self.cluster.retrying(self.cluster.refresh)
            matches = re.compile(self.topics.pattern).fullmatch
            described = {name: topic for name, topic in picture.topics.items() if not topic.internal and matches(name)}
            missing = []
        places = [(topic.name, partition) for topic in described.values() for partition in topic.partitions]
        return Found(sorted(places), _ids(described), missing)

    def find_with(self, ask: Callable[[Found], Offsets]) -> tuple[Found, Offsets]:
        """What there is, and offsets of it; once more if some of it went in between."""
        for _ in range(FIND_ATTEMPTS):
            found = self.find()
            try:
                return found, ask(found)
            except (NoSuchTopic, NoSuchPartition) as error:
                gone = error
        raise gone

    def find_all(self) -> Found:
        """Like `find` for a read that begins: what was named must exist."""
        found = self.find()
        self.require(found)
        return found

    def require(self, found: Found) -> None:
        if found.missing:
            named = ", ".join(found.missing[:PLACES_SHOWN])
            raise NothingToRead(f"there is no {named}: create it first, or correct the name in the options")

    def earliest(self, places: Iterable[Place]) -> Offsets:
        return self.at(dict.fromkeys(places, EARLIEST))

    def latest(self, places: Iterable[Place]) -> Offsets:
        """The end as the isolation level sees it: with read_committed, before the first open transaction."""
        return self.at(dict.fromkeys(places, LATEST))

    def at(self, timestamps: Mapping[Place, int]) -> Offsets:
        """The first offset at or after each time, -1 where there is none; or at EARLIEST, LATEST."""
        found: Offsets = {}

        def ask() -> Offsets:
            by_leader: dict[Connection, list[Place]] = {}
            for place in timestamps:
                if place not in found:
                    by_leader.setdefault(self.cluster.leader(*place), []).append(place)
            for connection, places in by_leader.items():
                reply = connection.call(self._request(places, timestamps), ListOffsetsResponse)
                for topic in reply.topics:
                    for answer in topic.partitions:
                        check(answer.error_code, f"offsets of {topic.name} partition {answer.partition_index}")
                        found[topic.name, answer.partition_index] = answer.offset
            return found

        return self.cluster.retrying(ask, topics={topic for topic, _ in timestamps}) if timestamps else found

    def resolve_start(self, position: Position, places: list[Place], *, unmatched_is_latest: bool) -> Offsets:
        offsets = self._resolve("startingOffsets", position, places)
        unmatched = [place for place, offset in offsets.items() if offset < 0]
        if unmatched and not unmatched_is_latest:
            topic, partition = unmatched[0]
            raise BadOption(
                "startingTimestamp" if isinstance(position, AtTime) else "startingOffsetsByTimestamp",
                f"{topic} partition {partition} has no record at or after the time",
                "give an earlier time, or set startingOffsetsByTimestampStrategy to latest to begin at the end there",
            )
        return offsets | self.latest(unmatched)

    def resolve_end(self, position: Position, places: list[Place]) -> Offsets:
        offsets = self._resolve("endingOffsets", position, places)
        return offsets | self.latest([place for place, offset in offsets.items() if offset < 0])

    def _resolve(self, name: str, position: Position, places: list[Place]) -> Offsets:
        """Negative where nothing is as young as the time asked for."""
        if isinstance(position, Edge):
            return self.at(dict.fromkeys(places, position.place))
        if isinstance(position, AtTime):
            return self.at(dict.fromkeys(places, position.timestamp_ms))
        if isinstance(position, AtTimes):
            check_same(f"{name}ByTimestamp", places, position.timestamps_ms)
            return self.at({place: position.timestamps_ms[place] for place in places})
        assert isinstance(position, AtOffsets)
        check_same(name, places, position.offsets)
        edges = self.at({place: offset for place, offset in position.offsets.items() if offset < 0})
        return {place: edges.get(place, position.offsets[place]) for place in places}

    def _describe(self, names: Iterable[str]) -> tuple[dict[str, Topic], list[str]]:
        wanted = list(names)
        picture = self.cluster.retrying(lambda: self.cluster.refresh(wanted))
        described: dict[str, Topic] = {}
        missing: list[str] = []
        for name in wanted:
            try:
                # One that has no leader yet is not in the picture either; looking it up waits for it.
                described[name] = picture.topics.get(name) or self.cluster.look_up(name)
            except NoSuchTopic:
                missing.append(f"topic {name}")
        return described, missing

    def _request(self, places: list[Place], timestamps: Mapping[Place, int]) -> ListOffsetsRequest:
        topics: dict[str, list[ListOffsetsPartition]] = {}
        for topic, partition in places:
            asked = ListOffsetsPartition(partition_index=partition, timestamp=timestamps[topic, partition])
            topics.setdefault(topic, []).append(asked)
        return ListOffsetsRequest(
            replica_id=-1,
            isolation_level=self.isolation_level,
            topics=[ListOffsetsTopic(name=name, partitions=partitions) for name, partitions in topics.items()],
            timeout_ms=self.cluster.timeout_ms,
        )


def check_order(start: Offsets, end: Offsets) -> None:
    for (topic, partition), begin in start.items():
        if begin > end[topic, partition]:
            problem = f"{topic} partition {partition} would begin at {begin}, after its end at {end[topic, partition]}"
            raise BadOption("startingOffsets", problem, "move the start or the end")


def _ids(described: Mapping[str, Topic]) -> dict[str, bytes]:
    return {name: topic.id for name, topic in described.items()}


def check_same(name: str, places: list[Place], given: Mapping[Place, int]) -> None:
    """As the Kafka connector wants it: who names offsets names all of them."""
    for words, difference in (
        ("it leaves out", set(places) - given.keys()),
        ("it names what is not read:", given.keys() - set(places)),
    ):
        if difference:
            listed = ", ".join(
                f"{topic} partition {partition}" for topic, partition in sorted(difference)[:PLACES_SHOWN]
            )
            raise BadOption(name, f"{words} {listed}", "name every partition, -2 for its start and -1 for its end")
