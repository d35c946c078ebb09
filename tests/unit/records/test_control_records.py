"""End-of-transaction markers."""

import aiokafka.record.default_records as aiokafka_records
import pytest
from aiokafka.record.control_record import ABORT_MARKER, COMMIT_MARKER, ControlRecord

from skidway.errors import CorruptMessage, InvalidRecord
from skidway.records.batch import read_header
from skidway.records.control import (
    ControlType,
    EndTransaction,
    control_key,
    end_transaction_batch,
    read_control_type,
    read_end_transaction,
    read_marker,
)
from skidway.records.record import Record, build_batch, read_records


@pytest.mark.parametrize("committed", [True, False])
def test_a_marker_ends_a_transaction(committed: bool) -> None:
    marker = EndTransaction(committed, coordinator_epoch=12)
    batch = end_transaction_batch(marker, producer_id=9, producer_epoch=3, timestamp=1_000, leader_epoch=5)
    header = read_header(batch)
    assert header.is_control
    assert header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 3, -1)
    assert (header.partition_leader_epoch, header.base_timestamp, header.max_timestamp) == (5, 1_000, 1_000)
    (record,) = read_records(batch, decompressed_bytes_max=1_000)
    assert read_end_transaction(record) == marker

    parsed = aiokafka_records.DefaultRecordBatch(bytes(batch))
    assert parsed.is_control_batch
    expected = COMMIT_MARKER if committed else ABORT_MARKER
    assert ControlRecord.parse(next(iter(parsed)).key) == expected


def test_kinds_of_the_future_are_unknown_and_longer_keys_are_read() -> None:
    assert read_control_type(b"\x00\x00\x00\x63") is ControlType.UNKNOWN
    assert read_control_type(b"\x00\x01\x00\x01 and more") is ControlType.COMMIT
    assert read_control_type(control_key(ControlType.LEADER_CHANGE)) is ControlType.LEADER_CHANGE


@pytest.mark.parametrize(
    "record",
    [
        Record(0, 0, None, bytes(6)),
        Record(0, 0, b"\x00\x00\x00", bytes(6)),
        Record(0, 0, b"\xff\xff\x00\x01", bytes(6)),
        Record(0, 0, control_key(ControlType.LEADER_CHANGE), bytes(6)),
        Record(0, 0, control_key(ControlType.COMMIT), None),
        Record(0, 0, control_key(ControlType.COMMIT), bytes(5)),
        Record(0, 0, control_key(ControlType.COMMIT), b"\xff" * 6),
    ],
)
def test_what_is_no_marker_is_invalid(record: Record) -> None:
    with pytest.raises(InvalidRecord):
        read_end_transaction(record)


def read_slowly(batch: bytes | bytearray) -> EndTransaction | None:
    """Record by record, as any other batch."""
    try:
        return read_end_transaction(next(read_records(batch, decompressed_bytes_max=4_096)))
    except (StopIteration, InvalidRecord, CorruptMessage):
        return None


@pytest.mark.parametrize("marker", [EndTransaction(True, 0), EndTransaction(False, 2**31 - 1)])
@pytest.mark.parametrize("timestamp", [0, -1, 2**62])
def test_a_marker_has_the_bytes_of_a_batch_with_its_record(marker: EndTransaction, timestamp: int) -> None:
    kind = ControlType.COMMIT if marker.committed else ControlType.ABORT
    value = b"\x00\x00" + marker.coordinator_epoch.to_bytes(4, "big")
    built = build_batch(
        [Record(0, timestamp, control_key(kind), value)],
        producer_id=2**63 - 1,
        producer_epoch=32_767,
        leader_epoch=7,
        transactional=True,
        control=True,
    )
    batch = end_transaction_batch(
        marker, producer_id=2**63 - 1, producer_epoch=32_767, timestamp=timestamp, leader_epoch=7
    )
    assert batch == built
    assert read_marker(batch) == read_slowly(batch) == marker


def test_a_marker_with_any_byte_changed_is_read_as_any_batch_would_be() -> None:
    batch = end_transaction_batch(EndTransaction(True, 3), producer_id=9, producer_epoch=3, timestamp=1_000)
    others = 0
    for position in range(len(batch)):
        for change in (1, 2, 4, 8, 16, 32, 64, 128, 255):
            changed = bytearray(batch)
            changed[position] ^= change
            assert read_marker(changed) == read_slowly(changed), (position, change)
            others += read_slowly(changed) != EndTransaction(True, 3)
    assert others > 100
    for longer in (bytes(batch) + b"more", bytes(batch[:-1])):
        assert read_marker(longer) == read_slowly(longer)
