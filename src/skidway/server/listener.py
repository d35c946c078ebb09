"""One listening socket: where clients come in, by which carriage, and how many of them."""

from __future__ import annotations

import socket
import sys
from typing import TYPE_CHECKING

from skidway.limits import DEFAULT_SEND_BUFFER_BYTES
from skidway.server.connection_counts import ConnectionCounts
from skidway.server.tcp import Client

if TYPE_CHECKING:
    from skidway.broker.listeners import ListenerSpec
    from skidway.server.carriage import Accepting, Carriage
    from skidway.server.clients import Clients
    from skidway.server.served import Door


def bind(host: str, port: int) -> socket.socket:
    """A socket that has its address but accepts nobody yet. A name is resolved here and its first address taken."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except socket.gaierror as error:
        raise OSError(f"cannot listen on {host}: {error.strerror}") from None
    family, kind, protocol, _, address = found[0]
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            # `::` means IPv4 as well, as with other brokers.
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listening.bind(address)
        listening.setblocking(False)
    except OSError as error:
        listening.close()
        raise OSError(error.errno, f"cannot listen on {host}:{port}: {error.strerror}") from None
    return listening


class Listener:
    def __init__(
        self,
        spec: ListenerSpec,
        carriage: Carriage,
        clients: Clients,
        *,
        door: Door | None = None,
        send_buffer_bytes: int = DEFAULT_SEND_BUFFER_BYTES,
        connections_max: int | None = None,
        connections_per_ip_max: int | None = None,
    ) -> None:
        """`clients` bounds the connections of all listeners together, whatever the bounds of this one. `door` serves
        who comes by this one; without it the node does."""
        self.spec = spec
        self.carriage = carriage
        self.clients = clients
        self.door: Door = clients.node if door is None else door
        self.send_buffer_bytes = send_buffer_bytes
        self.counts = ConnectionCounts(
            f"listeners.{spec.name}.", connections_max or sys.maxsize, connections_per_ip_max or sys.maxsize
        )
        self._accepting: Accepting | None = None

    async def start(self, bound: socket.socket) -> None:
        """Accept clients on a socket from `bind`, which is the listener's from now on."""
        self._accepting = await self.carriage.accept(self.clients.loop, bound, lambda: Client(self))

    def stop_accepting(self) -> None:
        if self._accepting is not None:
            self._accepting.close()
            self._accepting = None
