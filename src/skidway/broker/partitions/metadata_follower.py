"""Committed metadata, record by record: what each means for the partitions of this node and for their settings.

The image follows the records. Before partitions are opened (`Hosting.start`) nothing else does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from skidway.broker.partitions.hosting import Hosting, Observer
from skidway.broker.partitions.lives import Key
from skidway.broker.partitions.whereabouts import RECOVERING
from skidway.metadata.config_keys import ResourceType
from skidway.metadata.image import Image
from skidway.wire.message import Message
from skidway.wire.schema.metadata_records import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
)

ABOUT_BROKERS = (
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
    FenceBrokerRecord,
    UnfenceBrokerRecord,
    BrokerRegistrationChangeRecord,
)


class MetadataFollower:
    def __init__(self, hosting: Hosting, observer: Observer) -> None:
        self._hosting = hosting
        self._image = hosting.image
        self._partitions = hosting.partitions
        self._topic_settings = hosting.topic_settings
        self._observer = observer
        self.on_features_changed: Callable[[], None] = lambda: None
        """A level of the whole cluster is another."""

    def publish(self, records: Sequence[Message], wall_ms: int) -> None:
        """Follow records that are committed."""
        if not self._hosting.begun:
            for record in records:
                self._image.apply(record)
            if any(isinstance(record, ABOUT_BROKERS) for record in records):
                self._follow_brokers()
            return
        deleted: list[str] = []
        changed: dict[Key, bool] = {}
        """Whether one of its leaders was elected uncleanly."""
        for record in records:
            if isinstance(record, RemoveTopicRecord):
                deleted.append(self._image.topics_by_id[record.topic_id].name)
            self._image.apply(record)
            if isinstance(record, RemoveTopicRecord):
                self._hosting.remove_topic(bytes(record.topic_id), wall_ms)
            elif isinstance(record, PartitionRecord | PartitionChangeRecord):
                key = bytes(record.topic_id), record.partition_id
                unclean = record.leader_recovery_state == RECOVERING
                changed[key] = unclean or changed.get(key, False)
            elif isinstance(record, ConfigRecord):
                # In log order: a replaced leader must not commit using a newer min.insync.replicas.
                self._follow_changes(changed, wall_ms)
                changed = {}
                self._reconfigure(record)
            elif isinstance(record, ABOUT_BROKERS):
                self._follow_brokers()
            elif isinstance(record, FeatureLevelRecord):
                self.on_features_changed()
        self._follow_changes(changed, wall_ms)
        if deleted or any(isinstance(record, PartitionRecord) for record in records):
            self._observer.on_topics_changed(deleted)

    def replace(self, image: Image, wall_ms: int) -> None:
        """A snapshot says what is committed by now; what happened on the way there is not told."""
        deleted = [topic for topic in self._image.topics_by_id.values() if topic.id not in image.topics_by_id]
        self._image.become(image)
        if not self._hosting.begun:
            return
        self._topic_settings.on_changed()
        self.on_features_changed()
        for topic in deleted:
            self._hosting.remove_topic(topic.id, wall_ms)
        self._follow_brokers()
        for topic in image.topics.values():
            config = self._topic_settings.of(topic.name)
            for partition in self._partitions.of_topic(topic.name):
                partition.await_role(config)
            for index in range(len(topic.partitions)):
                self._hosting.follow(topic, index, True, wall_ms)
            for partition in self._partitions.of_topic(topic.name):
                partition.configure(config)
        self._observer.on_topics_changed([topic.name for topic in deleted])

    def _follow_changes(self, changed: Mapping[Key, bool], wall_ms: int) -> None:
        for (topic_id, index), unclean in changed.items():
            topic = self._image.topics_by_id.get(topic_id)
            if topic is not None:
                self._hosting.follow(topic, index, unclean, wall_ms)

    def _follow_brokers(self) -> None:
        self._hosting.whereabouts.on_brokers_changed()
        self._observer.on_brokers_changed()

    def _reconfigure(self, record: ConfigRecord) -> None:
        self._topic_settings.on_changed()
        topics = [record.resource_name] if record.resource_type == ResourceType.TOPIC else list(self._image.topics)
        for topic in topics:
            partitions = self._partitions.of_topic(topic)
            if partitions:
                config = self._topic_settings.of(topic)
                for partition in partitions:
                    partition.configure(config)
