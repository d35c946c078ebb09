"""Keys and values of `__consumer_offsets`; the version of a key says which record it is."""

from skidway.ports import Buffer
from skidway.wire.message import Message, array, blob, int8, int32, int64, nested, string, uuid


class ConsumerGroupCurrentMemberAssignmentKey(Message, versions="8"):
    group_id: str = string("8")
    member_id: str = string("8")


class TopicPartitions(Message):
    topic_id: bytes = uuid("0+")
    partitions: list[int] = array("int32", "0+")


class ConsumerGroupCurrentMemberAssignmentValue(Message, versions="0", flexible="0+"):
    member_epoch: int = int32("0+")
    previous_member_epoch: int = int32("0+")
    state: int = int8("0+")
    assigned_partitions: list[TopicPartitions] = array(TopicPartitions, "0+")
    partitions_pending_revocation: list[TopicPartitions] = array(TopicPartitions, "0+")


class ConsumerGroupMemberMetadataKey(Message, versions="5"):
    group_id: str = string("5")
    member_id: str = string("5")


class ClassicProtocol(Message):
    name: str = string("0+")
    metadata: Buffer = blob("0+")


class ClassicMemberMetadata(Message):
    session_timeout_ms: int = int32("0+")
    supported_protocols: list[ClassicProtocol] = array(ClassicProtocol, "0+")


class ConsumerGroupMemberMetadataValue(Message, versions="0", flexible="0+"):
    instance_id: str | None = string("0+", nullable="0+")
    rack_id: str | None = string("0+", nullable="0+")
    client_id: str = string("0+")
    client_host: str = string("0+")
    subscribed_topic_names: list[str] = array("string", "0+")
    subscribed_topic_regex: str | None = string("0+", nullable="0+")
    rebalance_timeout_ms: int = int32("0+", default=-1)
    server_assignor: str | None = string("0+", nullable="0+")
    classic_member_metadata: ClassicMemberMetadata | None = nested(
        ClassicMemberMetadata, "0+", default=None, nullable="0+", tag=0
    )


class ConsumerGroupMetadataKey(Message, versions="3"):
    group_id: str = string("3")


class ConsumerGroupMetadataValue(Message, versions="0", flexible="0+"):
    epoch: int = int32("0+")
    metadata_hash: int = int64("0+", tag=0)


class ConsumerGroupPartitionMetadataKey(Message, versions="4"):
    group_id: str = string("4")


class PartitionMetadata(Message):
    partition: int = int32("0+")
    racks: list[str] = array("string", "0+")


class TopicMetadata(Message):
    topic_id: bytes = uuid("0+")
    topic_name: str = string("0+")
    num_partitions: int = int32("0+")
    partition_metadata: list[PartitionMetadata] = array(PartitionMetadata, "0+")


class ConsumerGroupPartitionMetadataValue(Message, versions="0", flexible="0+"):
    topics: list[TopicMetadata] = array(TopicMetadata, "0+")


class ConsumerGroupRegularExpressionKey(Message, versions="16"):
    group_id: str = string("16")
    regular_expression: str = string("16")


class ConsumerGroupRegularExpressionValue(Message, versions="0", flexible="0+"):
    topics: list[str] = array("string", "0+")
    version: int = int64("0+")
    timestamp: int = int64("0+")


class ConsumerGroupTargetAssignmentMemberKey(Message, versions="7"):
    group_id: str = string("7")
    member_id: str = string("7")


class TopicPartition(Message):
    topic_id: bytes = uuid("0+")
    partitions: list[int] = array("int32", "0+")


class ConsumerGroupTargetAssignmentMemberValue(Message, versions="0", flexible="0+"):
    topic_partitions: list[TopicPartition] = array(TopicPartition, "0+")


class ConsumerGroupTargetAssignmentMetadataKey(Message, versions="6"):
    group_id: str = string("6")


class ConsumerGroupTargetAssignmentMetadataValue(Message, versions="0", flexible="0+"):
    assignment_epoch: int = int32("0+")


class GroupMetadataKey(Message, versions="2"):
    group: str = string("2")


class MemberMetadata(Message):
    member_id: str = string("0+")
    group_instance_id: str | None = string("3+", default=None, nullable="3+")
    client_id: str = string("0+")
    client_host: str = string("0+")
    rebalance_timeout: int = int32("1+", default=-1)
    session_timeout: int = int32("0+")
    subscription: Buffer = blob("0+")
    assignment: Buffer = blob("0+")


class GroupMetadataValue(Message, versions="0-4", flexible="4+"):
    protocol_type: str = string("0+")
    generation: int = int32("0+")
    protocol: str | None = string("0+", nullable="0+")
    leader: str | None = string("0+", nullable="0+")
    current_state_timestamp: int = int64("2+", default=-1)
    members: list[MemberMetadata] = array(MemberMetadata, "0+")


class OffsetCommitKey(Message, versions="0-1"):
    group: str = string("0-1")
    topic: str = string("0-1")
    partition: int = int32("0-1")


class OffsetCommitValue(Message, versions="0-4", flexible="4+"):
    offset: int = int64("0+")
    leader_epoch: int = int32("3+", default=-1)
    metadata: str = string("0+")
    commit_timestamp: int = int64("0+")
    expire_timestamp: int = int64("1", default=-1)
    topic_id: bytes = uuid("4+", tag=0)
