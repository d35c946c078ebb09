"""A Kafka client of the tests' own: sockets, `struct` and the field lists of raw_messages.txt.

It shares no code with the broker, so an error in the broker's codec cannot hide in it. Messages are dicts with
snake-case keys; fields that are left out take the protocol's default. Nothing is retried and no error is raised for
an error code: the tests look at every answer themselves.
"""

import re
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Body = dict[str, Any]
MakeTopic = Callable[..., str]
"""The fixture that makes a topic and returns its name."""

INTEGERS = {"int8": ">b", "int16": ">h", "int32": ">i", "int64": ">q"}
ZERO_UUID = bytes(16)
ANSWER_TIMEOUT_S = 30.0


@dataclass(frozen=True)
class Versions:
    first: int
    last: int

    @classmethod
    def parse(cls, text: str) -> "Versions":
        if text == "none":
            return cls(1, 0)
        if text.endswith("+"):
            return cls(int(text[:-1]), 32767)
        first, _, last = text.partition("-")
        return cls(int(first), int(last or first))

    def __contains__(self, version: int) -> bool:
        return self.first <= version <= self.last


NEVER = Versions(1, 0)


@dataclass
class Field:
    name: str
    type: str
    array: bool
    versions: Versions
    nullable: Versions = NEVER
    tag: int | None = None
    tagged: Versions = NEVER
    default: Any = None
    fields: list["Field"] = field(default_factory=list)


@dataclass
class Message:
    key: int
    versions: Versions
    flexible: Versions
    fields: list[Field] = field(default_factory=list)


def snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def parse_field(line: str) -> Field:
    name, kind, versions, *options = line.split()
    made = Field(snake(name[:-1]), kind.removeprefix("[]"), kind.startswith("[]"), Versions.parse(versions))
    default = None
    for option in options:
        word, _, value = option.partition("=")
        if word == "null":
            made.nullable = Versions.parse(value)
        elif word == "tag":
            tag, _, since = value.partition("@")
            made.tag, made.tagged = int(tag), Versions.parse(since)
        elif word == "default":
            default = value
    made.default = default_value(made, default)
    return made


def default_value(made: Field, text: str | None) -> Any:
    if text == "null":
        return None
    if made.array:
        return []
    if made.type in INTEGERS:
        return int(text or "0", 0)
    simple = {
        "bool": (text or "").lower() == "true",
        "string": text or "",
        "uuid": ZERO_UUID,
        "records": None,
        "bytes": b"",
    }
    return simple.get(made.type, {})


def load(path: Path) -> dict[str, Message]:
    messages: dict[str, Message] = {}
    stack: list[list[Field]] = []
    for line in path.read_text().splitlines():
        if not line.strip():
            continue
        depth = (len(line) - len(line.lstrip())) // 2
        if depth == 0:
            _, name, key, versions, flexible = line.split()
            message = Message(
                int(key.removeprefix("key=")),
                Versions.parse(versions.removeprefix("versions=")),
                Versions.parse(flexible.removeprefix("flexible=")),
            )
            messages[name] = message
            stack = [message.fields]
            continue
        made = parse_field(line.strip())
        del stack[depth:]
        stack[-1].append(made)
        stack.append(made.fields)
    return messages


MESSAGES = load(Path(__file__).with_name("raw_messages.txt"))


# ---------------------------------------------------------------------------------------------------- writing


def uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def write_length(length: int | None, width: str, flexible: bool) -> bytes:
    if flexible:
        return uvarint(0 if length is None else length + 1)
    return struct.pack(width, -1 if length is None else length)


def write_value(field_: Field, value: Any, version: int, flexible: bool) -> bytes:
    if field_.array:
        if value is None:
            return write_length(None, ">i", flexible)
        items = b"".join(write_one(field_, item, version, flexible) for item in value)
        return write_length(len(value), ">i", flexible) + items
    return write_one(field_, value, version, flexible)


def write_one(field_: Field, value: Any, version: int, flexible: bool) -> bytes:
    kind = field_.type
    if kind in INTEGERS:
        return struct.pack(INTEGERS[kind], value)
    if kind == "bool":
        return bytes([bool(value)])
    if kind == "uuid":
        return bytes(value)
    if kind in ("string", "bytes", "records"):
        data = value.encode() if isinstance(value, str) else value
        width = ">h" if kind == "string" else ">i"
        return write_length(None if data is None else len(data), width, flexible) + bytes(data or b"")
    if field_.nullable != NEVER and not field_.array:
        return b"\xff" if value is None else b"\x01" + write_fields(field_.fields, value, version, flexible)
    return write_fields(field_.fields, value, version, flexible)


def write_fields(fields: list[Field], body: Body, version: int, flexible: bool) -> bytes:
    unknown = set(body) - {known.name for known in fields}
    assert not unknown, f"no such fields: {unknown}"
    out = bytearray()
    tagged: dict[int, bytes] = {}
    for field_ in fields:
        if version not in field_.versions:
            continue
        value = body.get(field_.name, field_.default)
        if version in field_.tagged:
            if value != field_.default:
                assert field_.tag is not None
                tagged[field_.tag] = write_value(field_, value, version, flexible)
        else:
            out += write_value(field_, value, version, flexible)
    if flexible:
        out += uvarint(len(tagged))
        for tag, data in sorted(tagged.items()):
            out += uvarint(tag) + uvarint(len(data)) + data
    return bytes(out)


# ---------------------------------------------------------------------------------------------------- reading


class Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    def take(self, count: int) -> bytes:
        assert 0 <= count <= len(self.data) - self.position, "the answer ends in the middle of a field"
        self.position += count
        return self.data[self.position - count : self.position]

    def integer(self, width: str) -> int:
        return int(struct.unpack(width, self.take(struct.calcsize(width)))[0])

    def uvarint(self) -> int:
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def length(self, width: str, flexible: bool) -> int | None:
        length = self.uvarint() - 1 if flexible else self.integer(width)
        return None if length < 0 else length

    def value(self, field_: Field, version: int, flexible: bool) -> Any:
        if not field_.array:
            return self.one(field_, version, flexible)
        count = self.length(">i", flexible)
        assert count is not None or version in field_.nullable, f"{field_.name} may not be null in version {version}"
        return None if count is None else [self.one(field_, version, flexible) for _ in range(count)]

    def one(self, field_: Field, version: int, flexible: bool) -> Any:
        kind = field_.type
        if kind in INTEGERS:
            return self.integer(INTEGERS[kind])
        if kind == "bool":
            return self.take(1) != b"\x00"
        if kind == "uuid":
            return self.take(16)
        if kind in ("string", "bytes", "records"):
            length = self.length(">h" if kind == "string" else ">i", flexible)
            nullable = version in field_.nullable or field_.array
            assert length is not None or nullable, f"{field_.name} may not be null in version {version}"
            if length is None:
                return None
            return self.take(length).decode() if kind == "string" else self.take(length)
        if field_.nullable != NEVER and not field_.array and self.integer(">b") < 0:
            return None
        return self.fields(field_.fields, version, flexible)

    def fields(self, fields: list[Field], version: int, flexible: bool) -> Body:
        body: Body = {}
        tagged: dict[int, Field] = {}
        for field_ in fields:
            if version not in field_.versions:
                continue
            if version in field_.tagged:
                assert field_.tag is not None
                tagged[field_.tag] = field_
                body[field_.name] = field_.default
            else:
                body[field_.name] = self.value(field_, version, flexible)
        if flexible:
            for _ in range(self.uvarint()):
                tag, size = self.uvarint(), self.uvarint()
                end = self.position + size
                if tag in tagged:
                    body[tagged[tag].name] = self.value(tagged[tag], version, flexible)
                    assert self.position == end, f"tag {tag} has the wrong size"
                self.position = end
        return body


# ---------------------------------------------------------------------------------------------------- talking


def encode_request(api: str, version: int, body: Body, correlation_id: int, client_id: str | None = "raw") -> bytes:
    message = MESSAGES[api + "Request"]
    flexible = version in message.flexible
    name = b"\xff\xff" if client_id is None else struct.pack(">h", len(client_id)) + client_id.encode()
    header = struct.pack(">hhi", message.key, version, correlation_id) + name + (b"\x00" if flexible else b"")
    return header + write_fields(message.fields, body, version, flexible)


def decode_response(api: str, version: int, frame: bytes) -> tuple[int, Body]:
    message = MESSAGES[api + "Response"]
    flexible = version in message.flexible
    reader = Reader(frame)
    correlation_id = reader.integer(">i")
    # ApiVersions is read before the client knows what the broker speaks: its answers never have a tagged header.
    if flexible and api != "ApiVersions":
        assert reader.uvarint() == 0, "no tags are defined for response headers"
    body = reader.fields(message.fields, version, flexible)
    assert reader.position == len(frame), f"{len(frame) - reader.position} bytes behind the {api} answer"
    return correlation_id, body


class Connection:
    """One socket to the broker. `send` and `receive` pair up by order; `call` is one of each."""

    def __init__(self, bootstrap: str, timeout_s: float = ANSWER_TIMEOUT_S) -> None:
        host, _, port = bootstrap.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.correlation_id = 0

    def __enter__(self) -> "Connection":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, api: str, version: int, body: Body | None = None, client_id: str | None = "raw") -> int:
        self.correlation_id += 1
        self.send_frame(encode_request(api, version, body or {}, self.correlation_id, client_id))
        return self.correlation_id

    def send_frame(self, frame: bytes) -> None:
        self.socket.sendall(struct.pack(">i", len(frame)) + frame)

    def receive_frame(self) -> bytes:
        (length,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(length)

    def receive(self, api: str, version: int) -> tuple[int, Body]:
        return decode_response(api, version, self.receive_frame())

    def call(self, api: str, version: int, body: Body | None = None, client_id: str | None = "raw") -> Body:
        sent = self.send(api, version, body, client_id)
        answered, answer = self.receive(api, version)
        assert answered == sent
        return answer

    def closed_by_peer(self) -> bool:
        """Waits for the peer to say something: True if it hangs up, False if it answers."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def silent_for(self, seconds: float) -> bool:
        """True if the peer sends nothing for so long."""
        previous = self.socket.gettimeout()
        self.socket.settimeout(seconds)
        try:
            self.socket.recv(1, socket.MSG_PEEK)
        except TimeoutError:
            return True
        finally:
            self.socket.settimeout(previous)
        return False

    def _exactly(self, count: int) -> bytes:
        parts = bytearray()
        while len(parts) < count:
            piece = self.socket.recv(count - len(parts))
            if not piece:
                raise ConnectionError("the broker closed the connection")
            parts += piece
        return bytes(parts)
