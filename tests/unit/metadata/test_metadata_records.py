"""Metadata records on disk: the bytes KRaft would write, and nothing unreadable is passed over."""

from collections.abc import Sequence

import pytest

from skidway.errors import StorageError
from skidway.log.bounds import Bound
from skidway.metadata.records import FORMAT, decode, encode, from_batches, to_batch
from skidway.ports import FileSlice
from skidway.records.batch import BatchHeader, iter_headers, stamp
from skidway.records.record import Record, build_batch
from skidway.runtime.log_store import LogStore
from skidway.wire.message import Message
from skidway.wire.schema.metadata_records import (
    ConfigRecord,
    FeatureLevelRecord,
    NoOpRecord,
    PartitionRecord,
    ProducerIdsRecord,
    TopicRecord,
)

ID = bytes(range(16))


@pytest.mark.parametrize(
    ("record", "written"),
    [
        # frame 1, type, version | compact strings carry their length plus one | no tagged fields
        (TopicRecord("foo", ID), b"\x01\x02\x00" + b"\x04foo" + ID + b"\x00"),
        (FeatureLevelRecord("metadata.version", 25), b"\x01\x0c\x00" + b"\x11metadata.version\x00\x19\x00"),
        (ConfigRecord(2, "foo", "a", None), b"\x01\x04\x00" + b"\x02\x04foo\x02a\x00\x00"),
        (ProducerIdsRecord(1, 5, 1000), b"\x01\x0f\x00" + bytes([0, 0, 0, 1]) + bytes(7) + b"\x05"
         + bytes(6) + b"\x03\xe8\x00"),
        (NoOpRecord(), b"\x01\x14\x00\x00"),
        (PartitionRecord(3, ID, [1], [1], leader=1, leader_epoch=2, partition_epoch=4, directories=[ID]),
         b"\x01\x03\x02" + b"\x00\x00\x00\x03" + ID + b"\x02\x00\x00\x00\x01" * 2 + b"\x01\x01"
         + b"\x00\x00\x00\x01" + b"\x00\x00\x00\x02" + b"\x00\x00\x00\x04" + b"\x02" + ID + b"\x00"),
    ],
)  # fmt: skip
def test_bytes_as_kraft_writes_them(record: Message, written: bytes) -> None:
    assert encode(record) == written
    assert decode(written) == record


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\x00\x02\x00\x04foo" + ID + b"\x00",
        b"\x02\x02\x00\x04foo" + ID + b"\x00",
        b"\x01\x7f\x00\x00",
        b"\x01\x02\x09\x04foo" + ID + b"\x00",
        b"\x01\x02\x00\x04foo" + ID,
        b"\x01\x02\x00\x04foo" + ID + b"\x00more",
        b"\x01\xff\xff\xff\xff\xff\xff",
    ],
    ids=["empty", "frame 0", "frame 2", "unknown type", "newer version", "cut", "garbage behind", "endless varint"],
)
def test_what_cannot_be_read_is_an_error(value: bytes) -> None:
    with pytest.raises(StorageError):
        decode(value)


def test_one_decision_is_one_batch() -> None:
    written: list[Message] = [TopicRecord("foo", ID), ConfigRecord(2, "foo", "retention.ms", "1")]
    batch = to_batch(written, 1_700_000_000_000)
    [(_, header)] = iter_headers(batch)
    assert (header.record_count, header.base_timestamp) == (2, 1_700_000_000_000)
    assert list(from_batches(batch)) == written


def test_control_batches_are_passed_over_and_broken_ones_are_not() -> None:
    control = build_batch([Record(0, 0, b"\x00\x00\x00\x02", b"leader change")], control=True)
    batch = to_batch([NoOpRecord()], 0)
    assert list(from_batches(control + batch)) == [NoOpRecord()]
    batch[-1] ^= 1
    with pytest.raises(StorageError, match="checksum"):
        list(from_batches(control + batch))
    with pytest.raises(StorageError, match="without a value"):
        list(from_batches(build_batch([Record(0, 0, None, None)])))


class Wall:
    def wall_ms(self) -> int:
        return 1_700_000_000_000

    def monotonic_ms(self) -> int:
        return 5


class MemoryFile:
    def __init__(self, data: bytes) -> None:
        self.data = data

    def read_at(self, position: int, size: int) -> bytes:
        return self.data[position : position + size]


class MemoryLog:
    """Batches in memory, one to a read: the store has to come back for more."""

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.start_offset = 0
        self.end_offset = 0
        self.high_watermark = 0
        self.full = False

    def append(self, batch: memoryview | bytearray, header: BatchHeader, leader_epoch: int, now_ms: int) -> int:
        if self.full:
            raise StorageError("disk full")
        stamp(batch, self.end_offset, leader_epoch)
        self.batches.append(bytes(batch))
        base, self.end_offset = self.end_offset, self.end_offset + header.record_count
        return base

    def read(
        self, offset: int, max_bytes: int, upto: Bound = Bound.HIGH_WATERMARK, *, min_one: bool = True
    ) -> FileSlice | None:
        assert upto is Bound.END
        for batch in self.batches:
            [(_, header)] = iter_headers(batch)
            if header.base_offset == offset:
                return FileSlice(MemoryFile(batch), 0, len(batch))  # type: ignore[arg-type]
        return None


def test_the_store_reads_back_what_it_wrote() -> None:
    log = MemoryLog()
    store = LogStore(log, Wall(), FORMAT)
    decisions: Sequence[list[Message]] = [[TopicRecord("a", ID), NoOpRecord()], [TopicRecord("b", bytes(16))]]
    assert [store.append(records, now_ms=5) for records in decisions] == [2, 3]
    assert list(LogStore(log, Wall(), FORMAT).read_all()) == [*decisions[0], *decisions[1]]
    assert (store.end_offset, store.committed_offset) == (3, 0)


def test_a_log_with_a_hole_is_not_half_loaded() -> None:
    log = MemoryLog()
    store = LogStore(log, Wall(), FORMAT)
    store.append([NoOpRecord()], 0)
    store.append([NoOpRecord()], 0)
    del log.batches[1]
    with pytest.raises(StorageError, match="ends at 1, not at 2"):
        list(store.read_all())
