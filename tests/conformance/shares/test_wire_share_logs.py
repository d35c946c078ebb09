"""Logs that are not a plain row of records: transactions, compacted and trimmed ones, topics deleted and made anew."""

import pytest
from raw import Connection, MakeTopic
from raw_batches import Record, build, read, records_of
from share_calls import (
    ACCEPT,
    GAP,
    NONE,
    NewReader,
    Place,
    ShareReader,
    open_group,
    place_of,
    start_of,
)
from transaction_calls import ABORT, BUMPING, COMMIT, RawProducer, await_transaction_coordinators, new_id
from wire_calls import create_topic, end_offset, fetch, produce, start_offset

from waiting import eventually


@pytest.fixture
def producer(wire: Connection) -> RawProducer:
    await_transaction_coordinators(wire)
    return RawProducer(wire, BUMPING, new_id()).init()


@pytest.fixture
def committed(wire: Connection, topic: str, group: str, at: Place) -> ShareReader:
    open_group(wire, group, topic, share_isolation_level="read_committed")
    return ShareReader(wire, group, at)


def drain(reader: ShareReader, topic: str) -> list[bytes | None]:
    """Accepts everything until nothing is left, and returns the values of user records."""
    seen: list[bytes | None] = []

    def empty() -> bool:
        got = reader.take(max_wait_ms=100)
        seen.extend(got.values)
        if got.acquired:
            assert reader.ack(*((first, last, [ACCEPT]) for first, last, _ in got.acquired)) == NONE
        return start_of(reader.wire, reader.group, topic).lag == 0

    eventually(empty)
    return seen


def test_uncommitted_reads_see_all(wire: Connection, topic: str, producer: RawProducer, reader: ShareReader) -> None:
    producer.write((topic, 0), b"open")
    assert reader.some().offsets == [0]
    producer.finish(ABORT)


def test_aborted_records_are_not_delivered(
    wire: Connection, topic: str, producer: RawProducer, committed: ShareReader
) -> None:
    place = (topic, 0)
    produce(wire, topic, build([b"plain"]))
    producer.write(place, b"dropped", b"too")
    producer.finish(ABORT)
    producer.write(place, b"kept")
    producer.finish(COMMIT)
    offsets: list[int] = []
    values: list[bytes | None] = []

    def both() -> bool:
        got = committed.take()
        offsets.extend(got.offsets)
        values.extend(value for value in got.values if value in (b"plain", b"kept", b"dropped", b"too"))
        return b"kept" in values

    eventually(both)
    assert values == [b"plain", b"kept"]
    assert not {1, 2} & set(offsets), "aborted ones are no part of the acquired ranges"
    assert committed.ack(*((offset, offset, [ACCEPT if offset in (0, 4) else GAP]) for offset in offsets)) == NONE
    committed.take(max_wait_ms=0)
    eventually(lambda: start_of(wire, committed.group, topic).lag == 0)


def test_an_open_transaction_holds_readers_up(
    wire: Connection, topic: str, producer: RawProducer, committed: ShareReader
) -> None:
    produce(wire, topic, build([b"before"]))
    producer.write((topic, 0), b"a")
    produce(wire, topic, build([b"behind"]))
    assert committed.some().offsets == [0]
    assert committed.take(max_wait_ms=200).acquired == []
    producer.finish(COMMIT)
    committed.gather(lambda seen: {1, 2} <= set(seen))


def test_a_waiting_fetch_gets_what_is_committed(
    wire: Connection, topic: str, producer: RawProducer, committed: ShareReader, other: Connection
) -> None:
    producer.write((topic, 0), b"a")
    reader = ShareReader(other, committed.group, committed.places[0])
    reader.take(max_wait_ms=0)
    reader.send_fetch(max_wait_ms=20_000)
    producer.finish(COMMIT)
    assert 0 in reader.fetched()[reader.places[0]].offsets


def test_markers_may_be_acquired_and_are_acknowledged_as_gaps(
    wire: Connection, topic: str, producer: RawProducer, reader: ShareReader
) -> None:
    producer.write((topic, 0), b"a", b"b")
    producer.finish(COMMIT)
    produce(wire, topic, build([b"c"]))
    seen = list(reader.gather(lambda seen: 3 in seen))
    assert {0, 1, 3} <= set(seen)
    for offset in seen:
        assert reader.ack((offset, offset, [GAP if offset == 2 else ACCEPT])) == NONE
    eventually(lambda: reader.take(max_wait_ms=0) is not None and start_of(wire, reader.group, topic).lag == 0)


# ------------------------------------------------------------------------------------------------------ log start


def trim(wire: Connection, topic: str, offset: int) -> None:
    partitions = [{"partition_index": 0, "offset": offset}]
    body = {"topics": [{"name": topic, "partitions": partitions}], "timeout_ms": 8_000}
    ((one,),) = [found["partitions"] for found in wire.call("DeleteRecords", 2, body)["topics"]]
    assert one["error_code"] == NONE
    eventually(lambda: start_offset(wire, topic) == offset)


def test_a_group_that_begins_behind_a_trimmed_log(wire: Connection, topic: str, group: str, at: Place) -> None:
    for _ in range(3):
        produce(wire, topic, build([b"x"] * 5))
    trim(wire, topic, 7)
    open_group(wire, group, topic)
    reader = ShareReader(wire, group, at)
    assert reader.some().offsets[-1] == 14
    assert not set(range(5)) & set(reader.take(max_wait_ms=0).offsets)


def test_a_log_trimmed_beyond_what_was_released(wire: Connection, topic: str, reader: ShareReader) -> None:
    for _ in range(3):
        produce(wire, topic, build([b"x"] * 5))
    reader.gather(lambda seen: len(seen) == 15)
    assert reader.ack((0, 14, [2])) == NONE
    trim(wire, topic, 10)
    again = list(reader.gather(lambda again: 14 in again))
    assert sorted(set(again)) == list(range(10, 15))
    assert reader.ack((10, 14, [ACCEPT])) == NONE
    produce(wire, topic, build([b"y"]))
    assert reader.until(lambda got: 15 in got.offsets).offsets == [15]


def test_a_log_trimmed_beyond_what_was_never_read(wire: Connection, topic: str, reader: ShareReader) -> None:
    produce(wire, topic, build([b"x"] * 5))
    assert reader.some().offsets == list(range(5))
    for _ in range(3):
        produce(wire, topic, build([b"x"] * 5))
    trim(wire, topic, 15)
    assert reader.until(lambda got: got.acquired and got.offsets[-1] == 19).offsets == list(range(15, 20))
    assert reader.ack((0, 4, [ACCEPT])) == NONE, "held, and gone: success without effect"


# ------------------------------------------------------------------------------------------------------ compaction


def test_a_compacted_log(wire: Connection, group: str, make_topic: MakeTopic) -> None:
    """Offsets without a record are in no way of those that have one, and the group comes to its end."""
    configs = {
        "cleanup.policy": "compact",
        "segment.ms": "100",
        "min.cleanable.dirty.ratio": "0.01",
        "min.compaction.lag.ms": "0",
    }
    topic = make_topic(configs=configs)
    for number in range(20):
        produce(wire, topic, build([Record(b"%d" % number, key=b"k")]))
    eventually(lambda: roll_and_count(wire, topic) <= 6, seconds=60)
    open_group(wire, group, topic)
    reader = ShareReader(wire, group, place_of(wire, topic))
    values = [value for value in drain(reader, topic) if value != b"roll"]
    assert b"19" in values
    assert len(values) < 20


def roll_and_count(wire: Connection, topic: str) -> int:
    """Another record of another key makes the last segment roll; how many of the first key are left.

    Those of the other key do not count: on a busy machine they may come more quickly than the log is compacted.
    """
    produce(wire, topic, build([Record(b"roll", key=b"roller")]))
    left, offset, end = 0, 0, end_offset(wire, topic)
    while offset < end:  # an answer may have no more than one segment
        for batch in read(fetch(wire, topic, offset)["records"]):
            left += sum(key == b"k" for at, key, _ in records_of(batch) if at >= offset)
            offset = max(offset, batch.base_offset + batch.last_offset_delta + 1)
    return left


# ------------------------------------------------------------------------------------------------------ topics


def test_a_topic_made_anew_starts_anew(wire: Connection, group: str, name: str) -> None:
    create_topic(wire, name, 1, None)
    member = open_group(wire, group, name)
    produce(wire, name, build([b"old"] * 3))
    reader = ShareReader(wire, group, place_of(wire, name))
    reader.some()
    assert reader.ack((0, 2, [ACCEPT])) == NONE
    answer = wire.call("DeleteTopics", 6, {"topics": [{"name": name}], "timeout_ms": 8_000})
    assert answer["responses"][0]["error_code"] == NONE

    def made() -> bool:
        asked = {"topics": [{"name": name, "num_partitions": 1, "replication_factor": 1}], "timeout_ms": 8_000}
        return bool(wire.call("CreateTopics", 7, asked)["topics"][0]["error_code"] == NONE)

    eventually(made)
    place = eventually(lambda: place_or_none(wire, name))
    member.await_share({place[0]: [0]})
    produce(wire, name, build([b"new"]))
    fresh = ShareReader(wire, group, place)
    assert fresh.some().acquired == [(0, 0, 1)]
    assert end_offset(wire, name) == 1


def place_or_none(wire: Connection, topic: str) -> Place | None:
    (found,) = wire.call("Metadata", 12, {"topics": [{"name": topic}], "allow_auto_topic_creation": False})["topics"]
    return (found["topic_id"], 0) if found["error_code"] == NONE and found["partitions"] else None


def test_a_deleted_topic_ends_a_waiting_fetch(
    wire: Connection, topic: str, reader: ShareReader, new_reader: NewReader, at: Place
) -> None:
    waiting = new_reader()
    waiting.take(max_wait_ms=0)
    waiting.send_fetch(max_wait_ms=3_000)
    assert waiting.wire.silent_for(0.2)
    wire.call("DeleteTopics", 6, {"topics": [{"name": topic}], "timeout_ms": 8_000})
    assert not any(got.acquired for got in waiting.fetched().values())
    assert waiting.answer["error_code"] == NONE
