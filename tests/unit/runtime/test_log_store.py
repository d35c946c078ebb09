"""A machine that takes part in transactions: its batches, markers, and loading that leads to the same state."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from skidway.errors import InvalidProducerEpoch, StorageError
from skidway.log.bounds import Bound
from skidway.log.recovery.opening import open_log
from skidway.log.settings import LogSettings
from skidway.records.batch import BatchHeader, iter_headers
from skidway.records.control import EndTransaction, end_transaction_batch
from skidway.records.record import Record, build_batch
from skidway.runtime.log_store import Format, LogStore, Marker, Producer, Transactional
from skidway.runtime.replicated import LOAD_RECORDS, Decision, Machine, Now, Operation, Replicated
from skidway.sim.world.disk import SimDisk

WALL_MS = 1_700_000_000_000
COMMIT, ABORT = EndTransaction(True, 3), EndTransaction(False, 3)


@dataclass
class Row:
    text: str
    producer: Producer | None = None
    marker: Marker | None = None

    def belongs_to(self, producer: Producer) -> None:
        self.producer = producer


TRANSACTIONAL: Transactional[Row] = Transactional(
    lambda row: row.marker or row.producer, Row.belongs_to, lambda marker: Row("", marker=marker)
)
FORMAT: Format[Row] = Format(
    "row",
    lambda row: (row.text.encode(), b""),
    lambda record: None if record.key is None else Row(record.key.decode()),
    TRANSACTIONAL,
)


class Write(Operation[int]):
    rows: list[Row]


@dataclass
class Rows(Machine[Row]):
    """Rows in the order in which they count."""

    counted: list[str] = field(default_factory=list)
    pending: dict[int, list[str]] = field(default_factory=dict)

    def decide(self, operation: Operation[Any], now: Now) -> Decision[Row, int]:
        assert isinstance(operation, Write)
        return Decision(operation.rows, len(operation.rows))

    def apply(self, record: Row) -> None:
        if record.marker is not None:
            gone = self.pending.pop(record.marker.producer.id, [])
            self.counted += gone if record.marker.end.committed else []
        elif record.producer is not None:
            self.pending.setdefault(record.producer.id, []).append(record.text)
        else:
            self.counted.append(record.text)


class World:
    """A log on a simulated disk, and a store that can refuse."""

    def __init__(self) -> None:
        disk = SimDisk()
        disk.make_directory("rows-0")
        self.log = open_log(
            disk, "rows-0", LogSettings(), clean=True, recovery_point=0, start_offset=None, now_ms=WALL_MS
        )
        self.refusing: StorageError | None = None
        self.store = LogStore(self, self, FORMAT, compacted=True)
        self.host: Replicated[Rows, Row] = Replicated(Rows, self.store)

    def wall_ms(self) -> int:
        return WALL_MS

    def monotonic_ms(self) -> int:
        return 0

    @property
    def start_offset(self) -> int:
        return self.log.start_offset

    @property
    def end_offset(self) -> int:
        return self.log.end_offset

    @property
    def high_watermark(self) -> int:
        return self.log.end_offset

    def append(self, batch: memoryview | bytearray, header: BatchHeader, leader_epoch: int, now_ms: int) -> int:
        if self.refusing is not None:
            raise self.refusing
        return self.log.append(batch, header, leader_epoch, now_ms)

    def read(self, offset: int, max_bytes: int, upto: Bound = Bound.END, *, min_one: bool = True) -> Any:
        return self.log.read(offset, max_bytes, upto, min_one=min_one)

    def write(self, *rows: Row) -> Any:
        replies: list[Any] = []
        self.host.submit(Write(list(rows)), Now(0, WALL_MS), replies.append)
        (reply,) = replies
        return reply

    def loaded(self) -> Rows:
        return Replicated(Rows, LogStore(self, self, FORMAT, compacted=True)).machine

    def headers(self) -> list[BatchHeader]:
        found = self.log.read(0, 1 << 20, Bound.END)
        assert found is not None
        return [header for _, header in iter_headers(found.read())]


def of(producer_id: int, *texts: str, epoch: int = 0) -> list[Row]:
    return [Row(text, Producer(producer_id, epoch)) for text in texts]


def end(producer_id: int, how: EndTransaction, epoch: int = 0) -> Row:
    return Row("", marker=Marker(Producer(producer_id, epoch), how))


def test_a_decision_in_a_transaction_is_a_batch_of_its_producer() -> None:
    world = World()
    assert world.write(*of(7, "a", "b", epoch=5)) == 2
    world.write(Row("c"))
    world.write(end(7, COMMIT, epoch=6))
    pending, plain, marker = world.headers()
    assert (pending.producer_id, pending.producer_epoch, pending.base_sequence) == (7, 5, 0)
    assert (pending.is_transactional, pending.is_control, pending.record_count) == (True, False, 2)
    assert (plain.producer_id, plain.is_transactional, plain.is_control) == (-1, False, False)
    assert (marker.producer_id, marker.producer_epoch, marker.base_sequence) == (7, 6, -1)
    assert (marker.is_transactional, marker.is_control, marker.record_count) == (True, True, 1)


def test_markers_reach_the_machine_in_the_order_of_the_log() -> None:
    world = World()
    world.write(*of(1, "a"))
    world.write(*of(2, "b"))
    world.write(Row("plain"))
    world.write(end(2, ABORT))
    world.write(*of(2, "c"))
    world.write(end(1, COMMIT))
    assert world.host.machine == Rows(["plain", "a"], {2: ["c"]})
    assert world.loaded() == world.host.machine
    assert list(world.store.read_all()) == [
        *of(1, "a"),
        *of(2, "b"),
        Row("plain"),
        end(2, ABORT),
        *of(2, "c"),
        end(1, COMMIT),
    ]


def test_other_machines_pass_over_markers_and_see_no_transactions() -> None:
    world = World()
    world.write(*of(1, "a"))
    world.write(end(1, ABORT))
    plain = Format("row", FORMAT.encode, FORMAT.decode)
    assert list(LogStore(world, world, plain, compacted=True).read_all()) == [Row("a")]


def test_control_batches_that_end_no_transaction_are_passed_over() -> None:
    leader_change = build_batch([Record(0, 0, b"\0\0\0\2", b"\0\0")], control=True)
    later_kind = build_batch([Record(0, 0, b"\0\0\0\x63", b"")], producer_id=1, transactional=True, control=True)
    assert list(FORMAT.from_batches(leader_change + later_kind)) == []


def test_a_damaged_marker_is_not_passed_over() -> None:
    marker = end_transaction_batch(COMMIT, producer_id=1, producer_epoch=0, timestamp=0)
    marker[-1] ^= 1
    with pytest.raises(StorageError, match="fail their checksum"):
        list(FORMAT.from_batches(marker))
    short = build_batch([Record(0, 0, b"\0\0\0\1", b"\0")], producer_id=1, transactional=True, control=True)
    with pytest.raises(StorageError, match="without a whole value"):
        list(FORMAT.from_batches(short))


@pytest.mark.parametrize("mixed", [[*of(1, "a"), *of(2, "b")], [Row("a"), *of(2, "b")], [end(1, COMMIT), Row("a")]])
def test_a_decision_is_in_one_transaction(mixed: Sequence[Row]) -> None:
    with pytest.raises(AssertionError):
        FORMAT.to_batch(mixed, 0)


def test_an_append_that_fails_leaves_what_the_log_says() -> None:
    world = World()
    world.write(*of(1, "a"))
    world.refusing = StorageError("disk full")
    assert isinstance(world.write(end(1, COMMIT)), StorageError)
    assert world.host.machine == Rows([], {1: ["a"]})
    world.refusing = None
    world.write(end(1, COMMIT))
    assert world.host.machine == Rows(["a"], {}) == world.loaded()


def test_who_writes_markers_may_refuse_one() -> None:
    world = World()
    asked: list[tuple[Marker, int]] = []

    def write_marker(marker: Marker, wall_ms: int) -> None:
        asked.append((marker, wall_ms))
        raise InvalidProducerEpoch("old")

    world.host = Replicated(Rows, LogStore(world, world, FORMAT, compacted=True, write_marker=write_marker))
    world.write(*of(1, "a"))
    late = Row("", marker=Marker(Producer(1, 0), COMMIT, 2))
    assert isinstance(world.write(late), InvalidProducerEpoch)
    assert asked == [(late.marker, WALL_MS)]
    assert world.host.machine == Rows([], {1: ["a"]}) == world.loaded()
    assert len(world.headers()) == 1


@pytest.mark.parametrize("seed", range(5))
def test_what_is_loaded_bit_by_bit_is_what_was_lived(seed: int) -> None:
    """More records than one bit, so that transactions are open between bits."""
    world, choose = World(), random.Random(seed)
    count = 0
    while count < 2 * LOAD_RECORDS:
        producer_id = choose.randrange(4)
        texts = [str(count + number) for number in range(choose.randrange(1, 200))]
        count += len(texts)
        match choose.randrange(4):
            case 0:
                world.write(*map(Row, texts))
            case 1 | 2:
                world.write(*of(producer_id, *texts))
            case 3:
                world.write(end(producer_id, choose.choice([COMMIT, ABORT])))
    lived = world.host.machine
    assert lived.counted
    assert any(lived.pending.values())
    host: Replicated[Rows, Row] = Replicated(Rows, world.store, whole=False)
    bits = 1
    while not host.load_some():
        bits += 1
    assert bits > 1
    assert host.machine == lived
