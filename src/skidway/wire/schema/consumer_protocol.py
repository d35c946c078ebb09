"""What consumers of the classic protocol put into the opaque bytes of JoinGroup and SyncGroup."""

from skidway.ports import Buffer
from skidway.wire.message import Message, array, blob, int32, string


class ConsumerProtocolAssignmentTopicPartition(Message):
    topic: str = string("0+")
    partitions: list[int] = array("int32", "0+")


class ConsumerProtocolAssignment(Message, versions="0-3"):
    assigned_partitions: list[ConsumerProtocolAssignmentTopicPartition] = array(
        ConsumerProtocolAssignmentTopicPartition, "0+"
    )
    user_data: Buffer | None = blob("0+", default=None, nullable="0+")


class ConsumerProtocolSubscriptionTopicPartition(Message):
    topic: str = string("1+")
    partitions: list[int] = array("int32", "1+")


class ConsumerProtocolSubscription(Message, versions="0-3"):
    topics: list[str] = array("string", "0+")
    user_data: Buffer | None = blob("0+", default=None, nullable="0+")
    owned_partitions: list[ConsumerProtocolSubscriptionTopicPartition] = array(
        ConsumerProtocolSubscriptionTopicPartition, "1+"
    )
    generation_id: int = int32("2+", default=-1)
    rack_id: str | None = string("3+", default=None, nullable="3+")
