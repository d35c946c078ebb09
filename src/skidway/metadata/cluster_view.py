"""What decisions about brokers, leaders and replicas look at, and how they change a partition.

A view lives for one decision. It may suppose what the decision is about to do (a broker that is going, one that comes,
settings that change) before any record says so.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

from msgspec import Struct, field

from skidway.errors import StaleBrokerEpoch, UnknownTopicOrPartition
from skidway.metadata.config_keys import Defaults, ResourceType
from skidway.metadata.image import LOST_DIRECTORY, Image, Partition, Topic
from skidway.metadata.partition_change import Election, PartitionChange
from skidway.metadata.partition_index import PartitionIndex, PartitionKey
from skidway.metadata.topic_configs import value_of
from skidway.wire.message import ZERO_UUID, Message

Configs = Mapping[tuple[int, str], Mapping[str, str]]


class ClusterView(Struct):
    image: Image
    index: PartitionIndex
    static: Mapping[str, str]
    """Broker settings of the controller's node; what concerns elections is to be set alike on all."""
    going: Collection[int] = ()
    coming: Mapping[int, Sequence[bytes]] = field(default_factory=dict)
    """With the log directories they come with."""
    configs: Configs | None = None
    """Settings as they will be."""
    _rules: dict[str, tuple[int, bool]] = field(default_factory=dict)

    def find(self, key: PartitionKey) -> tuple[Topic, Partition]:
        topic = self.image.topics_by_id[key[0]]
        return topic, topic.partitions[key[1]]

    def find_named(self, name: str, index: int) -> tuple[Topic, Partition]:
        topic = self.image.topics.get(name)
        if topic is None:
            raise UnknownTopicOrPartition(f"There is no topic {name}.")
        if not 0 <= index < len(topic.partitions):
            raise UnknownTopicOrPartition(f"The topic {name} has no partition {index}.")
        return topic, topic.partitions[index]

    def check_epoch(self, broker_id: int, broker_epoch: int) -> None:
        broker = self.image.brokers.get(broker_id)
        if broker is None:
            raise StaleBrokerEpoch(f"No broker with id {broker_id} is registered.")
        if broker.epoch != broker_epoch:
            raise StaleBrokerEpoch(f"Expected broker epoch {broker.epoch}, but got broker epoch {broker_epoch}.")

    def change(self, topic: Topic, partition: Partition, election: Election | None = None) -> PartitionChange:
        """Begin one; without an election type it is unclean only where the topic allows it."""
        min_in_sync, unclean = self.rules_of(topic.name)
        if election is None:
            election = Election.UNCLEAN if unclean else Election.ONLINE
        return PartitionChange(
            topic.id,
            partition,
            min_in_sync,
            self.active,
            lambda broker_id: self._holds(partition, broker_id),
            election,
            self.directory_of,
        )

    def rules_of(self, topic_name: str) -> tuple[int, bool]:
        """min.insync.replicas, and whether an election may be unclean."""
        rules = self._rules.get(topic_name)
        if rules is None:
            configs = self.image.configs if self.configs is None else self.configs
            overrides = configs.get((ResourceType.TOPIC, topic_name), {})
            # Not what one broker was told for itself: an election must not depend on where the controller is.
            defaults = Defaults(cluster=configs.get((ResourceType.BROKER, ""), {}), static=self.static)
            min_in_sync = value_of("min.insync.replicas", overrides, defaults)
            unclean = value_of("unclean.leader.election.enable", overrides, defaults)
            assert isinstance(min_in_sync, int)
            rules = self._rules[topic_name] = (min_in_sync, bool(unclean))
        return rules

    def active(self, broker_id: int) -> bool:
        if broker_id in self.going:
            return False
        if broker_id in self.coming:
            return True
        broker = self.image.brokers.get(broker_id)
        return broker is not None and broker.active

    def directory_of(self, broker_id: int) -> bytes:
        """Where there is a choice the broker makes it and tells us later."""
        log_dirs = self._log_dirs(broker_id)
        return log_dirs[0] if len(log_dirs) == 1 else ZERO_UUID

    def _log_dirs(self, broker_id: int) -> Sequence[bytes]:
        return self.coming[broker_id] if broker_id in self.coming else self.image.brokers[broker_id].log_dirs

    def _holds(self, partition: Partition, broker_id: int) -> bool:
        """A broker that came back with another disk has nothing of what the old one held, and one whose copy is damaged
        nothing that can be relied on."""
        if broker_id not in partition.replicas:
            return False
        directory = partition.directories[partition.replicas.index(broker_id)]
        if directory == LOST_DIRECTORY:
            return False
        log_dirs = self._log_dirs(broker_id)
        return directory == ZERO_UUID or not log_dirs or directory in log_dirs


def take_out(
    view: ClusterView, broker_ids: Collection[int], keys: Iterable[PartitionKey], *, unclean: bool = False
) -> list[Message]:
    """Out of the in-sync sets and out of leading; after an unclean stop out of the eligible ones as well."""
    records: list[Message] = []
    for key in keys:
        change = view.change(*view.find(key))
        change.isr = [each for each in change.before.isr if each not in broker_ids]
        change.unclean = broker_ids if unclean else ()
        record = change.record()
        if record is not None:
            records.append(record)
    return records
