"""The partitions this node leads, by topic name and by topic id."""

from __future__ import annotations

from collections.abc import Iterator

from skidway.broker.partition import Partition
from skidway.errors import UnknownTopicId, UnknownTopicOrPartition


class Partitions:
    __slots__ = ("_by_id", "_by_name")

    def __init__(self) -> None:
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
            raise UnknownTopicOrPartition(f"no partition {index} of topic {topic!r} here") from None

    def find_by_id(self, topic_id: bytes, index: int) -> Partition:
        topic = self._by_id.get(topic_id)
        if topic is None:
            raise UnknownTopicId(f"no topic with the id {topic_id.hex()} here")
        partition = topic.get(index)
        if partition is None:
            raise UnknownTopicOrPartition(f"no partition {index} of the topic with the id {topic_id.hex()} here")
        return partition

    def of_topic(self, topic: str) -> list[Partition]:
        return list(self._by_name.get(topic, {}).values())

    def add(self, partition: Partition) -> None:
        topic = self._by_name.setdefault(partition.topic, {})
        assert partition.index not in topic, f"{partition} is there already"
        topic[partition.index] = partition
        self._by_id[partition.topic_id] = topic

    def remove_topic(self, topic_id: bytes) -> list[Partition]:
        topic = self._by_id.pop(topic_id, {})
        partitions = list(topic.values())
        if partitions:
            del self._by_name[partitions[0].topic]
        return partitions
