"""Share sessions: their epochs, what ends them, and what becomes of the records their readers hold."""

import uuid

import pytest
from group_calls import broker_config
from raw import Connection, MakeTopic
from raw_batches import build
from share_calls import (
    ACCEPT,
    INVALID_RECORD_STATE,
    INVALID_REQUEST,
    INVALID_SHARE_SESSION_EPOCH,
    LAST_OF_SESSION,
    NEW_SESSION,
    NONE,
    RELEASE,
    SHARE_SESSION_LIMIT_REACHED,
    SHARE_SESSION_NOT_FOUND,
    NewReader,
    Place,
    ShareReader,
    open_group,
    place_of,
    results,
)
from wire_calls import produce

from waiting import eventually


@pytest.fixture
def three(wire: Connection, topic: str) -> None:
    produce(wire, topic, build([b"a", b"b", b"c"]))


pytestmark = pytest.mark.usefixtures("three")


@pytest.mark.parametrize("epoch", [1, 5, LAST_OF_SESSION])
def test_no_session(reader: ShareReader, at: Place, epoch: int) -> None:
    answer = reader.try_fetch(epoch=epoch)
    assert (answer["error_code"], answer["responses"]) == (SHARE_SESSION_NOT_FOUND, [])
    assert reader.acknowledge({at: [(0, 0, [ACCEPT])]}, epoch=epoch)["error_code"] == SHARE_SESSION_NOT_FOUND


def test_fetch_and_acknowledge_share_an_epoch(reader: ShareReader, at: Place) -> None:
    reader.some(epoch=NEW_SESSION)
    used = reader.epoch
    assert reader.ack((0, 0, [ACCEPT])) == NONE
    assert reader.epoch == used + 1
    assert reader.try_fetch(max_wait_ms=0)["error_code"] == NONE
    assert reader.ack((1, 1, [ACCEPT])) == NONE


@pytest.mark.parametrize("step", [-1, 1, 7])
def test_a_wrong_epoch(reader: ShareReader, at: Place, step: int) -> None:
    reader.some()
    reader.take(max_wait_ms=0)
    right = reader.epoch
    answer = reader.try_fetch(epoch=right + step, max_wait_ms=0)
    assert (answer["error_code"], answer["responses"]) == (INVALID_SHARE_SESSION_EPOCH, [])
    answer = reader.acknowledge({at: [(0, 0, [ACCEPT])]}, epoch=right + step)
    assert (answer["error_code"], answer["responses"]) == (INVALID_SHARE_SESSION_EPOCH, [])
    reader.epoch = right
    assert reader.ack((0, 2, [ACCEPT])) == NONE, "the session lives on, and its epoch did not advance"


def test_an_epoch_advances_whatever_the_partitions_answer(reader: ShareReader, at: Place) -> None:
    reader.some()
    assert reader.ack((0, 0, [9])) == INVALID_REQUEST
    assert reader.ack((0, 0, [ACCEPT])) == NONE
    assert reader.ack((99, 99, [ACCEPT])) != NONE
    assert reader.ack((1, 2, [ACCEPT])) == NONE


def test_acknowledge_makes_no_session(reader: ShareReader, at: Place) -> None:
    answer = reader.acknowledge({at: [(0, 0, [ACCEPT])]}, epoch=NEW_SESSION)
    assert (answer["error_code"], answer["responses"]) == (INVALID_SHARE_SESSION_EPOCH, [])


def test_a_new_session_with_acknowledgements(reader: ShareReader, at: Place) -> None:
    answer = reader.try_fetch({at: [(0, 0, [ACCEPT])]}, epoch=NEW_SESSION)
    assert (answer["error_code"], answer["responses"]) == (INVALID_REQUEST, [])


def test_a_new_session_replaces_the_old_one(reader: ShareReader, at: Place) -> None:
    """And what was acquired in the old one stays acquired by the same member."""
    reader.some()
    reader.epoch = NEW_SESSION
    assert reader.take(max_wait_ms=100).acquired in ([], [(0, 2, 2)])
    assert reader.epoch == 1
    assert reader.ack((0, 2, [ACCEPT])) == NONE


def test_closing_releases(reader: ShareReader, new_reader: NewReader, at: Place) -> None:
    reader.some()
    answer = reader.close({at: [(0, 0, [ACCEPT])]})
    assert answer["error_code"] == NONE
    assert [one["error_code"] for found in answer["responses"] for one in found["partitions"]] == [NONE]
    assert new_reader().some().acquired == [(1, 2, 2)]
    assert reader.try_fetch(epoch=reader.epoch)["error_code"] == SHARE_SESSION_NOT_FOUND


def test_closing_with_a_fetch(reader: ShareReader, new_reader: NewReader, at: Place) -> None:
    reader.some()
    answer = reader.try_fetch({at: [(0, 0, [ACCEPT])]}, epoch=LAST_OF_SESSION)
    assert answer["error_code"] == NONE
    got = results(answer)
    assert (got[at].ack_error, got[at].acquired) == (NONE, []), "nothing is fetched any more"
    assert new_reader().some().acquired == [(1, 2, 2)]
    assert reader.try_fetch(epoch=1)["error_code"] == SHARE_SESSION_NOT_FOUND


def test_a_closed_connection_releases(reader: ShareReader, new_reader: NewReader, at: Place) -> None:
    crashing = new_reader()
    assert crashing.some().acquired == [(0, 2, 1)]
    assert reader.take(max_wait_ms=0).acquired == []
    crashing.wire.socket.close()
    assert reader.some().acquired == [(0, 2, 2)]


def test_a_closed_connection_releases_what_a_waiting_fetch_gets(reader: ShareReader, new_reader: NewReader) -> None:
    crashing = new_reader()
    crashing.some()
    reader.take(max_wait_ms=0)
    reader.send_fetch(max_wait_ms=20_000)
    crashing.wire.socket.close()
    assert reader.fetched()[reader.places[0]].acquired == [(0, 2, 2)]


def test_a_session_goes_on_over_another_connection(reader: ShareReader, other: Connection) -> None:
    reader.some()
    reader.wire = other
    assert reader.ack((0, 0, [ACCEPT])) == NONE
    assert reader.take(max_wait_ms=0).acquired == []
    assert reader.ack((1, 2, [RELEASE])) == NONE


def test_a_session_made_anew_does_not_end_with_the_old_connection(
    bootstrap: str, wire: Connection, topic: str, opened: str, at: Place
) -> None:
    old = Connection(bootstrap)
    reader = ShareReader(old, opened, at)
    reader.some()
    reader.wire, reader.epoch = wire, NEW_SESSION
    reader.take(max_wait_ms=0)
    old.socket.close()
    produce(wire, topic, build([b"d"]))
    assert reader.until(lambda got: 3 in got.offsets).error == NONE
    assert reader.ack((3, 3, [ACCEPT])) == NONE


def test_partitions_are_added_and_forgotten(wire: Connection, group: str, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=2)
    open_group(wire, group, topic)
    first, second = (place_of(wire, topic, partition) for partition in range(2))
    produce(wire, topic, build([b"0"]), partition=1)
    reader = ShareReader(wire, group, first)
    assert second not in reader.fetch(max_wait_ms=100)
    assert reader.until(lambda got: got.acquired, place=second, topics=[listed(second)]).offsets == [0]
    assert reader.ack((0, 0, [ACCEPT]), place=second) == NONE
    forgotten = [{"topic_id": second[0], "partitions": [1]}]
    reader.fetch(forgotten_topics_data=forgotten, max_wait_ms=0)
    produce(wire, topic, build([b"1"]), partition=1)
    produce(wire, topic, build([b"0"]), partition=0)
    assert reader.until(lambda got: got.acquired).offsets == [0]
    assert second not in reader.fetch(max_wait_ms=200)


def listed(place: Place) -> dict[str, object]:
    return {"topic_id": place[0], "partitions": [{"partition_index": place[1]}]}


def test_forgetting_a_partition_keeps_its_records(reader: ShareReader, new_reader: NewReader, at: Place) -> None:
    """They are this reader's until it acknowledges them, also outside of its session."""
    reader.some()
    reader.fetch(forgotten_topics_data=[{"topic_id": at[0], "partitions": [0]}], max_wait_ms=0)
    assert new_reader().take(max_wait_ms=200).acquired == []
    assert reader.ack((0, 2, [ACCEPT])) == NONE


def test_two_members_have_sessions_of_their_own(wire: Connection, opened: str, at: Place) -> None:
    """Over one connection, too."""
    one, two = ShareReader(wire, opened, at), ShareReader(wire, opened, at)
    assert one.some().acquired == [(0, 2, 1)]
    two.take(max_wait_ms=0)
    assert two.ack((0, 0, [ACCEPT])) == INVALID_RECORD_STATE
    assert one.ack((0, 2, [ACCEPT])) == NONE


def test_a_second_session_over_one_connection_ends_with_it_too(
    bootstrap: str, reader: ShareReader, opened: str, at: Place
) -> None:
    shared = Connection(bootstrap)
    one, two = ShareReader(shared, opened, at), ShareReader(shared, opened, at)
    assert one.some().acquired == [(0, 2, 1)]
    assert one.ack((2, 2, [RELEASE])) == NONE
    assert two.some().acquired == [(2, 2, 2)]
    shared.socket.close()
    seen = reader.gather(lambda seen: len(seen) == 3)
    assert seen == {0: 2, 1: 2, 2: 3}


def test_the_same_member_in_two_groups(wire: Connection, topic: str, opened: str, at: Place) -> None:
    name = f"g-{uuid.uuid4().hex[:12]}"
    open_group(wire, name, topic)
    one, two = ShareReader(wire, opened, at), ShareReader(wire, name, at)
    two.id = one.id
    assert one.some().acquired == two.some().acquired == [(0, 2, 1)]


@pytest.mark.skidway_only
def test_no_more_sessions_than_allowed(bootstrap: str, wire: Connection, opened: str, at: Place) -> None:
    """Kafka, too; but there the tests of other workers would find the table full."""
    limit = broker_config(wire, "group.share.max.share.sessions", 2_000)
    with Connection(bootstrap) as crowd:
        many = [ShareReader(crowd, opened, at) for _ in range(limit)]
        refused = [one for one in many if one.try_fetch(max_wait_ms=0)["error_code"] == SHARE_SESSION_LIMIT_REACHED]
        late = ShareReader(wire, opened, at)
        answer = late.try_fetch(max_wait_ms=0)
        assert (answer["error_code"], answer["responses"]) == (SHARE_SESSION_LIMIT_REACHED, [])
        assert len(refused) < limit / 2, "sessions of earlier tests ended with their connections"
    eventually(lambda: late.try_fetch(max_wait_ms=0, epoch=NEW_SESSION)["error_code"] == NONE)
