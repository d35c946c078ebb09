"""The two sparse indexes of a segment, in memory as arrays and on disk byte for byte as Kafka writes them.

Offset index: (last offset of a batch, position where that batch begins), 4 + 4 bytes, big-endian.
Time index: (largest timestamp so far, last offset of the first batch that reached it), 8 + 4 bytes.
Offsets are relative to the segment's base offset. Both are strictly increasing in every column
(but the positions of an offset index, which only must not repeat).
"""

import sys
from array import array
from bisect import bisect_left, bisect_right
from operator import lt

from skidway.ports import Buffer

OFFSET_ENTRY_BYTES = 8
TIME_ENTRY_BYTES = 12
_SWAP = sys.byteorder == "little"


def _columns(data: Buffer, width: int) -> "array[int]":
    words = array("i")
    assert words.itemsize == 4
    words.frombytes(data[: len(data) // (4 * width) * 4 * width])
    if _SWAP:
        words.byteswap()
    return words


def _bytes(words: "array[int]") -> bytes:
    if _SWAP:
        words.byteswap()
    return words.tobytes()


def _increasing(column: "array[int]") -> bool:
    return all(map(lt, column, column[1:]))


class OffsetIndex:
    __slots__ = ("offsets", "positions")

    def __init__(self) -> None:
        self.offsets: array[int] = array("i")
        self.positions: array[int] = array("i")

    def __len__(self) -> int:
        return len(self.offsets)

    def append(self, relative_offset: int, position: int) -> None:
        self.offsets.append(relative_offset)
        self.positions.append(position)

    def cut(self, entries: int) -> None:
        del self.offsets[entries:]
        del self.positions[entries:]

    def copy(self) -> "OffsetIndex":
        twin = OffsetIndex()
        twin.offsets = self.offsets[:]
        twin.positions = self.positions[:]
        return twin

    def to_bytes(self) -> bytes:
        words = array("i", bytes(OFFSET_ENTRY_BYTES * len(self.offsets)))
        words[0::2] = self.offsets
        words[1::2] = self.positions
        return _bytes(words)

    @classmethod
    def from_bytes(cls, data: Buffer) -> "OffsetIndex":
        words = _columns(data, 2)
        index = cls()
        index.offsets = words[0::2]
        index.positions = words[1::2]
        return index

    def sane(self, size: int) -> bool:
        """Whether it can belong to a segment of `size` bytes: what a torn or foreign file seldom does."""
        if not self.offsets:
            return True
        return (
            self.offsets[0] >= 0
            and self.positions[0] >= 0
            and self.positions[-1] < size
            and _increasing(self.offsets)
            and _increasing(self.positions)
        )

    def entries_below(self, relative_offset: int) -> int:
        return bisect_left(self.offsets, relative_offset)

    def entries_before_position(self, position: int) -> int:
        return bisect_left(self.positions, position)

    def last_position_upto(self, position: int) -> int:
        """The largest indexed position that is at most `position`; 0 when there is none."""
        found = bisect_right(self.positions, position)
        return self.positions[found - 1] if found else 0


class TimeIndex:
    __slots__ = ("offsets", "timestamps")

    def __init__(self) -> None:
        self.timestamps: array[int] = array("q")
        self.offsets: array[int] = array("i")

    def __len__(self) -> int:
        return len(self.timestamps)

    def append(self, timestamp: int, relative_offset: int) -> None:
        """Only what is later than the last entry is worth one."""
        if timestamp > (self.timestamps[-1] if self.timestamps else -1):
            self.timestamps.append(timestamp)
            self.offsets.append(relative_offset)

    def cut(self, entries: int) -> None:
        del self.timestamps[entries:]
        del self.offsets[entries:]

    def copy(self) -> "TimeIndex":
        twin = TimeIndex()
        twin.timestamps = self.timestamps[:]
        twin.offsets = self.offsets[:]
        return twin

    def to_bytes(self) -> bytes:
        halves = array("i", self.timestamps.tobytes())
        high, low = (1, 0) if _SWAP else (0, 1)
        words = array("i", bytes(TIME_ENTRY_BYTES * len(self.offsets)))
        words[0::3] = halves[high::2]
        words[1::3] = halves[low::2]
        words[2::3] = self.offsets
        return _bytes(words)

    @classmethod
    def from_bytes(cls, data: Buffer) -> "TimeIndex":
        words = _columns(data, 3)
        halves = array("i", bytes(8 * (len(words) // 3)))
        high, low = (1, 0) if _SWAP else (0, 1)
        halves[high::2] = words[0::3]
        halves[low::2] = words[1::3]
        index = cls()
        index.timestamps = array("q", halves.tobytes())
        index.offsets = words[2::3]
        return index

    def sane(self) -> bool:
        if not self.offsets:
            return True
        return (
            self.offsets[0] >= 0
            and self.timestamps[0] >= 0
            and _increasing(self.timestamps)
            and _increasing(self.offsets)
        )

    def entries_below(self, relative_offset: int) -> int:
        return bisect_left(self.offsets, relative_offset)

    def offset_before(self, timestamp: int) -> int:
        """A relative offset below or at which everything is earlier than `timestamp`, but for its own batch."""
        found = bisect_right(self.timestamps, timestamp)
        return self.offsets[found - 1] if found else 0
