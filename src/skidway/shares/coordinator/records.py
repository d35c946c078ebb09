"""Records of `__share_group_state` <-> bytes, as Kafka writes them.

Two kinds, by the version of the key: 0 a snapshot, 1 an update. Values have version 0. A snapshot's key without a value
takes the share-partition away. What should be readable and is not raises StorageError.
"""

from collections.abc import Callable, Iterable, Sequence

import msgspec

from skidway.errors import ProtocolError, StorageError
from skidway.ports import Buffer
from skidway.records.record import Record
from skidway.runtime.log_store import Format
from skidway.shares.coordinator import letter_messages, term_messages
from skidway.shares.coordinator.batches import StateBatch
from skidway.shares.coordinator.keys import ShareKey
from skidway.shares.coordinator.state import Snapshot, Update
from skidway.wire.compile import Codec
from skidway.wire.message import Message
from skidway.wire.registry import codec, encoded
from skidway.wire.schema import share_records as wire

SNAPSHOT_TYPE, UPDATE_TYPE = 0, 1
VALUE_VERSION = 0
NOWHERE = -1

# Said once: the cache in front of `codec` hides its type.
_codec: Callable[[type[Message]], Codec[Message]] = codec


class ShareRecord(msgspec.Struct):
    key: ShareKey
    value: Snapshot | Update | None
    """None: the share-partition is forgotten."""
    offset: int = NOWHERE
    """Where it lies in the log, as soon as it is there."""


def encode(record: ShareRecord) -> tuple[bytes, bytes | None]:
    match record.value:
        case Update() as update:
            value: Message = wire.ShareUpdateValue(
                update.snapshot_epoch,
                update.leader_epoch,
                update.start_offset,
                update.complete_count,
                _to_wire(update.batches),
                letter_messages.to_wire(update.letters),
                term_messages.to_wire(update.terms),
            )
            return _encode(wire.ShareUpdateKey(*record.key), UPDATE_TYPE), _encode(value, VALUE_VERSION)
        case Snapshot() as snapshot:
            value = wire.ShareSnapshotValue(
                snapshot.snapshot_epoch,
                snapshot.state_epoch,
                snapshot.leader_epoch,
                snapshot.start_offset,
                snapshot.complete_count,
                snapshot.created_ms,
                snapshot.written_ms,
                _to_wire(snapshot.batches),
                letter_messages.to_wire(snapshot.letters),
                term_messages.to_wire(snapshot.terms),
            )
            return _encode(wire.ShareSnapshotKey(*record.key), SNAPSHOT_TYPE), _encode(value, VALUE_VERSION)
        case None:
            return _encode(wire.ShareSnapshotKey(*record.key), SNAPSHOT_TYPE), None


def decode(key: Buffer, value: Buffer | None) -> ShareRecord | None:
    """None for a record of a kind that is not kept here."""
    kind = int.from_bytes(key[:2], "big", signed=True)
    if kind not in (SNAPSHOT_TYPE, UPDATE_TYPE):
        return None
    try:
        if kind == UPDATE_TYPE:
            named = _decode(wire.ShareUpdateKey, key)
            assert isinstance(named, wire.ShareUpdateKey)
            # Kafka writes none without a value.
            return None if value is None else ShareRecord(_key(named), _update(value))
        named = _decode(wire.ShareSnapshotKey, key)
        assert isinstance(named, wire.ShareSnapshotKey)
        return ShareRecord(_key(named), None if value is None else _snapshot(value))
    except (ProtocolError, KeyError, ValueError) as error:
        raise StorageError(f"unreadable share-partition record: {error}") from error


def _key(named: wire.ShareSnapshotKey | wire.ShareUpdateKey) -> ShareKey:
    return ShareKey(named.group_id, bytes(named.topic_id), named.partition)


def _snapshot(value: Buffer) -> Snapshot:
    stored = _decode(wire.ShareSnapshotValue, value)
    assert isinstance(stored, wire.ShareSnapshotValue)
    return Snapshot(
        stored.snapshot_epoch,
        stored.state_epoch,
        stored.leader_epoch,
        stored.start_offset,
        stored.delivery_complete_count,
        stored.create_timestamp,
        stored.write_timestamp,
        _from_wire(stored.state_batches),
        letter_messages.from_wire(stored.letters),
        term_messages.from_wire(stored.terms),
    )


def _update(value: Buffer) -> Update:
    stored = _decode(wire.ShareUpdateValue, value)
    assert isinstance(stored, wire.ShareUpdateValue)
    return Update(
        stored.snapshot_epoch,
        stored.leader_epoch,
        stored.start_offset,
        stored.delivery_complete_count,
        _from_wire(stored.state_batches),
        letter_messages.from_wire(stored.letters),
        term_messages.from_wire(stored.terms),
    )


def _to_wire(batches: Iterable[StateBatch]) -> list[wire.StateBatch]:
    return [wire.StateBatch(*batch) for batch in batches]


def _from_wire(batches: Sequence[wire.StateBatch]) -> list[StateBatch]:
    return [
        StateBatch(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count) for each in batches
    ]


def _encode(message: Message, version: int) -> bytes:
    return encoded(message, version, version.to_bytes(2, "big"))


def _decode(cls: type[Message], data: Buffer) -> Message:
    version = int.from_bytes(data[:2], "big", signed=True)
    message, _ = _codec(cls).decoder(version)(data, 2)
    return message


def _decode_record(record: Record) -> ShareRecord | None:
    return None if record.key is None else decode(record.key, record.value)


def _placed(record: ShareRecord, offset: int) -> None:
    record.offset = offset


FORMAT: Format[ShareRecord] = Format("share-partition", encode, _decode_record, placed=_placed)
