"""One request on its way through the node, and the place of its reply in the connection's order."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from skidway.ports import Buffer, FileSlice
from skidway.wire.framing import frame

if TYPE_CHECKING:
    from skidway.broker.connection import Connection
    from skidway.broker.node import Node

Part = Buffer | FileSlice
Handle = Callable[["Node", "Call", Any], Any]
"""Returns the response, or None: then the handler has replied, keeps the call to reply later, or made it silent."""

LENGTH_AND_CORRELATION = struct.Struct(">ii")
NO_TAGS = b"\0"


class Route:
    """Everything that is the same for all requests of one API and version."""

    __slots__ = (
        "decode",
        "early",
        "encode",
        "forwarded",
        "handle",
        "has_slices",
        "key",
        "name",
        "tagged_header",
        "version",
    )

    def __init__(
        self,
        key: int,
        name: str,
        version: int,
        handle: Handle,
        decode: Callable[[Buffer, int], tuple[Any, int]],
        encode: Callable[[Any, list[Part]], None],
        *,
        tagged_header: bool,
        has_slices: bool,
        forwarded: bool = False,
        early: bool = False,
    ) -> None:
        self.key = key
        self.name = name
        self.version = version
        self.handle = handle
        self.decode = decode
        self.encode = encode
        self.tagged_header = tagged_header
        self.has_slices = has_slices
        self.forwarded = forwarded
        """Answered by the active controller, whichever node is asked."""
        self.early = early
        """Served before this node knows enough of the cluster for clients."""

    def reply(self, correlation_id: int, response: Any) -> list[Part]:
        """The whole frame: length, header, body."""
        parts: list[Part] = []
        if self.has_slices:
            parts.append(correlation_id.to_bytes(4, "big", signed=True) + (NO_TAGS if self.tagged_header else b""))
            self.encode(response, parts)
            return frame(parts)
        if self.tagged_header:
            parts.append(NO_TAGS)
        self.encode(response, parts)
        body = b"".join(parts)  # type: ignore[arg-type]  # no slices here
        return [LENGTH_AND_CORRELATION.pack(len(body) + 4, correlation_id) + body]


class Call:
    """A handler answers by returning the response, or keeps the call and calls `reply` once, whenever it likes."""

    __slots__ = (
        "client_id",
        "connection",
        "correlation_id",
        "now_ms",
        "on_gone",
        "parts",
        "route",
        "silent",
        "version",
    )

    def __init__(
        self, connection: Connection, route: Route, correlation_id: int, client_id: str | None, now_ms: int
    ) -> None:
        self.connection = connection
        self.route = route
        self.version = route.version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.now_ms = now_ms
        self.silent = False
        self.on_gone: Callable[[], None] | None = None
        """Called when the peer hangs up while the call waits."""
        self.parts: list[Part] | None = None

    @property
    def client_host(self) -> str:
        """As Kafka shows it to people."""
        return "/" + self.connection.peer.rpartition(":")[0].strip("[]")

    def reply(self, response: Any) -> None:
        assert self.parts is None, "a call is answered once"
        # It leads back here through whatever waited: thousands of such rings a second would be work for the collector.
        self.on_gone = None
        if self.connection.gone:
            return
        try:
            self.parts = self.route.reply(self.correlation_id, response)
        except Exception as bug:
            self.fail(bug)
            return
        self.connection.on_reply(self)

    def reply_with(self, reply: Buffer) -> None:
        """The reply was made elsewhere: everything after its length, for this very call."""
        assert self.parts is None, "a call is answered once"
        if not self.connection.gone:
            self.parts = [len(reply).to_bytes(4, "big") + bytes(reply)]
            self.connection.on_reply(self)

    def fail(self, bug: Exception) -> None:
        """Answering it went wrong. Whoever called us has others to serve: the shell is told by way of `bug`."""
        if not self.connection.gone:
            self.connection.on_bug(bug)
