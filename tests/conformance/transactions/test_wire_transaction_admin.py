"""What admins ask and do: DescribeTransactions, ListTransactions, DescribeProducers, WriteTxnMarkers."""

import time

import pytest
from raw import Connection, MakeTopic
from transaction_calls import (
    ABORT,
    BUMPING,
    COMMIT,
    INVALID_PRODUCER_EPOCH,
    INVALID_REGULAR_EXPRESSION,
    INVALID_REQUEST,
    NONE,
    READ_COMMITTED,
    STEADY,
    TRANSACTION_COORDINATOR_FENCED,
    TRANSACTIONAL_ID_NOT_FOUND,
    UNKNOWN_TOPIC_OR_PARTITION,
    NewProducer,
    Place,
    RawProducer,
    describe,
    end_as,
    init,
    listed,
    markers,
    new_id,
    places_of,
    producers_of,
    visible,
    write_marker,
)

from waiting import eventually

# ----------------------------------------------------------------------------------------------- DescribeTransactions


def test_a_transaction_from_its_beginning_to_its_end(producer: RawProducer, make_topic: MakeTopic) -> None:
    first, second = make_topic(partitions=2), make_topic()
    found = producer.describe()
    assert (found["error_code"], found["transaction_state"], found["topics"]) == (NONE, "Empty", [])
    assert (found["transaction_timeout_ms"], found["transaction_start_time_ms"]) == (60_000, -1)
    assert (found["producer_id"], found["producer_epoch"]) == producer.ids

    before_ms = time.time() * 1000 - 1000
    places = {(first, 0), (first, 1), (second, 0)}
    for place in places:
        producer.write(place, b"v")
    found = producer.describe()
    assert (found["transaction_state"], places_of(found)) == ("Ongoing", places)
    assert before_ms <= found["transaction_start_time_ms"] <= time.time() * 1000 + 1000

    producer.finish(COMMIT)
    found = producer.describe()
    assert (found["transaction_state"], found["topics"]) == ("CompleteCommit", [])
    assert (found["producer_id"], found["producer_epoch"]) == producer.ids


def test_several_are_described_in_one_request(new_producer: NewProducer, wire: Connection) -> None:
    first, second = new_producer(), new_producer()
    asked = [first.id, "nobody", second.id, ""]
    answer = wire.call("DescribeTransactions", 0, {"transactional_ids": asked})["transaction_states"]
    assert {one["transactional_id"]: one["error_code"] for one in answer} == {
        first.id: NONE,
        "nobody": TRANSACTIONAL_ID_NOT_FOUND,
        second.id: NONE,
        "": INVALID_REQUEST,
    }


# ------------------------------------------------------------------------------------------------- ListTransactions


@pytest.mark.parametrize("version", range(3))
def test_every_version_of_the_list(new_producer: NewProducer, shared_place: Place, version: int) -> None:
    empty, ongoing = new_producer(), new_producer()
    ongoing.write(shared_place, b"v")
    found = listed(empty.wire, version)
    for producer, state in ((empty, "Empty"), (ongoing, "Ongoing")):
        one = found[producer.id]
        assert (one["producer_id"], one["transaction_state"]) == (producer.producer_id, state)


def test_the_list_by_state(new_producer: NewProducer, shared_place: Place) -> None:
    empty, ongoing, committed, aborted = (new_producer() for _ in range(4))
    for producer in (ongoing, committed, aborted):
        producer.write(shared_place, b"v")
    committed.finish(COMMIT)
    aborted.finish(ABORT)
    ours = {producer.id for producer in (empty, ongoing, committed, aborted)}

    def by(*states: str) -> set[str]:
        return ours & set(listed(empty.wire, state_filters=list(states)))

    assert by("Ongoing") == {ongoing.id}
    assert by("Empty", "CompleteCommit") == {empty.id, committed.id}
    assert by("CompleteAbort") == {aborted.id}
    assert by("PrepareCommit", "PrepareAbort") == set()
    assert by() == ours


def test_states_that_do_not_exist_are_named(new_producer: NewProducer, shared_place: Place) -> None:
    ongoing = new_producer()
    ongoing.write(shared_place, b"v")
    answer = ongoing.wire.call("ListTransactions", 2, {"state_filters": ["Asleep", "Ongoing", "ongoing"]})
    assert (answer["error_code"], set(answer["unknown_state_filters"])) == (NONE, {"Asleep", "ongoing"})
    assert ongoing.id in {one["transactional_id"] for one in answer["transaction_states"]}
    answer = ongoing.wire.call("ListTransactions", 2, {"state_filters": ["Asleep"]})
    assert (answer["unknown_state_filters"], answer["transaction_states"]) == (["Asleep"], [])


def test_the_list_by_producer_id(new_producer: NewProducer) -> None:
    first, second, _ = (new_producer() for _ in range(3))
    found = listed(first.wire, producer_id_filters=[first.producer_id, second.producer_id, 1_000_000_000])
    assert set(found) == {first.id, second.id}


@pytest.mark.parametrize("version", [1, 2])
def test_the_list_by_how_long_they_run(new_producer: NewProducer, shared_place: Place, version: int) -> None:
    empty, ongoing = new_producer(), new_producer()
    ongoing.write(shared_place, b"v")
    eventually(lambda: ongoing.id in listed(empty.wire, version, duration_filter=20))
    assert ongoing.id not in listed(empty.wire, version, duration_filter=600_000)
    assert ongoing.id in listed(empty.wire, version, duration_filter=0)
    ours = {empty.id, ongoing.id}
    assert ours & set(listed(empty.wire, version, duration_filter=-1)) == ours


def test_the_list_by_pattern(new_producer: NewProducer) -> None:
    prefix = new_id()
    for number in range(3):
        new_producer(f"{prefix}-{number}")
    wire = new_producer(f"other-{prefix}").wire

    def by(pattern: str | None) -> set[str]:
        found = listed(wire, transactional_id_pattern=pattern)
        return {name.removeprefix(prefix) for name in found if prefix in name}

    assert by(f"{prefix}-[01]") == {"-0", "-1"}
    assert by(prefix) == set()  # the whole id has to match
    assert by(f"{prefix}.*") == {"-0", "-1", "-2"}
    assert by(f".*{prefix}") == {f"other-{prefix}"}
    assert len(by("")) == len(by(None)) == 4


def test_a_pattern_that_is_none(wire: Connection) -> None:
    answer = wire.call("ListTransactions", 2, {"transactional_id_pattern": "a(b"})
    assert (answer["error_code"], answer["transaction_states"]) == (INVALID_REGULAR_EXPRESSION, [])


# ------------------------------------------------------------------------------------------------ DescribeProducers


def test_producers_of_a_partition(producer: RawProducer, place: Place) -> None:
    before_ms = time.time() * 1000 - 1000
    producer.write(place, b"a", b"b")
    found = producers_of(producer.wire, place)[producer.producer_id]
    assert (found["producer_epoch"], found["last_sequence"]) == (producer.epoch, 1)
    assert (found["current_txn_start_offset"], found["coordinator_epoch"]) == (0, -1)
    assert before_ms <= found["last_timestamp"] <= time.time() * 1000 + 1000
    producer.write(place, b"c")
    assert producers_of(producer.wire, place)[producer.producer_id]["current_txn_start_offset"] == 0
    producer.finish(COMMIT)
    found = producers_of(producer.wire, place)[producer.producer_id]
    assert found["current_txn_start_offset"] == -1
    assert found["coordinator_epoch"] == markers(producer.wire, place)[0].coordinator_epoch
    # Sequences of a steady producer run on; a new epoch begins anew.
    assert found["last_sequence"] == (-1 if producer.generation.bumps else 2)
    assert found["producer_epoch"] == producer.epoch
    producer.write(place, b"d")
    assert producers_of(producer.wire, place)[producer.producer_id]["current_txn_start_offset"] == 4


# -------------------------------------------------------------------------------------------------- WriteTxnMarkers


@pytest.mark.parametrize("version", [1, 2])
def test_an_admin_ends_a_transaction_that_hangs(producer: RawProducer, place: Place, version: int) -> None:
    """As AbortTransaction of the Java admin: to the leader, with what DescribeProducers says."""
    wire = producer.wire
    producer.write(place, b"hangs")
    assert end_as(wire, place, READ_COMMITTED) == 0
    found = producers_of(wire, place)[producer.producer_id]
    code = write_marker(
        wire,
        place,
        producer.producer_id,
        found["producer_epoch"],
        ABORT,
        coordinator_epoch=max(0, found["coordinator_epoch"]),
        version=version,
    )
    assert code == NONE
    assert end_as(wire, place, READ_COMMITTED) == 2
    assert visible(wire, place) == []
    (marker,) = markers(wire, place)
    assert (marker.producer_id, marker.epoch, marker.commit) == (producer.producer_id, producer.epoch, ABORT)
    assert producers_of(wire, place)[producer.producer_id]["current_txn_start_offset"] == -1


def test_a_marker_that_comes_again_is_written_again(producer: RawProducer, place: Place) -> None:
    producer.write(place, b"v")
    for _ in range(2):
        assert write_marker(producer.wire, place, *producer.ids, ABORT) == NONE
    assert [marker.commit for marker in markers(producer.wire, place)] == [ABORT, ABORT]
    assert end_as(producer.wire, place, READ_COMMITTED) == 3


def test_a_marker_of_an_older_epoch(new_producer: NewProducer, place: Place) -> None:
    producer = new_producer(new_producer().id)
    producer.write(place, b"v")
    assert (
        write_marker(producer.wire, place, producer.producer_id, producer.epoch - 1, COMMIT) == INVALID_PRODUCER_EPOCH
    )
    assert markers(producer.wire, place) == []


def test_a_marker_of_an_older_coordinator(producer: RawProducer, place: Place) -> None:
    wire, ids = producer.wire, producer.ids
    producer.write(place, b"v")
    assert write_marker(wire, place, *ids, ABORT, coordinator_epoch=7) == NONE
    assert write_marker(wire, place, *ids, ABORT, coordinator_epoch=6) == TRANSACTION_COORDINATOR_FENCED
    assert write_marker(wire, place, *ids, ABORT, coordinator_epoch=7) == NONE
    assert [marker.coordinator_epoch for marker in markers(wire, place)] == [7, 7]
    assert producers_of(wire, place)[producer.producer_id]["coordinator_epoch"] == 7


def test_a_marker_for_a_partition_that_is_not_there(producer: RawProducer, topic: str) -> None:
    for place in ((topic, 5), ("no-such-topic", 0)):
        assert write_marker(producer.wire, place, *producer.ids, ABORT) == UNKNOWN_TOPIC_OR_PARTITION


def test_markers_of_the_bumping_generation(wire: Connection, place: Place) -> None:
    """An epoch that is not above the transaction's belongs to the one before, and must not end this one."""
    producer = RawProducer(wire, BUMPING, new_id()).init()
    producer.write(place, b"v")
    ids = {"version": 2, "transaction_version": 2}
    assert write_marker(wire, place, producer.producer_id, 0, COMMIT, **ids) == INVALID_PRODUCER_EPOCH
    assert write_marker(wire, place, producer.producer_id, 1, COMMIT, **ids) == NONE
    # Again: nothing is open.
    assert write_marker(wire, place, producer.producer_id, 1, COMMIT, **ids) == NONE
    assert [marker.epoch for marker in markers(wire, place)] == [1, 1]
    assert visible(wire, place) == [b"v"]


def test_a_marker_of_a_producer_that_never_wrote_here(wire: Connection, place: Place) -> None:
    producer = RawProducer(wire, STEADY, new_id()).init()
    assert write_marker(wire, place, *producer.ids, ABORT) == NONE
    assert end_as(wire, place, READ_COMMITTED) == 1
    assert visible(wire, place) == []


def test_markers_of_several_producers_in_one_request(new_producer: NewProducer, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=2)
    first, second = new_producer(), new_producer()
    wire = first.wire
    for producer in (first, second):
        for partition in range(2):
            producer.write((topic, partition), b"v")
    asked = [
        {
            "producer_id": producer.producer_id,
            "producer_epoch": producer.epoch,
            "transaction_result": commit,
            "topics": [{"name": topic, "partition_indexes": [0, 1]}],
            "coordinator_epoch": 0,
        }
        for producer, commit in ((first, COMMIT), (second, ABORT))
    ]
    answer = wire.call("WriteTxnMarkers", 1, {"markers": asked})["markers"]
    codes = {
        (one["producer_id"], topic_["name"], part["partition_index"]): part["error_code"]
        for one in answer
        for topic_ in one["topics"]
        for part in topic_["partitions"]
    }
    assert codes == {(p.producer_id, topic, partition): NONE for p in (first, second) for partition in range(2)}
    for partition in range(2):
        assert visible(wire, (topic, partition)) == [b"v"]


# ---------------------------------------------------------------------------------------------------------- fencing


def test_an_admin_fences_producers(new_producer: NewProducer, place: Place) -> None:
    """As FenceProducers of the Java admin: InitProducerId as a newcomer, for as short as can be."""
    producer = new_producer()
    producer.write(place, b"v")
    eventually(lambda: init(producer.wire, producer.id, timeout_ms=1)["error_code"] == NONE)
    assert producer.ask_to_end(COMMIT)["error_code"] != NONE
    assert visible(producer.wire, place) == []
    assert describe(producer.wire, producer.id)["producer_epoch"] > producer.epoch
