"""A WebSocket on one node without sockets: credit, bounds, and what ends it. The other end is another library's."""

import json
from typing import Any

import pytest
from http_world import HttpPeer, HttpWorld, request
from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.protocol import State
from websockets.uri import parse_uri

from skidway.gateways.http.sockets.session import PING_MS, SUBSCRIPTIONS_MAX, UNSENT_BYTES_MAX

HANDSHAKE = {
    "connection": "Upgrade",
    "upgrade": "websocket",
    "sec_websocket_version": "13",
    "sec_websocket_key": "dGhlIHNhbXBsZSBub25jZQ==",
}


@pytest.fixture
def world() -> HttpWorld:
    world = HttpWorld()
    world.peer().create("t", 2)
    return world


class Socket:
    """A client that has said hello."""

    def __init__(self, world: HttpWorld, more: bytes = b"") -> None:
        self.peer: HttpPeer = world.http()
        self.peer.give(request("GET", "/v1/ws", **HANDSHAKE) + more)
        self.peer.settle()
        head, _, self.peer.out = self.peer.out.partition(b"\r\n\r\n")
        lines = head.split(b"\r\n")
        assert lines[0] == b"HTTP/1.1 101 Switching Protocols"
        assert b"sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" in lines
        self.codec = ClientProtocol(parse_uri("ws://localhost/"), state=State.OPEN)

    def say(self, **command: Any) -> list[Any]:
        self.send(Opcode.TEXT, json.dumps(command).encode())
        return self.heard()

    def send(self, opcode: Opcode, payload: bytes) -> None:
        self.peer.give(Frame(opcode, payload).serialize(mask=True))
        self.peer.settle()

    def frames(self) -> list[Frame]:
        self.codec.receive_data(self.peer.out)
        self.peer.out = b""
        found = self.codec.events_received()
        assert all(isinstance(each, Frame) for each in found)
        return found  # type: ignore[return-value]

    def heard(self) -> list[Any]:
        return [json.loads(bytes(each.data)) for each in self.frames() if each.opcode == Opcode.TEXT]


def produce(world: HttpWorld, *values: str, partition: int = 0) -> None:
    body = {"records": [{"value": value, "partition": partition} for value in values]}
    assert world.http().ask("POST", "/v1/topics/t/produce", body).status == 200


def values(messages: list[Any]) -> list[Any]:
    return [message["value"] for message in messages if message["type"] == "record"]


def test_records_come_as_long_as_there_is_credit(world: HttpWorld) -> None:
    produce(world, *(str(number) for number in range(10)))
    socket = Socket(world)
    heard = socket.say(type="subscribe", id="s", topic="t", offset="earliest", credit=3)
    assert heard[0] == {"type": "subscribed", "id": "s", "position": "0:0,1:0"}
    assert values(heard) == ["0", "1", "2"]
    assert heard[1]["id"] == "s"
    assert (heard[1]["partition"], heard[1]["offset"]) == (0, 0)
    produce(world, "more", partition=1)
    socket.peer.settle()
    assert socket.heard() == []
    assert values(socket.say(type="credit", id="s", credit=1)) == ["3"]
    assert sorted(values(socket.say(type="credit", id="s", credit=100))) == ["4", "5", "6", "7", "8", "9", "more"]
    produce(world, "news")
    socket.peer.settle()
    assert values(socket.heard()) == ["news"]


@pytest.mark.parametrize("granted", [[1] * 30, [7, 0, 7, 0, 16], [30]])
def test_every_record_costs_one_credit(world: HttpWorld, granted: list[int]) -> None:
    for index in (0, 1):
        produce(world, *(f"{index}-{number}" for number in range(20)), partition=index)
    socket = Socket(world)
    seen = values(socket.say(type="subscribe", id="s", topic="t", offset="earliest", credit=0))
    given = 0
    for credit in granted:
        seen += values(socket.say(type="credit", id="s", credit=credit))
        given += credit
        assert len(seen) == given
    for index in (0, 1):
        of_one = [each for each in seen if each.startswith(f"{index}-")]
        assert of_one == [f"{index}-{number}" for number in range(len(of_one))]


def test_several_subscriptions_of_one_socket(world: HttpWorld) -> None:
    world.peer().create("u")
    socket = Socket(world)
    socket.say(type="subscribe", id="a", topic="t", credit=5)
    socket.say(type="subscribe", id="b", topic="u", credit=5)
    assert world.http().ask("POST", "/v1/topics/u/produce", {"records": [{"value": "in u"}]}).status == 200
    produce(world, "in t")
    socket.peer.settle()
    assert sorted((each["id"], each["value"]) for each in socket.heard()) == [("a", "in t"), ("b", "in u")]
    assert socket.say(type="unsubscribe", id="a") == [{"type": "unsubscribed", "id": "a"}]
    produce(world, "nobody's")
    socket.peer.settle()
    assert socket.heard() == []
    socket.peer.connection.closed()
    assert world.node.waiting.stable_polls.waits == 0
    assert world.node.world.slices.under_way == 0


def test_who_does_not_read_is_not_sent_more(world: HttpWorld) -> None:
    for _ in range(3):
        produce(world, *("x" for _ in range(500)))
    socket = Socket(world)
    socket.peer.reads = False
    first = values(socket.say(type="subscribe", id="s", topic="t", offset="earliest", credit=1_500))
    assert 0 < len(first) <= 500
    for _ in range(5):
        socket.peer.settle()
    assert socket.heard() == []


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ({"type": "dance"}, "bad_command"),
        ({"type": "subscribe", "id": "s", "topic": "t"}, "bad_command"),
        ({"type": "subscribe", "id": "s", "topic": "t", "credit": -1}, "bad_command"),
        ({"type": "subscribe", "id": "s", "topic": "t", "credit": 10_001}, "bad_command"),
        ({"type": "subscribe", "id": "", "topic": "t", "credit": 1}, "bad_command"),
        ({"type": "subscribe", "id": "s", "topic": "t", "credit": 1, "colour": "red"}, "bad_command"),
        ({"type": "subscribe", "id": "s", "topic": "nowhere", "credit": 1}, "no_such_topic"),
        ({"type": "subscribe", "id": "s", "topic": "t", "credit": 1, "partition": "7"}, "no_such_partition"),
        ({"type": "subscribe", "id": "s", "topic": "t", "credit": 1, "offset": "soon"}, "bad_query"),
        ({"type": "credit", "id": "s", "credit": 1}, "no_such_subscription"),
        ({"type": "unsubscribe", "id": "s"}, "no_such_subscription"),
    ],
)
def test_what_is_wrong_with_a_command_is_told(world: HttpWorld, command: dict[str, Any], code: str) -> None:
    socket = Socket(world)
    (told,) = socket.say(**command)
    assert (told["type"], told["code"]) == ("error", code)
    assert told.get("id", "s") == "s"
    assert socket.say(type="subscribe", id="s", topic="t", credit=1)[0]["type"] == "subscribed", "it goes on"


def test_subscriptions_and_credit_have_bounds(world: HttpWorld) -> None:
    socket = Socket(world)
    for number in range(SUBSCRIPTIONS_MAX):
        assert socket.say(type="subscribe", id=str(number), topic="t", credit=1)[0]["type"] == "subscribed"
    assert socket.say(type="subscribe", id="0", topic="t", credit=1)[0]["code"] == "subscription_exists"
    assert socket.say(type="subscribe", id="more", topic="t", credit=1)[0]["code"] == "too_many_subscriptions"
    assert socket.say(type="credit", id="0", credit=10_000)[0]["code"] == "too_much_credit"
    assert socket.say(type="credit", id="0", credit=9_999) == []


def test_pings_both_ways(world: HttpWorld) -> None:
    socket = Socket(world)
    socket.send(Opcode.PING, b"there?")
    (pong,) = socket.frames()
    assert (pong.opcode, pong.data) == (Opcode.PONG, b"there?")
    for _ in range(3):
        world.pass_time(PING_MS)
        socket.peer.settle()
        (ping,) = socket.frames()
        assert ping.opcode == Opcode.PING
        socket.send(Opcode.PONG, bytes(ping.data))
    world.pass_time(PING_MS)
    socket.peer.settle()
    world.pass_time(PING_MS)
    socket.peer.settle()
    assert socket.peer.closed, "it answers no ping"


@pytest.mark.parametrize(
    ("opcode", "payload", "code"),
    [
        (Opcode.BINARY, b"{}", 1003),
        (Opcode.TEXT, b"\xff", 1007),
        (Opcode.CLOSE, b"\x03\xe8", 1000),
        (Opcode.CLOSE, b"\x03\xed", 1002),
        (Opcode.CONT, b"", 1002),
    ],
)
def test_what_ends_a_socket(world: HttpWorld, opcode: Opcode, payload: bytes, code: int) -> None:
    socket = Socket(world)
    socket.say(type="subscribe", id="s", topic="t", credit=1)
    frame = bytes([0x80 | opcode, 0x80 | len(payload)]) + bytes(4) + payload
    socket.peer.give(frame)
    socket.peer.settle()
    (close,) = socket.frames()
    assert close.opcode == Opcode.CLOSE
    assert int.from_bytes(close.data[:2], "big") == code
    assert socket.peer.closed
    assert world.node.world.slices.under_way == 0


def test_a_stop_of_the_node_says_goodbye(world: HttpWorld) -> None:
    socket, idle = Socket(world), Socket(world)
    socket.say(type="subscribe", id="s", topic="t", credit=1)
    idle.say(type="subscribe", id="s", topic="t", credit=0)
    assert len(socket.peer.connection.pending) == 1
    assert not idle.peer.connection.pending, "nothing is under way there: it may be closed"
    world.node.leave(world.clock.now_ms)
    world.node.begin_stop(world.clock.now_ms)
    socket.peer.settle()
    (close,) = socket.frames()
    assert (close.opcode, close.data[:2]) == (Opcode.CLOSE, (1001).to_bytes(2, "big"))
    assert socket.peer.closed


def test_commands_right_behind_the_handshake_are_read(world: HttpWorld) -> None:
    command = json.dumps({"type": "subscribe", "id": "s", "topic": "t", "credit": 1}).encode()
    socket = Socket(world, Frame(Opcode.TEXT, command).serialize(mask=True))
    assert [each["type"] for each in socket.heard()] == ["subscribed"]


def test_who_asks_without_end_and_does_not_read_is_not_read_either(world: HttpWorld) -> None:
    socket = Socket(world)
    ping = Frame(Opcode.PING, b"x" * 100).serialize(mask=True)
    connection = socket.peer.connection
    flood = ping * 2_000
    position = 0
    for _ in range(50):
        position += connection.receive(memoryview(bytearray(flood[position:])), world.clock.now_ms)
    assert connection.paused
    assert sum(map(len, connection.outbox)) < UNSENT_BYTES_MAX + 1_000
    assert position < len(flood)


@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        ({"upgrade": "h2c"}, 426, "not_websocket"),
        ({"connection": "keep-alive"}, 426, "not_websocket"),
        ({"sec_websocket_version": "8"}, 426, "bad_version"),
        ({"sec_websocket_key": "short"}, 400, "bad_key"),
        ({"origin": "https://evil.example"}, 403, "bad_origin"),
        ({"origin": "null"}, 403, "bad_origin"),
        ({"origin": "http://["}, 403, "bad_origin"),
        ({"origin": "http://localhost:81"}, 403, "bad_origin"),
    ],
)
def test_handshakes_that_are_refused(world: HttpWorld, change: dict[str, str], status: int, code: str) -> None:
    peer = world.http()
    answer = peer.ask("GET", "/v1/ws", **(HANDSHAKE | change))
    assert (answer.status, answer.code) == (status, code)
    assert peer.ask("GET", "/livez").status == 200, "it is HTTP still"


def test_a_page_of_this_site_may_open_one(world: HttpWorld) -> None:
    peer = world.http()
    peer.give(request("GET", "/v1/ws", **HANDSHAKE, origin="http://localhost"))
    peer.settle()
    assert peer.out.startswith(b"HTTP/1.1 101 ")
