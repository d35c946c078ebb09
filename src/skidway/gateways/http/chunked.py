"""A chunked body, scanned as its bytes come: strict about every line, and about how much of it is framing."""

from __future__ import annotations

import re

from skidway.gateways.http.bounds import CHUNK_SLACK_BYTES, TRAILER_BYTES_MAX
from skidway.gateways.http.problems import Fatal

_SIZE_LINE = re.compile(rb"([0-9A-Fa-f]{1,8})(?:[ \t]*;[\t\x20-\x7e]{0,200})?\r\n")
SIZE_LINE_BYTES_MAX = 256
_END = b"\r\n"
_TRAILER_END = re.compile(rb"\r\n\r\n")


class ChunkedBody:
    """`take` looks at what came since the last time; `body` is what was inside."""

    __slots__ = ("_begin", "_bytes_max", "body", "position")

    def __init__(self, begin: int, bytes_max: int) -> None:
        """`begin` is where the first chunk begins in what `take` gets."""
        self._begin = self.position = begin
        self._bytes_max = bytes_max
        self.body = bytearray()

    def take(self, data: memoryview) -> bool:
        """`data` begins where it began the last time, and is longer. True: the body is whole, and ends at
        `position`."""
        while True:
            line = _SIZE_LINE.match(data, self.position)
            if line is None:
                self._check_partial_line(data)
                return False
            size, begin = int(line[1], 16), line.end()
            if not size:
                return self._end(data, begin)
            if len(self.body) + size > self._bytes_max:
                raise Fatal(413, "body_too_large", f"a body has more than {self._bytes_max} bytes")
            end = begin + size
            if end + len(_END) > len(data):
                return False
            if data[end : end + len(_END)] != _END:
                raise Fatal(400, "bad_chunk", "a chunk is longer than its size says")
            self.body += data[begin:end]
            self.position = end + len(_END)
            if self.position - self._begin > 2 * len(self.body) + CHUNK_SLACK_BYTES:
                raise Fatal(400, "bad_chunk", "most of a chunked body is not content")

    def _check_partial_line(self, data: memoryview) -> None:
        start = bytes(data[self.position : self.position + SIZE_LINE_BYTES_MAX])
        if len(start) == SIZE_LINE_BYTES_MAX or b"\n" in start:
            raise Fatal(400, "bad_chunk", "the size of a chunk must be a hexadecimal number on a line of its own")

    def _end(self, data: memoryview, position: int) -> bool:
        """Behind the last chunk there may be trailers, which mean nothing here."""
        if data[position : position + len(_END)] == _END:
            self.position = position + len(_END)
            return True
        found = _TRAILER_END.search(data, position, position + TRAILER_BYTES_MAX)
        if found is None:
            if len(data) - position >= TRAILER_BYTES_MAX:
                raise Fatal(431, "head_too_large", f"the trailers have more than {TRAILER_BYTES_MAX} bytes")
            return False
        trailer = bytes(data[position : found.end()])
        if not trailer.count(b"\r\n") == trailer.count(b"\n") == trailer.count(b"\r"):
            raise Fatal(400, "bad_line", "a trailer ends in something else than CR LF")
        self.position = found.end()
        return True
