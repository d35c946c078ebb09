"""Keys and values of `__transaction_state`."""

from skidway.wire.message import Message, array, int8, int16, int32, int64, string


class TransactionLogKey(Message, versions="0"):
    transactional_id: str = string("0")


class PartitionsSchema(Message):
    topic: str = string("0+")
    partition_ids: list[int] = array("int32", "0+")


class TransactionLogValue(Message, versions="0-1", flexible="1+"):
    producer_id: int = int64("0+")
    previous_producer_id: int = int64("1+", default=-1, tag=0)
    next_producer_id: int = int64("1+", default=-1, tag=1)
    producer_epoch: int = int16("0+")
    transaction_timeout_ms: int = int32("0+")
    transaction_status: int = int8("0+")
    transaction_partitions: list[PartitionsSchema] | None = array(PartitionsSchema, "0+", nullable="0+")
    transaction_last_update_timestamp_ms: int = int64("0+")
    transaction_start_timestamp_ms: int = int64("0+")
    client_transaction_version: int = int16("1+", tag=2)
