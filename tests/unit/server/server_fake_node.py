"""A node with a tiny protocol of its own, to serve with the real shell: length-prefixed frames, first byte a command.

E echo, R reply of n bytes, F file slice, W wait until released, S answer after a sync, T answer at a time, H hang up,
X fail with a bug, K keep the bytes and answer them when released.
"""

import asyncio
import contextlib
import socket
import struct
import sys
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

from skidway.broker.cluster.peers import Link
from skidway.broker.listeners import Security, only_listener
from skidway.limits import DEFAULT_LIMITS, Limits
from skidway.ports import Clock, File, FileSlice
from skidway.runtime.jobs import Job, Lane
from skidway.server.carriage import CARRIAGES, Carriage
from skidway.server.clients import Clients
from skidway.server.clock import SystemClock
from skidway.server.listener import Listener, bind
from skidway.server.served import Dials, SideBySide
from skidway.server.tcp import Client
from skidway.server.turn import Turn

Run = Callable[[Coroutine[Any, Any, None]], None]

PATIENCE_S = 60.0


class Hangup(Exception):
    pass


class Bug(Exception):
    pass


class HandClock:
    """Time goes on when the test says so; only the loop's own timers follow the machine's clock."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000

    def monotonic_ms(self) -> int:
        return self.now_ms

    def wall_ms(self) -> int:
        return self.now_ms


class Ticket:
    def __init__(self, connection: "FakeConnection", body: bytes, gate: threading.Event | None) -> None:
        self.connection = connection
        self.body = body
        self.gate = gate
        self.maintenance = body[1:2] == b"m"

    def run(self) -> None:
        self.connection.node.begun.append(self)
        if self.gate is not None and self.maintenance:
            self.gate.wait(PATIENCE_S)
        if self.body[1:2] == b"!":
            raise OSError(5, "the disk is gone")
        if self.body[1:2] == b"?":
            raise Bug("in a thread")


class FakePeers:
    dial: Callable[[Link], None] | None = None


class FakeNode:
    def __init__(self, limits: Limits = DEFAULT_LIMITS) -> None:
        self.limits = limits
        self.on_work: Callable[[], None] = lambda: None
        self.connections: list[FakeConnection] = []
        self.waiting: deque[FakeConnection] = deque()
        self.wanted: list[Job] = []
        self.begun: list[Ticket] = []
        self.timed: list[tuple[int, FakeConnection, bytes]] = []
        self.timed_count = 0
        self.file: File | None = None
        self.gate: threading.Event | None = None
        self.closed_count = 0
        self.fails_to_connect = False
        self.opened = self.closed_clean = self.departed = False
        self.opening, self.serving = False, True
        self.has_long_work = False
        self.on_limits: Callable[[Limits], None] = lambda limits: None
        self.peers: Dials = FakePeers()

    # What main.run calls.
    def open(self, now_ms: int, wall_ms: int, run: SideBySide | None = None) -> None:
        self.opened = True

    def leave(self, now_ms: int) -> None:
        self.departed = True

    def begin_stop(self, now_ms: int) -> None:
        assert self.departed

    def maintain(self, now_ms: int, wall_ms: int) -> None:
        pass

    def close(self, clean: bool, run: SideBySide | None = None) -> None:
        self.closed_clean = clean

    # What the shell calls.
    @property
    def deadline_ms(self) -> int | None:
        return min((at for at, _, _ in self.timed), default=None)

    def connect(self, peer: str, listener: str) -> "FakeConnection":
        if self.fails_to_connect:
            raise Bug("in connect")
        connection = FakeConnection(self, peer, listener)
        self.connections.append(connection)
        return connection

    def on_time(self, now_ms: int) -> None:
        due = [entry for entry in self.timed if entry[0] <= now_ms]
        self.timed = [entry for entry in self.timed if entry[0] > now_ms]
        for _, connection, body in due:
            connection.answer_later(body)

    def end_turn(self) -> list[Job]:
        wanted, self.wanted = self.wanted, []
        return wanted

    def on_synced(self, ticket: Ticket, error: OSError | None, now_ms: int) -> None:
        answer = ticket.body if error is None else f"error {error.errno}".encode()
        ticket.connection.answer_later(answer)

    def release(self, count: int = 1) -> None:
        for _ in range(count):
            connection = self.waiting.popleft()
            connection.answer_later(bytes(connection.kept_frames.popleft()) if connection.kept_frames else b"released")


class FakeConnection:
    yielded = awaits_sent = needs_its_peer = False
    bug: Exception | None = None

    def __init__(self, node: FakeNode, peer: str, listener: str) -> None:
        self.listener = listener
        self.node = node
        self.peer = peer
        self.outbox: list[Any] = []
        self.needed = 0
        self.paused = False
        self.pending: list[int] = []
        self.on_ready: Callable[[], None] = lambda: None
        self.peer_left: Callable[[], bool] = lambda: False
        self.gone = False
        self.offered = self.kept = False
        self.kept_frames: deque[memoryview] = deque()
        self.largest_view = 0
        self.handled_bytes = 0
        self.seen_bytes = 0
        """All that arrived so far, handled or not."""

    def receive(self, data: memoryview, now_ms: int) -> int:
        position, end = 0, len(data)
        self.largest_view = max(self.largest_view, end)
        self.seen_bytes = self.handled_bytes + end
        self.needed = 0
        self.paused = False
        while end - position >= 4:
            length = int.from_bytes(data[position : position + 4], "big")
            if length > self.node.limits.frame_bytes_max:
                raise Hangup("too long")
            if position + 4 + length > end:
                self.needed = 4 + length
                break
            waiting_bytes = sum(len(part) for part in self.outbox)
            if len(self.pending) >= self.node.limits.inflight_requests_max or (
                self.outbox and waiting_bytes > self.node.limits.reply_bytes_max
            ):
                self.paused = True
                break
            self.handle(data[position + 4 : position + 4 + length], now_ms)
            position += 4 + length
        self.handled_bytes += position
        return position

    def handle(self, frame: memoryview, now_ms: int) -> None:
        command = frame[0]
        node = self.node
        if command == ord("E"):
            self.outbox.append(frame_of(bytes(frame)))
        elif command == ord("R"):
            self.outbox.append(frame_of(bytes(struct.unpack_from(">I", frame, 1)[0])))
        elif command == ord("F"):
            assert node.file is not None
            at, length = struct.unpack_from(">QI", frame, 1)
            self.outbox += [length.to_bytes(4, "big"), FileSlice(node.file, at, length)]
        elif command == ord("K"):
            self.kept = self.offered
            self.kept_frames.append(frame if self.kept else memoryview(bytes(frame)))
            self.pending.append(1)
            node.waiting.append(self)
        elif command == ord("H"):
            raise Hangup("asked to")
        elif command == ord("X"):
            raise Bug("planted")
        else:
            self.wait(bytes(frame), now_ms)

    def wait(self, body: bytes, now_ms: int) -> None:
        self.pending.append(1)
        if body[0] == ord("W"):
            self.node.waiting.append(self)
        elif body[0] == ord("S"):
            ticket = Ticket(self, body, self.node.gate)
            lane = Lane.MAINTENANCE if ticket.maintenance else Lane.SYNC
            self.node.wanted.append(Job(lane, ticket, self.node.on_synced))
            self.node.on_work()
        elif body[0] == ord("T"):
            self.node.timed_count += 1
            self.node.timed.append((now_ms + int(body[1:]), self, body))

    def answer_later(self, body: bytes) -> None:
        if self.gone:
            return
        self.pending.pop()
        self.outbox.append(frame_of(body))
        self.on_ready()

    def sent(self) -> None:
        raise AssertionError("it does not ask when anything was sent")

    def closed(self) -> None:
        self.gone = True
        self.node.closed_count += 1


def frame_of(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


class Served:
    def __init__(self, node: FakeNode, clients: Clients, turn: Turn, port: int) -> None:
        self.node = node
        self.clients = clients
        self.turn = turn
        self.port = port

    async def dial(self, receive_bytes: int | None = None, **options: Any) -> "Peer":
        """A peer that the node knows already. `receive_bytes` is the size of its socket's buffer."""
        peer = await self.knock(receive_bytes, **options)
        peer.client = await self.client_of(peer.writer.get_extra_info("sockname"))
        return peer

    async def knock(self, receive_bytes: int | None = None, **options: Any) -> "Peer":
        """A peer that may not be let in."""
        raw = socket.socket()
        raw.setblocking(False)
        if receive_bytes is not None:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        await asyncio.get_running_loop().sock_connect(raw, ("127.0.0.1", self.port))
        return Peer(*await asyncio.open_connection(sock=raw, **options))

    async def raw_dial(self, receive_bytes: int) -> tuple[socket.socket, Client]:
        """A socket that the loop does not read: it reads only when the test does."""
        raw = socket.socket()
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        raw.connect(("127.0.0.1", self.port))
        return raw, await self.client_of(raw.getsockname())

    async def client_of(self, address: tuple[str, int]) -> Client:
        """The server's side of a connection, once it is there."""
        name = f"{address[0]}:{address[1]}"
        async with asyncio.timeout(PATIENCE_S):
            while True:
                for client in self.clients.connected:
                    if client.peer == name and client.connection is not None:
                        return client
                await asyncio.sleep(0)


class Peer:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.client: Client | None = None

    @property
    def seen_bytes(self) -> int:
        """How much of what was written has reached the node."""
        assert self.client is not None
        connection = self.client.connection
        assert isinstance(connection, FakeConnection), "the connection is gone"
        return connection.seen_bytes

    @property
    def is_stuck(self) -> bool:
        """Whether replies wait for this peer to read."""
        return is_stuck(self.client)

    def ask(self, *bodies: bytes) -> None:
        self.writer.write(b"".join(frame_of(body) for body in bodies))

    async def answer(self) -> bytes:
        async with asyncio.timeout(PATIENCE_S):
            length = int.from_bytes(await self.reader.readexactly(4), "big")
            return await self.reader.readexactly(length)

    async def is_dropped(self) -> bool:
        """Whether the server ends the connection (an orderly end or a reset)."""
        async with asyncio.timeout(PATIENCE_S):
            try:
                return await self.reader.read(1) == b""
            except ConnectionError:
                return True

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()


def is_stuck(client: Client | None) -> bool:
    assert client is not None
    return client.sender is not None and not client.sender.is_idle


@contextlib.asynccontextmanager
async def serving(
    limits: Limits = DEFAULT_LIMITS,
    sync_threads: int = 2,
    clock: Clock | None = None,
    carriage: Carriage = CARRIAGES[Security.PLAINTEXT],
    waiting_max: int = sys.maxsize,
    **options: Any,
) -> AsyncIterator[Served]:
    """`options` are those of the listener."""
    loop = asyncio.get_running_loop()
    node, clock = FakeNode(limits), clock or SystemClock()
    turn = Turn(loop, node, clock, sync_threads=sync_threads)
    clients = Clients(loop, node, turn, clock, limits, hangup=Hangup, waiting_max=waiting_max)
    clients.start()
    bound = bind("127.0.0.1", 0)
    listener = Listener(only_listener("127.0.0.1", 0).inter_broker, carriage, clients, **options)
    await listener.start(bound)
    try:
        yield Served(node, clients, turn, bound.getsockname()[1])
    finally:
        listener.stop_accepting()
        await clients.drain(0)
        if node.gate is not None:
            node.gate.set()
        turn.close()
        assert clients.memory.used_bytes == 0, "partial frames outlived their connections"
