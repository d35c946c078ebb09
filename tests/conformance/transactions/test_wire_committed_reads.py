"""What readers of either isolation get: the last stable offset, aborted transactions, ends and times."""

import threading

import pytest
from raw import Connection, MakeTopic
from raw_batches import build, now_ms, read
from transaction_calls import (
    ABORT,
    COMMIT,
    LATEST,
    NONE,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    NewProducer,
    Place,
    RawProducer,
    differs,
    end_as,
    list_offset_as,
    markers,
    read_as,
    visible,
)
from wire_calls import fetch_body, produce, topic_id

from waiting import eventually

MAX_TIMESTAMP = -3


def aborted(answer: dict[str, object]) -> list[tuple[int, int]]:
    """(producer id, first offset), in the order of the answer."""
    listed = answer["aborted_transactions"]
    assert isinstance(listed, list)
    return [(one["producer_id"], one["first_offset"]) for one in listed]


def test_an_open_transaction_holds_readers_up(producer: RawProducer, place: Place) -> None:
    wire = producer.wire
    produce(wire, place[0], build([b"before"]))
    producer.write(place, b"a", b"b")
    produce(wire, place[0], build([b"behind"]))
    waits, all_ = read_as(wire, place, READ_COMMITTED), read_as(wire, place, READ_UNCOMMITTED)
    assert [batch.base_offset for batch in read(waits["records"])] == [0]
    assert [batch.base_offset for batch in read(all_["records"])] == [0, 1, 3]
    for answer in (waits, all_):
        assert (answer["high_watermark"], answer["last_stable_offset"]) == (4, 1)
    assert (waits["aborted_transactions"], all_["aborted_transactions"]) == ([], None)
    producer.finish(COMMIT)
    done = read_as(wire, place, READ_COMMITTED)
    assert (done["high_watermark"], done["last_stable_offset"], done["aborted_transactions"]) == (5, 5, [])
    assert visible(wire, place) == [b"before", b"a", b"b", b"behind"]


@pytest.mark.parametrize("version", range(4, 19))
def test_every_version_of_fetch(producer: RawProducer, place: Place, version: int) -> None:
    producer.write(place, b"dropped")
    producer.finish(ABORT)
    producer.write(place, b"open")
    id_ = topic_id(producer.wire, place[0]) if version >= 13 else b""
    for isolation in (READ_UNCOMMITTED, READ_COMMITTED):
        body = fetch_body(place[0], isolation_level=isolation, id_=id_)
        ((one,),) = [found["partitions"] for found in producer.wire.call("Fetch", version, body)["responses"]]
        assert (one["error_code"], one["high_watermark"], one["last_stable_offset"]) == (NONE, 3, 2)
        offsets = [batch.base_offset for batch in read(one["records"])]
        if isolation == READ_COMMITTED:
            assert aborted(one) == [(producer.producer_id, 0)]
            assert offsets == [0, 1]
        else:
            assert one["aborted_transactions"] is None
            assert offsets == [0, 1, 2]


def test_the_oldest_open_transaction_counts(new_producer: NewProducer, place: Place) -> None:
    first, second = new_producer(), new_producer()
    wire = first.wire
    first.write(place, b"a")
    second.write(place, b"b")
    assert end_as(wire, place, READ_COMMITTED) == 0
    second.finish(COMMIT)
    assert end_as(wire, place, READ_COMMITTED) == 0
    first.finish(ABORT)
    assert end_as(wire, place, READ_COMMITTED) == 4
    assert visible(wire, place) == [b"b"]


def test_aborted_transactions_are_listed_by_where_they_begin(new_producer: NewProducer, place: Place) -> None:
    """Readers drop what the list says in one pass; markers come in another order."""
    producers = [new_producer() for _ in range(4)]
    wire = producers[0].wire
    begun = [(producer.producer_id, producer.write(place, b"dropped")) for producer in producers]
    for producer in reversed(producers):
        producer.finish(ABORT)
    # Kafka's order is that of the markers, over which some readers tripped.
    assert aborted(read_as(wire, place, READ_COMMITTED)) == differs(kafka=begun[::-1], skidway=begun)
    assert visible(wire, place) == []
    produce(wire, place[0], build([b"kept"]))
    assert visible(wire, place) == [b"kept"]


def test_only_aborted_transactions_that_are_in_the_answer_are_listed(producer: RawProducer, place: Place) -> None:
    begun = []
    for _ in range(4):
        begun.append(producer.write(place, b"dropped"))
        producer.finish(ABORT)
    end = end_as(producer.wire, place, READ_COMMITTED)
    assert end == 8
    for offset in range(end):
        found = [first for _, first in aborted(read_as(producer.wire, place, READ_COMMITTED, offset))]
        # A transaction whose marker is still to be read is listed: its reader would take the marker for nothing else.
        assert found == [first for first in begun if first + 1 >= offset]
    assert aborted(read_as(producer.wire, place, READ_COMMITTED, end)) == []
    one_batch = read_as(producer.wire, place, READ_COMMITTED, 0, partition_bytes=1)
    assert [batch.base_offset for batch in read(one_batch["records"])][:1] == [0]
    assert [first for _, first in aborted(one_batch)][:1] == [0]


def test_a_long_transaction_is_listed_for_readers_in_its_middle(producer: RawProducer, place: Place) -> None:
    for number in range(5):
        producer.write(place, b"%d" % number)
    producer.finish(ABORT)
    for offset in range(6):
        assert aborted(read_as(producer.wire, place, READ_COMMITTED, offset)) == [(producer.producer_id, 0)]


def test_commits_and_aborts_of_one_producer_alternate(producer: RawProducer, place: Place) -> None:
    kept = []
    for number in range(10):
        producer.write(place, b"%d-a" % number)
        producer.write(place, b"%d-b" % number)
        if number % 3 == 0:
            kept += [b"%d-a" % number, b"%d-b" % number]
        producer.finish(number % 3 == 0)
    assert visible(producer.wire, place) == kept
    assert [marker.commit for marker in markers(producer.wire, place)] == [number % 3 == 0 for number in range(10)]


def test_markers_take_an_offset(producer: RawProducer, place: Place) -> None:
    assert producer.write(place, b"a") == 0
    producer.finish(COMMIT)
    assert producer.write(place, b"b", b"c") == 2
    producer.finish(ABORT)
    assert [marker.offset for marker in markers(producer.wire, place)] == [1, 4]
    assert end_as(producer.wire, place, READ_UNCOMMITTED) == 5


def test_a_partition_without_transactions(wire: Connection, place: Place) -> None:
    produce(wire, place[0], build([b"a", b"b"]))
    answer = read_as(wire, place, READ_COMMITTED)
    assert (answer["last_stable_offset"], answer["aborted_transactions"]) == (2, [])
    assert visible(wire, place) == [b"a", b"b"]


def test_a_reader_that_waits_is_woken_by_the_end(producer: RawProducer, place: Place, bootstrap: str) -> None:
    producer.write(place, b"v")
    with Connection(bootstrap) as reader:
        body = fetch_body(place[0], 0, max_wait_ms=20_000, isolation_level=READ_COMMITTED)
        reader.send("Fetch", 12, body)
        assert reader.silent_for(0.2)
        producer.finish(COMMIT)
        reader.socket.settimeout(10)
        _, answer = reader.receive("Fetch", 12)
    ((one,),) = [found["partitions"] for found in answer["responses"]]
    assert [batch.base_offset for batch in read(one["records"])][:1] == [0]


def test_a_reader_of_everything_is_woken_by_the_write(producer: RawProducer, place: Place, bootstrap: str) -> None:
    with Connection(bootstrap) as reader:
        reader.send("Fetch", 12, fetch_body(place[0], 0, max_wait_ms=20_000, isolation_level=READ_UNCOMMITTED))
        producer.write(place, b"v")
        reader.socket.settimeout(10)
        _, answer = reader.receive("Fetch", 12)
    ((one,),) = [found["partitions"] for found in answer["responses"]]
    assert (len(read(one["records"])), one["last_stable_offset"]) == (1, 0)


def test_reading_while_transactions_end(new_producer: NewProducer, place: Place, bootstrap: str) -> None:
    """Whatever a reader of what is committed sees while transactions end one after another, is what was committed."""
    producer = new_producer()
    seen: list[list[bytes | None]] = []
    done = threading.Event()

    def look() -> None:
        with Connection(bootstrap) as reader:
            while not done.is_set():
                seen.append(visible(reader, place))

    looking = threading.Thread(target=look)
    looking.start()
    kept: list[bytes | None] = []
    try:
        for number in range(20):
            producer.write(place, b"%d" % number)
            producer.finish(number % 2 == 0)
            kept += [b"%d" % number] if number % 2 == 0 else []
    finally:
        done.set()
        looking.join()
    assert visible(producer.wire, place) == kept
    assert all(one == kept[: len(one)] for one in seen)
    assert [len(one) for one in seen] == sorted(len(one) for one in seen)


# -------------------------------------------------------------------------------------------------------- ListOffsets


@pytest.mark.parametrize("version", range(2, 12))
def test_the_end_by_isolation(producer: RawProducer, place: Place, version: int) -> None:
    produce(producer.wire, place[0], build([b"before"]))
    producer.write(place, b"open")
    found = {
        isolation: list_offset_as(producer.wire, place, LATEST, isolation, version)["offset"]
        for isolation in (READ_UNCOMMITTED, READ_COMMITTED)
    }
    assert found == {READ_UNCOMMITTED: 2, READ_COMMITTED: 1}


def test_a_time_by_isolation(producer: RawProducer, place: Place) -> None:
    base = now_ms()
    produce(producer.wire, place[0], build([b"before"], timestamp=base))
    producer.write(place, b"open", timestamp=base + 10)
    for isolation in (READ_UNCOMMITTED, READ_COMMITTED):
        assert list_offset_as(producer.wire, place, base, isolation)["offset"] == 0
    assert list_offset_as(producer.wire, place, base + 5, READ_UNCOMMITTED)["offset"] == 1
    found = list_offset_as(producer.wire, place, base + 5, READ_COMMITTED)
    assert (found["error_code"], found["offset"], found["timestamp"]) == (NONE, -1, -1)
    producer.finish(COMMIT)
    assert list_offset_as(producer.wire, place, base + 5, READ_COMMITTED)["offset"] == 1


def test_the_largest_time_by_isolation(producer: RawProducer, place: Place) -> None:
    base = now_ms()
    produce(producer.wire, place[0], build([b"before"], timestamp=base))
    producer.write(place, b"open", timestamp=base + 10)
    found = list_offset_as(producer.wire, place, MAX_TIMESTAMP, READ_UNCOMMITTED)
    assert (found["offset"], found["timestamp"]) == (1, base + 10)


# --------------------------------------------------------------------------------------------------------- deletion


def test_records_are_deleted_below_an_open_transaction_and_in_it(producer: RawProducer, place: Place) -> None:
    producer.write(place, b"a")
    producer.write(place, b"b")
    asked = {"topics": [{"name": place[0], "partitions": [{"partition_index": 0, "offset": -1}]}], "timeout_ms": 8000}
    (answered,) = producer.wire.call("DeleteRecords", 2, asked)["topics"]
    assert [(one["error_code"], one["low_watermark"]) for one in answered["partitions"]] == [(NONE, 2)]
    found = read_as(producer.wire, place, READ_COMMITTED, 2)
    assert (found["high_watermark"], found["last_stable_offset"], found["log_start_offset"]) == (2, 2, 2)
    producer.finish(COMMIT)
    assert end_as(producer.wire, place, READ_COMMITTED) == 3


def test_a_topic_that_is_deleted_while_it_is_open(producer: RawProducer, make_topic: MakeTopic) -> None:
    gone, stays = (make_topic(), 0), (make_topic(), 0)
    producer.write(gone, b"v")
    producer.write(stays, b"v")
    body = {"topics": [{"name": gone[0]}], "timeout_ms": 8000}
    (answered,) = producer.wire.call("DeleteTopics", 6, body)["responses"]
    assert answered["error_code"] == NONE
    producer.finish(COMMIT)
    assert producer.describe()["transaction_state"] == "CompleteCommit"
    eventually(lambda: visible(producer.wire, stays) == [b"v"])
    producer.write(stays, b"w")
    producer.finish(COMMIT)
    assert visible(producer.wire, stays) == [b"v", b"w"]
