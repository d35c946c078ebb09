"""Server-sent events: records as they come, no more than is read, and a place to resume."""

import json
from typing import Any

import pytest
from broker_world import part as message
from http_world import HttpPeer, HttpWorld, request

from skidway.gateways.http.topics.stream import COMMENT, COMMENT_MS, RECORDS_AT_ONCE


@pytest.fixture
def world() -> HttpWorld:
    world = HttpWorld()
    world.peer().create("t")
    return world


def produce(world: HttpWorld, *values: str, topic: str = "t", **more: Any) -> None:
    body = {"records": [{"value": value, **more} for value in values]}
    assert world.http().ask("POST", f"/v1/topics/{topic}/produce", body).status == 200


def begin(peer: HttpPeer, query: str = "", topic: str = "t", **headers: str) -> bytes:
    """The head of the reply; what follows stays in `peer.out`."""
    peer.give(request("GET", f"/v1/topics/{topic}/stream{query}", **headers))
    peer.settle()
    head, _, peer.out = peer.out.partition(b"\r\n\r\n")
    return head


def text(peer: HttpPeer) -> bytes:
    """What came since, without the framing of chunks."""
    data, peer.out, found = peer.out, b"", b""
    while data:
        size, _, data = data.partition(b"\r\n")
        found += data[: int(size, 16)]
        assert data[int(size, 16) :][:2] == b"\r\n"
        data = data[int(size, 16) + 2 :]
    return found


def events(peer: HttpPeer) -> list[tuple[str, Any]]:
    found = []
    for event in text(peer).split(b"\n\n")[:-1]:
        if event.startswith(b"id: "):
            name, _, data = event.partition(b"\ndata: ")
            found.append((name.removeprefix(b"id: ").decode(), json.loads(data)["value"]))
    return found


def test_records_come_as_events(world: HttpWorld) -> None:
    peer = world.http()
    produce(world, "old")
    head = begin(peer)
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    for line in (b"content-type: text/event-stream", b"x-accel-buffering: no", b"cache-control: no-store"):
        assert line in head.split(b"\r\n")
    assert text(peer) == COMMENT, "that the stream has begun"
    for number in range(3):
        produce(world, f"news {number}")
        peer.settle()
        assert events(peer) == [(f"0:{number + 2}", f"news {number}")]


def test_a_stream_begins_where_it_should(world: HttpWorld) -> None:
    produce(world, "a", "b", "c")
    peer = world.http()
    begin(peer, "?offset=earliest")
    assert events(peer) == [("0:1", "a"), ("0:2", "b"), ("0:3", "c")]
    peer = world.http()
    begin(peer, "?offset=earliest", last_event_id="0:2")
    assert events(peer) == [("0:3", "c")]


def test_all_partitions_are_one_stream_and_an_id_resumes_them_all(world: HttpWorld) -> None:
    world.peer().create("wide", 3)
    peer = world.http()
    begin(peer, topic="wide")
    assert text(peer) == COMMENT
    for number, index in enumerate((2, 0, 2, 1)):
        produce(world, f"{number}", topic="wide", partition=index)
        peer.settle()
    seen = events(peer)
    assert seen == [("0:0,1:0,2:1", "0"), ("0:1,1:0,2:1", "1"), ("0:1,1:0,2:2", "2"), ("0:1,1:1,2:2", "3")]
    peer.connection.closed()
    for number, (resumed, _) in enumerate(seen):
        again = world.http()
        begin(again, topic="wide", last_event_id=resumed)
        assert sorted(value for _, value in events(again)) == [str(each) for each in range(number + 1, 4)]
        again.connection.closed()


def test_some_partitions_are_a_stream(world: HttpWorld) -> None:
    world.peer().create("wide", 4)
    for index in range(4):
        produce(world, f"in {index}", topic="wide", partition=index)
    peer = world.http()
    begin(peer, "?partition=1,3&offset=earliest", topic="wide")
    assert sorted(value for _, value in events(peer)) == ["in 1", "in 3"]
    produce(world, "not this", topic="wide", partition=0)
    produce(world, "this", topic="wide", partition=3)
    peer.settle()
    assert events(peer) == [("1:1,3:2", "this")]
    peer = world.http()
    begin(peer, "?offset=0:1,3:1", topic="wide")
    assert sorted(value for _, value in events(peer)) == ["not this", "this"], "others begin with what comes"


def test_a_time_is_where_all_partitions_begin(world: HttpWorld) -> None:
    world.peer().create("wide", 2)
    for number in range(6):
        produce(world, str(number), topic="wide", partition=number % 2, timestamp=1_000 * number)
    peer = world.http()
    begin(peer, "?timestamp=2500", topic="wide")
    assert sorted(value for _, value in events(peer)) == ["3", "4", "5"]


def test_partitions_that_come_later_belong_to_a_whole_topic(world: HttpWorld) -> None:
    peer, part = world.http(), world.http()
    begin(peer)
    begin(part, "?partition=0")
    for each in (peer, part):
        text(each)
    kafka = world.peer()
    grown = message("CreatePartitions", "CreatePartitionsTopic", "t", 2, None)
    kafka.send("CreatePartitions", topics=[grown], timeout_ms=5_000, validate_only=False)
    world.settle()
    assert [each.error_code for each in kafka.reply().results] == [0]
    produce(world, "new", partition=1)
    produce(world, "old", partition=0)
    world.pass_time(COMMENT_MS)
    for each in (peer, part):
        each.settle()
    assert sorted(events(peer)) == [("0:1", "old"), ("0:1,1:1", "new")]
    assert events(part) == [("0:1", "old")]


def test_one_busy_partition_does_not_hide_the_others(world: HttpWorld) -> None:
    """More than one answer may have, in the first partition: the second has its turn soon."""
    world.peer().create("wide", 2)
    for _ in range(6):
        produce(world, *("x" * 1_000 for _ in range(200)), topic="wide", partition=0)
    produce(world, "small", topic="wide", partition=1)
    peer = world.http()
    peer.reads = False
    begin(peer, "?offset=earliest", topic="wide")
    for _ in range(2):
        if any(value == "small" for _, value in events(peer)):
            return
        peer.connection.sent()
        peer.settle()
    raise AssertionError("it did not come")


def test_a_stream_without_news_says_that_it_lives(world: HttpWorld) -> None:
    peer = world.http()
    begin(peer)
    text(peer)
    world.pass_time(COMMENT_MS)
    peer.settle()
    assert text(peer) == COMMENT


def test_who_does_not_read_is_not_sent_more(world: HttpWorld) -> None:
    for _ in range(3):
        produce(world, *("x" for _ in range(RECORDS_AT_ONCE)))
    peer = world.http()
    peer.reads = False
    begin(peer, "?offset=0")
    for _ in range(5):
        peer.settle()
    assert len(events(peer)) == RECORDS_AT_ONCE
    peer.reads = True
    peer.ready = True
    peer.settle()
    assert len(events(peer)) == 2 * RECORDS_AT_ONCE


def test_who_hangs_up_ends_its_stream(world: HttpWorld) -> None:
    peer = world.http()
    begin(peer)
    assert world.node.waiting.stable_polls.waits == 1
    peer.connection.closed()
    assert world.node.waiting.stable_polls.waits == 0
    assert world.node.world.slices.under_way == 0


def test_requests_before_and_behind_a_stream_wait(world: HttpWorld) -> None:
    peer = world.http()
    peer.give(request("GET", "/livez") + request("GET", "/v1/topics/t/stream") + request("GET", "/livez"))
    peer.settle()
    assert peer.out.count(b"HTTP/1.1 200 OK") == 2
    assert peer.tail == request("GET", "/livez")


def test_a_topic_that_goes_ends_its_streams(world: HttpWorld) -> None:
    peer = world.http()
    begin(peer)
    text(peer)
    world.peer().delete("t")
    for _ in range(5):
        world.pass_time(COMMENT_MS)
        peer.settle()
    assert b"event: error\ndata: " in peer.out
    assert b'"code":"no_such_topic"' in peer.out
    assert peer.out.endswith(b"0\r\n\r\n")
    peer.out = b""
    assert peer.ask("GET", "/livez").status == 200


def test_a_stop_ends_streams_and_polls(world: HttpWorld) -> None:
    streaming, polling = world.http(), world.http()
    begin(streaming)
    polling.give(request("GET", "/v1/topics/t/records?wait=30000"))
    polling.settle()
    world.node.leave(world.clock.now_ms)
    world.node.begin_stop(world.clock.now_ms)
    for peer in (streaming, polling):
        peer.settle()
    assert streaming.out.endswith(b"0\r\n\r\n")
    (answer,) = polling.answers()
    assert answer.json()["records"] == []


def test_http_1_0_has_events_without_framing(world: HttpWorld) -> None:
    produce(world, "a")
    peer = world.http()
    peer.give(b"GET /v1/topics/t/stream?offset=0 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
    peer.settle()
    head, _, body = peer.out.partition(b"\r\n\r\n")
    assert b"chunked" not in head
    assert b"connection: close" in head
    assert body.startswith(b"id: 0:1\ndata: {")


@pytest.mark.parametrize(
    ("query", "headers", "status", "code"),
    [
        ("?partition=5", {}, 404, "no_such_partition"),
        ("?offset=99", {}, 422, "offset_out_of_range"),
        ("", {"last_event_id": "1:5"}, 400, "bad_event_id"),
        ("", {"last_event_id": "0:x"}, 400, "bad_event_id"),
        ("?wait=1", {}, 400, "bad_query"),
        ("?partition=0,0", {}, 400, "bad_query"),
        ("?partition=0,1", {}, 404, "no_such_partition"),
        ("?partition=", {}, 400, "bad_query"),
        ("?offset=1:5", {}, 400, "bad_query"),
        ("?offset=0:9", {}, 422, "offset_out_of_range"),
        ("", {"last_event_id": "0:1,0:2"}, 400, "bad_event_id"),
        ("", {"last_event_id": "0:9223372036854775808"}, 400, "bad_event_id"),
        ("", {"last_event_id": "0:9"}, 422, "offset_out_of_range"),
    ],
)
def test_what_is_wrong_is_told_before_a_stream_begins(
    world: HttpWorld, query: str, headers: dict[str, str], status: int, code: str
) -> None:
    answer = world.http().ask("GET", f"/v1/topics/t/stream{query}", **headers)
    assert (answer.status, answer.code) == (status, code)


def test_a_number_is_no_place_in_several_partitions(world: HttpWorld) -> None:
    world.peer().create("wide", 2)
    answer = world.http().ask("GET", "/v1/topics/wide/stream?offset=0")
    assert (answer.status, answer.code) == (422, "bad_value")
    world.peer().create("too-wide", 257)
    answer = world.http().ask("GET", "/v1/topics/too-wide/stream")
    assert (answer.status, answer.code) == (422, "too_many_partitions")


def test_the_head_of_a_stream_has_an_end(world: HttpWorld) -> None:
    peer = world.http()
    peer.give(request("HEAD", "/v1/topics/t/stream"))
    peer.settle()
    assert [answer.status for answer in peer.answers(heads_only=True)] == [200]
