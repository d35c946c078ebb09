"""Hostile HTTP beside a good client: bounded, and the good client is served.

Idle connections, requests that never end, and two requests in the place of one, each from an address of its own.
"""

import http.client
import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any
from urllib.parse import urlsplit

import pytest

from skidway.testing import Broker
from waiting import eventually

IDLE = 400
SLOW = 200
PER_ADDRESS = 500


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    limits = {"frame_complete_ms": 500, "connections_per_ip_max": PER_ADDRESS}
    with Broker(http="127.0.0.1:0", flush="os", limits=limits) as started:
        yield started


def attacker(broker: Broker, address: str = "127.0.0.2") -> socket.socket:
    where = urlsplit(broker.http)
    assert where.hostname is not None
    assert where.port is not None
    return socket.create_connection((where.hostname, where.port), timeout=60, source_address=(address, 0))


def good(broker: Broker, topic: str, count: int = 30) -> None:
    """Write and read, on one connection that lasts."""
    connection = http.client.HTTPConnection(urlsplit(broker.http).netloc, timeout=60)
    begin = 0
    for number in range(count):
        body = json.dumps({"records": [{"value": number, "partition": 0}]})
        answer = ask(connection, "POST", f"/v1/topics/{topic}/produce", body)
        begin = answer["offsets"][0]["offset"] if not number else begin
    records = ask(connection, "GET", f"/v1/topics/{topic}/records?offset={begin}")["records"]
    assert [int(record["value"]) for record in records] == list(range(count))
    connection.close()


def ask(connection: http.client.HTTPConnection, method: str, path: str, body: str | None = None) -> Any:
    connection.request(method, path, body, {"Content-Type": "application/json"} if body else {})
    answer = connection.getresponse()
    found = json.loads(answer.read())
    assert answer.status == 200, found
    return found


def memory(broker: Broker) -> int:
    with open(f"/proc/{broker.pid}/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * 4096


def test_idle_connections_cost_little_and_hold_nobody_up(broker: Broker) -> None:
    good(broker, "idle")
    before = memory(broker)
    with ExitStack() as stack:
        idle = [stack.enter_context(attacker(broker)) for _ in range(IDLE)]
        good(broker, "idle")
        assert memory(broker) - before < IDLE * 100_000
        for peer in idle[::40]:
            peer.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert peer.recv(200).startswith(b"HTTP/1.1 200 ")


def test_an_address_has_a_share_of_connections(broker: Broker) -> None:
    with ExitStack() as stack:
        peers = [stack.enter_context(attacker(broker, "127.0.0.3")) for _ in range(PER_ADDRESS + 20)]
        assert eventually(lambda: sum(is_closed(peer) for peer in peers) >= 20)
        good(broker, "shares")


def is_closed(peer: socket.socket) -> bool:
    peer.setblocking(False)
    try:
        return peer.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


@pytest.mark.parametrize(
    "beginning",
    [
        b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX-Slow: ",
        b"POST /v1/topics/t/produce HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n",
        b"POST /v1/topics/t/produce HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n",
    ],
)
def test_requests_that_never_end_are_dropped(broker: Broker, beginning: bytes) -> None:
    """A byte now and then does not help."""
    with ExitStack() as stack:
        slow = [stack.enter_context(attacker(broker)) for _ in range(SLOW)]
        for peer in slow:
            peer.sendall(beginning)
        good(broker, "slow")
        alive = set(slow)

        def all_dropped() -> bool:
            for peer in list(alive):
                try:
                    peer.send(b"1")
                except OSError:
                    alive.discard(peer)
            return not alive

        assert eventually(all_dropped) is True
    good(broker, "slow")


SMUGGLED = b"POST /v1/topics/smuggled/produce HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
INNER = b'{"records":[{"value":"smuggled"}]}'
WHOLE = SMUGGLED + b"Content-Length: %d\r\n\r\n%b" % (len(INNER), INNER)


UNCLEAR = [
    b"Content-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
    b"Content-Length: 0\r\nContent-Length: %d\r\n\r\n" % len(WHOLE),
    b"Content-Length: +0\r\n\r\n",
    b"Content-Length: 0, %d\r\n\r\n" % len(WHOLE),
    b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    b"Transfer-Encoding: chunked\r\n\r\n0x0\r\n\r\n",
    b"Transfer-Encoding: chunked\r\n\r\n0\n\r\n",
    b"Transfer-Encoding: chunked\r\n\r\n100000000\r\n",
    b"X: a\nContent-Length: 0\r\n\r\n",
    b"X: a\rContent-Length: 0\r\n\r\n",
    b" Content-Length: 0\r\n\r\n",
    b"X: a\r\n Content-Length: 0\r\n\r\n",
    b"X\0: a\r\n\r\n",
]


def test_a_request_that_reads_in_two_ways_smuggles_nothing(broker: Broker) -> None:
    """What is behind an unclear head is no request: the connection ends, and nothing was written."""
    good(broker, "smuggled", 1)
    before = size(broker)
    with ExitStack() as stack:
        peers = {head: stack.enter_context(attacker(broker)) for head in UNCLEAR}
        for head, peer in peers.items():
            peer.sendall(b"POST /livez HTTP/1.1\r\nHost: localhost\r\n" + head + WHOLE)
        for head, peer in peers.items():
            found = b""
            while data := peer.recv(65_536):
                found += data
            assert found.count(b"HTTP/1.1 ") == 1, head
            assert found.split(b" ", 2)[1] in (b"400", b"413", b"501"), head
    assert size(broker) == before


def size(broker: Broker) -> int:
    connection = http.client.HTTPConnection(urlsplit(broker.http).netloc, timeout=60)
    end = ask(connection, "GET", "/v1/topics/smuggled/records?offset=latest")["nextOffset"]
    connection.close()
    return int(end)
