"""Decisions about topics: create, delete, add partitions. Error codes are those a Kafka 4.x controller gives.

Each decision is made on a `Draft`: the image as it is, and what the items before in the same request will add to
it. Items that fail leave no trace in the draft.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

import msgspec

from skidway.errors import (
    ErrorCode,
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidRequest,
    InvalidTopic,
    PolicyViolation,
    ProtocolError,
    TopicAlreadyExists,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from skidway.limits import Limits
from skidway.metadata import topic_configs
from skidway.metadata.broker_configs import is_drained
from skidway.metadata.config_keys import ConfigEntry, Defaults, ResourceType
from skidway.metadata.image import Image, Topic
from skidway.metadata.operations import (
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    MorePartitions,
    NewTopic,
    PartitionsCreated,
    TopicCreated,
    TopicDeleted,
    sentence,
)
from skidway.metadata.placement import Site, place
from skidway.metadata.topic_names import alike, is_internal, validate_new_topic_name
from skidway.ports import Random
from skidway.runtime.replicated import Decision
from skidway.wire.message import ZERO_UUID, Message
from skidway.wire.schema.metadata_records import ConfigRecord, PartitionRecord, RemoveTopicRecord, TopicRecord

RESERVED_IDS = frozenset({ZERO_UUID, (1).to_bytes(16, "big")})
"""The zero id means "none", the next one is the metadata topic's."""
INTERNAL_REPLICAS = 3
"""Of the broker's own topics, where there are so many brokers."""


class TopicDefaults(msgspec.Struct):
    """For requests that leave the choice to the broker."""

    partitions: int
    replication_factor: int
    configs: Defaults
    brokers_expected: int = 1
    """In the cluster when all are there."""

    def replicas_of(self, name: str, registered: int, drained: int) -> int:
        """The broker's own topics are as safe as the cluster can make them; they are not made before it is whole."""
        if is_internal(name):
            brokers = max(self.brokers_expected, registered) - drained
            return max(self.replication_factor, min(INTERNAL_REPLICAS, brokers))
        return self.replication_factor


@dataclass(slots=True)
class Draft:
    image: Image
    limits: Limits
    random: Random
    records: list[Message] = field(default_factory=list)
    added_names: dict[str, str] = field(default_factory=dict)
    """Names of the topics drafted so far, by what they look like."""
    added_replicas: Counter[int] = field(default_factory=Counter)
    described: dict[tuple[tuple[str, str], ...], list[ConfigEntry]] = field(default_factory=dict)
    """Requests for thousands of topics give most of them the same settings."""
    drained: set[int] = field(init=False)
    """Brokers that are given nothing new, unless somebody names them."""

    def __post_init__(self) -> None:
        self.drained = {
            broker_id
            for broker_id in self.image.brokers
            if is_drained(self.image.config(ResourceType.BROKER, str(broker_id)))
        }

    def refuse_taken_name(self, name: str) -> None:
        if name in self.image.topics:
            raise TopicAlreadyExists(f"Topic '{name}' already exists.")
        other = self.image.alike.get(alike(name)) or self.added_names.get(alike(name))
        if other is not None:
            raise InvalidTopic(f"Topic '{name}' collides with existing topic: {other}")

    def refuse_too_many(self, placements: Sequence[Sequence[int]]) -> None:
        wanted = Counter(broker_id for replicas in placements for broker_id in replicas)
        for broker_id, count in wanted.items():
            held = self.image.replica_counts.get(broker_id, 0) + self.added_replicas[broker_id]
            if held + count > self.limits.partitions_max:
                self._refuse_more(broker_id, held, count)

    def refuse_hopeless(self, partitions: int, replication_factor: int) -> None:
        """More than all brokers together have room for: said before thousands of places are looked for."""
        brokers = [broker_id for broker_id in self.image.brokers if broker_id not in self.drained]
        held = {broker_id: self.image.replica_counts.get(broker_id, 0) for broker_id in brokers}
        added = sum(self.added_replicas[broker_id] for broker_id in brokers)
        free = len(brokers) * self.limits.partitions_max - sum(held.values()) - added
        wanted = partitions * max(1, min(replication_factor, len(brokers)))
        if brokers and wanted > free:
            each = -(-wanted // len(brokers))
            broker_id = min(held, key=held.__getitem__)
            self._refuse_more(broker_id, held[broker_id] + self.added_replicas[broker_id], each)

    def _refuse_more(self, broker_id: int, held: int, count: int) -> NoReturn:
        raise PolicyViolation(
            f"Broker {broker_id} holds {held} partition(s); {count} more would exceed its limit of "
            f"{self.limits.partitions_max}."
        )

    def new_topic_id(self) -> bytes:
        while True:
            topic_id = self.random.randbytes(16)
            # Tools take ids that print with a leading dash for an option.
            leading_dash = topic_id[0] >> 2 == 62
            if topic_id not in RESERVED_IDS and topic_id not in self.image.topics_by_id and not leading_dash:
                return topic_id

    def sites(self) -> list[Site]:
        return [
            Site(broker.id, broker.rack, broker.fenced, broker.id in self.drained)
            for broker in self.image.brokers.values()
            if not broker.in_controlled_shutdown
        ]

    def active(self, replicas: Sequence[int]) -> list[int]:
        return [broker_id for broker_id in replicas if self.image.brokers[broker_id].active]

    def add_partitions(self, topic_id: bytes, first: int, placements: Sequence[list[int]]) -> None:
        for index, replicas in enumerate(placements, first):
            isr = self.active(replicas)
            record = PartitionRecord(
                partition_id=index,
                topic_id=topic_id,
                replicas=replicas,
                isr=isr,
                leader=isr[0],
                leader_epoch=0,
                partition_epoch=0,
                directories=[self._directory(broker_id) for broker_id in replicas],
            )
            self.records.append(record)
            self.added_replicas.update(replicas)

    def describe(self, overrides: Mapping[str, str], defaults: Defaults) -> list[ConfigEntry]:
        """Shared between topics: not to be changed."""
        settings = tuple(overrides.items())
        if settings not in self.described:
            self.described[settings] = topic_configs.describe(overrides, defaults)
        return self.described[settings]

    def _directory(self, broker_id: int) -> bytes:
        """Where there is a choice the broker makes it and tells us later."""
        log_dirs = self.image.brokers[broker_id].log_dirs
        return log_dirs[0] if len(log_dirs) == 1 else ZERO_UUID


def decide_create(
    draft: Draft, operation: CreateTopics, defaults: TopicDefaults
) -> Decision[Message, list[TopicCreated]]:
    _refuse_long_request(len(operation.topics), draft.limits)
    times_named = Counter(topic.name for topic in operation.topics)
    results: dict[str, TopicCreated] = {}
    for topic in operation.topics:
        if topic.name in results:
            continue
        try:
            if times_named[topic.name] > 1:
                raise InvalidRequest("Duplicate topic name.")
            results[topic.name] = _create(draft, topic, defaults)
        except ProtocolError as refusal:
            results[topic.name] = TopicCreated(topic.name, refusal.code, sentence(refusal))
    return Decision([] if operation.validate_only else draft.records, list(results.values()))


def _refuse_long_request(count: int, limits: Limits) -> None:
    if count > limits.topics_per_request_max:
        raise PolicyViolation(f"{count} topics in one request exceed the limit of {limits.topics_per_request_max}.")


def _create(draft: Draft, topic: NewTopic, defaults: TopicDefaults) -> TopicCreated:
    validate_new_topic_name(topic.name)
    draft.refuse_taken_name(topic.name)
    overrides = _overrides(topic)
    topic_configs.validate(overrides)
    placements = _assigned(draft, topic) if topic.assignments else _placed(draft, topic, defaults)
    draft.refuse_too_many(placements)

    topic_id = draft.new_topic_id()
    draft.added_names[alike(topic.name)] = topic.name
    draft.records.append(TopicRecord(name=topic.name, topic_id=topic_id))
    draft.records.extend(
        ConfigRecord(resource_type=ResourceType.TOPIC, resource_name=topic.name, name=name, value=value)
        for name, value in overrides.items()
    )
    draft.add_partitions(topic_id, 0, placements)
    return TopicCreated(
        topic.name,
        id=topic_id,
        partitions=len(placements),
        replication_factor=len(placements[0]),
        configs=draft.describe(overrides, defaults.configs),
    )


def _overrides(topic: NewTopic) -> dict[str, str]:
    missing = [name for name, value in topic.configs if value is None]
    if missing:
        raise InvalidConfig(f"Null value not supported for topic configs: {','.join(missing)}")
    overrides = {name: value for name, value in topic.configs if value is not None}
    if len(overrides) != len(topic.configs):
        raise InvalidConfig("The same config was given more than once.")
    return overrides


def _placed(draft: Draft, topic: NewTopic, defaults: TopicDefaults) -> list[list[int]]:
    if topic.replication_factor < -1 or topic.replication_factor == 0:
        raise InvalidReplicationFactor("Replication factor must be larger than 0, or -1 to use the default value.")
    if topic.partitions < -1 or topic.partitions == 0:
        raise InvalidPartitions("Number of partitions was set to an invalid non-positive value.")
    partitions = defaults.partitions if topic.partitions == -1 else topic.partitions
    replicas = topic.replication_factor
    if replicas == -1:
        replicas = defaults.replicas_of(topic.name, len(draft.image.brokers), len(draft.drained))
    _refuse_wide_topic(partitions, draft.limits)
    draft.refuse_hopeless(partitions, replicas)
    return _place(draft, partitions, replicas)


def _refuse_wide_topic(partitions: int, limits: Limits) -> None:
    if partitions > limits.partitions_per_topic_max:
        raise InvalidPartitions(f"A topic may have {limits.partitions_per_topic_max} partitions, not {partitions}.")


def _place(draft: Draft, partitions: int, replication_factor: int) -> list[list[int]]:
    try:
        return place(draft.sites(), partitions, replication_factor, draft.random)
    except InvalidReplicationFactor as refusal:
        message = f"Unable to replicate the partition {replication_factor} time(s): {refusal}"
        raise InvalidReplicationFactor(message) from None


def _assigned(draft: Draft, topic: NewTopic) -> list[list[int]]:
    if topic.replication_factor != -1:
        raise InvalidRequest("A manual partition assignment was specified, but replication factor was not set to -1.")
    if topic.partitions != -1:
        raise InvalidRequest("A manual partition assignment was specified, but numPartitions was not set to -1.")
    _refuse_wide_topic(len(topic.assignments), draft.limits)
    by_partition: dict[int, list[int]] = {}
    replication_factor: int | None = None
    for partition, replicas in topic.assignments:
        if partition in by_partition:
            raise InvalidReplicaAssignment(f"Found multiple manual partition assignments for partition {partition}")
        _validate_assignment(draft, partition, replicas, replication_factor)
        replication_factor = len(replicas)
        by_partition[partition] = list(replicas)
    if sorted(by_partition) != list(range(len(by_partition))):
        raise InvalidReplicaAssignment("partitions should be a consecutive 0-based integer sequence")
    return [by_partition[partition] for partition in range(len(by_partition))]


def _validate_assignment(draft: Draft, partition: int, replicas: list[int], replication_factor: int | None) -> None:
    subject = "The manual partition assignment includes"
    if not replicas:
        raise InvalidReplicaAssignment(f"{subject} an empty replica list.")
    for broker_id in sorted(replicas):
        if broker_id not in draft.image.brokers:
            raise InvalidReplicaAssignment(f"{subject} broker {broker_id}, but no such broker is registered.")
        if replicas.count(broker_id) > 1:
            raise InvalidReplicaAssignment(f"{subject} the broker {broker_id} more than once.")
    if replication_factor is not None and len(replicas) != replication_factor:
        raise InvalidReplicaAssignment(
            f"{subject} a partition with {len(replicas)} replica(s), but this is not consistent with previous "
            f"partitions, which have {replication_factor} replica(s)."
        )
    if not draft.active(replicas):
        raise InvalidReplicaAssignment(
            f"All brokers specified in the manual partition assignment for partition {partition} are fenced or in "
            "controlled shutdown."
        )


def decide_delete(draft: Draft, operation: DeleteTopics) -> Decision[Message, list[TopicDeleted]]:
    _refuse_long_request(len(operation.topics), draft.limits)
    times_asked = Counter(operation.topics)
    topics = {asked: _look_up(draft.image, *asked) for asked in times_asked}
    times_meant = Counter(topic.id for topic in topics.values() if isinstance(topic, Topic))
    results: list[TopicDeleted] = []
    for (name, topic_id), topic in topics.items():
        try:
            if times_asked[name, topic_id] > 1:
                raise InvalidRequest("Duplicate topic id." if name is None else "Duplicate topic name.")
            if isinstance(topic, ProtocolError):
                raise topic
            # Asked for by name and by id: a mistake somewhere, and what is deleted is gone.
            if times_meant[topic.id] > 1:
                raise InvalidRequest("The provided topic name maps to an ID that was already supplied.")
            draft.records.append(RemoveTopicRecord(topic_id=topic.id))
            results.append(TopicDeleted(topic.name, topic.id))
        except ProtocolError as refusal:
            results.append(TopicDeleted(name, topic_id, refusal.code, sentence(refusal)))
            # It is in `topics`, and its traceback refers to this call: a ring for the garbage collector.
            refusal.__traceback__ = None
    return Decision(draft.records, results)


def _look_up(image: Image, name: str | None, topic_id: bytes) -> Topic | ProtocolError:
    try:
        return _find(image, name, topic_id)
    except ProtocolError as refusal:
        return refusal


def _find(image: Image, name: str | None, topic_id: bytes) -> Topic:
    if name is None and topic_id == ZERO_UUID:
        raise InvalidRequest("Neither topic name nor id were specified.")
    if name is None:
        topic = image.topics_by_id.get(topic_id)
        if topic is None:
            raise UnknownTopicId("This server does not host this topic ID.")
        return topic
    if topic_id != ZERO_UUID:
        raise InvalidRequest("You may not specify both topic name and topic id.")
    topic = image.topics.get(name)
    if topic is None:
        raise UnknownTopicOrPartition("This server does not host this topic-partition.")
    return topic


def decide_more_partitions(draft: Draft, operation: CreatePartitions) -> Decision[Message, list[PartitionsCreated]]:
    _refuse_long_request(len(operation.topics), draft.limits)
    times_named = Counter(topic.name for topic in operation.topics)
    results: dict[str, PartitionsCreated] = {}
    for topic in operation.topics:
        if topic.name in results:
            continue
        try:
            if times_named[topic.name] > 1:
                raise InvalidRequest("Duplicate topic name.")
            _add_partitions(draft, topic)
            results[topic.name] = PartitionsCreated(topic.name, ErrorCode.NONE)
        except ProtocolError as refusal:
            results[topic.name] = PartitionsCreated(topic.name, refusal.code, sentence(refusal))
    return Decision([] if operation.validate_only else draft.records, list(results.values()))


def _add_partitions(draft: Draft, wanted: MorePartitions) -> None:
    topic = _find(draft.image, wanted.name, ZERO_UUID)
    present = len(topic.partitions)
    if wanted.count == present:
        raise InvalidPartitions(f"Topic already has {present} partition(s).")
    if wanted.count < present:
        raise InvalidPartitions(
            f"The topic {topic.name} currently has {present} partition(s); {wanted.count} would not be an increase."
        )
    _refuse_wide_topic(wanted.count, draft.limits)
    additional = wanted.count - present
    first = topic.partitions[0]
    replication_factor = len(first.replicas) - len(first.removing_replicas)
    if wanted.assignments is None:
        placements = _place(draft, additional, replication_factor)
    else:
        if len(wanted.assignments) != additional:
            raise InvalidReplicaAssignment(
                f"Attempted to add {additional} additional partition(s), but only {len(wanted.assignments)} "
                "assignment(s) were specified."
            )
        placements = wanted.assignments
        for partition, replicas in enumerate(placements, present):
            _validate_assignment(draft, partition, replicas, replication_factor)
    draft.refuse_too_many(placements)
    draft.add_partitions(topic.id, present, placements)
