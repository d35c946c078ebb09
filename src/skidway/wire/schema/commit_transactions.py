"""CommitTransactions (key 30000), v0: Skidway's own, which Kafka does not have.

It commits open transactions of several transactional ids of one coordinator, all of them or none.
"""

from skidway.wire.message import Message, array, int16, int32, int64, string


class TransactionToCommit(Message):
    transactional_id: str = string("0+")
    producer_id: int = int64("0+")
    producer_epoch: int = int16("0+")


class CommitTransactionsRequest(Message, key=30000, versions="0", flexible="0+"):
    transactions: list[TransactionToCommit] = array(TransactionToCommit, "0+")


class CommittedTransaction(Message):
    transactional_id: str = string("0+")
    producer_id: int = int64("0+")
    producer_epoch: int = int16("0+")


class CommitTransactionsResponse(Message, key=30000, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", default=None, nullable="0+")
    transactions: list[CommittedTransaction] = array(CommittedTransaction, "0+")
