"""How the bytes of a listener travel: one class for each security protocol.

A carriage accepts connections and opens them, and makes the sender of each. Its transports call a BufferedProtocol
and are asked for no more than `get_extra_info` ("peername" and "socket"), `pause_reading`, `resume_reading`,
`is_closing`, `close` and `abort`. Above it nobody knows what the bytes look like on the wire.
"""

import asyncio
import socket
from collections.abc import Callable
from typing import Protocol

from skidway.broker.listeners import Security
from skidway.server.sending import PlainSender, Sender

BACKLOG = 1024
MakeProtocol = Callable[[], asyncio.BufferedProtocol]


class Accepting(Protocol):
    def close(self) -> None:
        """Accept no more; those that were accepted stay."""
        ...


class Carriage(Protocol):
    async def accept(
        self, loop: asyncio.AbstractEventLoop, bound: socket.socket, make_protocol: MakeProtocol
    ) -> Accepting:
        """Takes the socket, and serves who connects to it. Raises OSError if it cannot listen."""
        ...

    async def connect(self, loop: asyncio.AbstractEventLoop, host: str, port: int, make_protocol: MakeProtocol) -> None:
        """Raises OSError, or ValueError for what is not a host name at all."""
        ...

    def make_sender(
        self,
        loop: asyncio.AbstractEventLoop,
        transport: asyncio.BaseTransport,
        on_progress: Callable[[], None],
        on_broken: Callable[[Exception], None],
    ) -> Sender:
        """For a connection that is open. `on_progress` is called when waiting bytes went out later, `on_broken` at
        most once."""
        ...


class PlainCarriage:
    """Bytes as they are."""

    async def accept(
        self, loop: asyncio.AbstractEventLoop, bound: socket.socket, make_protocol: MakeProtocol
    ) -> Accepting:
        # Here, because uvloop does not tell that somebody else listens there already.
        bound.listen(BACKLOG)
        return await loop.create_server(make_protocol, sock=bound, backlog=BACKLOG)

    async def connect(self, loop: asyncio.AbstractEventLoop, host: str, port: int, make_protocol: MakeProtocol) -> None:
        await loop.create_connection(make_protocol, host, port)

    def make_sender(
        self,
        loop: asyncio.AbstractEventLoop,
        transport: asyncio.BaseTransport,
        on_progress: Callable[[], None],
        on_broken: Callable[[Exception], None],
    ) -> Sender:
        return PlainSender(loop, transport.get_extra_info("socket").fileno(), on_progress, on_broken)


CARRIAGES: dict[Security, Carriage] = {Security.PLAINTEXT: PlainCarriage(), Security.HTTP: PlainCarriage()}
"""For every security protocol that a listener may have."""
