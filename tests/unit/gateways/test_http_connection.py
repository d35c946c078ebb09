"""HTTP/1.1 as a sans-I/O connection: order, bodies, ends of connections, and bytes that could be read in two ways."""

import gzip
import zlib
from functools import cache
from itertools import pairwise

import pytest
from http_world import HttpPeer, HttpWorld, request
from hypothesis import given
from hypothesis import strategies as st

from skidway.gateways.http import bounds
from skidway.gateways.http.call import HttpCall
from skidway.gateways.http.dates import http_date
from skidway.gateways.http.replies import TEXT, Reply, accepts_gzip
from skidway.gateways.http.routes import Route, Routes
from skidway.steps import Steps

LIVE = request("GET", "/livez")


class Held:
    """Calls that wait until the test answers them."""

    def __init__(self) -> None:
        self.calls: list[HttpCall] = []
        self.gone: list[HttpCall] = []

    def hold(self, call: HttpCall) -> None:
        self.calls.append(call)
        call.on_gone = lambda: self.gone.append(call)

    def answer(self, number: int, text: bytes) -> None:
        self.calls[number].reply(Reply(200, TEXT, text))


def _echo(call: HttpCall) -> Reply:
    return Reply(200, TEXT, bytes(call.body))


def _large(call: HttpCall) -> Steps[Reply]:
    yield None
    return Reply(200, TEXT, b"all the same " * 1_000)


class Door:
    def __init__(self) -> None:
        self.held = Held()
        self.world = HttpWorld()
        more = [
            Route("POST", "/echo", _echo, "", body_bytes_max=1_000),
            Route("GET", "/held", self.held.hold, ""),
            Route("POST", "/held", self.held.hold, ""),
            Route("GET", "/large", _large, "", packs=True),
        ]
        site = self.world.gateway.site
        site.routes = Routes([*site.routes.rows, *more])

    def peer(self) -> HttpPeer:
        return self.world.http()


@pytest.fixture
def door() -> Door:
    return Door()


@cache
def any_door() -> Door:
    """For tests that leave nothing behind in it."""
    return Door()


def test_requests_are_answered_one_after_another_on_one_connection(door: Door) -> None:
    peer = door.peer()
    for _ in range(3):
        (answer,) = peer.send(LIVE)
        assert (answer.status, answer.body) == (200, b"ok\n")
        assert answer.headers["date"] == "Tue, 14 Nov 2023 22:13:20 GMT"
        assert "connection" not in answer.headers
    assert not peer.closed


def test_pipelined_requests_are_answered_in_their_order(door: Door) -> None:
    peer = door.peer()
    texts = [b"a", b"bb", b"ccc"]
    answers = peer.send(b"".join(request("POST", "/echo", text) for text in texts))
    assert [answer.body for answer in answers] == texts


def test_questions_are_worked_on_side_by_side_and_answered_in_order(door: Door) -> None:
    peer = door.peer()
    assert peer.send(request("GET", "/held") * 2 + LIVE) == []
    door.held.answer(1, b"second")
    peer.settle()
    assert peer.answers() == []
    door.held.answer(0, b"first")
    peer.settle()
    assert [answer.body for answer in peer.answers()] == [b"first", b"second", b"ok\n"]


def test_a_change_waits_for_all_before_it_and_all_behind_it_wait(door: Door) -> None:
    peer = door.peer()
    assert peer.send(request("GET", "/held") + request("POST", "/held", b"") + request("GET", "/held")) == []
    assert [call.head.method for call in door.held.calls] == ["GET"]
    door.held.answer(0, b"1")
    peer.settle()
    assert [call.head.method for call in door.held.calls] == ["GET", "POST"]
    door.held.answer(1, b"2")
    peer.settle()
    door.held.answer(2, b"3")
    peer.settle()
    assert [answer.body for answer in peer.answers()] == [b"1", b"2", b"3"]


def test_a_peer_that_hangs_up_ends_what_it_waits_for(door: Door) -> None:
    peer = door.peer()
    peer.send(request("GET", "/held") * 2)
    peer.connection.closed()
    assert door.held.gone == door.held.calls
    door.held.answer(0, b"to nobody")
    assert peer.connection.outbox == []


def test_a_body_may_come_in_chunks(door: Door) -> None:
    chunked = request("POST", "/echo", transfer_encoding="chunked", content_type="application/json")
    body = b"4\r\nWiki\r\n5;a=b\r\npedia\r\nA\r\n0123456789\r\n0\r\nSome: trailer\r\n\r\n"
    answers = door.peer().send(chunked + body + LIVE)
    assert [answer.body for answer in answers] == [b"Wikipedia0123456789", b"ok\n"]


def test_who_expects_to_be_told_is_told_to_go_on_once(door: Door) -> None:
    peer = door.peer()
    whole = request("POST", "/echo", b"the body", expect="100-continue")
    head, body = whole[:-8], whole[-8:]
    assert [answer.status for answer in peer.send(head)] == [100]
    assert peer.send(body[:4]) == []
    assert [answer.body for answer in peer.send(body[4:])] == [b"the body"]
    assert [answer.status for answer in peer.send(whole)] == [200]


@pytest.mark.parametrize(
    ("target", "size", "status"), [("/echo", 1_001, 413), ("/nowhere", 5, 404), ("/livez", 5, 405)]
)
def test_who_expects_to_be_told_hears_of_a_refusal_before_it_sends(
    door: Door, target: str, size: int, status: int
) -> None:
    peer = door.peer()
    head = request("POST", target, b"x" * size, expect="100-continue")[:-size]
    (answer,) = peer.send(head)
    assert answer.status == status
    assert answer.headers["connection"] == "close"
    peer.send(LIVE)
    assert not peer.closed, "the peer has a moment to read the refusal"
    door.world.pass_time(bounds.DISCARD_MS_MAX)
    peer.settle()
    assert peer.closed


def test_a_refusal_at_the_head_leaves_the_next_request_where_it_is(door: Door) -> None:
    peer = door.peer()
    answers = peer.send(request("POST", "/nowhere", b"{}" * 50) + LIVE)
    assert [answer.status for answer in answers] == [404, 200]
    assert answers[0].code == "no_such_path"


def test_the_head_alone_can_be_asked_for(door: Door) -> None:
    peer = door.peer()
    peer.give(request("HEAD", "/livez"))
    (answer,) = peer.answers(heads_only=True)
    assert answer.headers["content-length"] == "3"
    assert [answer.body for answer in peer.send(LIVE)] == [b"ok\n"]


def test_other_methods_are_refused_with_those_that_there_are(door: Door) -> None:
    answer = door.peer().ask("DELETE", "/held")
    assert (answer.status, answer.code, answer.headers["allow"]) == (405, "bad_method", "GET, POST")


@pytest.mark.parametrize(
    "head", [b"GET /livez HTTP/1.0\r\n\r\n", b"GET /livez HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"]
)
def test_a_connection_ends_with_the_reply_when_the_peer_wants_that(door: Door, head: bytes) -> None:
    peer = door.peer()
    head = head.replace(b"Host: a", b"Host: localhost")
    (answer,) = peer.send(head + LIVE)
    assert answer.headers["connection"] == "close"
    assert peer.closed


def test_http_1_0_may_ask_to_stay(door: Door) -> None:
    peer = door.peer()
    for _ in range(2):
        (answer,) = peer.send(b"GET /livez HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n")
        assert answer.headers["connection"] == "keep-alive"


def test_the_last_reply_may_be_late(door: Door) -> None:
    peer = door.peer()
    peer.send(request("GET", "/held", connection="close"))
    assert not peer.closed
    door.held.answer(0, b"late")
    peer.settle()
    assert [answer.body for answer in peer.answers()] == [b"late"]
    assert peer.closed


def test_a_large_answer_is_compressed_for_who_takes_that(door: Door) -> None:
    plain = door.peer().ask("GET", "/large")
    packed = door.peer().ask("GET", "/large", accept_encoding="br, gzip;q=0.5")
    assert packed.headers["content-encoding"] == "gzip"
    assert gzip.decompress(packed.body) == plain.body
    assert len(packed.body) < len(plain.body) // 10
    assert "content-encoding" not in door.peer().ask("GET", "/large", accept_encoding="gzip;q=0").headers


@pytest.mark.parametrize(
    ("accepted", "is_so"),
    [(b"gzip", True), (b"*", True), (b"br", False), (b"GZIP ; q=0.001", True), (b"gzip; q=0", False)],
)
def test_who_takes_gzip(accepted: bytes, is_so: bool) -> None:
    assert accepts_gzip(accepted) is is_so


def test_a_name_of_another_machine_is_refused_on_loopback(door: Door) -> None:
    for host in ("127.0.0.1:8082", "[::1]:8082", "localhost:1", "me.localhost", "10.1.2.3"):
        assert door.peer().ask("GET", "/livez", host=host).status == 200, host
    answer = door.peer().ask("GET", "/livez", host="evil.example")
    assert (answer.status, answer.code) == (421, "bad_host")


HEAD = b"POST /echo HTTP/1.1\r\nHost: localhost\r\n"
AMBIGUOUS = {
    "both a length and chunks": HEAD + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunks and a length": HEAD + b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
    "two lengths": HEAD + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
    "the same length twice": HEAD + b"Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
    "a list of lengths": HEAD + b"Content-Length: 3, 3\r\n\r\nabc",
    "a length with a sign": HEAD + b"Content-Length: +3\r\n\r\nabc",
    "a negative length": HEAD + b"Content-Length: -3\r\n\r\nabc",
    "a hexadecimal length": HEAD + b"Content-Length: 0x3\r\n\r\nabc",
    "a length beyond 64 bits": HEAD + b"Content-Length: 99999999999999999999999\r\n\r\nabc",
    "no length": HEAD + b"Content-Length: \r\n\r\nabc",
    "chunked twice": HEAD + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "another coding": HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "a coding that looks like chunked": HEAD + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "identity": HEAD + b"Transfer-Encoding: identity\r\n\r\n",
    "chunks in HTTP/1.0": b"POST /echo HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a blank before the colon": HEAD + b"Content-Length : 3\r\n\r\nabc",
    "a line that continues": HEAD + b"X: a\r\n b\r\nContent-Length: 3\r\n\r\nabc",
    "a line that continues with a tab": HEAD + b"Content-Length:\r\n\t3\r\n\r\nabc",
    "a line that ends in LF alone": b"POST /echo HTTP/1.1\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc",
    "LF in the middle of a header": HEAD + b"X: a\nContent-Length: 30\r\nContent-Length: 3\r\n\r\nabc",
    "CR in a header": HEAD + b"X: a\rb\r\nContent-Length: 3\r\n\r\nabc",
    "a zero byte": HEAD + b"X: a\0b\r\nContent-Length: 3\r\n\r\nabc",
    "no name": HEAD + b": a\r\nContent-Length: 3\r\n\r\nabc",
    "no colon": HEAD + b"Content-Length 3\r\n\r\nabc",
    "two hosts": HEAD + b"Host: evil\r\nContent-Length: 3\r\n\r\nabc",
    "no host": b"POST /echo HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc",
    "no version": b"POST /echo\r\nHost: localhost\r\n\r\n",
    "version 2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "version 1.2": b"GET /livez HTTP/1.2\r\nHost: localhost\r\n\r\n",
    "a method of no HTTP": b"STEAL /livez HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "blanks in the target": b"GET /livez /more HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "another authority": b"CONNECT evil:80 HTTP/1.1\r\nHost: evil:80\r\n\r\n",
    "a TLS hello": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    "an unknown expectation": HEAD + b"Expect: 200-ok\r\nContent-Length: 3\r\n\r\nabc",
    "too long a line": b"GET /" + b"a" * bounds.REQUEST_LINE_BYTES_MAX + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a line that never ends": b"GET /" + b"a" * bounds.REQUEST_LINE_BYTES_MAX,
    "too many headers": HEAD + b"X: a\r\n" * bounds.HEADERS_MAX + b"\r\n",
    "too large headers": HEAD + (b"X: " + b"a" * 1_000 + b"\r\n") * 40 + b"\r\n",
    "headers that never end": HEAD + b"X: " + b"a" * bounds.HEAD_BYTES_MAX,
    "too large a body": HEAD + b"Content-Length: 1001\r\n\r\n",
}
CHUNKS = {
    "no number": b"xyz\r\nabc\r\n0\r\n\r\n",
    "a sign": b"+3\r\nabc\r\n0\r\n\r\n",
    "0x": b"0x3\r\nabc\r\n0\r\n\r\n",
    "a negative number": b"-3\r\nabc\r\n0\r\n\r\n",
    "a blank before it": b" 3\r\nabc\r\n0\r\n\r\n",
    "too large a number": b"ffffffffffffffff3\r\nabc\r\n0\r\n\r\n",
    "larger than allowed": b"ffff\r\nabc",
    "LF alone": b"3\nabc\r\n0\r\n\r\n",
    "longer than it says": b"3\r\nabcd\r\n0\r\n\r\n",
    "LF alone behind it": b"3\r\nabc\n0\r\n\r\n",
    "an endless extension": b"3;" + b"a" * 300 + b"\r\nabc\r\n0\r\n\r\n",
    "mostly framing": b"1;aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\nx\r\n" * 500,
    "a trailer that ends in LF": b"0\r\nA: b\nC: d\r\n\r\n",
    "endless trailers": b"0\r\n" + b"A: b\r\n" * 2_000,
}
AMBIGUOUS |= {f"a chunk: {name}": HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + body for name, body in CHUNKS.items()}


@pytest.mark.parametrize("name", AMBIGUOUS)
def test_bytes_that_could_be_read_in_two_ways_end_the_connection(door: Door, name: str) -> None:
    peer = door.peer()
    (answer,) = peer.send(AMBIGUOUS[name] + LIVE)
    assert 400 <= answer.status <= 505
    assert answer.code
    assert answer.headers["connection"] == "close"
    assert peer.send(LIVE * 3) == [], "nothing behind it is a request"
    door.world.pass_time(bounds.DISCARD_MS_MAX)
    peer.settle()
    assert peer.closed


def test_a_refusal_waits_for_the_replies_before_it(door: Door) -> None:
    peer = door.peer()
    assert peer.send(request("GET", "/held") + b"nonsense\r\n\r\n") == []
    door.held.answer(0, b"first")
    peer.settle()
    assert [answer.status for answer in peer.answers()] == [200, 400]


def test_a_peer_that_goes_on_sending_after_a_refusal_is_dropped(door: Door) -> None:
    peer = door.peer()
    peer.send(b"nonsense\r\n\r\n")
    for _ in range(bounds.DISCARDED_BYTES_MAX // (1 << 20) + 1):
        peer.give(b"x" * (1 << 20))
    assert peer.closed


STORY = (
    LIVE
    + request("POST", "/echo", b"some text")
    + b"\r\n"
    + request("POST", "/echo", transfer_encoding="chunked")
    + b"3\r\nabc\r\n1;x\r\nd\r\n0\r\nT: v\r\n\r\n"
    + request("POST", "/nowhere", b"[]")
    + request("GET", "/livez", None, upgrade="h2c", connection="Upgrade")
    + request("GET", "/livez?a=b")
    + request("POST", "/echo", b"the end", connection="close")
)
ENDINGS = [b"", *AMBIGUOUS.values()]


@given(
    cuts=st.lists(st.integers(0, 3_000), max_size=20),
    ending=st.sampled_from(ENDINGS),
    repeated=st.integers(0, 2),
)
def test_however_the_bytes_are_cut_the_answers_are_the_same(cuts: list[int], ending: bytes, repeated: int) -> None:
    whole = LIVE * repeated + (ending + STORY if ending else STORY)
    in_one = any_door().peer().send(whole)
    peer = any_door().peer()
    places = sorted({0, len(whole), *(cut % (len(whole) + 1) for cut in cuts)})
    for begin, end in pairwise(places):
        peer.give(whole[begin:end])
        peer.settle()
    assert [(each.status, each.body) for each in peer.answers()] == [(each.status, each.body) for each in in_one]


def test_byte_by_byte_the_story_is_the_same() -> None:
    in_one = any_door().peer().send(STORY)
    assert [each.status for each in in_one] == [200, 200, 200, 404, 200, 200, 200]
    peer = any_door().peer()
    for byte in STORY:
        peer.give(bytes([byte]))
    peer.settle()
    assert peer.answers() == in_one
    assert peer.closed


@given(st.binary(max_size=300))
def test_any_bytes_are_answered_or_waited_for(data: bytes) -> None:
    peer = any_door().peer()
    for answer in peer.send(data):
        assert answer.status in (200, 400, 404, 405, 414, 417, 421, 431, 501, 505)


@given(st.integers(0, 4_102_444_800))
def test_dates_are_those_of_the_calendar(second: int) -> None:
    from email.utils import formatdate

    assert http_date(second * 1_000) == formatdate(second, usegmt=True).encode()


def test_no_bytes_are_kept_of_a_body_that_is_refused(door: Door) -> None:
    peer = door.peer()
    peer.send(HEAD + b"Content-Length: 1000000\r\n\r\n" + b"x" * 100_000)
    assert peer.tail == b""


def test_a_bomb_is_not_unpacked(door: Door) -> None:
    """A body is never decompressed, so it cannot be more than it is."""
    bomb = zlib.compress(bytes(10_000))
    answer = door.peer().ask("POST", "/echo", bomb, content_encoding="deflate")
    assert answer.body == bomb


@pytest.mark.parametrize(
    ("first", "told"),
    [
        (b"\x00\x00\x00\x1e\x00\x12\x00\x04", "Kafka's protocol has another port"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01", "begin the address with http://"),
        (b"\x05\x01", "is not HTTP"),
    ],
)
def test_who_speaks_another_protocol_hears_so_at_once(first: bytes, told: str) -> None:
    """It waits for an answer, and would never send the end of a head."""
    peer = HttpWorld().http()
    (answer,) = peer.send(first)
    assert answer.status == 400
    assert told in answer.json()["detail"]
    assert answer.headers["connection"] == "close"
