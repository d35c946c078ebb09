"""Share groups: keys and values in `__consumer_offsets` and `__share_group_state`."""

from skidway.wire.message import Message, array, int8, int16, int32, int64, string, uuid


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
    metadata_hash: int = int64("0+")


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
    initializing_topics: list[TopicPartitionsInfo] = array(TopicPartitionsInfo, "0+")
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
    assignment_timestamp: int = int64("0+", default=0, tag=0)


class ShareSnapshotKey(Message, versions="0"):
    group_id: str = string("0")
    topic_id: bytes = uuid("0")
    partition: int = int32("0")


class StateBatch(Message):
    first_offset: int = int64("0+")
    last_offset: int = int64("0+")
    delivery_state: int = int8("0+")
    delivery_count: int = int16("0+")


class LetterDeath(Message):
    """Skidway's own, as all of `LetterNotes`."""

    first_offset: int = int64("0+")
    last_offset: int = int64("0+")
    cause: int = int8("0+")
    failed_first: int = int64("0+")
    failed_last: int = int64("0+")
    reason: str | None = string("0+", default=None, nullable="0+", tag=0)


class LetterNotes(Message):
    number: int = int64("0+")
    producer_id: int = int64("0+", default=-1)
    sequence: int = int32("0+")
    first_offset: int = int64("0+")
    last_offset: int = int64("0+")
    topic_id: bytes = uuid("0+")
    partition: int = int32("0+")
    deaths: list[LetterDeath] = array(LetterDeath, "0+")


class Term(Message):
    """Skidway's own, as all of `TermNotes`."""

    first_offset: int = int64("0+")
    last_offset: int = int64("0+")
    kind: int = int8("0+")
    delivery_count: int = int16("0+")
    until: int = int64("0+")
    lasts: int = int64("0+")
    owner: str = string("0+")


class TermNotes(Message):
    number: int = int64("0+")
    terms: list[Term] = array(Term, "0+")


class ShareSnapshotValue(Message, versions="0", flexible="0+"):
    snapshot_epoch: int = int32("0+")
    state_epoch: int = int32("0+")
    leader_epoch: int = int32("0+")
    start_offset: int = int64("0+")
    delivery_complete_count: int = int32("0+", default=-1, tag=0)
    create_timestamp: int = int64("0+")
    write_timestamp: int = int64("0+")
    state_batches: list[StateBatch] = array(StateBatch, "0+")
    letters: list[LetterNotes] = array(LetterNotes, "0+", tag=1000)
    terms: list[TermNotes] = array(TermNotes, "0+", tag=1001)


class ShareUpdateKey(Message, versions="1"):
    group_id: str = string("1")
    topic_id: bytes = uuid("1")
    partition: int = int32("1")


class ShareUpdateValue(Message, versions="0", flexible="0+"):
    snapshot_epoch: int = int32("0+")
    leader_epoch: int = int32("0+")
    start_offset: int = int64("0+")
    delivery_complete_count: int = int32("0+", default=-1, tag=0)
    state_batches: list[StateBatch] = array(StateBatch, "0+")
    letters: list[LetterNotes] = array(LetterNotes, "0+", tag=1000)
    terms: list[TermNotes] = array(TermNotes, "0+", tag=1001)
