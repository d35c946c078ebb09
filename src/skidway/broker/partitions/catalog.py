"""The partitions this node hosts, by topic name and by topic id.

Where a partition is asked for that exists elsewhere, the answer is that this node is no replica of it. Where it should
be here and could not be opened, the answer says why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from skidway.broker.partitions.partition import Partition
from skidway.errors import (
    NotLeaderOrFollower,
    ProtocolError,
    StorageError,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from skidway.metadata.image import Image, Topic


class Partitions:
    __slots__ = ("_by_id", "_by_name", "_image", "_why_missing")

    def __init__(self, image: Image, why_missing: Callable[[bytes, int], str | None]) -> None:
        self._image = image
        self._why_missing = why_missing
        self._by_name: dict[str, dict[int, Partition]] = {}
        self._by_id: dict[bytes, dict[int, Partition]] = {}

    def __iter__(self) -> Iterator[Partition]:
        for topic in self._by_name.values():
            yield from topic.values()

    def __len__(self) -> int:
        return sum(map(len, self._by_name.values()))

    def __contains__(self, key: tuple[bytes, int]) -> bool:
        return key[1] in self._by_id.get(key[0], ())

    def find(self, topic: str, index: int) -> Partition:
        try:
            return self._by_name[topic][index]
        except KeyError:
            raise self._not_here(self._image.topics.get(topic), repr(topic), index) from None

    def find_by_id(self, topic_id: bytes, index: int) -> Partition:
        try:
            return self._by_id[topic_id][index]
        except KeyError:
            known = self._image.topics_by_id.get(topic_id)
            if known is None:
                raise UnknownTopicId(f"no topic with the id {topic_id.hex()} here") from None
            raise self._not_here(known, f"with the id {topic_id.hex()}", index) from None

    def get(self, topic_id: bytes, index: int) -> Partition | None:
        return self._by_id.get(topic_id, {}).get(index)

    def _not_here(self, topic: Topic | None, name: str, index: int) -> ProtocolError:
        if topic is None or not 0 <= index < len(topic.partitions):
            return UnknownTopicOrPartition(f"no partition {index} of topic {name} here")
        if (why := self._why_missing(topic.id, index)) is not None:
            return StorageError(f"partition {index} of topic {name} cannot be opened here, the broker retries: {why}")
        return NotLeaderOrFollower(f"partition {index} of topic {name} is on other nodes")

    def of_topic(self, topic: str) -> list[Partition]:
        return list(self._by_name.get(topic, {}).values())

    def add(self, partition: Partition) -> None:
        topic = self._by_name.setdefault(partition.topic, {})
        assert partition.index not in topic, f"{partition} is there already"
        topic[partition.index] = partition
        self._by_id[partition.topic_id] = topic

    def remove(self, partition: Partition) -> None:
        topic = self._by_id[partition.topic_id]
        del topic[partition.index]
        if not topic:
            del self._by_id[partition.topic_id]
            del self._by_name[partition.topic]

    def remove_topic(self, topic_id: bytes) -> list[Partition]:
        topic = self._by_id.pop(topic_id, {})
        partitions = list(topic.values())
        if partitions:
            del self._by_name[partitions[0].topic]
        return partitions
