"""Share groups: keys and values in `__consumer_offsets` and `__share_group_state`."""

from skidway.wire.message import Message, array, int8, int16, int32, int64, string, uint16, uuid


class ShareGroupCurrentMemberAssignmentKey(Message, versions="14"):
    group_id: str = string("14")
    member_id: str = string("14")


class TopicPartitions(Message):
    topic_id: bytes = uuid("0+")
    partitions: list[int] = array("int32", "0+")


class ShareGroupCurrentMemberAssignmentValue(Message, versions="0", flexible="0+"):
    member_epoch: int = int32("0+")
    previous_member_epoch: int = int32("0+")
    state: int = int8("0+")
    assigned_partitions: list[TopicPartitions] = array(TopicPartitions, "0+")


class ShareGroupMemberMetadataKey(Message, versions="10"):
    group_id: str = string("10")
    member_id: str = string("10")


class ShareGroupMemberMetadataValue(Message, versions="0", flexible="0+"):
    rack_id: str | None = string("0+", nullable="0+")
    client_id: str = string("0+")
    client_host: str = string("0+")
    subscribed_topic_names: list[str] = array("string", "0+")


class ShareGroupMetadataKey(Message, versions="11"):
    group_id: str = string("11")


class ShareGroupMetadataValue(Message, versions="0", flexible="0+"):
    epoch: int = int32("0+")


class ShareGroupPartitionMetadataKey(Message, versions="9"):
    group_id: str = string("9")


class PartitionMetadata(Message):
    partition: int = int32("0+")
    racks: list[str] = array("string", "0+")


class TopicMetadata(Message):
    topic_id: bytes = uuid("0+")
    topic_name: str = string("0+")
    num_partitions: int = int32("0+")
    partition_metadata: list[PartitionMetadata] = array(PartitionMetadata, "0+")


class ShareGroupPartitionMetadataValue(Message, versions="0", flexible="0+"):
    topics: list[TopicMetadata] = array(TopicMetadata, "0+")


class ShareGroupStatePartitionMetadataKey(Message, versions="15"):
    group_id: str = string("15")


class TopicPartitionsInfo(Message):
    topic_id: bytes = uuid("0+")
    topic_name: str = string("0+")
    partitions: list[int] = array("int32", "0+")


class TopicInfo(Message):
    topic_id: bytes = uuid("0+")
    topic_name: str = string("0+")


class ShareGroupStatePartitionMetadataValue(Message, versions="0", flexible="0+"):
    initialized_topics: list[TopicPartitionsInfo] = array(TopicPartitionsInfo, "0+")
    deleting_topics: list[TopicInfo] = array(TopicInfo, "0+")


class ShareGroupTargetAssignmentMemberKey(Message, versions="13"):
    group_id: str = string("13")
    member_id: str = string("13")


class TopicPartition(Message):
    topic_id: bytes = uuid("0+")
    partitions: list[int] = array("int32", "0+")


class ShareGroupTargetAssignmentMemberValue(Message, versions="0", flexible="0+"):
    topic_partitions: list[TopicPartition] = array(TopicPartition, "0+")


class ShareGroupTargetAssignmentMetadataKey(Message, versions="12"):
    group_id: str = string("12")


class ShareGroupTargetAssignmentMetadataValue(Message, versions="0", flexible="0+"):
    assignment_epoch: int = int32("0+")


class ShareSnapshotKey(Message, versions="0"):
    group_id: str = string("0")
    topic_id: bytes = uuid("0")
    partition: int = int32("0")


class StateBatch(Message):
    first_offset: int = int64("0")
    last_offset: int = int64("0")
    delivery_state: int = int8("0")
    delivery_count: int = int16("0")


class ShareSnapshotValue(Message, versions="0", flexible="0+"):
    snapshot_epoch: int = uint16("0")
    state_epoch: int = int32("0+")
    leader_epoch: int = int32("0+")
    start_offset: int = int64("0")
    state_batches: list[StateBatch] = array(StateBatch, "0")


class ShareUpdateKey(Message, versions="1"):
    group_id: str = string("1")
    topic_id: bytes = uuid("1")
    partition: int = int32("1")


class ShareUpdateValue(Message, versions="0", flexible="0+"):
    snapshot_epoch: int = uint16("0")
    leader_epoch: int = int32("0+")
    start_offset: int = int64("0")
    state_batches: list[StateBatch] = array(StateBatch, "0")
