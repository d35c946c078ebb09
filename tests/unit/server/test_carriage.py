"""How bytes travel is one class: here one that inverts every bit, in both directions."""

import asyncio
import socket
from collections.abc import Callable

from server_fake_node import Run, frame_of, serving

from skidway.ports import Buffer, FileSlice
from skidway.server.carriage import Accepting, MakeProtocol, PlainCarriage
from skidway.server.sending import Part, PlainSender, Sender

INVERTED = bytes(255 - byte for byte in range(256))


class Inverting(asyncio.BufferedProtocol):
    """Between the transport and the protocol that reads."""

    def __init__(self, reader: asyncio.BufferedProtocol) -> None:
        self._reader = reader
        self._view = memoryview(b"")
        self.connection_made = reader.connection_made  # type: ignore[method-assign]
        self.connection_lost = reader.connection_lost  # type: ignore[method-assign]
        self.eof_received = reader.eof_received  # type: ignore[method-assign]

    def get_buffer(self, sizehint: int) -> Buffer:
        self._view = memoryview(self._reader.get_buffer(sizehint))
        return self._view

    def buffer_updated(self, nbytes: int) -> None:
        self._view[:nbytes] = bytes(self._view[:nbytes]).translate(INVERTED)
        self._reader.buffer_updated(nbytes)


class InvertingSender(PlainSender):
    """Like one that encrypts: it has to read what it sends."""

    __slots__ = ()

    def send(self, parts: list[Part]) -> None:
        super().send(
            [bytes(part.read() if isinstance(part, FileSlice) else part).translate(INVERTED) for part in parts]
        )


class InvertingCarriage(PlainCarriage):
    async def accept(
        self, loop: asyncio.AbstractEventLoop, bound: socket.socket, make_protocol: MakeProtocol
    ) -> Accepting:
        return await super().accept(loop, bound, lambda: Inverting(make_protocol()))

    def make_sender(
        self,
        loop: asyncio.AbstractEventLoop,
        transport: asyncio.BaseTransport,
        on_progress: Callable[[], None],
        on_broken: Callable[[Exception], None],
    ) -> Sender:
        return InvertingSender(loop, transport.get_extra_info("socket").fileno(), on_progress, on_broken)


def test_a_listener_with_a_carriage_of_its_own(run: Run) -> None:
    async def story() -> None:
        async with serving(carriage=InvertingCarriage()) as served:
            peer = await served.dial()
            body = b"E" + bytes(range(256)) * 4_000
            for asked in (b"Eshort", body):
                peer.writer.write(frame_of(asked).translate(INVERTED))
                answer = await peer.reader.readexactly(4 + len(asked))
                assert answer.translate(INVERTED) == frame_of(asked)
            assert served.node.connections[0].listener == "PLAINTEXT"

    run(story())


def test_a_listener_has_bounds_of_its_own(run: Run) -> None:
    async def story() -> None:
        async with serving(connections_max=2, connections_per_ip_max=1) as served:
            peer = await served.dial()
            refused = await served.knock()
            assert await refused.is_dropped(), "the second of this address"
            assert served.clients.refused == 1
            assert served.clients.counts.connections == 1
            peer.ask(b"Estill here")
            assert await peer.answer() == b"Estill here"

    run(story())
