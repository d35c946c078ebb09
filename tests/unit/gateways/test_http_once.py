"""`Idempotency-Key`: what is sent again is written once, by whichever node, and a key has one body."""

from typing import Any

import pytest
from http_world import LOOPBACK, Answer, HttpPeer, HttpWorld, request

from skidway.gateways.http.gateway import HttpGateway
from skidway.gateways.http.keys import KEYS_MAX, Keys
from skidway.gateways.http.topics.once import FIRST_ID, Once
from skidway.limits import INT64_MAX


@pytest.fixture
def world() -> HttpWorld:
    world = HttpWorld()
    world.peer().create("t", 4)
    return world


def send(peer: HttpPeer, key: str, *records: Any) -> Answer:
    return peer.ask("POST", "/v1/topics/t/produce", {"records": list(records)}, idempotency_key=key)


def count(world: HttpWorld) -> int:
    """Of records in all partitions."""
    sizes = [
        world.http().ask("GET", f"/v1/topics/t/records?partition={index}&offset=latest").json()["nextOffset"]
        for index in range(4)
    ]
    return sum(sizes)


def elsewhere(world: HttpWorld) -> HttpPeer:
    """A client of a door that has seen nothing of what the first one saw."""
    return HttpPeer(world, HttpGateway(world.node, LOOPBACK))


def test_what_is_sent_again_is_written_once(world: HttpWorld) -> None:
    records = [{"key": str(number), "value": number} for number in range(20)] + [{"value": "no key"}]
    first = send(world.http(), "a", *records)
    assert first.status == 200
    assert len({each["partition"] for each in first.json()["offsets"]}) > 1
    for peer in (world.http(), elsewhere(world)):
        again = send(peer, "a", *records)
        assert (again.status, again.body) == (200, first.body)
    assert count(world) == 21
    other = send(world.http(), "b", *records)
    assert other.status == 200
    assert other.body != first.body
    assert count(world) == 42


@pytest.mark.parametrize("place", ["here", "elsewhere"])
def test_a_key_has_one_body(world: HttpWorld, place: str) -> None:
    assert send(world.http(), "a", {"value": "one", "partition": 1}).status == 200
    peer = world.http() if place == "here" else elsewhere(world)
    for records in ([{"value": "two", "partition": 1}], [{"value": "one", "partition": 1}] * 2):
        answer = send(peer, "a", *records)
        assert (answer.status, answer.code) == (422, "key_reused")
        assert answer.json()["retryable"] is False
    assert count(world) == 1


def test_a_body_for_other_partitions_is_noticed_by_the_node_that_saw_the_first(world: HttpWorld) -> None:
    assert send(world.http(), "a", {"value": "one", "partition": 1}).status == 200
    answer = send(world.http(), "a", {"value": "one", "partition": 2})
    assert (answer.status, answer.code) == (422, "key_reused")


def test_a_request_that_was_refused_as_wrong_leaves_its_key_free(world: HttpWorld) -> None:
    assert send(world.http(), "a", {"value": "one", "partition": 9}).status == 404
    assert send(world.http(), "a", {"value": "one", "partition": 1}).status == 200


def test_many_batches_of_one_partition_are_all_known_again(world: HttpWorld) -> None:
    """More than a partition remembers of one producer."""
    records = [{"value": "x" * 900_000, "partition": 0} for _ in range(8)]
    first = send(world.http(), "a", *records)
    assert [each["offset"] for each in first.json()["offsets"]] == list(range(8))
    assert send(elsewhere(world), "a", *records).body == first.body
    assert count(world) == 8
    answer = send(elsewhere(world), "a", *records[:7], {"value": "y" * 900_000, "partition": 0})
    assert (answer.status, answer.code) == (422, "key_reused")


def test_two_at_once_are_one(world: HttpWorld) -> None:
    peers = [world.http(), elsewhere(world)]
    for peer in peers:
        peer.give(request("POST", "/v1/topics/t/produce", {"records": [{"value": "v"}]}, idempotency_key="a"))
    for peer in peers:
        peer.settle()
    first, second = (peer.answers()[0] for peer in peers)
    assert (first.status, first.body) == (200, second.body)
    assert count(world) == 1


def test_keys_that_cannot_be(world: HttpWorld) -> None:
    for key in ("", "x" * 256, "ü"):
        answer = world.http().ask("POST", "/v1/topics/t/produce", {"records": [{"value": "v"}]}, idempotency_key=key)
        assert (answer.status, answer.code) == (400, "bad_idempotency_key"), key
    twice = request("POST", "/v1/topics/t/produce", {"records": []}, idempotency_key="a\r\nIdempotency-Key: b")
    (answer,) = world.http().send(twice)
    assert (answer.status, answer.code) == (400, "bad_header")
    assert count(world) == 0


def test_ids_are_none_that_a_broker_gives_to_producers() -> None:
    once = Once(b"s" * 32, b"\xff" * 32)
    found = {once.producer_id(number) for number in range(1_000)}
    assert len(found) == 1_000
    assert all(FIRST_ID <= each <= INT64_MAX for each in found)
    assert 0 <= once.sequence < 1 << 31


def test_a_node_forgets_the_oldest_keys() -> None:
    keys = Keys()
    for number in range(KEYS_MAX + 1):
        assert keys.is_same(b"%d" % number, b"body", 0, 1_000)
    assert not keys.is_same(b"1", b"other", 0, 1_000)
    assert keys.is_same(b"0", b"other", 0, 1_000), "the oldest is forgotten"
    assert keys.is_same(b"5", b"other", 1_000, 1_000), "its time is over"
