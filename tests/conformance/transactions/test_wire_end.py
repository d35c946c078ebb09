"""EndTxn: what both generations are answered in every state, row by row, and what it writes."""

import pytest
from raw import Body, Connection, MakeTopic
from transaction_calls import (
    ABORT,
    BUMPING,
    COMMIT,
    CONCURRENT_TRANSACTIONS,
    INVALID_PRODUCER_EPOCH,
    INVALID_PRODUCER_ID_MAPPING,
    INVALID_REQUEST,
    INVALID_TXN_STATE,
    NONE,
    PRODUCER_FENCED,
    STEADY,
    NewProducer,
    Place,
    RawProducer,
    differs,
    markers,
    new_id,
    visible,
)

EMPTY, ONGOING, COMMITTED, ABORTED = "Empty", "Ongoing", "CompleteCommit", "CompleteAbort"


def bring_to(producer: RawProducer, state: str, place: Place) -> None:
    if state != EMPTY:
        producer.open(place)
    if state in (COMMITTED, ABORTED):
        producer.finish(state == COMMITTED)
    assert producer.describe()["transaction_state"] == state


# Row by row: state, what is asked, the code, and what state follows.
STEADY_TABLE = [
    (EMPTY, COMMIT, INVALID_TXN_STATE, EMPTY),
    (EMPTY, ABORT, INVALID_TXN_STATE, EMPTY),
    (ONGOING, COMMIT, NONE, COMMITTED),
    (ONGOING, ABORT, NONE, ABORTED),
    (COMMITTED, COMMIT, NONE, COMMITTED),
    (COMMITTED, ABORT, INVALID_TXN_STATE, COMMITTED),
    (ABORTED, COMMIT, INVALID_TXN_STATE, ABORTED),
    (ABORTED, ABORT, NONE, ABORTED),
]


@pytest.mark.parametrize(("state", "commit", "code", "after"), STEADY_TABLE)
def test_steady_producers(
    wire: Connection, shared_place: Place, state: str, commit: bool, code: int, after: str
) -> None:
    producer = RawProducer(wire, STEADY, new_id()).init()
    bring_to(producer, state, shared_place)
    assert producer.ask_to_end(commit)["error_code"] == code
    found = producer.await_ended()
    assert (found["transaction_state"], found["producer_epoch"]) == (after, 0)


@pytest.mark.parametrize("state", [EMPTY, ONGOING, COMMITTED, ABORTED])
@pytest.mark.parametrize("commit", [COMMIT, ABORT])
def test_steady_producers_of_another_epoch_are_fenced(
    wire: Connection, shared_place: Place, state: str, commit: bool
) -> None:
    newcomer = RawProducer(wire, STEADY, new_id()).init().init()
    assert newcomer.epoch == 1
    bring_to(newcomer, state, shared_place)
    for epoch in (0, 2):
        assert newcomer.ask_to_end(commit, epoch=epoch)["error_code"] == PRODUCER_FENCED
    assert newcomer.describe()["transaction_state"] == state


AGAIN = "the answer again"
# State, what is asked, the code with the epoch of now, the code with the epoch before.
BUMPING_TABLE = [
    (ONGOING, COMMIT, NONE, PRODUCER_FENCED),
    (ONGOING, ABORT, NONE, PRODUCER_FENCED),
    (EMPTY, COMMIT, INVALID_TXN_STATE, PRODUCER_FENCED),
    (EMPTY, ABORT, NONE, PRODUCER_FENCED),
    (COMMITTED, COMMIT, INVALID_TXN_STATE, AGAIN),
    (COMMITTED, ABORT, NONE, INVALID_TXN_STATE),
    (ABORTED, ABORT, NONE, AGAIN),
    # INVALID_TXN_STATE would be the end of a client (KAFKA-20785).
    (ABORTED, COMMIT, INVALID_TXN_STATE, differs(kafka=INVALID_TXN_STATE, skidway=PRODUCER_FENCED)),
]


@pytest.mark.parametrize(("state", "commit", "code", "_before"), BUMPING_TABLE)
def test_bumping_producers(
    wire: Connection, shared_place: Place, state: str, commit: bool, code: int, _before: int | str
) -> None:
    producer = RawProducer(wire, BUMPING, new_id()).init()
    bring_to(producer, state, shared_place)
    answer = producer.ask_to_end(commit)
    assert answer["error_code"] == code
    found = producer.await_ended()
    if code == NONE:
        assert (answer["producer_id"], answer["producer_epoch"]) == (producer.producer_id, producer.epoch + 1)
        assert found["transaction_state"] == (COMMITTED if commit else ABORTED)
        assert found["producer_epoch"] == producer.epoch + 1
    else:
        assert (answer["producer_id"], answer["producer_epoch"]) == (-1, -1)
        assert (found["transaction_state"], found["producer_epoch"]) == (state, producer.epoch)


@pytest.mark.parametrize(("state", "commit", "_code", "before"), BUMPING_TABLE)
def test_bumping_producers_with_the_epoch_before(
    wire: Connection, shared_place: Place, state: str, commit: bool, _code: int, before: int | str
) -> None:
    producer = RawProducer(wire, BUMPING, new_id()).init().init()
    bring_to(producer, state, shared_place)
    answer = producer.ask_to_end(commit, epoch=producer.epoch - 1)
    if before == AGAIN:
        assert answer["error_code"] == NONE
        assert (answer["producer_id"], answer["producer_epoch"]) == producer.ids
    else:
        assert answer["error_code"] == before
    assert producer.describe()["transaction_state"] == state
    assert producer.describe()["producer_epoch"] == producer.epoch


@pytest.mark.parametrize("state", [EMPTY, ONGOING, COMMITTED, ABORTED])
@pytest.mark.parametrize("commit", [COMMIT, ABORT])
def test_bumping_producers_of_any_other_epoch_are_fenced(
    wire: Connection, shared_place: Place, state: str, commit: bool
) -> None:
    producer = RawProducer(wire, BUMPING, new_id()).init().init().init()
    bring_to(producer, state, shared_place)
    for epoch in (producer.epoch - 2, producer.epoch + 1):
        assert producer.ask_to_end(commit, epoch=epoch)["error_code"] == PRODUCER_FENCED
    assert producer.describe()["transaction_state"] == state


@pytest.mark.parametrize("commit", [COMMIT, ABORT])
def test_ids_that_do_not_belong_together(producer: RawProducer, shared_place: Place, commit: bool) -> None:
    producer.open(shared_place)
    assert (
        producer.ask_to_end(commit, producer_id=producer.producer_id + 1)["error_code"] == INVALID_PRODUCER_ID_MAPPING
    )
    stranger = RawProducer(producer.wire, producer.generation, new_id())
    stranger.producer_id, stranger.epoch = producer.ids
    assert stranger.ask_to_end(commit)["error_code"] == INVALID_PRODUCER_ID_MAPPING
    stranger.id = ""
    assert stranger.ask_to_end(commit)["error_code"] == INVALID_REQUEST


@pytest.mark.parametrize("version", range(5))
def test_old_versions_have_another_word_for_fenced(wire: Connection, shared_place: Place, version: int) -> None:
    producer = RawProducer(wire, STEADY, new_id()).init()
    producer.open(shared_place)
    answer = producer.ask_to_end(COMMIT, version=version, epoch=7)
    assert answer["error_code"] == (INVALID_PRODUCER_EPOCH if version < 2 else PRODUCER_FENCED)
    assert producer.ask_to_end(COMMIT, version=version)["error_code"] == NONE


def test_every_end_bumps_the_epoch(wire: Connection, place: Place) -> None:
    producer = RawProducer(wire, BUMPING, new_id()).init()
    for number in range(6):
        assert producer.epoch == number
        producer.write(place, b"%d" % number)
        producer.finish(number % 2 == 0)
    found = markers(wire, place)
    assert [(marker.epoch, marker.commit) for marker in found] == [(n + 1, n % 2 == 0) for n in range(6)]
    assert visible(wire, place) == [b"0", b"2", b"4"]


def test_no_end_bumps_the_epoch(wire: Connection, place: Place) -> None:
    producer = RawProducer(wire, STEADY, new_id()).init()
    for number in range(6):
        producer.write(place, b"%d" % number)
        producer.finish(number % 2 == 0)
        assert producer.describe()["producer_epoch"] == 0
    assert [(marker.epoch, marker.commit) for marker in markers(wire, place)] == [(0, n % 2 == 0) for n in range(6)]
    assert visible(wire, place) == [b"0", b"2", b"4"]


def test_an_abort_of_nothing_takes_an_epoch_and_writes_no_marker(wire: Connection, place: Place) -> None:
    producer = RawProducer(wire, BUMPING, new_id()).init()
    producer.write(place, b"v")
    producer.finish(COMMIT)
    producer.finish(ABORT)
    assert producer.epoch == 2
    assert [marker.epoch for marker in markers(wire, place)] == [1]


def test_a_transaction_over_many_partitions_ends_in_all_of_them(
    new_producer: NewProducer, make_topic: MakeTopic
) -> None:
    first, second = make_topic(partitions=5), make_topic(partitions=3)
    places = [*((first, number) for number in range(5)), *((second, number) for number in range(3))]
    producer = new_producer()
    for commit in (COMMIT, ABORT):
        for place in places:
            producer.write(place, b"kept" if commit else b"dropped")
        producer.finish(commit)
    for place in places:
        assert [marker.commit for marker in markers(producer.wire, place)] == [COMMIT, ABORT]
        assert visible(producer.wire, place) == [b"kept"]


def test_while_it_ends_every_call_is_put_off(producer: RawProducer, make_topic: MakeTopic) -> None:
    """Between the answer and the last marker. How long that is, is the broker's: whatever is answered, is right."""
    topic = make_topic(partitions=20)
    for number in range(20):
        producer.write((topic, number), b"v")
    before = producer.ids
    producer.wire.send("EndTxn", producer.generation.end_version, end_body(producer, COMMIT))
    producer.wire.send("EndTxn", producer.generation.end_version, end_body(producer, COMMIT))
    codes = [producer.wire.receive("EndTxn", producer.generation.end_version)[1]["error_code"] for _ in range(2)]
    assert codes[0] == NONE
    assert codes[1] in (NONE, CONCURRENT_TRANSACTIONS)
    found = producer.await_ended()
    assert found["transaction_state"] == COMMITTED
    assert (found["producer_id"], found["producer_epoch"] - producer.generation.bumps) == before


def end_body(producer: RawProducer, commit: bool) -> Body:
    return {
        "transactional_id": producer.id,
        "producer_id": producer.producer_id,
        "producer_epoch": producer.epoch,
        "committed": commit,
    }
