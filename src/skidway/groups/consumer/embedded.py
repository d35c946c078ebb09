"""What consumers say to each other in the classic protocol: subscriptions and assignments, embedded in its requests."""

from skidway.errors import InvalidRequest
from skidway.groups.consumer.reconciliation import NO_PARTITIONS, Partition, Partitions, by_topic
from skidway.groups.kinds import Context
from skidway.ports import Buffer
from skidway.wire.registry import codec, encoded
from skidway.wire.schema.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
)

EMBEDDED_VERSION_MAX = 3


def read_subscription(metadata: Buffer) -> ConsumerProtocolSubscription:
    """Raises InvalidRequest."""
    message: ConsumerProtocolSubscription
    message, _ = codec(ConsumerProtocolSubscription).decoder(_embedded_version(metadata))(metadata, 2)
    return message


def _embedded_version(data: Buffer) -> int:
    version = int.from_bytes(data[:2], "big", signed=True)
    if len(data) < 2 or version < 0:
        raise InvalidRequest("not a message of the consumer protocol")
    return min(version, EMBEDDED_VERSION_MAX)


def read_assignment(data: Buffer, context: Context) -> Partitions:
    """Partitions of topics that exist. A member that was never assigned anything has no bytes at all."""
    if not len(data):
        return NO_PARTITIONS
    message: ConsumerProtocolAssignment
    message, _ = codec(ConsumerProtocolAssignment).decoder(_embedded_version(data))(data, 2)
    return with_ids([(each.topic, each.partitions) for each in message.assigned_partitions], context)


def with_ids(named: list[tuple[str, list[int]]], context: Context) -> Partitions:
    partitions: set[Partition] = set()
    for name, numbers in named:
        topic_id, count = context.topics.id_of(name), context.topics.partition_count(name)
        if topic_id is not None and count is not None:
            partitions.update((topic_id, number) for number in numbers if 0 <= number < count)
    return frozenset(partitions)


def write_assignment(partitions: Partitions, metadata: Buffer, context: Context) -> bytes:
    """In the version the member's own metadata has."""
    version = _embedded_version(metadata)
    topics = []
    for topic_id, numbers in by_topic(partitions):
        name = context.topics.name_of(topic_id)
        if name is not None:
            topics.append(ConsumerProtocolAssignmentTopicPartition(name, numbers))
    return encoded(ConsumerProtocolAssignment(topics), version, version.to_bytes(2, "big"))


def assigned_data(data: Buffer) -> Buffer | None:
    """What an assignor told a member beside its partitions."""
    if not len(data):
        return None
    try:
        message, _ = codec(ConsumerProtocolAssignment).decoder(_embedded_version(data))(data, 2)
    except InvalidRequest:
        return None  # the upgrade itself finds out
    return message.user_data
