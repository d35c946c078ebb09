"""Large batches that somebody took some messages of, unpacked, with a mark how far they were read.

Whoever receives next from the middle of one does not unpack it again, and does not step over what lies before. Bounded:
what does not fit is unpacked again. A batch is with one reader at a time, who works on it in another thread.
"""

from __future__ import annotations

from typing import NamedTuple

from skidway.limits import KIB, MIB
from skidway.records.batch import BatchHeader
from skidway.records.record import Bookmark

BYTES_MIN = 64 * KIB
"""Smaller ones cost little."""
BYTES_MAX = 32 * MIB
"""Of all that are kept."""

Key = tuple[bytes, int, int, int, int]
"""Topic id, partition, first offset, checksum, size."""


class Opened(NamedTuple):
    header: BatchHeader
    payload: bytes | bytearray
    bookmark: Bookmark

    @property
    def is_worth_it(self) -> bool:
        is_large = BYTES_MIN <= len(self.payload) <= BYTES_MAX
        return is_large and 0 < self.bookmark.records < self.header.record_count


class OpenedBatches:
    __slots__ = ("_bytes", "_kept")

    def __init__(self) -> None:
        self._kept: dict[Key, Opened] = {}
        """The one that was read last is the last."""
        self._bytes = 0

    def take(self, key: Key) -> Opened | None:
        """Nobody else has it until it is put back."""
        opened = self._kept.pop(key, None)
        if opened is not None:
            self._bytes -= len(opened.payload)
        return opened

    def put(self, key: Key, opened: Opened) -> None:
        self.take(key)
        if not opened.is_worth_it:
            return
        self._kept[key] = opened
        self._bytes += len(opened.payload)
        while self._bytes > BYTES_MAX:
            self.take(next(iter(self._kept)))
