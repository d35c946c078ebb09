"""Frames of RFC 6455 against another implementation, and those that must not be taken."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.client import ClientProtocol
from websockets.frames import Frame
from websockets.frames import Opcode as TheirOpcode
from websockets.protocol import State
from websockets.uri import parse_uri

from skidway.gateways.http.sockets.frames import (
    MESSAGE_BYTES_MAX,
    PIECES_MAX,
    Broken,
    CloseCode,
    FrameReader,
    Message,
    Opcode,
    accept_key,
    close_code,
    close_frame,
    frame,
)


def masked(opcode: int, payload: bytes, *, fin: bool = True) -> bytes:
    return Frame(TheirOpcode(opcode), payload, fin=fin).serialize(mask=True)


def read_all(data: bytes, step: int) -> list[Message]:
    """As the bytes come, some at a time."""
    reader, kept, found = FrameReader(), b"", []
    for begin in range(0, len(data), step):
        kept += data[begin : begin + step]
        while True:
            size, message = reader.read(memoryview(kept))
            if message is not None:
                found.append(message)
            if not size:
                break
            kept = kept[size:]
    assert not kept
    return found


@given(
    st.lists(st.tuples(st.sampled_from([1, 2, 9, 10]), st.binary(max_size=100)), max_size=8),
    st.integers(min_value=1, max_value=50),
)
def test_what_another_client_sends_is_read(messages: list[tuple[int, bytes]], step: int) -> None:
    data = b"".join(masked(opcode, payload) for opcode, payload in messages)
    assert read_all(data, step) == [Message(Opcode(opcode), payload) for opcode, payload in messages]


@pytest.mark.parametrize("size", [0, 1, 125, 126, 127, 65_535, MESSAGE_BYTES_MAX])
def test_lengths_of_all_kinds(size: int) -> None:
    payload = bytes(number % 251 for number in range(size))
    assert read_all(masked(2, payload), 10_000) == [Message(Opcode.BINARY, payload)]


def test_a_message_in_pieces_with_pings_between_them() -> None:
    data = masked(1, b"one ", fin=False) + masked(9, b"?") + masked(0, b"two ", fin=False) + masked(0, b"three")
    assert read_all(data, 7) == [Message(Opcode.PING, b"?"), Message(Opcode.TEXT, b"one two three")]


@given(st.lists(st.binary(max_size=200), max_size=5))
def test_what_is_sent_another_client_reads(payloads: list[bytes]) -> None:
    client = ClientProtocol(parse_uri("ws://localhost/"), state=State.OPEN)
    client.receive_data(b"".join(frame(Opcode.BINARY, payload) for payload in payloads))
    assert [event.data for event in client.events_received()] == payloads  # type: ignore[union-attr]


@pytest.mark.parametrize("size", [126, 70_000])
def test_long_messages_are_read_by_another_client(size: int) -> None:
    client = ClientProtocol(parse_uri("ws://localhost/"), state=State.OPEN)
    client.receive_data(frame(Opcode.TEXT, b"x" * size))
    (event,) = client.events_received()
    assert len(event.data) == size  # type: ignore[union-attr]


BROKEN = [
    (frame(Opcode.TEXT, b"not masked"), CloseCode.PROTOCOL_ERROR),
    (b"\x83\x80\0\0\0\0", CloseCode.PROTOCOL_ERROR),  # no such kind
    (b"\xc1\x80\0\0\0\0", CloseCode.PROTOCOL_ERROR),  # a reserved bit
    (b"\x09\x80\0\0\0\0", CloseCode.PROTOCOL_ERROR),  # a ping in pieces
    (b"\x89\xfe\0\x7e\0\0\0\0", CloseCode.PROTOCOL_ERROR),  # a long ping
    (b"\x81\xfe\0\x05\0\0\0\0", CloseCode.PROTOCOL_ERROR),  # a length in more bytes than it needs
    (b"\x81\xff" + (65_535).to_bytes(8, "big"), CloseCode.PROTOCOL_ERROR),
    (masked(0, b"goes on"), CloseCode.PROTOCOL_ERROR),
    (masked(1, b"a", fin=False) + masked(1, b"b"), CloseCode.PROTOCOL_ERROR),
    (b"\x81\xff" + (MESSAGE_BYTES_MAX + 1).to_bytes(8, "big"), CloseCode.TOO_BIG),
    (b"\x81\xff" + b"\xff" * 8, CloseCode.TOO_BIG),
    (masked(1, b"x" * MESSAGE_BYTES_MAX, fin=False) + masked(0, b"x"), CloseCode.TOO_BIG),
    (masked(1, b"", fin=False) + masked(0, b"", fin=False) * PIECES_MAX, CloseCode.TOO_BIG),
]


@pytest.mark.parametrize(("data", "code"), BROKEN, ids=map(str, range(len(BROKEN))))
def test_what_must_not_be_taken(data: bytes, code: CloseCode) -> None:
    with pytest.raises(Broken) as caught:
        read_all(data, 100_000)
    assert caught.value.code == code


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    reader = FrameReader()
    position = 0
    try:
        while True:
            size, _ = reader.read(memoryview(data)[position:])
            if not size:
                break
            position += size
    except Broken:
        pass
    assert position <= len(data)


@pytest.mark.parametrize("payload", [b"\x03", b"\x03\xe7", b"\x03\xed", b"\x13\x88", b"\xff\xff", b"\x03\xe8\xff"])
def test_reasons_to_close_that_are_none(payload: bytes) -> None:
    with pytest.raises(Broken):
        close_code(payload)


def test_closing() -> None:
    assert close_code(b"") == CloseCode.NO_CODE
    assert close_code(b"\x03\xe8bye") == CloseCode.NORMAL
    assert len(close_frame(1001, "ü" * 200)) <= 127
    assert accept_key(b"dGhlIHNhbXBsZSBub25jZQ==") == b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo="  # of the RFC
