"""HTTP without sockets: tests hand a gateway bytes, run its node's work, and read what is in the outbox."""

from typing import Any

import msgspec
from broker_world import World

from skidway.broker.api.call import Goodbye
from skidway.broker.listeners import Address, ListenerSpec, Security
from skidway.gateways.http.connection import HttpConnection
from skidway.gateways.http.gateway import HttpGateway

LOOPBACK = ListenerSpec("HTTP", Address("127.0.0.1", 8082), Address("127.0.0.1", 8082), Security.HTTP)


class Answer(msgspec.Struct):
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return msgspec.json.decode(self.body)

    @property
    def code(self) -> str:
        """Of a problem."""
        assert self.headers["content-type"] == "application/problem+json"
        details = self.json()
        assert details["status"] == self.status
        return str(details["code"])


def read_answers(data: bytes, *, heads_only: bool = False) -> list[Answer]:
    """Whole answers; anything that is not one fails."""
    found: list[Answer] = []
    while data:
        head, end, data = data.partition(b"\r\n\r\n")
        assert end, head
        line, *lines = head.decode("latin-1").split("\r\n")
        version, status, _ = line.split(" ", 2)
        assert version == "HTTP/1.1"
        headers = {name.lower(): value for name, _, value in (each.partition(": ") for each in lines)}
        size = 0 if int(status) == 100 or heads_only else int(headers["content-length"])
        assert len(data) >= size
        found.append(Answer(int(status), headers, data[:size]))
        data = data[size:]
    return found


class HttpPeer:
    """One connection, as a shell serves it."""

    def __init__(self, world: World, gateway: HttpGateway) -> None:
        self.world = world
        self.connection: HttpConnection = gateway.connect("127.0.0.1:5", "HTTP")
        self.connection.on_ready = self._on_ready
        self.ready = False
        self.reads = True
        """Whether its socket takes what is sent."""
        self.tail = b""
        self.out = b""
        self.closed = False
        """The connection said goodbye."""

    def _on_ready(self) -> None:
        self.ready = True

    def give(self, data: bytes) -> None:
        """Offer the bytes behind those that were left, and keep what is left."""
        data = self.tail + data
        if self.closed:
            return
        try:
            taken = self.connection.receive(memoryview(bytearray(data)), self.world.clock.now_ms)
            self.tail = data[taken:]
        except Goodbye:
            self.closed = True
        self._collect()

    def settle(self) -> None:
        """The node does all its work, and the shell all that follows from it."""
        for _ in range(100):
            self.world.settle()
            while len(self.world.node.world.slices):
                self.world.settle()
            if not self.ready:
                return
            self.ready = False
            if isinstance(self.connection.bug, Goodbye):
                self.closed = True
            elif self.connection.bug is not None:
                raise self.connection.bug
            self._collect()
            if self.connection.awaits_sent and self.reads:
                self.connection.sent()
            if self.tail and not self.closed:
                self.give(b"")
        raise AssertionError("it never ends")

    def _collect(self) -> None:
        self.out += b"".join(map(bytes, self.connection.outbox))
        self.connection.outbox.clear()

    def answers(self, *, heads_only: bool = False) -> list[Answer]:
        data, self.out = self.out, b""
        return read_answers(data, heads_only=heads_only)

    def send(self, data: bytes) -> list[Answer]:
        self.give(data)
        self.settle()
        return self.answers()

    def ask(self, method: str, target: str, body: Any = None, **headers: str) -> Answer:
        (answer,) = self.send(request(method, target, body, **headers))
        return answer


def request(method: str, target: str, body: Any = None, **headers: str) -> bytes:
    """`body` becomes JSON, unless it is bytes."""
    content = b"" if body is None else body if isinstance(body, bytes) else msgspec.json.encode(body)
    lines = {"host": "localhost"}
    if body is not None:
        lines |= {"content-type": "application/json", "content-length": str(len(content))}
    lines |= {name.replace("_", "-"): value for name, value in headers.items()}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"{method} {target} HTTP/1.1\r\n{head}\r\n".encode() + content


class HttpWorld(World):
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.gateway = HttpGateway(self.node, LOOPBACK)

    def http(self) -> HttpPeer:
        return HttpPeer(self, self.gateway)
