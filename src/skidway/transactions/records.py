"""Records of `__transaction_state` <-> bytes, as Kafka writes them.

Key version 0. Value version 1, or 0 as long as `transaction.version` is 0: that has neither the producer ids before and
after nor whether epochs grow. Both are read. A record without a value takes its id away. What should be readable and is
not raises StorageError.
"""

from collections.abc import Callable, Iterable
from enum import IntEnum

import msgspec

from skidway.errors import ProtocolError, StorageError
from skidway.ports import Buffer
from skidway.records.record import Record
from skidway.runtime.log_store import Format
from skidway.transactions.transaction import Empty, Ended, Ending, Ongoing, Place, State, Transaction
from skidway.wire.compile import Codec
from skidway.wire.message import Message
from skidway.wire.registry import codec, encoded
from skidway.wire.schema.transaction_records import PartitionsSchema, TransactionLogKey, TransactionLogValue

KEY_VERSION = 0
VALUE_VERSION_FIRST, VALUE_VERSION = 0, 1
EXTENDED_VERSION = 1
"""The version of transactions from which on values have version 1."""
BUMPING_VERSION = 2
"""The version of transactions whose epoch grows at every end."""

_BEFORE = [version.to_bytes(2, "big") for version in range(VALUE_VERSION + 1)]
"""What stands before a key or value of each version."""

# Said once: the cache in front of `codec` hides its type.
_codec: Callable[[type[Message]], Codec[Message]] = codec


class Status(IntEnum):
    """Kafka's numbers; 6 and 7 are never written."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5


NAMES = {
    Status.EMPTY: "Empty",
    Status.ONGOING: "Ongoing",
    Status.PREPARE_COMMIT: "PrepareCommit",
    Status.PREPARE_ABORT: "PrepareAbort",
    Status.COMPLETE_COMMIT: "CompleteCommit",
    Status.COMPLETE_ABORT: "CompleteAbort",
}
"""As ListTransactions and DescribeTransactions call them."""


class TransactionRecord(msgspec.Struct):
    id: str
    transaction: Transaction | None
    """None: the id is forgotten."""


def status_of(state: State) -> Status:
    match state:
        case Empty():
            return Status.EMPTY
        case Ongoing():
            return Status.ONGOING
        case Ending(commit):
            return Status.PREPARE_COMMIT if commit else Status.PREPARE_ABORT
        case Ended(commit):
            return Status.COMPLETE_COMMIT if commit else Status.COMPLETE_ABORT


def encode(record: TransactionRecord, value_version: int = VALUE_VERSION) -> tuple[bytes, bytes | None]:
    key = encoded(TransactionLogKey(record.id), KEY_VERSION, _BEFORE[KEY_VERSION])
    transaction = record.transaction
    if transaction is None:
        return key, None
    state = transaction.state
    status = status_of(state)
    value = TransactionLogValue(
        producer_id=transaction.producer_id,
        previous_producer_id=transaction.previous_producer_id,
        next_producer_id=transaction.next_producer_id,
        producer_epoch=transaction.epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=status,
        transaction_partitions=None if status == Status.EMPTY else _by_topic(state.places),
        transaction_last_update_timestamp_ms=transaction.updated_ms,
        transaction_start_timestamp_ms=state.started_ms,
        client_transaction_version=BUMPING_VERSION if transaction.bumps else 0,
    )
    return key, encoded(value, value_version, _BEFORE[value_version])


def _by_topic(places: Iterable[Place]) -> list[PartitionsSchema]:
    topics: dict[str, PartitionsSchema] = {}
    for topic, partition in sorted(places):
        if (entry := topics.get(topic)) is None:
            entry = topics[topic] = PartitionsSchema(topic, [])
        entry.partition_ids.append(partition)
    return [*topics.values()]


def decode(key: Buffer, value: Buffer | None) -> TransactionRecord | None:
    """None for a record of a kind that is not kept here."""
    if int.from_bytes(key[:2], "big", signed=True) != KEY_VERSION:
        return None
    try:
        named = _decode(TransactionLogKey, key)
        assert isinstance(named, TransactionLogKey)
        if value is None:
            return TransactionRecord(named.transactional_id, None)
        stored = _decode(TransactionLogValue, value)
        assert isinstance(stored, TransactionLogValue)
        return TransactionRecord(named.transactional_id, _transaction(named.transactional_id, stored))
    except (ProtocolError, KeyError, ValueError) as error:
        raise StorageError(f"unreadable transaction record: {error}") from error


def _decode(cls: type[Message], data: Buffer) -> Message:
    version = int.from_bytes(data[:2], "big", signed=True)
    message, _ = _codec(cls).decoder(version)(data, 2)
    return message


def _transaction(transactional_id: str, stored: TransactionLogValue) -> Transaction:
    status = Status(stored.transaction_status)
    topics = stored.transaction_partitions
    if topics is None and status != Status.EMPTY:
        raise ValueError(f"a transaction in state {NAMES[status]} without a list of partitions")
    places = frozenset((entry.topic, partition) for entry in topics or [] for partition in entry.partition_ids)
    return Transaction(
        transactional_id,
        stored.producer_id,
        stored.producer_epoch,
        stored.transaction_timeout_ms,
        _state(status, stored.transaction_start_timestamp_ms, places),
        stored.transaction_last_update_timestamp_ms,
        stored.previous_producer_id,
        stored.next_producer_id,
        stored.client_transaction_version >= BUMPING_VERSION,
    )


def _state(status: Status, started_ms: int, places: frozenset[Place]) -> State:
    match status:
        case Status.EMPTY:
            return Empty()
        case Status.ONGOING:
            return Ongoing(started_ms, places)
        case Status.PREPARE_COMMIT | Status.PREPARE_ABORT:
            return Ending(status == Status.PREPARE_COMMIT, started_ms, places)
        case _:
            return Ended(status == Status.COMPLETE_COMMIT, started_ms)


def _decode_record(record: Record) -> TransactionRecord | None:
    return None if record.key is None else decode(record.key, record.value)


def format_at(version: Callable[[], int]) -> Format[TransactionRecord]:
    """`version` is the `transaction.version` of the moment."""

    def encode_now(record: TransactionRecord) -> tuple[bytes, bytes | None]:
        return encode(record, VALUE_VERSION if version() >= EXTENDED_VERSION else VALUE_VERSION_FIRST)

    return Format("transaction", encode_now, _decode_record)


FORMAT: Format[TransactionRecord] = Format("transaction", encode, _decode_record)
