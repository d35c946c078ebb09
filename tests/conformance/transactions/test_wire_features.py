"""The feature `transaction.version`: what ApiVersions says of it, UpdateFeatures, and transactions at every level.

Clients of both generations are served at every level: each request says which generation it is of. The level decides
what clients choose, and how the coordinator ends what its producer did not end.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from raw import Body, Connection
from transaction_calls import (
    ABORT,
    BUMPING,
    COMMIT,
    CONCURRENT_TRANSACTIONS,
    NONE,
    PRODUCER_FENCED,
    STEADY,
    Generation,
    Place,
    RawProducer,
    init,
    markers,
    new_id,
    retried,
    visible,
)

from waiting import eventually

TRANSACTIONS, METADATA = "transaction.version", "metadata.version"
INVALID_UPDATE_VERSION = 95
UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
NEWEST = 2


def features(wire: Connection, version: int = 4) -> Body:
    body = {"client_software_name": "tests", "client_software_version": "1"}
    return wire.call("ApiVersions", version, body)


def level(wire: Connection, name: str = TRANSACTIONS) -> int:
    """0 where the broker does not name it."""
    found = {one["name"]: one["max_version_level"] for one in features(wire)["finalized_features"]}
    return int(found.get(name, 0))


def update(wire: Connection, *updates: Body, version: int = 2, **more: Any) -> Body:
    return wire.call("UpdateFeatures", version, {"feature_updates": list(updates), "timeout_ms": 10_000, **more})


def to(wanted: int, kind: int = UPGRADE, name: str = TRANSACTIONS) -> Body:
    return {"feature": name, "max_version_level": wanted, "upgrade_type": kind}


def go_to(wire: Connection, wanted: int) -> None:
    """And wait until this broker knows."""
    kind = UPGRADE if wanted >= level(wire) else SAFE_DOWNGRADE
    answer = update(wire, to(wanted, kind))
    assert answer["error_code"] == NONE, answer
    eventually(lambda: level(wire) == wanted)


@pytest.fixture(autouse=True)
def newest(wire: Connection) -> Iterator[None]:
    """Other tests count on it."""
    go_to(wire, NEWEST)
    yield
    go_to(wire, NEWEST)


# ------------------------------------------------------------------------------------------------- what brokers say


def test_a_new_cluster_has_the_newest(wire: Connection) -> None:
    said = features(wire)
    supported = {one["name"]: (one["min_version"], one["max_version"]) for one in said["supported_features"]}
    assert supported[TRANSACTIONS] == (0, NEWEST)
    (found,) = [one for one in said["finalized_features"] if one["name"] == TRANSACTIONS]
    assert (found["min_version_level"], found["max_version_level"]) == (NEWEST, NEWEST)
    assert said["finalized_features_epoch"] >= 0


def test_older_clients_do_not_hear_of_a_feature_that_begins_with_0(wire: Connection) -> None:
    """KAFKA-17492; which level it has they do hear."""
    said = features(wire, version=3)
    assert TRANSACTIONS not in {one["name"] for one in said["supported_features"]}
    assert METADATA in {one["name"] for one in said["supported_features"]}
    assert TRANSACTIONS in {one["name"] for one in said["finalized_features"]}


def test_the_epoch_grows_with_every_change(wire: Connection) -> None:
    epochs = [features(wire)["finalized_features_epoch"]]
    for wanted in (1, 0, 2):
        go_to(wire, wanted)
        epochs.append(features(wire)["finalized_features_epoch"])
    assert epochs == sorted(set(epochs))


def test_a_feature_at_level_0_is_not_named(wire: Connection) -> None:
    go_to(wire, 0)
    assert TRANSACTIONS not in {one["name"] for one in features(wire)["finalized_features"]}


# ------------------------------------------------------------------------------------------------- UpdateFeatures


def test_every_version_answers_in_its_form(wire: Connection) -> None:
    # v0 has no types: the same level needs none.
    asked = {"feature": TRANSACTIONS, "max_version_level": NEWEST}
    assert [one["feature"] for one in update(wire, asked, version=0)["results"]] == [TRANSACTIONS]
    answer = update(wire, to(1, SAFE_DOWNGRADE), version=1)
    assert answer["error_code"] == NONE
    assert [(one["feature"], one["error_code"]) for one in answer["results"]] == [(TRANSACTIONS, NONE)]
    eventually(lambda: level(wire) == 1)
    assert update(wire, to(NEWEST), version=2)["error_code"] == NONE


@pytest.mark.parametrize("kind", [SAFE_DOWNGRADE, UNSAFE_DOWNGRADE])
def test_a_level_is_lowered_and_raised(wire: Connection, kind: int) -> None:
    for wanted in (1, 0):
        assert update(wire, to(wanted, kind))["error_code"] == NONE
        eventually(lambda wanted=wanted: level(wire) == wanted)  # type: ignore[misc]
    assert update(wire, to(NEWEST))["error_code"] == NONE
    eventually(lambda: level(wire) == NEWEST)


def test_what_is_only_validated_stays(wire: Connection) -> None:
    epoch = features(wire)["finalized_features_epoch"]
    assert update(wire, to(1, SAFE_DOWNGRADE), validate_only=True)["error_code"] == NONE
    assert update(wire, to(3), validate_only=True)["error_code"] == INVALID_UPDATE_VERSION
    assert level(wire) == NEWEST
    assert features(wire)["finalized_features_epoch"] >= epoch


@pytest.mark.parametrize(
    "refused",
    [
        to(1, UPGRADE),
        to(3, UPGRADE),
        to(-1, SAFE_DOWNGRADE),
        to(1, 0),
        to(1, 17),
        to(1, UPGRADE, "no.such.version"),
        to(1, SAFE_DOWNGRADE, METADATA),
        to(1000, UPGRADE, METADATA),
    ],
    ids=str,
)
@pytest.mark.parametrize("version", [1, 2])
def test_refused_is_refused_for_all(wire: Connection, refused: Body, version: int) -> None:
    fine = to(level(wire, METADATA), UPGRADE, METADATA)
    answer = update(wire, fine, refused, version=version)
    assert answer["error_code"] == INVALID_UPDATE_VERSION
    assert refused["feature"] in answer["error_message"]
    assert str(refused["max_version_level"]) in answer["error_message"]
    assert answer.get("results", []) == []
    assert level(wire) == NEWEST


def test_a_downgrade_does_not_raise(wire: Connection) -> None:
    go_to(wire, 1)
    for kind in (SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        assert update(wire, to(NEWEST, kind))["error_code"] == INVALID_UPDATE_VERSION
    assert level(wire) == 1


# ------------------------------------------------------------------------------------------------- transactions


@pytest.mark.parametrize("at", [0, 1])
def test_clients_of_both_generations_are_served(
    wire: Connection, place: Place, generation: Generation, at: int
) -> None:
    go_to(wire, at)
    producer = RawProducer(wire, generation, new_id()).init()
    for number, commit in enumerate((COMMIT, ABORT, COMMIT)):
        producer.write(place, str(number).encode())
        producer.finish(commit)
    assert visible(wire, place) == [b"0", b"2"]
    assert producer.epoch == (3 if generation.bumps else 0)


@pytest.mark.parametrize("at", [0, 1, 2])
def test_who_is_aborted_by_a_newcomer_is_fenced(
    wire: Connection, place: Place, generation: Generation, at: int
) -> None:
    go_to(wire, at)
    producer = RawProducer(wire, generation, new_id()).init()
    producer.write(place, b"old")
    assert init(wire, producer.id)["error_code"] == CONCURRENT_TRANSACTIONS
    newcomer = retried(lambda: init(wire, producer.id))
    assert (newcomer["producer_id"], newcomer["producer_epoch"]) == (producer.producer_id, 2)
    (marker,) = markers(wire, place)
    assert (marker.epoch, marker.commit) == (1, ABORT)
    assert producer.ask_to_end(COMMIT)["error_code"] == PRODUCER_FENCED
    assert visible(wire, place) == []


@pytest.mark.parametrize("at", [0, 1])
def test_who_is_aborted_by_time_is_fenced_whichever_generation(
    wire: Connection, place: Place, generation: Generation, at: int
) -> None:
    """At level 2 a bumping producer may live on: it asks to abort with its old epoch, and gets the new one."""
    go_to(wire, at)
    producer = RawProducer(wire, generation, new_id(), timeout_ms=1).init()
    producer.write(place, b"late")
    producer.await_ended()
    assert producer.describe()["producer_epoch"] == 1
    assert producer.ask_to_end(COMMIT)["error_code"] == PRODUCER_FENCED
    (marker,) = markers(wire, place)
    assert (marker.epoch, marker.commit) == (1, ABORT)
    if generation.bumps:
        go_to(wire, NEWEST)


@pytest.mark.parametrize("at", [0, 1])
def test_what_is_open_while_the_level_changes_ends_as_its_client_says(
    wire: Connection, place: Place, generation: Generation, at: int
) -> None:
    producer = RawProducer(wire, generation, new_id()).init()
    producer.write(place, b"a")
    go_to(wire, at)
    producer.finish(COMMIT)
    producer.write(place, b"b")
    go_to(wire, NEWEST)
    producer.finish(COMMIT)
    assert visible(wire, place) == [b"a", b"b"]


def test_a_client_changes_over_between_two_transactions(wire: Connection, place: Place) -> None:
    """As Java's producer does when it hears of another level: it takes a new epoch once."""
    producer = RawProducer(wire, STEADY, new_id()).init()
    for generation, number in ((STEADY, b"1"), (BUMPING, b"2"), (STEADY, b"3")):
        producer.generation = generation
        producer.take(retried(lambda: init(wire, producer.id, producer_id=producer.producer_id, epoch=producer.epoch)))
        producer.write(place, number)
        producer.finish(COMMIT)
    assert visible(wire, place) == [b"1", b"2", b"3"]
