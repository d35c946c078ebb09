"""Records of `__consumer_offsets` <-> bytes, as Kafka writes them.

Key and value each begin with a 16-bit version; the key's says which record it is. A record without a value takes the
key's state away. Versions written are those of Kafka 4.x; all that Kafka ever wrote are read. Keys of records that
this broker does not keep (streams groups) are passed over, as Kafka passes over what it does not know; what should be
readable and is not raises StorageError.

A record of a producer's transaction is in a batch of that producer, and counts when the transaction is committed. The
marker that ends one is a record without a value whose key is the `Marker`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from skidway.errors import ProtocolError, StorageError
from skidway.ports import Buffer
from skidway.records.record import Record
from skidway.runtime.log_store import Format, Marker, Producer, Transactional
from skidway.wire.compile import Codec
from skidway.wire.message import Message
from skidway.wire.registry import codec, encoded
from skidway.wire.schema.group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from skidway.wire.schema.share_records import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataKey,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataKey,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataKey,
    ShareGroupTargetAssignmentMetadataValue,
)

_KINDS: dict[int, tuple[type[Message], type[Message]]] = {
    0: (OffsetCommitKey, OffsetCommitValue),
    1: (OffsetCommitKey, OffsetCommitValue),
    2: (GroupMetadataKey, GroupMetadataValue),
    3: (ConsumerGroupMetadataKey, ConsumerGroupMetadataValue),
    4: (ConsumerGroupPartitionMetadataKey, ConsumerGroupPartitionMetadataValue),
    5: (ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue),
    6: (ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue),
    7: (ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue),
    8: (ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue),
    10: (ShareGroupMemberMetadataKey, ShareGroupMemberMetadataValue),
    11: (ShareGroupMetadataKey, ShareGroupMetadataValue),
    12: (ShareGroupTargetAssignmentMetadataKey, ShareGroupTargetAssignmentMetadataValue),
    13: (ShareGroupTargetAssignmentMemberKey, ShareGroupTargetAssignmentMemberValue),
    14: (ShareGroupCurrentMemberAssignmentKey, ShareGroupCurrentMemberAssignmentValue),
    15: (ShareGroupStatePartitionMetadataKey, ShareGroupStatePartitionMetadataValue),
    16: (ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue),
}
SHARE_KEYS: tuple[type[Message], ...] = tuple(_KINDS[kind][0] for kind in range(10, 16))
_KEY_VERSIONS: dict[type[Message], int] = {key: version for version, (key, _) in _KINDS.items()}
_VALUE_VERSIONS: dict[type[Message], int] = {GroupMetadataValue: 3, OffsetCommitValue: 4}
_OFFSET_VERSION_WITH_EXPIRY = 1

# Said once: the cache in front of `codec` hides its type.
_codec: Callable[[type[Message]], Codec[Message]] = codec


@dataclass(slots=True)
class GroupRecord:
    key: Message | Marker
    value: Message | None
    """None takes away what the key stands for."""
    encoded: tuple[bytes, bytes | None] | None = field(default=None, compare=False, repr=False)
    """As it is written, where that was done beforehand."""
    producer: Producer | None = None
    """Whose transaction it belongs to."""

    def part_of(self) -> Producer | Marker | None:
        return self.key if isinstance(self.key, Marker) else self.producer

    def belongs_to(self, producer: Producer) -> None:
        self.producer = producer


def encode(record: GroupRecord) -> tuple[bytes, bytes | None]:
    if record.encoded is not None:
        return record.encoded
    assert not isinstance(record.key, Marker), "a marker has no form of its own here"
    version = _KEY_VERSIONS[type(record.key)]
    key = encoded(record.key, version, version.to_bytes(2, "big"))
    value = record.value
    if value is None:
        return key, None
    version = _VALUE_VERSIONS.get(type(value), 0)
    if isinstance(value, OffsetCommitValue) and value.expire_timestamp != -1:
        version = _OFFSET_VERSION_WITH_EXPIRY
    return key, encoded(value, version, version.to_bytes(2, "big"))


def decode(key: Buffer, value: Buffer | None) -> GroupRecord | None:
    """None for a record of a kind that is not kept here."""
    kind = _KINDS.get(int.from_bytes(key[:2], "big", signed=True))
    if kind is None:
        return None
    key_class, value_class = kind
    try:
        return GroupRecord(_decode(key_class, key), None if value is None else _decode(value_class, value))
    except (ProtocolError, KeyError) as error:
        raise StorageError(f"unreadable group record: {error}") from error


def _decode(cls: type[Message], data: Buffer) -> Message:
    version = int.from_bytes(data[:2], "big", signed=True)
    message, _ = _codec(cls).decoder(version)(data, 2)
    return message


def _decode_record(record: Record) -> GroupRecord | None:
    return None if record.key is None else decode(record.key, record.value)


_TRANSACTIONAL: Transactional[GroupRecord] = Transactional(
    GroupRecord.part_of, GroupRecord.belongs_to, lambda marker: GroupRecord(marker, None)
)
FORMAT: Format[GroupRecord] = Format("group", encode, _decode_record, _TRANSACTIONAL)
to_batch = FORMAT.to_batch
from_batches = FORMAT.from_batches
