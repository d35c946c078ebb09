"""Where the replicas of partitions are, and which of them can be asked, as far as this node knows."""

from __future__ import annotations

from skidway.broker.partitions.catalog import Partitions
from skidway.metadata.image import NO_LEADER, Image, Topic
from skidway.replica.role import PartitionRole

RECOVERING = 1
"""A leader that was elected uncleanly, and that has not said since that all is well."""


class Whereabouts:
    def __init__(self, node_id: int, image: Image, partitions: Partitions) -> None:
        self._node_id = node_id
        self._image = image
        self._partitions = partitions
        self.eligible: dict[int, int] = {}
        """Brokers that may join in-sync sets, with their epochs."""
        self.online: frozenset[int] = frozenset()
        """Brokers that are not fenced."""

    def on_brokers_changed(self) -> None:
        brokers = self._image.brokers.values()
        # In place: all roles share it.
        self.eligible.clear()
        self.eligible.update({broker.id: broker.epoch for broker in brokers if broker.active})
        self.online = frozenset(broker.id for broker in brokers if not broker.fenced)

    def is_here(self, topic: Topic, index: int) -> bool:
        """Whether the metadata has a replica of it on this node."""
        return self._node_id in topic.partitions[index].replicas

    def is_only_here(self, topic: Topic, index: int) -> bool:
        return topic.partitions[index].replicas == [self._node_id]

    def is_hosted(self, name: str, index: int, topic_id: bytes | None) -> bool:
        """The same by the name of its topic. None: whatever the topic's id."""
        topic = self._image.topics.get(name)
        if topic is None or index >= len(topic.partitions) or topic_id not in (None, topic.id):
            return False
        return self.is_here(topic, index)

    def is_offline(self, topic: Topic, index: int) -> bool:
        """Whether this node should serve the partition and cannot."""
        if self._node_id not in topic.partitions[index].replicas:
            return False
        partition = self._partitions.get(topic.id, index)
        return partition is None or partition.log.quarantined

    def leader_of(self, topic: Topic, index: int) -> int:
        """Who can be asked for it; -1 when nobody can."""
        leader = topic.partitions[index].leader
        if leader == self._node_id:
            return NO_LEADER if self.is_offline(topic, index) else leader
        return leader if leader in self.online else NO_LEADER

    def offline_replicas_of(self, topic: Topic, index: int) -> list[int]:
        here, online = self._node_id, self.online
        return [
            replica
            for replica in topic.partitions[index].replicas
            if (self.is_offline(topic, index) if replica == here else replica not in online)
        ]

    def role_of(self, topic: Topic, index: int, unclean: bool) -> PartitionRole:
        """`unclean`: one of its leaders since the last role may have been elected uncleanly."""
        described = topic.partitions[index]
        return PartitionRole(
            described.leader,
            described.leader_epoch,
            described.partition_epoch,
            described.replicas,
            described.isr,
            self.eligible,
            unclean or described.leader_recovery_state == RECOVERING,
            described.eligible_leader_replicas,
        )
