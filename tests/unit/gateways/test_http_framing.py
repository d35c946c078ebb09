"""Our own reading of where a request ends, without llhttp, which would refuse most of this as well: either alone has
to be enough."""

import pytest

from skidway.gateways.http.chunked import ChunkedBody
from skidway.gateways.http.head import CHUNKED, Head, _check_lines
from skidway.gateways.http.problems import Fatal


@pytest.mark.parametrize(
    "raw",
    [
        b"GET / HTTP/1.1\nHost: a\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\nX: b\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\rX: b\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\n b\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\n\tb\r\n\r\n",
    ],
)
def test_lines_end_in_one_way(raw: bytes) -> None:
    with pytest.raises(Fatal):
        _check_lines(raw)


def head(minor: int = 1, **headers: bytes) -> Head:
    named = {name.replace("_", "-").encode(): value for name, value in headers.items()}
    return Head("POST", b"/", minor, named, 0, keep_alive=True)


def test_a_length_or_chunks_say_how_long_a_body_is() -> None:
    assert head().body_bytes == 0
    assert head(content_length=b"007").body_bytes == 7
    assert head(transfer_encoding=b"Chunked").body_bytes == CHUNKED


@pytest.mark.parametrize(
    ("minor", "headers"),
    [
        (1, {"content_length": b"3", "transfer_encoding": b"chunked"}),
        (0, {"transfer_encoding": b"chunked"}),
        (1, {"transfer_encoding": b"chunked, chunked"}),
        (1, {"transfer_encoding": b"identity"}),
        *((1, {"content_length": value}) for value in (b"", b"+3", b"-3", b"3,3", b"3 3", b"0x3", b"9" * 19, b"\xb2")),
    ],
)
def test_nothing_else_does(minor: int, headers: dict[str, bytes]) -> None:
    with pytest.raises(Fatal):
        head(minor, **headers)


def take(data: bytes, bytes_max: int = 100) -> ChunkedBody:
    body = ChunkedBody(0, bytes_max)
    assert body.take(memoryview(data))
    return body


def test_chunks_are_joined_wherever_the_bytes_are_cut() -> None:
    data = b"3\r\nabc\r\n0A ;x=y\r\n0123456789\r\n0\r\nT: v\r\n\r\nrest"
    whole = take(data)
    assert (bytes(whole.body), data[whole.position :]) == (b"abc0123456789", b"rest")
    piecemeal = ChunkedBody(0, 100)
    ends = [end for end in range(len(data)) if piecemeal.take(memoryview(data[:end]))]
    assert ends[0] == len(data) - 4
    assert piecemeal.body == whole.body


@pytest.mark.parametrize(
    "data", [b"3\r\nabcd\r\n", b"3\r\nabc\nx", b"3\nabc", b"x\r\n", b"-1\r\n", b"\r\n", b"65\r\n", b"3" * 300]
)
def test_a_chunk_is_what_its_size_says(data: bytes) -> None:
    with pytest.raises(Fatal):
        take(data)
