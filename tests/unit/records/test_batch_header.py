"""The outside of a batch: what its header says and what a broker may write into it."""

import pytest

from skidway.errors import CorruptMessage
from skidway.records import header_fields
from skidway.records.batch import (
    HEADER_BYTES,
    BatchHeader,
    TimestampType,
    crc_matches,
    iter_headers,
    read_header,
    set_log_append_time,
    set_timestamps,
    stamp,
)
from skidway.records.record import Record, build_batch, read_records

RECORDS = [Record(0, 1_000, b"a", b"1"), Record(0, 3_000, b"b", b"2"), Record(0, 2_000, None, b"3")]


def test_a_header_tells_what_the_batch_was_built_with() -> None:
    batch = build_batch(
        RECORDS,
        base_offset=70,
        codec=1,
        producer_id=5,
        producer_epoch=2,
        base_sequence=9,
        leader_epoch=4,
        transactional=True,
    )
    header = read_header(batch)
    assert header.size == len(batch)
    assert (header.base_offset, header.last_offset, header.record_count) == (70, 72, 3)
    assert (header.base_timestamp, header.max_timestamp) == (1_000, 3_000)
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.last_sequence) == (5, 2, 9, 11)
    assert (header.partition_leader_epoch, header.magic, header.codec) == (4, 2, 1)
    assert (header.is_transactional, header.is_control) == (True, False)
    assert header.timestamp_type is TimestampType.CREATE_TIME


def test_every_field_of_a_header_has_a_named_position() -> None:
    other_names = {"partition_leader_epoch": "leader_epoch", "magic": "magic_byte"}
    named = [other_names.get(field, field).upper() for field in BatchHeader._fields]
    assert [getattr(header_fields, name) for name in named] == list(range(len(named)))


@pytest.mark.parametrize(
    ("base", "delta", "last"),
    [(0, 0, 0), (2**31 - 1, 0, 2**31 - 1), (2**31 - 1, 1, 0), (2**31 - 3, 5, 2), (-1, 7, -1)],
)
def test_sequences_wrap_to_zero(base: int, delta: int, last: int) -> None:
    header = BatchHeader(0, 49, 0, 2, 0, 0, delta, 0, 0, 5, 0, base, delta + 1)
    assert header.last_sequence == last


def test_stamping_places_a_batch_and_leaves_its_checksum() -> None:
    batch = build_batch(RECORDS)
    before = bytes(batch)
    stamp(memoryview(batch), 2**40, 17)
    header = read_header(batch)
    assert (header.base_offset, header.partition_leader_epoch) == (2**40, 17)
    assert crc_matches(batch)
    assert batch[16:] == before[16:]


@pytest.mark.parametrize("position", [21, 30, 60, HEADER_BYTES, -1])
def test_a_changed_byte_breaks_the_checksum(position: int) -> None:
    batch = build_batch(RECORDS)
    batch[position] ^= 1
    assert not crc_matches(batch)
    assert not crc_matches(batch[:40])


def test_append_time_counts_for_every_record() -> None:
    batch = build_batch(RECORDS)
    set_log_append_time(batch, 9_999)
    assert crc_matches(batch)
    assert read_header(batch).timestamp_type is TimestampType.LOG_APPEND_TIME
    assert [record.timestamp for record in read_records(batch, decompressed_bytes_max=1_000)] == [9_999] * 3

    set_timestamps(batch, TimestampType.CREATE_TIME, 3_000)
    assert batch == build_batch(RECORDS)


def test_several_batches_are_found_and_a_partial_one_is_not() -> None:
    first, second = build_batch(RECORDS), build_batch(RECORDS[:1], base_offset=3)
    both = first + second
    assert [(position, header.base_offset) for position, header in iter_headers(both)] == [(0, 0), (len(first), 3)]
    for cut in range(1, len(second)):
        assert len(list(iter_headers(both[:-cut]))) == 1
    assert list(iter_headers(b"")) == []


@pytest.mark.parametrize(("position", "value"), [(16, b"\x01"), (8, b"\x00\x00\x00\x01"), (8, b"\xff\xff\xff\xff")])
def test_what_cannot_be_a_batch_is_corrupt(position: int, value: bytes) -> None:
    batch = build_batch(RECORDS)
    batch[position : position + len(value)] = value
    with pytest.raises(CorruptMessage):
        list(iter_headers(batch))
    with pytest.raises(CorruptMessage):
        list(read_records(batch, decompressed_bytes_max=1_000))


def test_a_short_buffer_has_no_header() -> None:
    with pytest.raises(CorruptMessage):
        read_header(bytes(60))
    with pytest.raises(CorruptMessage):
        read_header(bytes(100), 40)
