"""What a log remembers of producers that write transactions: epochs, coordinators, what is open."""

import struct

import pytest
from crc32c import crc32c
from log_by_hand import NOW, checkpoint, open_log
from transactions_by_hand import data_batch, end, write

from skidway.errors import InvalidProducerEpoch, TransactionCoordinatorFenced
from skidway.limits import INT64_MAX
from skidway.log import truncation
from skidway.log.log import Log
from skidway.log.open_transactions import OpenTransactions
from skidway.log.producers import Producers
from skidway.records.batch import read_header
from skidway.records.control import EndTransaction, end_transaction_batch, read_marker
from skidway.sim.world.disk import SimDisk

COMMIT, ABORT = EndTransaction(True, 5), EndTransaction(False, 5)


@pytest.fixture
def log() -> Log:
    return open_log(SimDisk())


def test_a_transaction_is_open_from_its_first_batch_to_its_marker(log: Log) -> None:
    producers = log.producers
    assert producers.open_transaction(7) == -1
    write(log, 8, count=3)
    write(log, 7, count=2)
    write(log, 7, sequence=2)
    assert (producers.open_transaction(7), producers.open_transaction(8)) == (3, 0)
    assert end(log, 8, committed=True) == 6
    assert (producers.open_transaction(7), producers.open_transaction(8)) == (3, -1)
    end(log, 7, committed=False)
    assert (producers.open_transaction(7), len(producers.transactions)) == (-1, 0)
    write(log, 7, sequence=3)
    assert producers.open_transaction(7) == 8


def test_the_coordinators_epoch_is_that_of_the_last_marker(log: Log) -> None:
    write(log, 7)
    assert log.producers.entries[7].coordinator_epoch == -1
    end(log, 7, committed=True, coordinator_epoch=4)
    write(log, 7, sequence=1)
    assert log.producers.entries[7].coordinator_epoch == 4
    end(log, 7, committed=False, coordinator_epoch=6)
    assert log.producers.entries[7].coordinator_epoch == 6


def test_a_marker_of_the_same_epoch_keeps_the_batches_and_a_new_epoch_forgets_them(log: Log) -> None:
    """A client that bumps its epoch begins with sequence 0; one that does not goes on, and may repeat a batch."""
    write(log, 7, count=2)
    end(log, 7, committed=True)
    assert log.producers.check(read_header(data_batch(7, count=2))) == 0
    assert log.producers.check(read_header(data_batch(7, sequence=2))) is None
    write(log, 7, sequence=2)
    end(log, 7, committed=True, epoch=1)
    assert log.producers.entries[7].batches == []
    assert log.producers.check(read_header(data_batch(7, epoch=1))) is None
    with pytest.raises(InvalidProducerEpoch):
        log.producers.check(read_header(data_batch(7, sequence=3)))


def test_the_time_of_a_marker_counts(log: Log) -> None:
    """A producer whose last sign of life is a marker is remembered from then on, not from its last batch."""
    write(log, 7)
    end(log, 7, committed=True, now_ms=NOW + 1000)
    assert log.producers.entries[7].last_timestamp == NOW + 1000
    assert log.producers.forget_silent(NOW + 1000) == []
    assert log.producers.forget_silent(NOW + 1001) == [7]


@pytest.mark.parametrize("batches", [1, 3, 5])
def test_a_snapshot_keeps_the_time_of_a_batch_whose_marker_came_later(log: Log, batches: int) -> None:
    for number in range(batches):
        write(log, 7, sequence=number)
    end(log, 7, committed=True, now_ms=NOW + 1000)
    loaded = Producers()
    loaded.load_snapshot(log.producers.to_snapshot(), NOW)
    assert loaded.state() == log.producers.state()
    assert loaded.entries[7].batches[-1][4] == NOW
    assert len(loaded.entries[7].batches) == batches


def test_a_producer_is_not_forgotten_while_its_transaction_is_open() -> None:
    producers = Producers(count_max=2)
    producers.record(7, 0, 0, 0, 0, NOW, 16, 0)
    for number in range(3):
        producers.record(8 + number, 0, 0, 1 + number, 0, NOW, 0, NOW)
    assert producers.open_transaction(7) == 0
    assert producers.forget_silent(INT64_MAX) == [10]
    assert list(producers.entries) == [7]


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("saved", [True, False])
def test_all_of_it_is_known_after_a_start(clean: bool, saved: bool) -> None:
    disk = SimDisk()
    log = open_log(disk)
    write(log, 7)
    write(log, 8, epoch=2)
    end(log, 7, committed=False, coordinator_epoch=3)
    write(log, 9)
    end(log, 10, committed=True, epoch=4, coordinator_epoch=9)
    if saved:
        checkpoint(log)
    again = open_log(disk, clean=clean)
    assert again.producers.state() == log.producers.state()
    assert [again.producers.open_transaction(number) for number in (7, 8, 9, 10)] == [-1, 1, 3, -1]
    assert [again.producers.entries[number].coordinator_epoch for number in (7, 8, 10)] == [3, -1, 9]
    assert again.producers.transactions.first_unstable == 0, "the marker at 2 was not committed"
    again.begin_at(3)
    assert again.producers.transactions.first_unstable == 1


def test_a_snapshot_of_kafka_tells_what_is_open() -> None:
    """Producer id, epoch, last sequence, last offset, offset delta, timestamp, coordinator epoch, start."""
    producers = [(7, 2, 14, 100, 4, 5000, 3, 96), (8, 0, -1, -1, 0, 5000, 6, -1), (9, 0, 0, 90, 0, 5000, -1, 90)]
    body = struct.pack(">i", 3) + b"".join(struct.pack(">qhiqiqiq", *producer) for producer in producers)
    loaded = Producers()
    loaded.load_snapshot(struct.pack(">hI", 1, crc32c(body)) + body, now_ms=0)
    assert [loaded.open_transaction(number) for number in (7, 8, 9)] == [96, -1, 90]
    assert loaded.transactions.first_unstable == 90
    assert loaded.entries[8].coordinator_epoch == 6


def test_a_cut_opens_the_transaction_again_whose_marker_went(log: Log) -> None:
    write(log, 7)
    write(log, 7, sequence=1)
    marker = end(log, 7, committed=True, coordinator_epoch=1)
    log.begin_at(1)
    truncation.truncate(log, marker, NOW)
    assert log.producers.open_transaction(7) == 0
    assert log.producers.entries[7].coordinator_epoch == -1
    end(log, 7, committed=False)
    assert log.producers.open_transaction(7) == -1
    truncation.restart(log, 10, NOW)
    assert log.producers.transactions.first_unstable == INT64_MAX


@pytest.mark.parametrize(
    ("epoch", "version", "is_open", "taken"),
    [
        (2, 0, True, True),
        (3, 0, True, True),
        (1, 0, True, False),
        (2, 1, True, True),
        (2, 1, False, True),
        (1, 1, False, False),
        (3, 2, True, True),
        (2, 2, True, False),
        (1, 2, True, False),
        (2, 2, False, True),
        (3, 2, False, True),
        (1, 2, False, False),
    ],
)
def test_which_markers_are_taken(log: Log, epoch: int, version: int, is_open: bool, taken: bool) -> None:
    """The producer has epoch 2. From version 2 on an end has an epoch of its own: a marker of the same epoch as an open
    transaction ends the one before. It is taken if nothing is open: then it has come twice (KAFKA-19999)."""
    write(log, 7, epoch=2)
    if not is_open:
        end(log, 7, committed=True, epoch=2)
    if taken:
        log.producers.check_marker(7, epoch, COMMIT, version)
    else:
        with pytest.raises(InvalidProducerEpoch):
            log.producers.check_marker(7, epoch, COMMIT, version)


def test_an_older_coordinator_is_refused(log: Log) -> None:
    end(log, 7, committed=True, coordinator_epoch=5)
    log.producers.check_marker(7, 0, COMMIT, 1)
    with pytest.raises(TransactionCoordinatorFenced):
        log.producers.check_marker(7, 0, EndTransaction(True, 4), 1)
    log.producers.check_marker(8, 0, EndTransaction(True, 4), 1)


def test_what_is_aborted_is_told_with_the_next_open_offset(log: Log) -> None:
    def noted(producer_id: int, marker: EndTransaction, offset: int) -> object:
        batch = end_transaction_batch(marker, producer_id=producer_id, producer_epoch=0, timestamp=NOW)
        header = read_header(batch)._replace(base_offset=offset)
        return log.producers.end_transaction(header, read_marker(batch), NOW)

    for producer_id in (7, 8, 9):
        write(log, producer_id)
    assert noted(6, ABORT, 3) is None, "it has written nothing"
    assert noted(8, ABORT, 4) == (8, 1, 4, 0)
    assert noted(7, ABORT, 5) == (7, 0, 5, 2)
    assert noted(9, COMMIT, 6) is None
    write(log, 8, sequence=1)
    assert noted(8, ABORT, 10) == (8, 3, 10, 11)


def test_a_control_batch_that_compaction_emptied_ends_what_is_open(log: Log) -> None:
    write(log, 7)
    batch = end_transaction_batch(COMMIT, producer_id=7, producer_epoch=1, timestamp=NOW)
    del batch[61:]
    batch[8:12] = (61 - 12).to_bytes(4, "big")
    batch[57:61] = bytes(4)
    assert read_marker(batch) is None
    assert log.producers.end_transaction(read_header(batch)._replace(base_offset=1), None, NOW) is None
    assert log.producers.open_transaction(7) == -1
    assert (log.producers.entries[7].epoch, log.producers.entries[7].coordinator_epoch) == (1, -1)


@pytest.mark.parametrize("damage", [b"", b"\xff" * 17, bytes(17), b"\x20\0\0\0\x08\0\0\0\7\x0c\0\0\0\0\0\5\0"])
def test_bytes_that_are_no_marker_say_nothing(damage: bytes) -> None:
    batch = end_transaction_batch(COMMIT, producer_id=7, producer_epoch=1, timestamp=NOW)
    assert read_marker(batch) == COMMIT
    assert read_marker(bytes(batch[:61]) + damage) is None


def test_ended_transactions_count_until_their_markers_are_committed() -> None:
    transactions = OpenTransactions([(1, 4), (2, 0), (3, 2)])
    assert transactions.first_unstable == 0
    assert transactions.end(3, 10) == 0
    assert transactions.end(2, 11) == 4
    assert transactions.first_unstable == 0
    transactions.commit(11)
    assert transactions.first_unstable == 0, "the marker at 11 is not below 11"
    transactions.commit(12)
    assert transactions.first_unstable == 4
    assert transactions.end(1, 12) == 13
    transactions.commit(13)
    assert transactions.first_unstable == INT64_MAX


def test_what_is_open_is_the_minimum_of_all_whatever_the_order() -> None:
    """Against the plain minimum, over all that have ended above the watermark."""
    transactions = OpenTransactions()
    opened: dict[int, int] = {}
    ended: list[tuple[int, int]] = []
    watermark = 0
    for offset in range(400):
        producer_id = offset * 7919 % 11
        if producer_id in opened:
            transactions.end(producer_id, offset)
            ended.append((offset, opened.pop(producer_id)))
        else:
            transactions.begin(producer_id, offset)
            opened[producer_id] = offset
        if offset % 5 == 0:
            watermark = max(watermark, offset - offset * 31 % 17)
            transactions.commit(watermark)
        unstable = [*opened.values(), *(first for marker, first in ended if marker >= watermark)]
        assert transactions.first_unstable == min(unstable, default=INT64_MAX)
        again = OpenTransactions(reversed(opened.items()), transactions.ended)
        assert again.first_unstable == transactions.first_unstable
