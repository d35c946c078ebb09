"""AddPartitionsToTxn as clients and as brokers send it, and AddOffsetsToTxn."""

import pytest
from raw import Connection, MakeTopic
from transaction_calls import (
    COMMIT,
    INVALID_PRODUCER_EPOCH,
    INVALID_PRODUCER_ID_MAPPING,
    INVALID_REQUEST,
    NONE,
    OPERATION_NOT_ATTEMPTED,
    PRODUCER_FENCED,
    STEADY,
    TRANSACTION_ABORTABLE,
    UNKNOWN_TOPIC_OR_PARTITION,
    Place,
    Question,
    RawProducer,
    add,
    ask_as_a_broker,
    new_id,
    places_of,
    retried,
)


@pytest.fixture
def steady(wire: Connection) -> RawProducer:
    return RawProducer(wire, STEADY, new_id()).init()


@pytest.mark.parametrize("version", range(4))
def test_every_version_for_clients(steady: RawProducer, make_topic: MakeTopic, version: int) -> None:
    first, second = make_topic(partitions=2), make_topic()
    places = {(first, 0), (first, 1), (second, 0)}
    assert steady.add(*places, version=version) == dict.fromkeys(places, NONE)
    found = steady.describe()
    assert (found["transaction_state"], places_of(found)) == ("Ongoing", places)


def test_places_gather(steady: RawProducer, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=3)
    for number in range(3):
        steady.add((topic, number))
        started_ms = steady.describe()["transaction_start_time_ms"]
        assert places_of(steady.describe()) == {(topic, known) for known in range(number + 1)}
    steady.add((topic, 0))
    assert steady.describe()["transaction_start_time_ms"] == started_ms
    assert len(places_of(steady.describe())) == 3


def test_one_unknown_topic_spoils_all(steady: RawProducer, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=2)
    missing, beyond = ("no-such-topic", 0), (topic, 2)
    assert steady.add((topic, 0), missing) == {(topic, 0): OPERATION_NOT_ATTEMPTED, missing: UNKNOWN_TOPIC_OR_PARTITION}
    assert steady.add((topic, 0), beyond, (topic, 1)) == {
        (topic, 0): OPERATION_NOT_ATTEMPTED,
        beyond: UNKNOWN_TOPIC_OR_PARTITION,
        (topic, 1): OPERATION_NOT_ATTEMPTED,
    }
    assert steady.describe()["transaction_state"] == "Empty"


def test_ids_that_do_not_belong_together(steady: RawProducer, shared_place: Place) -> None:
    wire, producer_id = steady.wire, steady.producer_id
    assert add(wire, steady.id, producer_id + 1, 0, [shared_place]) == {shared_place: INVALID_PRODUCER_ID_MAPPING}
    assert add(wire, new_id(), producer_id, 0, [shared_place]) == {shared_place: INVALID_PRODUCER_ID_MAPPING}
    assert add(wire, "", producer_id, 0, [shared_place]) == {shared_place: INVALID_REQUEST}
    for version in range(4):
        fenced = INVALID_PRODUCER_EPOCH if version < 2 else PRODUCER_FENCED
        assert add(wire, steady.id, producer_id, 1, [shared_place], version) == {shared_place: fenced}
    assert steady.describe()["transaction_state"] == "Empty"


# ----------------------------------------------------------------------------------------------- brokers' questions


def question(producer: RawProducer, *places: Place, verify_only: bool, epoch: int | None = None) -> Question:
    said = producer.epoch if epoch is None else epoch
    return Question(producer.id, producer.producer_id, said, places, verify_only)


@pytest.mark.parametrize("version", [4, 5])
def test_a_broker_verifies(steady: RawProducer, make_topic: MakeTopic, version: int) -> None:
    topic = make_topic(partitions=2)
    inside, outside = (topic, 0), (topic, 1)
    steady.add(inside)
    asked = question(steady, inside, outside, verify_only=True)
    answer = ask_as_a_broker(steady.wire, asked, version=version)[steady.id]
    assert answer == {inside: NONE, outside: TRANSACTION_ABORTABLE}
    assert places_of(steady.describe()) == {inside}


def test_nothing_is_open_to_verify(steady: RawProducer, shared_place: Place) -> None:
    asked = question(steady, shared_place, verify_only=True)
    assert ask_as_a_broker(steady.wire, asked)[steady.id] == {shared_place: TRANSACTION_ABORTABLE}
    steady.open(shared_place)
    steady.finish(COMMIT)
    assert ask_as_a_broker(steady.wire, asked)[steady.id] == {shared_place: TRANSACTION_ABORTABLE}
    assert steady.describe()["transaction_state"] == "CompleteCommit"


@pytest.mark.parametrize("verify_only", [True, False])
def test_a_broker_asks_about_others_ids(steady: RawProducer, shared_place: Place, verify_only: bool) -> None:
    steady.add(shared_place)
    fenced = question(steady, shared_place, verify_only=verify_only, epoch=1)
    assert ask_as_a_broker(steady.wire, fenced)[steady.id] == {shared_place: PRODUCER_FENCED}
    stranger = Question("nobody", steady.producer_id, 0, [shared_place], verify_only)
    assert ask_as_a_broker(steady.wire, stranger)["nobody"] == {shared_place: INVALID_PRODUCER_ID_MAPPING}
    other = Question(steady.id, steady.producer_id + 1, 0, [shared_place], verify_only)
    assert ask_as_a_broker(steady.wire, other)[steady.id] == {shared_place: INVALID_PRODUCER_ID_MAPPING}


def test_a_broker_adds(steady: RawProducer, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=2)
    places = [(topic, 0), (topic, 1)]
    answer = ask_as_a_broker(steady.wire, question(steady, *places, verify_only=False))[steady.id]
    assert answer == dict.fromkeys(places, NONE)
    found = steady.describe()
    assert (found["transaction_state"], places_of(found)) == ("Ongoing", set(places))


def test_a_broker_asks_about_several_at_once(wire: Connection, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=2)
    first, second = (RawProducer(wire, STEADY, new_id()).init() for _ in range(2))
    first.add((topic, 0))
    answer = ask_as_a_broker(
        wire,
        question(first, (topic, 0), verify_only=True),
        question(second, (topic, 1), verify_only=False),
        Question("nobody", 1, 1, [(topic, 1)], True),
    )
    assert answer == {
        first.id: {(topic, 0): NONE},
        second.id: {(topic, 1): NONE},
        "nobody": {(topic, 1): INVALID_PRODUCER_ID_MAPPING},
    }
    assert places_of(second.describe()) == {(topic, 1)}


# ------------------------------------------------------------------------------------------------ AddOffsetsToTxn


@pytest.mark.parametrize("version", range(5))
def test_a_groups_partition_is_added(steady: RawProducer, group: str, version: int) -> None:
    assert steady.add_offsets(group, version=version) == NONE
    found = steady.describe()
    ((topic, _),) = places_of(found)
    assert (found["transaction_state"], topic) == ("Ongoing", "__consumer_offsets")
    fenced = INVALID_PRODUCER_EPOCH if version < 2 else PRODUCER_FENCED
    assert steady.add_offsets(group, version=version, epoch=1) == fenced


def test_a_group_is_added_to_ids_that_belong_together(steady: RawProducer, group: str) -> None:
    stranger = RawProducer(steady.wire, STEADY, new_id())
    stranger.producer_id, stranger.epoch = steady.ids
    assert stranger.add_offsets(group) == INVALID_PRODUCER_ID_MAPPING
    stranger.id = ""
    assert stranger.add_offsets(group) == INVALID_REQUEST
    stranger.id, stranger.producer_id = steady.id, steady.producer_id + 1
    assert stranger.add_offsets(group) == INVALID_PRODUCER_ID_MAPPING
    assert steady.describe()["transaction_state"] == "Empty"


def test_a_transaction_of_nothing_but_a_group_ends(steady: RawProducer, group: str) -> None:
    for _ in range(2):
        assert retried(lambda: {"error_code": steady.add_offsets(group)})["error_code"] == NONE
        steady.finish(COMMIT)
    assert steady.describe()["transaction_state"] == "CompleteCommit"
