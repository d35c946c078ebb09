"""What kafka-python's admin client does with transactions; confluent-kafka and aiokafka have no such calls."""

from collections.abc import Iterator

import pytest
from kafka.admin import AbortTransactionSpec
from kafka.errors import TransactionalIdNotFoundError
from transaction_calls import COMMIT, READ_COMMITTED, NewProducer, Place, RawProducer, end_as, visible

import kafka
from waiting import eventually


@pytest.fixture
def admin(bootstrap: str) -> Iterator[kafka.KafkaAdminClient]:
    made = kafka.KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        yield made
    finally:
        made.close()


def test_list(admin: kafka.KafkaAdminClient, new_producer: NewProducer, shared_place: Place) -> None:
    empty, ongoing = new_producer(), new_producer()
    ongoing.write(shared_place, b"v")

    def states(**filters: object) -> dict[str, str]:
        found = admin.list_transactions(**filters)
        return {one.transactional_id: str(one.state.value) for listed in found.values() for one in listed}

    assert states(producer_id_filters=[empty.producer_id, ongoing.producer_id]) == {
        empty.id: "Empty",
        ongoing.id: "Ongoing",
    }
    assert states(transactional_id_pattern=f"{ongoing.id}|nobody") == {ongoing.id: "Ongoing"}
    ours = {empty.id, ongoing.id}
    assert ours & set(states(state_filters=["Ongoing"])) == {ongoing.id}
    assert ours & set(states(state_filters=["Ongoing"], duration_filter_ms=600_000)) == set()


def test_describe(admin: kafka.KafkaAdminClient, producer: RawProducer, place: Place) -> None:
    producer.write(place, b"v")
    found = admin.describe_transactions([producer.id])[producer.id]
    assert (str(found.state.value), found.producer_id, found.producer_epoch) == ("Ongoing", *producer.ids)
    assert set(found.topic_partitions) == {kafka.TopicPartition(*place)}
    with pytest.raises(TransactionalIdNotFoundError):
        admin.describe_transactions(["nobody"])
    producer.finish(COMMIT)


def test_nothing_hangs(admin: kafka.KafkaAdminClient, producer: RawProducer, place: Place) -> None:
    producer.write(place, b"v")
    assert producer.id not in {one["transactional_id"] for one in admin.find_hanging_transactions()}


def test_abort(admin: kafka.KafkaAdminClient, producer: RawProducer, place: Place) -> None:
    producer.write(place, b"v")
    where = kafka.TopicPartition(*place)
    ((active,),) = [state.active_producers for state in admin.describe_producers([where]).values()]
    assert (active.producer_id, active.producer_epoch, active.current_transaction_start_offset) == (*producer.ids, 0)
    admin.abort_transaction(AbortTransactionSpec(where, *producer.ids))
    assert end_as(producer.wire, place, READ_COMMITTED) == 2
    assert visible(producer.wire, place) == []


def test_features(admin: kafka.KafkaAdminClient) -> None:
    name = "transaction.version"

    def level() -> tuple[int, int]:
        found: tuple[int, int] = admin.describe_features()[name]["finalized"]
        return found

    assert level() == (2, 2)
    assert admin.describe_features()[name]["supported"] == (0, 2)
    assert admin.describe_features()[name]["finalized_epoch"] > 0
    try:
        for kind, wanted in (("SAFE_DOWNGRADE", 1), ("UPGRADE", 2)):
            assert admin.update_features({name: (kind, wanted)}, validate_only=True) == {name: "OK"}
            assert level() != (wanted, wanted)
            assert admin.update_features({name: (kind, wanted)}) == {name: "OK"}
            eventually(lambda wanted=wanted: level() == (wanted, wanted))  # type: ignore[misc]
    finally:
        admin.update_features({name: 2})
