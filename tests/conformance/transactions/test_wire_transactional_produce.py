"""Produce within a transaction: who may write what, sequences, and which code each generation gets."""

import gzip

import pytest
from raw import Connection, MakeTopic
from raw_batches import build, read
from transaction_calls import (
    ABORT,
    BUMPING,
    COMMIT,
    CONTROL,
    INVALID_PRODUCER_EPOCH,
    INVALID_PRODUCER_ID_MAPPING,
    INVALID_RECORD,
    INVALID_TXN_STATE,
    NONE,
    OUT_OF_ORDER_SEQUENCE_NUMBER,
    READ_UNCOMMITTED,
    STEADY,
    TRANSACTION_ABORTABLE,
    TRANSACTIONAL,
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    UNKNOWN_PRODUCER_ID,
    NewProducer,
    Place,
    RawProducer,
    batches,
    differs,
    end_as,
    new_id,
    places_of,
    produce_as,
    read_as,
    visible,
)
from wire_calls import produce

from waiting import eventually


@pytest.fixture
def steady(wire: Connection) -> RawProducer:
    return RawProducer(wire, STEADY, new_id()).init()


@pytest.fixture
def bumping(wire: Connection) -> RawProducer:
    return RawProducer(wire, BUMPING, new_id()).init()


@pytest.mark.parametrize("version", range(3, 12))
def test_old_versions_write_what_was_added(steady: RawProducer, place: Place, version: int) -> None:
    assert steady.add(place) == {place: NONE}
    assert steady.produce(place, b"a", b"b", version=version)["error_code"] == NONE
    assert steady.produce(place, b"c", version=version)["error_code"] == NONE
    steady.finish(COMMIT)
    assert visible(steady.wire, place) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("version", range(3, 12))
def test_old_versions_write_nothing_that_was_not_added(
    steady: RawProducer, make_topic: MakeTopic, version: int
) -> None:
    topic = make_topic(partitions=2)
    code = INVALID_TXN_STATE if version <= 10 else TRANSACTION_ABORTABLE
    assert steady.produce((topic, 0), b"v", version=version)["error_code"] == code
    steady.add((topic, 1))
    assert steady.produce((topic, 0), b"v", version=version)["error_code"] == code
    assert end_as(steady.wire, (topic, 0), READ_UNCOMMITTED) == 0


@pytest.mark.parametrize("version", [12, 13])
def test_new_versions_add_by_writing(bumping: RawProducer, make_topic: MakeTopic, version: int) -> None:
    topic = make_topic(partitions=2)
    for partition in range(2):
        assert bumping.produce((topic, partition), b"v", version=version)["error_code"] == NONE
    assert places_of(bumping.describe()) == {(topic, 0), (topic, 1)}
    bumping.finish(COMMIT)
    for partition in range(2):
        assert visible(bumping.wire, (topic, partition)) == [b"v"]


def test_several_partitions_in_one_request(producer: RawProducer, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=4)
    places = [(topic, number) for number in range(4)]
    if producer.generation is STEADY:
        producer.add(*places)
    data = [{"index": number, "records": producer.batch(place, [b"v"])} for number, place in enumerate(places)]
    body = {
        "transactional_id": producer.id,
        "acks": -1,
        "timeout_ms": 8000,
        "topic_data": [{"name": topic, "partition_data": data}],
    }
    (answered,) = producer.wire.call("Produce", producer.generation.produce_version, body)["responses"]
    assert {one["index"]: one["error_code"] for one in answered["partition_responses"]} == dict.fromkeys(range(4), NONE)
    assert places_of(producer.describe()) == set(places)
    producer.finish(COMMIT)
    assert [visible(producer.wire, place) for place in places] == [[b"v"]] * 4


# --------------------------------------------------------------------------------------------------- who may write


def test_a_request_without_its_id(producer: RawProducer, place: Place) -> None:
    if producer.generation is STEADY:
        producer.add(place)
    answer = producer.produce(place, b"v", named=None)
    assert answer["error_code"] == TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert end_as(producer.wire, place, READ_UNCOMMITTED) == 0


def test_somebody_elses_id(new_producer: NewProducer, place: Place) -> None:
    writer, other = new_producer(), new_producer()
    other.write(place, b"other")
    answer = writer.produce(place, b"v", named=other.id)
    assert answer["error_code"] == INVALID_PRODUCER_ID_MAPPING
    other.finish(COMMIT)
    assert visible(writer.wire, place) == [b"other"]


def test_an_id_that_nobody_has(producer: RawProducer, place: Place) -> None:
    assert producer.produce(place, b"v", named=new_id())["error_code"] == INVALID_PRODUCER_ID_MAPPING


def test_a_plain_batch_of_a_producer_with_an_open_transaction(producer: RawProducer, place: Place) -> None:
    producer.write(place, b"v")
    plain = producer.batch(place, [b"plain"], attributes=0)
    version = producer.generation.produce_version
    assert produce_as(producer.wire, producer.id, place, plain, version)["error_code"] == INVALID_TXN_STATE
    assert produce_as(producer.wire, None, place, plain, version)["error_code"] == INVALID_TXN_STATE


def test_plain_batches_of_others_are_written_meanwhile(producer: RawProducer, place: Place) -> None:
    producer.write(place, b"open")
    assert produce(producer.wire, place[0], build([b"plain"]))["error_code"] == NONE
    assert visible(producer.wire, place) == []
    producer.finish(ABORT)
    assert visible(producer.wire, place) == [b"plain"]


def test_control_batches_are_for_brokers(producer: RawProducer, place: Place) -> None:
    producer.write(place, b"v")
    answer = producer.produce(place, b"v", attributes=TRANSACTIONAL | CONTROL)
    assert answer["error_code"] == INVALID_RECORD


@pytest.mark.parametrize("epoch", [0, 5])
def test_another_epoch(new_producer: NewProducer, place: Place, epoch: int) -> None:
    producer = new_producer(new_producer().id)
    producer.write(place, b"v")
    assert producer.epoch == 1
    answer = producer.produce(place, b"w", producer_epoch=epoch, base_sequence=0)
    assert answer["error_code"] == INVALID_PRODUCER_EPOCH
    producer.finish(COMMIT)
    assert visible(producer.wire, place) == [b"v"]


def test_another_epoch_where_nothing_was_written(new_producer: NewProducer, make_topic: MakeTopic) -> None:
    """The partition knows nothing of the producer, the coordinator does."""
    topic = make_topic(partitions=2)
    producer = new_producer(new_producer().id)
    producer.write((topic, 0), b"v")
    for epoch in (0, 5):
        answer = producer.produce((topic, 1), b"w", producer_epoch=epoch)
        assert answer["error_code"] == INVALID_PRODUCER_EPOCH


def test_the_epoch_of_the_last_transaction(bumping: RawProducer, place: Place) -> None:
    bumping.write(place, b"v")
    before = bumping.epoch
    bumping.finish(COMMIT)
    assert bumping.produce(place, b"late", producer_epoch=before)["error_code"] == INVALID_PRODUCER_EPOCH
    bumping.write(place, b"w")
    assert bumping.produce(place, b"later", producer_epoch=before)["error_code"] == INVALID_PRODUCER_EPOCH
    bumping.finish(COMMIT)
    assert visible(bumping.wire, place) == [b"v", b"w"]


# ------------------------------------------------------------------------------------------------------- sequences


def test_sequences_of_a_steady_producer_run_on(steady: RawProducer, place: Place) -> None:
    for number in range(4):
        steady.write(place, b"a%d" % number, b"b%d" % number)
        steady.finish(number % 2 == 0)
    data = [batch for batch in batches(steady.wire, place) if not batch.attributes & CONTROL]
    assert [(batch.producer_epoch, batch.base_sequence) for batch in data] == [(0, 0), (0, 2), (0, 4), (0, 6)]


def test_sequences_of_a_bumping_producer_begin_again(bumping: RawProducer, place: Place) -> None:
    for number in range(4):
        bumping.write(place, b"a", b"b")
        bumping.write(place, b"c")
        bumping.finish(number % 2 == 0)
    data = [batch for batch in batches(bumping.wire, place) if not batch.attributes & CONTROL]
    assert [(batch.producer_epoch, batch.base_sequence) for batch in data] == [
        (number, sequence) for number in range(4) for sequence in (0, 2)
    ]


def test_a_batch_that_comes_twice_is_written_once(producer: RawProducer, place: Place) -> None:
    producer.write(place, b"a")
    again = producer.batch(place, [b"b"])
    first = producer.produce(place, data=again)
    second = producer.produce(place, data=again)
    assert (first["error_code"], second["error_code"]) == (NONE, NONE)
    assert first["base_offset"] == second["base_offset"] == 1
    producer.finish(COMMIT)
    assert visible(producer.wire, place) == [b"a", b"b"]


@pytest.mark.parametrize("is_open", [False, True])
def test_a_sequence_of_the_transaction_before_is_none_sent_again(
    steady: RawProducer, place: Place, is_open: bool
) -> None:
    """librdkafka gives a sequence twice if it aborts while the answer to a batch is missing. What is not written must
    not be called written: Kafka commits the second transaction without its record."""
    steady.write(place, b"a")
    steady.write(place, b"b")
    steady.finish(ABORT)
    if is_open:
        steady.write(place, b"c")
    else:
        steady.add(place)
    end = end_as(steady.wire, place, READ_UNCOMMITTED)
    code = steady.produce(place, b"d", base_sequence=1)["error_code"]
    assert code == differs(kafka=NONE, skidway=UNKNOWN_PRODUCER_ID)
    assert end_as(steady.wire, place, READ_UNCOMMITTED) == end
    steady.finish(COMMIT)
    assert visible(steady.wire, place) == [b"c"] * is_open


def test_a_gap_is_refused(producer: RawProducer, place: Place) -> None:
    producer.write(place, b"a")
    assert producer.produce(place, b"c", base_sequence=2)["error_code"] == OUT_OF_ORDER_SEQUENCE_NUMBER
    assert end_as(producer.wire, place, READ_UNCOMMITTED) == 1


def test_a_first_batch_that_does_not_begin_at_0(bumping: RawProducer, place: Place) -> None:
    """Something came before it and is not here."""
    code = bumping.produce(place, b"v", base_sequence=5)["error_code"]
    assert code == OUT_OF_ORDER_SEQUENCE_NUMBER
    assert end_as(bumping.wire, place, READ_UNCOMMITTED) == 0
    bumping.write(place, b"v")
    bumping.finish(COMMIT)
    assert bumping.produce(place, b"w", base_sequence=1)["error_code"] == OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_pipeline_of_batches_stays_in_order(producer: RawProducer, place: Place) -> None:
    """Five requests before the first answer: the first waits for the coordinator, and none may overtake it."""
    if producer.generation is STEADY:
        producer.add(place)
    version = producer.generation.produce_version
    for number in range(5):
        data = producer.batch(place, [b"%d" % number], base_sequence=number)
        body = {
            "transactional_id": producer.id,
            "acks": -1,
            "timeout_ms": 8000,
            "topic_data": [{"name": place[0], "partition_data": [{"index": 0, "records": data}]}],
        }
        producer.wire.send("Produce", version, body)
    answers = [producer.wire.receive("Produce", version)[1] for _ in range(5)]
    found = [
        (one["error_code"], one["base_offset"])
        for answer in answers
        for topic in answer["responses"]
        for one in topic["partition_responses"]
    ]
    assert found == [(NONE, number) for number in range(5)]
    producer.finish(COMMIT)
    assert visible(producer.wire, place) == [b"%d" % number for number in range(5)]


def test_compressed_batches(producer: RawProducer, place: Place) -> None:
    producer.write(place, b"a" * 1000, b"b", compress=gzip.compress, attributes=TRANSACTIONAL | 1)
    producer.finish(COMMIT)
    first, marker = read(read_as(producer.wire, place, READ_UNCOMMITTED)["records"])
    assert (first.codec, first.count, first.attributes & TRANSACTIONAL) == (1, 2, TRANSACTIONAL)
    assert marker.base_offset == 2


@pytest.mark.parametrize("acks", [0, 1])
def test_fewer_acknowledgements(producer: RawProducer, place: Place, acks: int) -> None:
    if producer.generation is STEADY:
        producer.add(place)
    version = producer.generation.produce_version
    data = producer.batch(place, [b"v"])
    body = {
        "transactional_id": producer.id,
        "acks": acks,
        "timeout_ms": 8000,
        "topic_data": [{"name": place[0], "partition_data": [{"index": 0, "records": data}]}],
    }
    producer.wire.send("Produce", version, body)
    if acks:
        (topic,) = producer.wire.receive("Produce", version)[1]["responses"]
        (one,) = topic["partition_responses"]
        assert one["error_code"] == NONE
    eventually(lambda: end_as(producer.wire, place, READ_UNCOMMITTED) == 1)
    producer.finish(COMMIT)
    assert visible(producer.wire, place) == [b"v"]
