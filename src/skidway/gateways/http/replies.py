"""Answers as bytes: a status line, a few headers, a body."""

from __future__ import annotations

import zlib
from http import HTTPStatus
from typing import Any

import msgspec

from skidway.gateways.http import problems
from skidway.gateways.http.problems import Problem

JSON = b"application/json"
TEXT = b"text/plain; charset=utf-8"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
SWITCHING = b"HTTP/1.1 101 Switching Protocols\r\n"
NO_STORE = b"cache-control: no-store\r\n"
PACKED_BYTES_MIN = 4_096
"""A smaller answer is in one packet or two anyway."""
PACK_LEVEL = 1
GZIP_WINDOW = 31
LAST_CHUNK = b"0\r\n\r\n"

_LINES = {
    status.value: f"HTTP/1.1 {status.value} {problems.TITLES.get(status.value, status.phrase)}\r\n".encode()
    for status in HTTPStatus
}
_encode = msgspec.json.Encoder().encode


class Reply:
    __slots__ = ("body", "content_type", "headers", "status")

    def __init__(self, status: int, content_type: bytes, body: bytes, headers: bytes = b"") -> None:
        """`headers` are more lines, each with its end."""
        self.status = status
        self.content_type = content_type
        self.body = body
        self.headers = headers

    def encode(self, date: bytes, *, keep_alive: bool, minor: int, head_only: bool) -> bytes:
        """The whole answer. `date` is a line of its own."""
        return b"%b%bcontent-type: %b\r\ncontent-length: %d\r\nx-content-type-options: nosniff\r\n%b%b\r\n%b" % (
            _LINES[self.status],
            date,
            self.content_type,
            len(self.body),
            self.headers,
            connection_line(keep_alive=keep_alive, minor=minor),
            b"" if head_only else self.body,
        )

    def pack(self) -> None:
        """Have it travel as gzip."""
        packer = zlib.compressobj(PACK_LEVEL, zlib.DEFLATED, GZIP_WINDOW)
        self.body = packer.compress(self.body) + packer.flush()
        self.headers += b"content-encoding: gzip\r\nvary: accept-encoding\r\n"


def stream_head(date: bytes, content_type: bytes, headers: bytes, *, keep_alive: bool, minor: int) -> bytes:
    """Of an answer whose length nobody knows."""
    framing = b"transfer-encoding: chunked\r\n" if minor else b""
    line = connection_line(keep_alive=keep_alive, minor=minor)
    return b"%b%bcontent-type: %b\r\nx-content-type-options: nosniff\r\n%b%b%b\r\n" % (
        _LINES[200],
        date,
        content_type,
        headers,
        framing,
        line,
    )


def connection_line(*, keep_alive: bool, minor: int) -> bytes:
    if not keep_alive:
        return b"connection: close\r\n"
    return b"" if minor else b"connection: keep-alive\r\n"


def json_reply(value: Any, status: int = 200, headers: bytes = b"") -> Reply:
    return Reply(status, JSON, _encode(value), headers)


def problem_reply(problem: Problem) -> Reply:
    return Reply(problem.status, problems.CONTENT_TYPE, problem.body(), problem.headers)


def accepts_gzip(accepted: bytes) -> bool:
    """By the header Accept-Encoding. `gzip;q=0` says no."""
    for coding in accepted.lower().split(b","):
        name, _, weight = coding.partition(b";")
        if name.strip() in (b"gzip", b"*"):
            return weight.strip().replace(b" ", b"") not in (b"q=0", b"q=0.0", b"q=0.00", b"q=0.000")
    return False
