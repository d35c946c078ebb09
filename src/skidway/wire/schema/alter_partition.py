"""AlterPartition (key 56), v2–v3."""

from skidway.wire.message import Message, array, int8, int16, int32, int64, uuid


class BrokerState(Message):
    broker_id: int = int32("3+")
    broker_epoch: int = int64("3+", default=-1)


class RequestPartitionData(Message):
    partition_index: int = int32("0+")
    leader_epoch: int = int32("0+")
    new_isr: list[int] = array("int32", "0-2")
    new_isr_with_epochs: list[BrokerState] = array(BrokerState, "3+")
    leader_recovery_state: int = int8("1+")
    partition_epoch: int = int32("0+")


class RequestTopicData(Message):
    topic_id: bytes = uuid("2+")
    partitions: list[RequestPartitionData] = array(RequestPartitionData, "0+")


class AlterPartitionRequest(Message, key=56, versions="2-3", flexible="0+"):
    broker_id: int = int32("0+")
    broker_epoch: int = int64("0+", default=-1)
    topics: list[RequestTopicData] = array(RequestTopicData, "0+")


class ResponsePartitionData(Message):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    leader_id: int = int32("0+")
    leader_epoch: int = int32("0+")
    isr: list[int] = array("int32", "0+")
    leader_recovery_state: int = int8("1+")
    partition_epoch: int = int32("0+")


class ResponseTopicData(Message):
    topic_id: bytes = uuid("2+")
    partitions: list[ResponsePartitionData] = array(ResponsePartitionData, "0+")


class AlterPartitionResponse(Message, key=56, versions="2-3", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    topics: list[ResponseTopicData] = array(ResponseTopicData, "0+")
