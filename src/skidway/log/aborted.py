"""The transaction index of a segment: which aborted transactions have their marker in it. On disk it is Kafka's.

An entry has 34 bytes, big-endian: version 0 (int16), producer id, first offset, offset of the marker, and the last
stable offset of that moment (int64 each): where the next open transaction began, or behind the marker. Entries are in
the order of their markers. A segment without entries has no file, or an empty one: no file means that nothing was
aborted, so unlike the other indexes this one is never removed to be made again.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from struct import Struct
from typing import NamedTuple

from skidway.ports import Buffer

_ENTRY = Struct(">hqqqq")
ENTRY_BYTES = _ENTRY.size
_VERSION = 0
_WIDTH = 4
_FIRST, _LAST, _STABLE = 1, 2, 3
_CHUNK_WORDS = 512 * _WIDTH
"""Entries that a look-up passes over together, if all of them begin too late. While a transaction is open for long,
those that are aborted meanwhile do not say where to stop, and there may be hundreds of thousands of them."""

# A producer id, and where its aborted transaction begins.
AbortedRange = tuple[int, int]


class CorruptTransactionIndex(Exception):
    """A file that cannot be what was written."""


class Aborted(NamedTuple):
    """A transaction that left records in the log which nobody should read."""

    producer_id: int
    first_offset: int
    last_offset: int
    """Of its marker."""
    stable_offset: int
    """Where the next open transaction began at that time, or behind the marker."""


class AbortedIndex:
    __slots__ = ("_lowest", "_words")

    def __init__(self) -> None:
        self._words: array[int] = array("q")
        self._lowest: array[int] = array("q")
        """The lowest first offset of each chunk."""

    def __len__(self) -> int:
        return len(self._words) // _WIDTH

    @property
    def entries(self) -> list[Aborted]:
        words = self._words
        return [Aborted(*words[at : at + _WIDTH]) for at in range(0, len(words), _WIDTH)]

    def append(self, entry: Aborted) -> None:
        assert not self._words or self._words[_LAST - _WIDTH] < entry.last_offset, "markers follow each other"
        self._note(len(self._words), entry.first_offset)
        self._words.extend(entry)

    def _note(self, position: int, first_offset: int) -> None:
        if position % _CHUNK_WORDS == 0:
            self._lowest.append(first_offset)
        elif first_offset < self._lowest[-1]:
            self._lowest[-1] = first_offset

    def cut(self, offset: int) -> None:
        """Forget those whose markers are at or above the offset."""
        words = self._words
        del words[self._entries_below(offset) * _WIDTH :]
        del self._lowest[len(words) // _CHUNK_WORDS :]
        for position in range(len(self._lowest) * _CHUNK_WORDS, len(words), _WIDTH):
            self._note(position, words[position + _FIRST])

    def copy(self) -> AbortedIndex:
        twin = AbortedIndex()
        twin._words, twin._lowest = self._words[:], self._lowest[:]
        return twin

    def to_bytes(self) -> bytes:
        return b"".join(_ENTRY.pack(_VERSION, *entry) for entry in self.entries)

    @classmethod
    def from_bytes(cls, data: Buffer, base_offset: int) -> AbortedIndex:
        """CorruptTransactionIndex when it cannot be that of a segment that begins there."""
        index = cls()
        if len(data) % _ENTRY.size:
            raise CorruptTransactionIndex(f"{len(data)} bytes are no whole entries")
        before = base_offset - 1
        for version, producer_id, first_offset, last_offset, stable_offset in _ENTRY.iter_unpack(data):
            if version != _VERSION or not before < last_offset or not 0 <= first_offset < last_offset:
                raise CorruptTransactionIndex(f"version {version}, from {first_offset} to {last_offset}")
            index._note(len(index._words), first_offset)
            index._words.extend((producer_id, first_offset, last_offset, stable_offset))
            before = last_offset
        return index

    def collect(self, from_offset: int, upto_offset: int, found: list[AbortedRange]) -> bool:
        """Add those that have records between the offsets; whether no later segment has any more of them."""
        begin, count = self._entries_below(from_offset) * _WIDTH, len(self._words)
        while begin < count:
            number = begin // _CHUNK_WORDS
            end = min((number + 1) * _CHUNK_WORDS, count)
            if self._lowest[number] >= upto_offset:
                # None of these; and no later one either, if the last of them says so.
                begin = end - _WIDTH
            if self._collect(begin, end, upto_offset, found):
                return True
            begin = end
        return False

    def _collect(self, begin: int, end: int, upto_offset: int, found: list[AbortedRange]) -> bool:
        words = self._words
        for at in range(begin, end, _WIDTH):
            if words[at + _FIRST] < upto_offset:
                found.append((words[at], words[at + _FIRST]))
            if words[at + _STABLE] >= upto_offset:
                return True
        return False

    def _entries_below(self, offset: int) -> int:
        words = self._words
        return bisect_left(range(len(self)), offset, key=lambda number: words[number * _WIDTH + _LAST])
