"""InitProducerId with a transactional id: who gets which ids, who is fenced, what happens to what was open."""

import pytest
from raw import Connection
from transaction_calls import (
    ABORT,
    BUMPING,
    COMMIT,
    CONCURRENT_TRANSACTIONS,
    INVALID_PRODUCER_EPOCH,
    INVALID_PRODUCER_ID_MAPPING,
    INVALID_REQUEST,
    INVALID_TRANSACTION_TIMEOUT,
    INVALID_TXN_STATE,
    LAST_EPOCH,
    NONE,
    PRODUCER_FENCED,
    STEADY,
    TRANSACTION,
    NewProducer,
    Place,
    RawProducer,
    differs,
    init,
    markers,
    new_id,
    retried,
    visible,
)

from waiting import eventually

MAX_TIMEOUT_MS = 900_000


@pytest.mark.parametrize("version", range(6))
def test_every_version(wire: Connection, version: int) -> None:
    answer = init(wire, new_id(), version=version)
    assert (answer["error_code"], answer["producer_epoch"]) == (NONE, 0)
    assert answer["producer_id"] >= 0


def test_every_id_has_a_producer_id_of_its_own(wire: Connection) -> None:
    assert len({init(wire, new_id())["producer_id"] for _ in range(20)}) == 20


def test_a_newcomer_has_the_same_producer_id_and_the_next_epoch(producer: RawProducer) -> None:
    given = [init(producer.wire, producer.id) for _ in range(3)]
    assert [one["producer_id"] for one in given] == [producer.producer_id] * 3
    assert [one["producer_epoch"] for one in given] == [1, 2, 3]


@pytest.mark.parametrize("timeout_ms", [1, MAX_TIMEOUT_MS])
def test_timeouts_that_are_taken(wire: Connection, timeout_ms: int) -> None:
    assert init(wire, new_id(), timeout_ms=timeout_ms)["error_code"] == NONE


@pytest.mark.parametrize("timeout_ms", [-1, 0, MAX_TIMEOUT_MS + 1, 2**31 - 1])
def test_timeouts_that_are_not(wire: Connection, timeout_ms: int) -> None:
    answer = init(wire, new_id(), timeout_ms=timeout_ms)
    assert (answer["error_code"], answer["producer_id"]) == (INVALID_TRANSACTION_TIMEOUT, -1)


@pytest.mark.parametrize("transactional_id", ["", "é" * 300, "a b\tc"])
def test_what_may_be_an_id(wire: Connection, transactional_id: str) -> None:
    code = init(wire, transactional_id and transactional_id + new_id())["error_code"]
    assert code == (NONE if transactional_id else INVALID_REQUEST)


@pytest.mark.parametrize("ids", [{"producer_id": 5}, {"epoch": 5}], ids=str)
def test_a_producer_id_and_an_epoch_come_together(wire: Connection, ids: dict[str, int]) -> None:
    assert init(wire, new_id(), **ids)["error_code"] == INVALID_REQUEST


# ------------------------------------------------------------------------------------------- coming back (KIP-360)


def test_a_producer_that_comes_back_has_the_next_epoch(producer: RawProducer) -> None:
    answer = init(producer.wire, producer.id, producer_id=producer.producer_id, epoch=0)
    assert (answer["error_code"], answer["producer_id"], answer["producer_epoch"]) == (NONE, producer.producer_id, 1)


def test_a_producer_that_has_not_heard_the_answer_gets_it_again(producer: RawProducer) -> None:
    for _ in range(3):
        answer = init(producer.wire, producer.id, producer_id=producer.producer_id, epoch=0)
        assert (answer["error_code"], answer["producer_epoch"]) == (NONE, 1)


def test_a_producer_that_comes_back_behind_a_newcomer_is_fenced(producer: RawProducer) -> None:
    init(producer.wire, producer.id)
    for epoch in (0, 2, 7):
        answer = init(producer.wire, producer.id, producer_id=producer.producer_id, epoch=epoch)
        assert (answer["error_code"], answer["producer_id"]) == (PRODUCER_FENCED, -1)


@pytest.mark.parametrize("version", [3, 4, 5])
def test_old_versions_have_another_word_for_fenced(producer: RawProducer, version: int) -> None:
    answer = init(producer.wire, producer.id, producer_id=producer.producer_id, epoch=9, version=version)
    assert answer["error_code"] == (INVALID_PRODUCER_EPOCH if version < 4 else PRODUCER_FENCED)


def test_another_producer_id_is_fenced(producer: RawProducer) -> None:
    answer = init(producer.wire, producer.id, producer_id=producer.producer_id + 1_000_000, epoch=0)
    assert answer["error_code"] == PRODUCER_FENCED


def test_an_id_that_nobody_has_takes_no_notice_of_what_the_producer_was(wire: Connection) -> None:
    answer = init(wire, new_id(), producer_id=1_000_000_000, epoch=7)
    assert (answer["error_code"], answer["producer_epoch"]) == (NONE, 0)
    assert answer["producer_id"] != 1_000_000_000


# ------------------------------------------------------------------------------------------------ what was open


def test_a_newcomer_aborts_what_is_open(new_producer: NewProducer, place: Place) -> None:
    zombie = new_producer()
    zombie.write(place, b"zombie")
    answer = init(zombie.wire, zombie.id)
    assert (answer["error_code"], answer["producer_id"]) == (CONCURRENT_TRANSACTIONS, -1)
    newcomer = new_producer(zombie.id)
    assert newcomer.producer_id == zombie.producer_id
    assert newcomer.epoch > zombie.epoch
    assert zombie.ask_to_end(COMMIT)["error_code"] == PRODUCER_FENCED
    newcomer.write(place, b"newcomer")
    newcomer.finish(COMMIT)
    assert visible(zombie.wire, place) == [b"newcomer"]
    # The abort is of the epoch after the zombie's, so that nothing that the zombie still sends can be appended.
    assert markers(zombie.wire, place)[0].epoch == zombie.epoch + 1


def test_a_zombie_writes_nothing_any_more(new_producer: NewProducer, place: Place) -> None:
    zombie = new_producer()
    zombie.write(place, b"zombie")
    newcomer = new_producer(zombie.id)
    assert zombie.produce(place, b"late")["error_code"] == INVALID_PRODUCER_EPOCH
    newcomer.write(place, b"newcomer")
    assert zombie.produce(place, b"later")["error_code"] == INVALID_PRODUCER_EPOCH
    assert zombie.add(place) == {place: PRODUCER_FENCED}
    assert zombie.add(place, version=1) == {place: INVALID_PRODUCER_EPOCH}
    newcomer.finish(COMMIT)
    assert visible(zombie.wire, place) == [b"newcomer"]


def test_a_producer_that_comes_back_aborts_its_own(new_producer: NewProducer, place: Place) -> None:
    producer = new_producer()
    producer.write(place, b"v")
    answer = retried(lambda: init(producer.wire, producer.id, producer_id=producer.producer_id, epoch=producer.epoch))
    assert answer["error_code"] == NONE
    assert answer["producer_id"] == producer.producer_id
    assert answer["producer_epoch"] > producer.epoch
    assert producer.describe()["transaction_state"] == "Empty"
    assert [marker.commit for marker in markers(producer.wire, place)] == [ABORT]


def test_a_zombie_that_comes_back_leaves_its_successors_transaction_alone(
    new_producer: NewProducer, place: Place
) -> None:
    zombie = new_producer()
    newcomer = new_producer(zombie.id)
    newcomer.write(place, b"newcomer")
    code = init(zombie.wire, zombie.id, producer_id=zombie.producer_id, epoch=zombie.epoch)["error_code"]
    # Kafka looks at the producer id alone before it aborts.
    assert code == differs(kafka=CONCURRENT_TRANSACTIONS, skidway=PRODUCER_FENCED)
    ended = retried(lambda: newcomer.ask_to_end(COMMIT))["error_code"]
    assert (ended == NONE) == differs(kafka=False, skidway=True)


def test_the_id_is_free_again_after_the_abort(new_producer: NewProducer, place: Place) -> None:
    producer = new_producer()
    for number in range(5):
        producer.write(place, b"%d" % number)
        producer = new_producer(producer.id)
    producer.write(place, b"last")
    producer.finish(COMMIT)
    assert visible(producer.wire, place) == [b"last"]


# -------------------------------------------------------------------------------------------- the end of epochs


def last_epoch(wire: Connection, transactional_id: str) -> RawProducer:
    """A producer with the last epoch there is: newcomers take one each, and a pipeline of them is quick."""
    producer = RawProducer(wire, BUMPING, transactional_id).init()
    body = {"transactional_id": transactional_id, "transaction_timeout_ms": 60_000}
    left = LAST_EPOCH - producer.epoch
    while left:
        some = min(left, 500)
        for _ in range(some):
            wire.send("InitProducerId", 2, body)
        for _ in range(some):
            answer = wire.receive("InitProducerId", 2)[1]
            assert answer["error_code"] == NONE, answer
        left -= some
    producer.take(answer)
    assert producer.epoch == LAST_EPOCH
    return producer


def test_epochs_end_and_a_new_producer_id_begins(wire: Connection, place: Place) -> None:
    """One test for all of it: 32,767 newcomers take a while."""
    producer = last_epoch(wire, new_id())
    old = producer.producer_id
    producer.write(place, b"last epoch")
    answer = producer.ask_to_end(COMMIT)
    new = answer["producer_id"]
    assert (answer["error_code"], answer["producer_epoch"]) == (NONE, 0)
    assert new != old
    # Who has not heard it asks again with the ids before.
    answer = retried(lambda: producer.ask_to_end(COMMIT))
    assert (answer["error_code"], answer["producer_id"], answer["producer_epoch"]) == (NONE, new, 0)
    assert [(marker.producer_id, marker.epoch) for marker in markers(wire, place)] == [(old, LAST_EPOCH + 1)]
    assert producer.describe()["producer_id"] == new
    assert producer.add_offsets("g", epoch=LAST_EPOCH) == INVALID_PRODUCER_ID_MAPPING
    producer.take(answer)
    producer.write(place, b"new id")
    producer.finish(COMMIT)
    assert visible(wire, place) == [b"last epoch", b"new id"]


# ------------------------------------------------------------------------------------------------------ time-outs

TIMEOUT_MS = 3_000
"""Brokers look for late transactions every ten seconds. One that is late at once may be aborted before it is written
to."""


def test_a_transaction_that_takes_too_long_is_aborted(new_producer: NewProducer, place: Place) -> None:
    producer = new_producer(timeout_ms=TIMEOUT_MS)
    producer.write(place, b"late")
    eventually(lambda: producer.describe()["transaction_state"] == "CompleteAbort", seconds=60)
    assert visible(producer.wire, place) == []
    (marker,) = markers(producer.wire, place)
    assert (marker.commit, marker.epoch) == (ABORT, producer.epoch + 1)
    answer = producer.ask_to_end(COMMIT)
    if producer.generation is STEADY:
        assert answer["error_code"] == PRODUCER_FENCED
        return
    assert answer["error_code"] == differs(kafka=INVALID_TXN_STATE, skidway=PRODUCER_FENCED)
    # It may abort what is aborted already, and lives on with the epoch that it gets.
    producer.end(ABORT)
    assert producer.epoch == marker.epoch


def test_the_time_of_an_empty_id_does_not_run(new_producer: NewProducer, place: Place) -> None:
    producer = new_producer(timeout_ms=TIMEOUT_MS)
    timely = new_producer(timeout_ms=TIMEOUT_MS)
    timely.write(place, b"late")
    eventually(lambda: timely.describe()["transaction_state"] == "CompleteAbort", seconds=60)
    assert (producer.describe()["transaction_state"], producer.describe()["producer_epoch"]) == ("Empty", 0)


# ------------------------------------------------------------------------------------------------ FindCoordinator


@pytest.mark.parametrize("version", range(1, 7))
def test_the_coordinator_of_an_id(wire: Connection, version: int) -> None:
    (broker,) = wire.call("Metadata", 12, {"topics": []})["brokers"]
    if version < 4:
        found = wire.call("FindCoordinator", version, {"key_type": TRANSACTION, "key": new_id()})
    else:
        (found,) = wire.call("FindCoordinator", version, {"key_type": TRANSACTION, "coordinator_keys": [new_id()]})[
            "coordinators"
        ]
    assert (found["error_code"], found["node_id"]) == (NONE, broker["node_id"])
    assert (found["host"], found["port"]) == (broker["host"], broker["port"])


# ------------------------------------------------------------------------------------------------------ ApiVersions


def test_clients_are_told_that_epochs_grow(wire: Connection) -> None:
    """Java and franz-go decide by the finalized feature, and take news of it only if its epoch is not negative."""
    asked = {"client_software_name": "raw", "client_software_version": "1"}
    answer = wire.call("ApiVersions", 4, asked)
    supported = {one["name"]: (one["min_version"], one["max_version"]) for one in answer["supported_features"]}
    finalized = {one["name"]: one["max_version_level"] for one in answer["finalized_features"]}
    assert supported["transaction.version"] == (0, 2)
    assert finalized["transaction.version"] == 2
    assert answer["finalized_features_epoch"] >= 0


def test_versions_of_every_request(wire: Connection) -> None:
    served = {
        one["api_key"]: (one["min_version"], one["max_version"]) for one in wire.call("ApiVersions", 2)["api_keys"]
    }
    expected = {22: (0, 5), 24: (0, 5), 25: (0, 4), 26: (0, 5), 27: (1, 2), 65: (0, 0), 66: (0, 2)}
    assert {key: served[key] for key in expected} == expected
    assert served[28] in ((0, 5), (0, 6)), "version 6 of TxnOffsetCommit came with Kafka 4.4"
