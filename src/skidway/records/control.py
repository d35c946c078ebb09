"""Control records: what a broker writes among the records of clients to end a transaction.

The key says which kind (version, type), the value of an end-of-transaction marker which coordinator wrote it
(version, coordinator epoch). A control batch holds exactly one record. Both formats may grow at their ends, so later
versions are read by their known fields.
"""

from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from skidway.errors import CorruptMessage, InvalidRecord
from skidway.ports import Buffer
from skidway.records.batch import CONTROL_BIT, MAGIC, NO_SEQUENCE, PREFIX_BYTES, TRANSACTIONAL_BIT, set_crc
from skidway.records.record import Record, read_records

_KEY = Struct(">hh")
_MARKER = Struct(">hi")
_VERSION = 0

_BATCH = Struct(">qiibIhiqqqhii BBBBB hh B hi B")
"""A whole marker: the header of the batch, then its record."""
_BATCH_LENGTH = _BATCH.size - PREFIX_BYTES
_RECORD = (32, 0, 0, 0, 8)
"""The record's length, attributes, both deltas and the length of its key; all lengths are varints."""
_VALUE_LENGTH, _HEADER_COUNT = 12, 0
_ATTRIBUTES = CONTROL_BIT | TRANSACTIONAL_BIT
_SHAPE = (_BATCH_LENGTH, MAGIC, _ATTRIBUTES, 0, 1, *_RECORD, _VERSION, _VALUE_LENGTH, _VERSION, _HEADER_COUNT)
"""What all markers have in common."""

MARKER_BYTES_MAX = 4096
"""A marker has 78 bytes. A control batch that is larger than this is none."""


class ControlType(IntEnum):
    UNKNOWN = -1
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


_TYPES = {int(kind): kind for kind in ControlType}


class EndTransaction(NamedTuple):
    committed: bool
    coordinator_epoch: int


def control_key(kind: ControlType) -> bytes:
    return _KEY.pack(_VERSION, kind)


def read_control_type(key: Buffer | None) -> ControlType:
    """UNKNOWN for kinds that came after this was written: readers step over them."""
    if key is None or len(key) < _KEY.size:
        raise InvalidRecord("a control record without a whole key")
    version, kind = _KEY.unpack_from(key)
    if version < 0:
        raise InvalidRecord(f"a control record of version {version}")
    return _TYPES.get(kind, ControlType.UNKNOWN)


def read_end_transaction(record: Record) -> EndTransaction:
    kind = read_control_type(record.key)
    if kind not in (ControlType.COMMIT, ControlType.ABORT):
        raise InvalidRecord(f"a control record of kind {kind.name} ends no transaction")
    if record.value is None or len(record.value) < _MARKER.size:
        raise InvalidRecord("an end-of-transaction marker without a whole value")
    version, coordinator_epoch = _MARKER.unpack_from(record.value)
    if version < 0:
        raise InvalidRecord(f"an end-of-transaction marker of version {version}")
    return EndTransaction(kind == ControlType.COMMIT, coordinator_epoch)


def read_marker(batch: Buffer) -> EndTransaction | None:
    """What the control batch that begins the buffer says of a transaction; None if it ends none, or is empty."""
    if len(batch) == _BATCH.size:
        # As every broker of today writes it. Reading it record by record takes several times as long.
        _, length, _, magic, _, attributes, delta, _, _, _, _, _, count, *rest = _BATCH.unpack(batch)
        *record, key_version, kind, value_length, version, coordinator_epoch, headers = rest
        shape = (length, magic, attributes, delta, count, *record, key_version, value_length, version, headers)
        if shape == _SHAPE and kind in (ControlType.ABORT, ControlType.COMMIT):
            return EndTransaction(kind == ControlType.COMMIT, coordinator_epoch)
    try:
        return read_end_transaction(next(read_records(batch, decompressed_bytes_max=MARKER_BYTES_MAX)))
    except (StopIteration, InvalidRecord, CorruptMessage):
        return None


def end_transaction_batch(
    marker: EndTransaction, *, producer_id: int, producer_epoch: int, timestamp: int, leader_epoch: int = -1
) -> bytearray:
    """Of one record, without building one: every partition of every transaction gets such a batch."""
    batch = bytearray(_BATCH.size)
    header = (0, _BATCH_LENGTH, leader_epoch, MAGIC, 0, _ATTRIBUTES, 0, timestamp, timestamp)
    producer = (producer_id, producer_epoch, NO_SEQUENCE, 1)
    key = (_VERSION, ControlType.COMMIT if marker.committed else ControlType.ABORT)
    value = (_VALUE_LENGTH, _VERSION, marker.coordinator_epoch, _HEADER_COUNT)
    _BATCH.pack_into(batch, 0, *header, *producer, *_RECORD, *key, *value)
    set_crc(batch)
    return batch
