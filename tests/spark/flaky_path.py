"""A path to a broker on which things go wrong: requests that are refused or never arrive, replies that get lost.

The broker must advertise the path's address, or clients would go around it.
"""

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from skidway.errors import ErrorCode
from skidway.testing import Broker
from skidway.wire.headers import read_request_header, response_header
from skidway.wire.registry import api
from skidway.wire.schema.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse

PRODUCE = 0
PASS, LOSE_REPLY, LOSE_REQUEST = "pass", "lose the reply", "lose the request"
STORE_AND_TIME_OUT = "store it, and say that time ran out"

Judge = Callable[[int], "str | int"]
"""Gets the number of a Produce request, over all connections; says what becomes of it: one of these or a code"""


class FlakyPath:
    def __init__(self, judge: Judge) -> None:
        self.judge = judge
        self.produced = 0
        self.target: tuple[str, int] | None = None
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.bootstrap = f"127.0.0.1:{self.port}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                accepted, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._carry, args=(accepted,), daemon=True).start()

    def _carry(self, client: socket.socket) -> None:
        assert self.target is not None
        with suppress(OSError), client, socket.create_connection(self.target) as broker:
            incoming, outgoing = client.makefile("rb"), broker.makefile("rb")
            with incoming, outgoing:
                while request := _frame(incoming):
                    header = read_request_header(request)
                    verdict = self._verdict() if header.api_key == PRODUCE else PASS
                    if verdict == LOSE_REQUEST:
                        return
                    if isinstance(verdict, int):
                        reply = _refusal(request, header, verdict)
                    else:
                        broker.sendall(struct.pack(">i", len(request)) + request)
                        reply = _frame(outgoing)
                    if verdict == LOSE_REPLY:
                        return
                    if verdict == STORE_AND_TIME_OUT:
                        reply = _refusal(request, header, ErrorCode.REQUEST_TIMED_OUT)
                    client.sendall(struct.pack(">i", len(reply)) + reply)

    def _verdict(self) -> str | int:
        with self._lock:
            self.produced += 1
            return self.judge(self.produced)


def _frame(stream: Any) -> bytes:
    size = stream.read(4)
    return stream.read(struct.unpack(">i", size)[0]) if len(size) == 4 else b""


def _refusal(request: bytes, header: Any, code: int) -> bytes:
    described = api(PRODUCE)
    asked = described.request.decoder(header.version)(memoryview(request), header.body_position)[0]
    topics = [
        TopicProduceResponse(
            topic.name,
            topic.topic_id,
            [PartitionProduceResponse(data.index, code, -1) for data in topic.partition_data],
        )
        for topic in asked.topic_data
    ]
    parts: list[Any] = [response_header(PRODUCE, header.version, header.correlation_id)]
    described.response.encoder(header.version)(ProduceResponse(topics), parts)
    return b"".join(parts)


@contextmanager
def broker_behind(judge: Judge) -> Iterator[tuple[Broker, FlakyPath]]:
    path = FlakyPath(judge)
    try:
        with Broker(flush="os", advertise=path.bootstrap) as broker:
            path.target = (broker.host, broker.port)
            yield broker, path
    finally:
        path.close()
