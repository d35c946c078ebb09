"""Which partitions a broker leads, is in sync in, is eligible in: found without looking at all of them.

Follows the image record by record: `before` a record is applied and `after`. Dicts serve as sets that keep an order,
so that decisions do not depend on how ids hash.
"""

from collections.abc import Iterable

from skidway.metadata.image import NO_LEADER, Image, Partition
from skidway.wire.message import Message
from skidway.wire.schema.metadata_records import PartitionChangeRecord, PartitionRecord, RemoveTopicRecord

PartitionKey = tuple[bytes, int]
"""Topic id and partition number."""
Keys = dict[PartitionKey, None]
_NONE: Keys = {}


class PartitionIndex:
    def __init__(self, image: Image) -> None:
        self._image = image
        self._led: dict[int, Keys] = {}
        self._in_sync: dict[int, Keys] = {}
        self._eligible: dict[int, Keys] = {}
        self.imbalanced: Keys = {}
        """Not led by their preferred replica."""
        self.reassigning: Keys = {}
        for topic in image.topics.values():
            for partition in topic.partitions:
                self._add((topic.id, partition.index), partition)

    def led_by(self, broker_id: int) -> Keys:
        return self._led.get(broker_id, _NONE)

    @property
    def leaderless(self) -> Keys:
        return self._led.get(NO_LEADER, _NONE)

    def in_sync(self, broker_id: int) -> Keys:
        return self._in_sync.get(broker_id, _NONE)

    def eligible(self, broker_id: int) -> Keys:
        return self._eligible.get(broker_id, _NONE)

    def with_eligible(self) -> Keys:
        """Partitions that have any eligible leader replicas."""
        return {key: None for keys in self._eligible.values() for key in keys}

    def before(self, record: Message) -> None:
        if isinstance(record, PartitionChangeRecord):
            key = (bytes(record.topic_id), record.partition_id)
            self._remove(key, self._image.topics_by_id[key[0]].partitions[key[1]])
        elif isinstance(record, RemoveTopicRecord):
            topic = self._image.topics_by_id[bytes(record.topic_id)]
            for partition in topic.partitions:
                self._remove((topic.id, partition.index), partition)

    def after(self, record: Message) -> None:
        if isinstance(record, PartitionChangeRecord | PartitionRecord):
            key = (bytes(record.topic_id), record.partition_id)
            self._add(key, self._image.topics_by_id[key[0]].partitions[key[1]])

    def _add(self, key: PartitionKey, partition: Partition) -> None:
        self._led.setdefault(partition.leader, {})[key] = None
        for broker_id in partition.isr:
            self._in_sync.setdefault(broker_id, {})[key] = None
        for broker_id in partition.eligible_leader_replicas:
            self._eligible.setdefault(broker_id, {})[key] = None
        if partition.leader != partition.replicas[0]:
            self.imbalanced[key] = None
        if partition.adding_replicas or partition.removing_replicas:
            self.reassigning[key] = None

    def _remove(self, key: PartitionKey, partition: Partition) -> None:
        del self._led[partition.leader][key]
        _drop(self._in_sync, partition.isr, key)
        _drop(self._eligible, partition.eligible_leader_replicas, key)
        self.imbalanced.pop(key, None)
        self.reassigning.pop(key, None)


def _drop(keys: dict[int, Keys], broker_ids: Iterable[int], key: PartitionKey) -> None:
    for broker_id in broker_ids:
        del keys[broker_id][key]
