"""The newest offset of each key: the memory of a compaction, bounded in bytes.

Two shapes with the same interface. `SmallMap` is a dict: quick, up to 190 bytes a key. `LargeMap` is an open-addressed
table of 24-byte slots over three arrays, for millions of keys. Long keys are known by a BLAKE2 digest alone, of 128 bits
in the large one: two keys that share one by chance are not to be met.
"""

from array import array
from hashlib import blake2b
from struct import Struct

DIGEST_BYTES = 16
SMALL_DIGEST_BYTES = 48
"""Longer than most keys, so that most need no digest."""
SLOT_BYTES = 24
SMALL_KEYS_MAX = 500_000
LOAD_MAX = 0.75
"""The share of a table's slots that is filled at most: above that probes get long."""

_halves = Struct("<QQ").unpack


class SmallMap:
    """Keys shorter than a digest stand for themselves, so no two of them are ever confused."""

    __slots__ = ("_offsets",)

    def __init__(self) -> None:
        self._offsets: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._offsets)

    def put(self, key: bytes, offset: int) -> None:
        if len(key) >= SMALL_DIGEST_BYTES:
            key = blake2b(key, digest_size=SMALL_DIGEST_BYTES).digest()
        self._offsets[key] = offset

    def get(self, key: bytes) -> int:
        """-1 for a key that was never put."""
        if len(key) >= SMALL_DIGEST_BYTES:
            key = blake2b(key, digest_size=SMALL_DIGEST_BYTES).digest()
        return self._offsets.get(key, -1)


class LargeMap:
    __slots__ = ("_count", "_first", "_offsets", "_second", "_slots")

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._count = 0
        # An empty slot has 0 in its first half; a digest that begins so is told apart by its second half and a 1.
        self._first = array("Q", (0,)) * slots
        self._second = array("Q", (0,)) * slots
        self._offsets = array("q", (0,)) * slots

    def __len__(self) -> int:
        return self._count

    def put(self, key: bytes, offset: int) -> None:
        first, second = _halves(blake2b(key, digest_size=DIGEST_BYTES).digest())
        first = first or 1
        firsts, seconds = self._first, self._second
        slot = first % self._slots
        while known := firsts[slot]:
            if known == first and seconds[slot] == second:
                self._offsets[slot] = offset
                return
            slot += 1
            if slot == self._slots:
                slot = 0
        assert self._count < self._slots - 1, "the map is full"
        firsts[slot] = first
        seconds[slot] = second
        self._offsets[slot] = offset
        self._count += 1

    def get(self, key: bytes) -> int:
        """-1 for a key that was never put."""
        first, second = _halves(blake2b(key, digest_size=DIGEST_BYTES).digest())
        first = first or 1
        firsts, seconds = self._first, self._second
        slot = first % self._slots
        while known := firsts[slot]:
            if known == first and seconds[slot] == second:
                return self._offsets[slot]
            slot += 1
            if slot == self._slots:
                slot = 0
        return -1


OffsetMap = SmallMap | LargeMap


def keys_within(bytes_max: int) -> int:
    """How many keys a map may get."""
    return max(1, int(bytes_max // SLOT_BYTES * LOAD_MAX))


def make_map(keys_max: int) -> OffsetMap:
    """A map with room for `keys_max` keys."""
    if keys_max <= SMALL_KEYS_MAX:
        return SmallMap()
    return LargeMap(int(keys_max / LOAD_MAX) + 2)
