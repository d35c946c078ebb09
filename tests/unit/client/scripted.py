"""A peer that answers each request with bytes of the test's choosing."""

import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from skidway.blocking_client.addresses import Address
from skidway.wire.headers import RequestHeader, read_request_header, response_header
from skidway.wire.message import Message
from skidway.wire.registry import api
from skidway.wire.schema.api_versions import ApiVersion, ApiVersionsResponse

Answer = Callable[[RequestHeader], bytes | None]


class ScriptedPeer:
    """`answer` gets each request's header and returns a frame's content, or None to hang up."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.seen: list[tuple[int, int]] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = Address(*self._listener.getsockname()[:2])
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                accepted, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._converse, args=(accepted,), daemon=True).start()

    def _converse(self, accepted: socket.socket) -> None:
        with suppress(ConnectionError), accepted, accepted.makefile("rb") as stream:
            while size := stream.read(4):
                header = read_request_header(stream.read(struct.unpack(">i", size)[0]))
                self.seen.append((header.api_key, header.version))
                content = self.answer(header)
                if content is None:
                    break
                accepted.sendall(struct.pack(">i", len(content)) + content)


def reply(header: RequestHeader, message: Message, *, version: int | None = None) -> bytes:
    spoken = header.version if version is None else version
    parts: list[Any] = [response_header(header.api_key, spoken, header.correlation_id)]
    api(header.api_key).response.encoder(spoken)(message, parts)
    return b"".join(parts)


def versions(**served: tuple[int, int]) -> ApiVersionsResponse:
    """`versions(k18=(0, 4), k3=(0, 13))`"""
    keys = [ApiVersion(int(name[1:]), low, high) for name, (low, high) in served.items()]
    return ApiVersionsResponse(api_keys=keys)
