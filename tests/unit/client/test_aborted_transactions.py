"""What a reader of committed records sees of a log with open, committed and aborted transactions."""

from skidway.blocking_client.cluster import Cluster
from skidway.blocking_client.offsets import READ_COMMITTED, READ_UNCOMMITTED
from skidway.blocking_client.reader import Reader
from skidway.records.batch import stamp
from skidway.records.control import EndTransaction, end_transaction_batch
from skidway.records.record import Record, build_batch
from skidway.wire.schema.fetch import AbortedTransaction, PartitionData


class Story:
    """A log written line by line."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.offset = 0

    def write(self, value: str, producer_id: int = -1) -> int:
        epoch, sequence = (0, 0) if producer_id >= 0 else (-1, -1)
        batch = build_batch(
            [Record(0, 1, None, value.encode())],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=producer_id >= 0,
        )
        return self._append(batch)

    def end(self, producer_id: int, *, commit: bool) -> int:
        marker = EndTransaction(commit, coordinator_epoch=0)
        return self._append(end_transaction_batch(marker, producer_id=producer_id, producer_epoch=0, timestamp=1))

    def _append(self, batch: bytearray) -> int:
        stamp(batch, self.offset, 0)
        self.data += batch
        self.offset += 1
        return self.offset - 1

    def read(self, isolation_level: int, aborted: list[tuple[int, int]], start: int = 0) -> tuple[list[str], int]:
        reader = Reader(Cluster("nowhere:1"), {("t", 0): start}, isolation_level=isolation_level)
        listed = [AbortedTransaction(producer, first) for producer, first in aborted]
        answer = PartitionData(partition_index=0, records=bytes(self.data), aborted_transactions=listed)
        return [(record.value or b"").decode() for record in reader._take(("t", 0), answer)], reader.positions["t", 0]


def test_only_aborted_records_are_hidden_and_only_until_their_marker() -> None:
    story = Story()
    story.write("plain")
    first = story.write("gone", producer_id=7)
    story.write("kept", producer_id=8)
    story.write("gone too", producer_id=7)
    story.end(7, commit=False)
    story.end(8, commit=True)
    story.write("second life", producer_id=7)
    story.end(7, commit=True)

    seen, position = story.read(READ_COMMITTED, [(7, first)])
    assert seen == ["plain", "kept", "second life"]
    assert position == story.offset, "markers and hidden records are passed as well"


def test_without_the_wish_for_committed_records_all_but_markers_are_seen() -> None:
    story = Story()
    story.write("a", producer_id=1)
    story.end(1, commit=False)
    story.write("b")
    assert story.read(READ_UNCOMMITTED, [])[0] == ["a", "b"]


def test_a_producer_that_aborts_twice() -> None:
    story = Story()
    one = story.write("x", producer_id=1)
    story.end(1, commit=False)
    story.write("y", producer_id=1)
    story.end(1, commit=True)
    two = story.write("z", producer_id=1)
    story.end(1, commit=False)
    assert story.read(READ_COMMITTED, [(1, one), (1, two)])[0] == ["y"]


def test_records_before_the_wanted_offset_in_the_same_batch_are_left_out() -> None:
    batch = build_batch([Record(0, 1, None, str(number).encode()) for number in range(5)])
    reader = Reader(Cluster("nowhere:1"), {("t", 0): 3})
    seen = reader._take(("t", 0), PartitionData(partition_index=0, records=bytes(batch)))
    assert [record.value for record in seen] == [b"3", b"4"]
