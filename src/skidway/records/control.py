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
from skidway.records.record import Record, build_batch, read_records

_KEY = Struct(">hh")
_MARKER = Struct(">hi")
_VERSION = 0

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
    try:
        return read_end_transaction(next(read_records(batch, decompressed_bytes_max=MARKER_BYTES_MAX)))
    except (StopIteration, InvalidRecord, CorruptMessage):
        return None


def end_transaction_batch(
    marker: EndTransaction, *, producer_id: int, producer_epoch: int, timestamp: int, leader_epoch: int = -1
) -> bytearray:
    kind = ControlType.COMMIT if marker.committed else ControlType.ABORT
    record = Record(0, timestamp, control_key(kind), _MARKER.pack(_VERSION, marker.coordinator_epoch))
    return build_batch(
        [record],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        leader_epoch=leader_epoch,
        transactional=True,
        control=True,
    )
