"""Sequence numbers as Kafka's ProducerStateManager judges them, and snapshots that Kafka's tools can read."""

import struct

import pytest
from crc32c import crc32c

from skidway.errors import InvalidProducerEpoch, OutOfOrderSequence
from skidway.log.producers import CorruptSnapshot, Producers
from skidway.records.batch import BatchHeader

LAST = 2**31 - 1


def header(sequence: int, count: int = 1, *, producer_id: int = 7, epoch: int = 0) -> BatchHeader:
    return BatchHeader(0, 100, 0, 2, 0, 0, count - 1, 1000, 1000, producer_id, epoch, sequence, count)


class Story:
    """Sends batches as a partition leader would take them, and remembers the next offset."""

    def __init__(self, producers: Producers | None = None) -> None:
        self.producers = Producers() if producers is None else producers
        self.offset = 0

    def send(self, sequence: int, count: int = 1, *, producer_id: int = 7, epoch: int = 0, now_ms: int = 0) -> int:
        """Returns the offset the client is told."""
        batch = header(sequence, count, producer_id=producer_id, epoch=epoch)
        known = self.producers.check(batch)
        if known is not None:
            return known
        base_offset = self.offset
        self.producers.record(producer_id, epoch, sequence, base_offset, count - 1, 1000 + base_offset, 0, now_ms)
        self.offset += count
        return base_offset


def test_batches_follow_each_other() -> None:
    story = Story()
    assert [story.send(0, 3), story.send(3, 2), story.send(5)] == [0, 3, 5]


def test_a_repeated_batch_gets_the_offset_of_the_first_time() -> None:
    story = Story()
    for sequence in range(0, 12, 2):
        story.send(sequence, 2)
    assert [story.send(sequence, 2) for sequence in (2, 4, 6, 8, 10)] == [2, 4, 6, 8, 10]
    assert story.offset == 12


def test_the_sixth_last_batch_is_forgotten() -> None:
    story = Story()
    for sequence in range(6):
        story.send(sequence)
    with pytest.raises(OutOfOrderSequence):
        story.send(0)


def test_a_repetition_must_match_wholly() -> None:
    story = Story()
    story.send(0, 3)
    with pytest.raises(OutOfOrderSequence):
        story.send(0, 2)
    with pytest.raises(OutOfOrderSequence):
        story.send(1, 2)


def test_a_gap_is_refused() -> None:
    story = Story()
    story.send(0)
    with pytest.raises(OutOfOrderSequence):
        story.send(2)
    assert story.send(1) == 1


def test_an_unknown_producer_may_begin_anywhere() -> None:
    assert Story().send(41) == 0


def test_a_new_epoch_begins_at_zero_and_fences_the_old_one() -> None:
    story = Story()
    story.send(0)
    with pytest.raises(OutOfOrderSequence):
        story.send(1, epoch=1)
    assert story.send(0, epoch=1) == 1
    with pytest.raises(InvalidProducerEpoch):
        story.send(1, epoch=0)
    with pytest.raises(InvalidProducerEpoch):
        story.send(0, epoch=0)
    assert story.send(1, epoch=1) == 2


def test_sequences_wrap_around() -> None:
    story = Story()
    story.send(LAST - 1, 2)
    assert story.send(0) == 2
    story.send(1, 3)
    crossing = Story()
    crossing.send(LAST, 3)
    assert crossing.send(2) == 3
    assert crossing.send(LAST, 3) == 0


def test_producers_do_not_mix() -> None:
    story = Story()
    story.send(0, producer_id=7)
    story.send(5, producer_id=8)
    assert story.send(1, producer_id=7) == 2
    assert story.send(6, producer_id=8) == 3


def test_silent_producers_expire() -> None:
    story = Story(Producers(expiry_ms=100))
    story.send(0, producer_id=7, now_ms=0)
    story.send(0, producer_id=8, now_ms=90)
    assert story.producers.expire(101) == [7]
    assert story.send(9, producer_id=7, now_ms=102) == 2
    with pytest.raises(OutOfOrderSequence):
        story.send(9, producer_id=8)


def test_too_many_producers_push_out_the_oldest() -> None:
    story = Story(Producers(count_max=10))
    for number in range(25):
        story.send(0, producer_id=number, now_ms=number)
        assert len(story.producers) <= 10
    assert sorted(story.producers.entries) == list(range(15, 25))


def test_a_snapshot_restores_all_five_batches() -> None:
    story = Story()
    for sequence in range(7):
        story.send(sequence)
    story.send(LAST, 4, producer_id=9, epoch=3)
    data = story.producers.to_snapshot(start_offset=2)
    again = Producers()
    assert again.load_snapshot(data, now_ms=5) == (2, 0)
    assert again.state() == story.producers.state()
    told = Story(again)
    assert [told.send(sequence) for sequence in (2, 3, 4, 5, 6)] == [2, 3, 4, 5, 6]
    assert told.send(LAST, 4, producer_id=9, epoch=3) == 7


def test_the_snapshot_begins_as_kafka_writes_it() -> None:
    story = Story()
    story.send(0, 3)
    story.send(3, 2)
    data = story.producers.to_snapshot()
    version, crc, count = struct.unpack_from(">hIi", data)
    assert (version, count) == (1, 1)
    assert crc == crc32c(data[6:])
    # producer id, epoch, last sequence, last offset, offset delta, timestamp, coordinator epoch, transaction start
    assert struct.unpack_from(">qhiqiqiq", data, 10) == (7, 0, 4, 4, 1, 1003, -1, -1)


def test_a_snapshot_of_kafka_is_understood() -> None:
    body = struct.pack(">i", 1) + struct.pack(">qhiqiqiq", 7, 2, 14, 100, 4, 5000, -1, -1)
    producers = Producers()
    assert producers.load_snapshot(struct.pack(">hI", 1, crc32c(body)) + body, now_ms=0) == (None, 0)
    assert producers.check(header(10, 5, epoch=2)) == 96
    assert producers.check(header(15, epoch=2)) is None


def test_damaged_snapshots_change_nothing() -> None:
    story = Story()
    story.send(0)
    good = story.producers.to_snapshot()
    before = story.producers.state()
    for data in (b"", good[:-1], good[:40], b"\0" * len(good), good[:20] + b"\xff" + good[21:], b"\0\2" + good[2:]):
        with pytest.raises(CorruptSnapshot):
            story.producers.load_snapshot(data, now_ms=0)
    assert story.producers.state() == before
