"""Lines of an input in batches that go out soon: when there are enough lines, or a moment after the first of them.

Whoever writes into a pipe line by line so has each line sent, and a file is sent in large batches.
"""

import io
import os
import select
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import BinaryIO

COUNT_MAX = 500
BATCH_BYTES_MAX = 4 * 1024 * 1024
LINGER_S = 0.1
READ_BYTES = 64 * 1024


@dataclass(slots=True)
class _Batch:
    lines: list[bytes] = field(default_factory=list)
    size: int = 0
    deadline: float = 0.0

    def add(self, line: bytes) -> None:
        if not self.lines:
            self.deadline = time.monotonic() + LINGER_S
        self.lines.append(line)
        self.size += len(line)

    @property
    def is_full(self) -> bool:
        return len(self.lines) >= COUNT_MAX or self.size >= BATCH_BYTES_MAX

    def left_s(self) -> float | None:
        """How long the next line may take; None: as long as it likes."""
        return max(0.0, self.deadline - time.monotonic()) if self.lines else None

    def take(self) -> list[bytes]:
        lines, self.lines, self.size = self.lines, [], 0
        return lines


def in_batches(source: BinaryIO, line_bytes_max: int) -> Iterator[list[bytes]]:
    """The lines without their ends. Of one that is longer than it may be, no more is read than shows that, and it is
    the last."""
    batch = _Batch()
    for line in _lines(source, line_bytes_max, batch.left_s):
        if line is not None:
            batch.add(line)
        if line is None or batch.is_full:
            yield batch.take()
        if line is not None and len(line) > line_bytes_max:
            break
    if batch.lines:
        yield batch.take()


def _lines(source: BinaryIO, line_bytes_max: int, left_s: Callable[[], float | None]) -> Iterator[bytes | None]:
    """None: the time is over, and there is none."""
    try:
        descriptor = source.fileno()
    except (OSError, io.UnsupportedOperation):
        while line := source.readline(line_bytes_max + 2):
            yield line.removesuffix(b"\n")
        return
    rest = b""
    while True:
        if not select.select([descriptor], [], [], left_s())[0]:
            yield None
            continue
        received = os.read(descriptor, READ_BYTES)
        if not received:
            break
        *whole, rest = (rest + received).split(b"\n")
        yield from whole
        if len(rest) > line_bytes_max:
            break
    if rest:
        yield rest
