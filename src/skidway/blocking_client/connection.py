"""One blocking connection to one broker.

Requests are answered in order, so `send` may run ahead of `receive`: a pipeline is a loop of sends and a loop of
receives. On opening, the broker is asked which versions it serves; every request then goes out in the highest version
both sides know. After any failure the connection is closed and of no more use.
"""

import select
import socket
import struct
import time
from collections import deque
from types import TracebackType
from typing import NamedTuple, TypeVar

from skidway import __version__
from skidway.blocking_client.addresses import Address
from skidway.blocking_client.errors import (
    BadReply,
    ClientError,
    ConnectionLost,
    Refused,
    ReplyTimeout,
    Unreachable,
    Unsendable,
    Unsupported,
    check,
)
from skidway.errors import ErrorCode, ProtocolError
from skidway.limits import MIB
from skidway.ports import Buffer, FileSlice
from skidway.wire.framing import frame
from skidway.wire.headers import read_response_header, write_request_header
from skidway.wire.message import Message
from skidway.wire.registry import Api, api
from skidway.wire.schema.api_versions import ApiVersionsRequest, ApiVersionsResponse

REPLY_BYTES_MAX = 128 * MIB
CONNECT_TIMEOUT_MS = 5_000
REPLY_TIMEOUT_MS = 30_000

_HTTP = b"HTTP"
"""How an answer of the other protocol begins."""
_LENGTH = struct.Struct(">i")
_ERROR_CODE = struct.Struct(">h")
_API_VERSIONS = 18

Reply = TypeVar("Reply", bound=Message)


class _Awaited(NamedTuple):
    api: Api
    version: int
    correlation_id: int


class Connection:
    """Not for several threads at once."""

    def __init__(
        self,
        address: Address,
        *,
        client_id: str = "skidway",
        connect_timeout_ms: int = CONNECT_TIMEOUT_MS,
        reply_timeout_ms: int = REPLY_TIMEOUT_MS,
        reply_bytes_max: int = REPLY_BYTES_MAX,
    ) -> None:
        self.address = address
        self.client_id = client_id
        self.reply_timeout_ms = reply_timeout_ms
        self.reply_bytes_max = reply_bytes_max
        self.closed = False
        self._awaited: deque[_Awaited] = deque()
        self._correlation_id = 0
        self._socket = _connect(address, connect_timeout_ms)
        try:
            self.served = self._ask_versions()
        except BaseException:
            self.close()
            raise

    def version(self, key: int) -> int:
        """The highest version of an API that both sides know."""
        known = api(key)
        if key not in self.served:
            raise Unsupported(f"{self.address} does not serve {known.name}")
        low, high = max(known.versions[0], self.served[key][0]), min(known.versions[1], self.served[key][1])
        if low > high:
            served = "{}-{}".format(*self.served[key])
            spoken = "{}-{}".format(*known.versions)
            raise Unsupported(f"{self.address} serves {known.name} {served}, this client speaks {spoken}")
        return high

    def call(self, request: Message, reply: type[Reply], *, timeout_ms: int | None = None) -> Reply:
        """Send one request and wait for its reply. No reply of an earlier one may be outstanding."""
        assert not self._awaited, "replies of earlier requests must be received first"
        self.send(request)
        return self.receive(reply, timeout_ms=timeout_ms)

    def send(self, request: Message, *, version: int | None = None, answered: bool = True) -> None:
        """`answered=False` for the one request that gets no reply: Produce with acks=0."""
        key = request.__key__
        assert key is not None, f"{type(request).__name__} is not a request"
        spoken = self.version(key) if version is None else version
        described = api(key)
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        parts: list[Buffer | FileSlice] = [write_request_header(key, spoken, self._correlation_id, self.client_id)]
        try:
            described.request.encoder(spoken)(request, parts)
        except (struct.error, ValueError) as error:
            raise Unsendable(f"the request does not fit into Kafka's protocol: {error}") from error
        if answered:
            self._awaited.append(_Awaited(described, spoken, self._correlation_id))
        self._send_all(frame(parts))

    def receive(self, reply: type[Reply], *, timeout_ms: int | None = None) -> Reply:
        """The reply to the oldest request that still waits for one."""
        awaited = self._awaited.popleft()
        body, position = self._receive_body(awaited, timeout_ms)
        message = self._decode(awaited.api, awaited.version, body, position)
        assert isinstance(message, reply), f"asked for {reply.__name__}, got {type(message).__name__}"
        return message

    def readable(self, timeout_s: float) -> bool:
        """Wait until something has arrived, or the time is up."""
        return bool(select.select([self._socket], [], [], max(0.0, timeout_s))[0])

    def fileno(self) -> int:
        """For `select` over several connections."""
        return self._socket.fileno()

    @property
    def awaited(self) -> int:
        """Requests sent whose replies have not been received."""
        return len(self._awaited)

    def close(self) -> None:
        self.closed = True
        self._awaited.clear()
        self._socket.close()

    def __enter__(self) -> "Connection":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _ask_versions(self) -> dict[int, tuple[int, int]]:
        """Which versions the broker serves, by API key.

        A broker that does not know our newest ApiVersions answers in the form of version 0 with an error, and says
        in it what it does know.
        """
        version = api(_API_VERSIONS).versions[1]
        for _ in range(2):
            request = ApiVersionsRequest(client_software_name="skidway", client_software_version=__version__)
            self.send(request, version=version)
            awaited = self._awaited.popleft()
            body, position = self._receive_body(awaited, None)
            if len(body) - position < _ERROR_CODE.size:
                raise self._broken(BadReply(f"{self.address} does not answer like a Kafka broker"))
            code = _ERROR_CODE.unpack_from(body, position)[0]
            refused = code == ErrorCode.UNSUPPORTED_VERSION and version > 0
            reply = self._decode(awaited.api, 0 if refused else version, body, position)
            assert isinstance(reply, ApiVersionsResponse)
            served = {entry.api_key: (entry.min_version, entry.max_version) for entry in reply.api_keys}
            if not refused:
                check(code, f"asking {self.address} for its API versions")
                return served
            version = max(0, min(version - 1, served.get(_API_VERSIONS, (0, 0))[1]))
        raise Unsupported(f"{self.address} and this client have no version of ApiVersions in common")

    def _decode(self, described: Api, version: int, body: memoryview, position: int) -> Message:
        try:
            message: Message = described.response.decoder(version)(body, position)[0]
        except ProtocolError as error:
            text = f"{self.address} sent a malformed {described.name} reply: {error}"
            raise self._broken(BadReply(text)) from error
        return message

    def _receive_body(self, awaited: _Awaited, timeout_ms: int | None) -> tuple[memoryview, int]:
        """The next frame, and where its body begins after the header."""
        deadline = time.monotonic() + (self.reply_timeout_ms if timeout_ms is None else timeout_ms) / 1000
        first = bytes(self._receive_exactly(_LENGTH.size, deadline))
        if first == _HTTP:
            text = f"{self.address} answers in HTTP: this is the port for HTTP and Amazon SQS"
            raise self._broken(BadReply(f"{text}; give the one for Kafka's protocol, 9092 if nobody chose another"))
        length = _LENGTH.unpack(first)[0]
        if not _LENGTH.size <= length <= self.reply_bytes_max:
            text = f"{self.address} sent a reply of {length} bytes (at most {self.reply_bytes_max} are accepted)"
            raise self._broken(BadReply(f"{text}; is it a Kafka listener without TLS?"))
        body = self._receive_exactly(length, deadline)
        try:
            correlation_id, position = read_response_header(awaited.api.key, awaited.version, body)
        except ProtocolError as error:
            raise self._broken(BadReply(f"{self.address} sent a malformed reply header: {error}")) from error
        if correlation_id != awaited.correlation_id:
            text = f"{self.address} answered request {correlation_id}, not {awaited.correlation_id}"
            raise self._broken(BadReply(text))
        return body, position

    def _receive_exactly(self, size: int, deadline: float) -> memoryview:
        buffer = memoryview(bytearray(size))
        received = 0
        try:
            while received < size:
                self._socket.settimeout(max(0.001, deadline - time.monotonic()))
                count = self._socket.recv_into(buffer[received:])
                if count == 0:
                    raise self._broken(ConnectionLost(f"{self.address} closed the connection"))
                received += count
        except TimeoutError:
            raise self._broken(ReplyTimeout(f"{self.address} did not answer in time")) from None
        except OSError as error:
            raise self._broken(ConnectionLost(f"lost the connection to {self.address}: {_reason(error)}")) from error
        return buffer

    def _send_all(self, parts: list[Buffer | FileSlice]) -> None:
        try:
            self._socket.settimeout(self.reply_timeout_ms / 1000)
            for part in parts:
                self._socket.sendall(part.read() if isinstance(part, FileSlice) else part)
        except TimeoutError:
            raise self._broken(ReplyTimeout(f"{self.address} does not accept the request")) from None
        except OSError as error:
            raise self._broken(ConnectionLost(f"lost the connection to {self.address}: {_reason(error)}")) from error

    def _broken(self, error: ClientError) -> ClientError:
        """After a failure nobody knows where in the stream of replies we are."""
        self.close()
        return error


def _connect(address: Address, timeout_ms: int) -> socket.socket:
    try:
        connected = socket.create_connection(address, timeout_ms / 1000)
    except TimeoutError:
        raise Unreachable(f"cannot reach {address}: no answer within {timeout_ms / 1000:g} s") from None
    except ConnectionRefusedError:
        raise Refused([address]) from None
    except (OSError, UnicodeError) as error:
        raise Unreachable(f"cannot reach {address}: {_reason(error)}") from error
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connected


def _reason(error: Exception) -> str:
    return (getattr(error, "strerror", None) or str(error) or type(error).__name__).lower()
