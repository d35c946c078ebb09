"""Links over real sockets: questions out, long answers in, and ends that fail without harming others."""

import asyncio
import contextlib
import logging
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from server_fake_node import FakeNode, Run

from skidway.broker.cluster.peers import RETRY_MS, Peers
from skidway.broker.listeners import Security
from skidway.limits import DEFAULT_LIMITS, MIB, Limits
from skidway.runtime.timers import Timers
from skidway.server.carriage import CARRIAGES
from skidway.server.clock import SystemClock
from skidway.server.dialer import Dialer
from skidway.server.turn import Turn
from skidway.wire.headers import read_request_header, response_header
from skidway.wire.message import Message
from skidway.wire.registry import api
from skidway.wire.schema.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from skidway.wire.schema.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from skidway.wire.schema.init_producer_id import InitProducerIdRequest
from waiting import until

HEARTBEAT = BrokerHeartbeatRequest(broker_id=1)
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class AskingNode(FakeNode):
    """A node that only asks; its timers are those of its peers."""

    peers: Peers

    def __init__(self, limits: Limits) -> None:
        super().__init__(limits)
        self.timers = Timers()
        self.clock = SystemClock()
        self.peers = Peers("asking", self.timers, limits, lambda event: None)

    @property
    def deadline_ms(self) -> int | None:
        return self.timers.deadline_ms

    def on_time(self, now_ms: int) -> None:
        self.timers.fire(now_ms)

    def ask(self, request: Message, *, node_id: int = 2, channel: str = "c", timeout_ms: int = 60_000) -> "Answer":
        answer: Answer = asyncio.get_running_loop().create_future()
        self.peers.ask(node_id, channel, request, self.clock.monotonic_ms(), timeout_ms, _keep(answer))
        self.on_work()  # nobody else ends this turn
        return answer

    def heartbeat(self, **wanted: Any) -> "Answer":
        return self.ask(HEARTBEAT, **wanted)


Answer = asyncio.Future[Message | None]


def _keep(answer: Answer) -> Callable[[Message | None], None]:
    def respond(message: Message | None) -> None:
        if isinstance(message, FetchResponse):
            # Good until we return.
            for partition in message.responses[0].partitions:
                assert isinstance(partition.records, memoryview)
                partition.records = bytes(partition.records)
        answer.set_result(message)

    return respond


@contextlib.asynccontextmanager
async def asking(limits: Limits = DEFAULT_LIMITS, **options: Any) -> AsyncIterator[tuple[AskingNode, Dialer]]:
    loop = asyncio.get_running_loop()
    node = AskingNode(limits)
    dialer = Dialer(loop, SystemClock(), limits, CARRIAGES[Security.PLAINTEXT], **options)
    node.peers.dial = dialer.dial
    turn = Turn(loop, node, node.clock, sync_threads=1)
    dialer.attach(turn)
    try:
        yield node, dialer
    finally:
        dialer.close()
        await until(lambda: not dialer.carriers)
        turn.close()
        assert dialer.memory.used_bytes == 0, "partial replies outlived their links"


@contextlib.asynccontextmanager
async def answering(serve: Serve) -> AsyncIterator[int]:
    """A listener whose connections are served like this; the port."""

    async def served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await serve(reader, writer)
        writer.close()

    server = await asyncio.start_server(served, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def next_request(reader: asyncio.StreamReader) -> tuple[int, int, int]:
    """(key, version, correlation id)"""
    (length,) = struct.unpack(">i", await reader.readexactly(4))
    key, version, correlation_id, _, _ = read_request_header(await reader.readexactly(length))
    return key, version, correlation_id


def reply_to(asked: tuple[int, int, int], response: Message) -> bytes:
    key, version, correlation_id = asked
    parts: list[Any] = [response_header(key, version, correlation_id)]
    api(key).response.encoder(version)(response, parts)
    body = b"".join(parts)
    return struct.pack(">i", len(body)) + body


async def heartbeats(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(reply_to(await next_request(reader), BrokerHeartbeatResponse(is_caught_up=True)))


def fetched(size: int) -> FetchResponse:
    records = bytes(range(256)) * (size // 256)
    partition = PartitionData(partition_index=1, records=records)
    return FetchResponse(responses=[FetchableTopicResponse(topic_id=b"i" * 16, partitions=[partition])])


def test_questions_and_answers(run: Run) -> None:
    async def story() -> None:
        async with answering(heartbeats) as port, asking() as (node, dialer):
            node.peers.locate(2, "127.0.0.1", port)
            answers = [node.heartbeat() for _ in range(100)]  # all before the link is open
            for answer in await asyncio.gather(*answers):
                assert isinstance(answer, BrokerHeartbeatResponse)
                assert answer.is_caught_up
            assert await node.heartbeat() is not None
            (carrier,) = dialer.carriers
            own = carrier._transport.get_extra_info("socket")  # type: ignore[union-attr]
            assert own.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)

    run(story())


def test_what_is_asked_in_one_turn_leaves_together(run: Run) -> None:
    reads: list[bytes] = []

    async def whole(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 20):
            reads.append(data)

    async def story() -> None:
        async with answering(whole) as port, asking() as (node, _):
            node.peers.locate(2, "127.0.0.1", port)
            for _ in range(50):
                node.heartbeat()
            await until(lambda: bool(reads))
            assert len(reads) == 1

    run(story())


@pytest.mark.parametrize("size", [1024, 300_000, 5 * MIB, 40 * MIB])
def test_long_answers(run: Run, size: int) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            asked = await next_request(reader)
            # The next answer begins in the middle of what is read.
            writer.write(reply_to(asked, fetched(size)) + reply_to(await next_request(reader), fetched(512)))

    async def story() -> None:
        async with answering(serve) as port, asking() as (node, _):
            node.peers.locate(2, "127.0.0.1", port)
            for _ in range(3):
                for answer, wanted in [(node.ask(FetchRequest()), size), (node.ask(FetchRequest()), 512)]:
                    response = await answer
                    assert isinstance(response, FetchResponse)
                    records = response.responses[0].partitions[0].records
                    assert records == bytes(range(256)) * (wanted // 256)

    run(story())


def test_an_answer_byte_by_byte(run: Run) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        data = reply_to(await next_request(reader), BrokerHeartbeatResponse())
        for at in range(len(data)):
            writer.write(data[at : at + 1])
            await asyncio.sleep(0.001)
        await reader.read()

    async def story() -> None:
        async with answering(serve) as port, asking() as (node, _):
            node.peers.locate(2, "127.0.0.1", port)
            assert await node.heartbeat() is not None

    run(story())


def test_nobody_listens(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    """Refused, told once, and reached as soon as somebody is there."""
    caplog.set_level(logging.INFO, "skidway.dialer")

    async def story() -> None:
        held = socket.socket()  # bound, so that nobody else gets the port meanwhile, and not listened to
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
        async with asking() as (node, _):
            node.peers.locate(2, "127.0.0.1", port)
            for _ in range(3):
                assert await node.heartbeat() is None
                await asyncio.sleep(RETRY_MS / 1000)
            assert len([line for line in caplog.messages if "cannot be reached" in line]) == 1
            server = await asyncio.start_server(heartbeats, "127.0.0.1", port)
            await asyncio.sleep(2 * RETRY_MS / 1000)
            assert await node.heartbeat() is not None
            assert len([line for line in caplog.messages if "is reached again" in line]) == 1
            server.close()
        held.close()

    run(story())


def test_nobody_listens_where_a_node_is_said_to_be(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    """Anybody may say so, of any number of nodes: who asked is told, and nothing is kept or logged of them."""
    caplog.set_level(logging.INFO, "skidway.dialer")

    async def story() -> None:
        with socket.socket() as held:
            held.bind(("127.0.0.1", 0))
            port = held.getsockname()[1]
            async with asking() as (node, _):
                for node_id in range(100, 105):
                    answer: Answer = asyncio.get_running_loop().create_future()
                    now_ms = node.clock.monotonic_ms()
                    node.peers.ask_at(node_id, "127.0.0.1", port, HEARTBEAT, now_ms, 60_000, _keep(answer))
                    node.on_work()
                    assert await answer is None

    run(story())
    assert caplog.messages == []


@pytest.mark.parametrize("host", ["no-such-host.invalid", "\0", "a..b", "x" * 255, "\N{SNOWMAN}" * 80])
def test_a_name_that_nobody_has(run: Run, host: str, caplog: pytest.LogCaptureFixture) -> None:
    """Also one that nobody could have: whoever registers a broker says what it likes."""

    async def story() -> None:
        async with asking() as (node, _):
            node.peers.locate(2, host, 9092)
            assert await node.heartbeat() is None

    run(story())
    assert "a bug" not in caplog.text


def test_a_host_that_says_nothing(run: Run) -> None:
    """Its backlog is full, so that the connection is neither made nor refused."""

    async def story() -> None:
        with socket.socket() as mute:
            mute.bind(("127.0.0.1", 0))
            mute.listen(0)
            address = mute.getsockname()
            fillers = [socket.socket() for _ in range(4)]
            for filler in fillers:
                filler.setblocking(False)
                filler.connect_ex(address)
            async with asking(connect_timeout_s=0.2) as (node, dialer):
                node.peers.locate(2, *address)
                assert await node.heartbeat() is None
                assert not dialer.carriers
                await asyncio.sleep(RETRY_MS / 1000)
                assert await node.heartbeat(timeout_ms=20) is None  # given up before the connection was
                await until(lambda: not dialer.carriers)
            for filler in fillers:
                filler.close()

    run(story())


def test_no_answer_in_time(run: Run) -> None:
    ended: list[bool] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await next_request(reader)
        with contextlib.suppress(ConnectionError):
            ended.append(await reader.read() == b"")
            return
        ended.append(True)

    async def story() -> None:
        async with answering(serve) as port, asking() as (node, dialer):
            node.peers.locate(2, "127.0.0.1", port)
            assert await node.heartbeat(timeout_ms=100) is None
            await until(lambda: ended == [True])
            assert not dialer.carriers

    run(story())


@pytest.mark.parametrize("garbage", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"", struct.pack(">ii", 4, 99)])
def test_garbage_and_ends(run: Run, garbage: bytes) -> None:
    """One node that talks nonsense or hangs up: nothing under way there is answered; the others do not notice."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await next_request(reader)
        writer.write(garbage)

    async def story() -> None:
        async with answering(serve) as bad, answering(heartbeats) as good, asking() as (node, dialer):
            node.peers.locate(2, "127.0.0.1", bad)
            node.peers.locate(3, "127.0.0.1", good)
            lost = [node.heartbeat(node_id=2) for _ in range(3)]
            assert await node.heartbeat(node_id=3) is not None
            assert await asyncio.gather(*lost) == [None, None, None]
            assert await node.heartbeat(node_id=3) is not None
            await until(lambda: [carrier.link.node_id for carrier in dialer.carriers] == [3])

    run(story())


def test_a_bug_in_an_answer_costs_its_link_only(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    def fail(message: Message | None) -> None:
        raise RuntimeError("planted")

    async def story() -> None:
        async with answering(heartbeats) as port, asking() as (node, _):
            node.peers.locate(2, "127.0.0.1", port)
            node.peers.ask(2, "buggy", HEARTBEAT, node.clock.monotonic_ms(), 60_000, fail)
            behind = node.heartbeat(channel="buggy")
            other = node.heartbeat(channel="other")
            assert await behind is None
            assert await other is not None
            assert "internal error while handling a reply" in caplog.text

    run(story())


def test_partial_answers_take_no_more_than_their_memory(run: Run) -> None:
    limits = Limits(frame_bytes_max=16 * MIB, receive_bytes_max=16 * MIB, fetch_bytes_max=8 * MIB)
    closed: list[int] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await next_request(reader)
        writer.write(struct.pack(">i", 30 * MIB) + bytes(29 * MIB))
        with contextlib.suppress(ConnectionError):
            await reader.read()
        closed.append(1)

    async def story() -> None:
        async with answering(serve) as port, asking(limits) as (node, dialer):
            node.peers.locate(2, "127.0.0.1", port)
            assert await node.ask(FetchRequest()) is None
            await until(lambda: bool(closed))
            assert dialer.memory.used_bytes == 0

    run(story())


def test_a_large_question_to_a_slow_reader(run: Run) -> None:
    sizes: list[int] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.05)
        (length,) = struct.unpack(">i", await reader.readexactly(4))
        sizes.append(len(await reader.readexactly(length)))

    async def story() -> None:
        async with answering(serve) as port, asking() as (node, _):
            node.peers.locate(2, "127.0.0.1", port)
            requests = [node.ask(InitProducerIdRequest(transactional_id="x" * 30_000)) for _ in range(200)]
            assert set(await asyncio.gather(*requests)) == {None}
            assert sizes[0] > 30_000

    run(story())


def test_after_the_end_nobody_is_dialled(run: Run) -> None:
    async def story() -> None:
        async with answering(heartbeats) as port, asking() as (node, dialer):
            node.peers.locate(2, "127.0.0.1", port)
            waiting = node.heartbeat()
            dialer.close()
            assert await waiting is None
            await asyncio.sleep(RETRY_MS / 1000)
            assert await node.heartbeat() is None
            assert not dialer.carriers

    run(story())
