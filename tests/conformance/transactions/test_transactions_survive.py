"""The broker is killed, or stopped, and comes back: what was open stays open, what was ended stays ended."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from group_calls import await_coordinators, commit
from group_settings import GROUPS
from raw import Connection
from transaction_calls import (
    ABORT,
    COMMIT,
    NONE,
    READ_COMMITTED,
    UNSTABLE_OFFSET_COMMIT,
    Generation,
    Place,
    RawProducer,
    await_transaction_coordinators,
    describe,
    end_as,
    init,
    markers,
    new_id,
    produce_as,
    producers_of,
    read_as,
    stable,
    visible,
)
from wire_calls import create_topic

from skidway.testing import Broker
from waiting import eventually

pytestmark = pytest.mark.skidway_only


@dataclass
class World:
    broker: Broker
    wire: Connection
    generation: Generation
    kill: bool

    def producer(self, **options: int) -> RawProducer:
        return RawProducer(self.wire, self.generation, new_id(), **options).init()

    def restart(self, *producers: RawProducer) -> None:
        """Connections are made anew; the producers go on with what they know."""
        self.wire.socket.close()
        self.broker.restart(kill=self.kill)
        self.wire = Connection(self.broker.bootstrap)
        for producer in producers:
            producer.wire = self.wire
        await_coordinators(self.wire)
        await_transaction_coordinators(self.wire)


@pytest.fixture(scope="module")
def own_broker() -> Iterator[Broker]:
    settings = {"timeout_check_ms": 300, "state_partitions": 3}
    groups = {**GROUPS, "offsets_partitions": 3}
    with Broker(transactions=settings, groups=groups) as broker:
        with Connection(broker.bootstrap) as wire:
            await_coordinators(wire)
            await_transaction_coordinators(wire)
        yield broker


@pytest.fixture(params=[True, False], ids=["killed", "stopped"])
def world(request: pytest.FixtureRequest, own_broker: Broker, generation: Generation) -> Iterator[World]:
    made = World(own_broker, Connection(own_broker.bootstrap), generation, request.param)
    yield made
    made.wire.socket.close()


@pytest.fixture
def place(world: World) -> Place:
    topic = new_id()
    create_topic(world.wire, topic, 1, None)
    return topic, 0


def test_an_open_transaction_goes_on(world: World, place: Place) -> None:
    producer = world.producer()
    producer.write(place, b"before")
    world.restart(producer)
    assert producer.describe()["transaction_state"] == "Ongoing"
    assert end_as(world.wire, place, READ_COMMITTED) == 0
    assert visible(world.wire, place) == []
    assert producers_of(world.wire, place)[producer.producer_id]["current_txn_start_offset"] == 0
    producer.write(place, b"after")
    producer.finish(COMMIT)
    assert visible(world.wire, place) == [b"before", b"after"]


def test_a_batch_that_comes_again_after_the_restart_is_written_once(world: World, place: Place) -> None:
    producer = world.producer()
    producer.write(place, b"a")
    again = producer.batch(place, [b"b"])
    first = producer.produce(place, data=again)
    world.restart(producer)
    second = produce_as(world.wire, producer.id, place, again, world.generation.produce_version)
    assert (second["error_code"], second["base_offset"]) == (first["error_code"], first["base_offset"]) == (NONE, 1)
    producer.finish(COMMIT)
    assert visible(world.wire, place) == [b"a", b"b"]


def test_what_was_ended_stays_so(world: World, place: Place) -> None:
    producer = world.producer()
    for number in range(6):
        producer.write(place, b"%d" % number)
        producer.finish(number % 3 == 0)
    before = read_as(world.wire, place, READ_COMMITTED)
    world.restart(producer)
    after = read_as(world.wire, place, READ_COMMITTED)
    assert after["aborted_transactions"] == before["aborted_transactions"] != []
    assert after["last_stable_offset"] == before["last_stable_offset"] == 12
    assert visible(world.wire, place) == [b"0", b"3"]
    producer.write(place, b"more")
    producer.finish(COMMIT)
    assert visible(world.wire, place) == [b"0", b"3", b"more"]


@pytest.mark.parametrize("commits", [COMMIT, ABORT])
def test_an_end_that_was_answered_comes_about(world: World, place: Place, commits: bool) -> None:
    """The broker goes as soon as it has answered: markers may be written, or not yet."""
    producer = world.producer()
    producer.write(place, b"v")
    answer = producer.ask_to_end(commits)
    assert answer["error_code"] == NONE
    world.restart(producer)
    found = producer.await_ended()
    assert found["transaction_state"] == ("CompleteCommit" if commits else "CompleteAbort")
    eventually(lambda: end_as(world.wire, place, READ_COMMITTED) == end_as(world.wire, place, 0))
    assert visible(world.wire, place) == ([b"v"] if commits else [])
    assert {marker.commit for marker in markers(world.wire, place)} == {commits}
    # Its producer asks again, because it has not heard the answer.
    again = producer.ask_to_end(commits)
    assert again["error_code"] == NONE
    if world.generation.bumps:
        assert (again["producer_id"], again["producer_epoch"]) == (answer["producer_id"], answer["producer_epoch"])


def test_an_open_transaction_of_before_times_out(world: World, place: Place) -> None:
    producer = world.producer(timeout_ms=1_000)
    producer.write(place, b"late")
    world.restart(producer)
    eventually(lambda: producer.describe()["transaction_state"] == "CompleteAbort")
    assert visible(world.wire, place) == []


def test_epochs_do_not_go_back(world: World) -> None:
    producer = world.producer()
    world.restart(producer)
    answer = init(world.wire, producer.id)
    assert (answer["error_code"], answer["producer_id"]) == (NONE, producer.producer_id)
    assert answer["producer_epoch"] == producer.epoch + 1
    assert describe(world.wire, producer.id)["producer_epoch"] == producer.epoch + 1


@pytest.mark.parametrize("commits", [COMMIT, ABORT])
def test_pending_offsets_wait_on(world: World, place: Place, commits: bool) -> None:
    producer, group = world.producer(), new_id()
    assert commit(world.wire, group, place[0], {0: 3}) == {0: NONE}
    producer.send_offsets(group, place[0], {0: 10})
    world.restart(producer)
    assert stable(world.wire, group, place[0]) == (UNSTABLE_OFFSET_COMMIT, -1)
    producer.finish(commits)
    assert stable(world.wire, group, place[0]) == (NONE, 10 if commits else 3)
    world.restart(producer)
    assert stable(world.wire, group, place[0]) == (NONE, 10 if commits else 3)
