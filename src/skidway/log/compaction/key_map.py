"""The newest record of each key: the memory of a compaction, bounded in bytes.

Records are numbered as they are read. Two shapes with the same interface. `SmallMap` is a dict: quick, up to 190 bytes
a key. `LargeMap` is an open-addressed table of 20-byte slots over three arrays, for millions of keys. Long keys are
known by a BLAKE2 digest alone, of 128 bits in the large one: two keys that share one by chance are not to be met.
"""

from array import array
from hashlib import blake2b
from struct import Struct

DIGEST_BYTES = 16
SMALL_DIGEST_BYTES = 48
"""Longer than most keys, so that most need no digest."""
SLOT_BYTES = 20
SMALL_KEYS_MAX = 500_000
LOAD_MAX = 0.75
"""The share of a table's slots that is filled at most: above that probes get long."""

_halves = Struct("<QQ").unpack


class SmallMap:
    """Keys shorter than a digest stand for themselves, so no two of them are ever confused."""

    __slots__ = ("_numbers",)

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    def put(self, key: bytes, number: int) -> int:
        """Returns the number the key had before, or -1."""
        if len(key) >= SMALL_DIGEST_BYTES:
            key = blake2b(key, digest_size=SMALL_DIGEST_BYTES).digest()
        before = self._numbers.get(key, -1)
        self._numbers[key] = number
        return before

    def __contains__(self, key: bytes) -> bool:
        if len(key) >= SMALL_DIGEST_BYTES:
            key = blake2b(key, digest_size=SMALL_DIGEST_BYTES).digest()
        return key in self._numbers


class LargeMap:
    __slots__ = ("_count", "_first", "_numbers", "_second", "_slots")

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._count = 0
        # An empty slot has 0 in its first half; a digest that begins so is told apart by its second half and a 1.
        self._first = array("Q", (0,)) * slots
        self._second = array("Q", (0,)) * slots
        self._numbers = array("I", (0,)) * slots

    def __len__(self) -> int:
        return self._count

    def put(self, key: bytes, number: int) -> int:
        """Returns the number the key had before, or -1."""
        first, second = _halves(blake2b(key, digest_size=DIGEST_BYTES).digest())
        first = first or 1
        firsts, seconds = self._first, self._second
        slot = first % self._slots
        while known := firsts[slot]:
            if known == first and seconds[slot] == second:
                before = self._numbers[slot]
                self._numbers[slot] = number
                return before
            slot += 1
            if slot == self._slots:
                slot = 0
        assert self._count < self._slots - 1, "the map is full"
        firsts[slot] = first
        seconds[slot] = second
        self._numbers[slot] = number
        self._count += 1
        return -1

    def __contains__(self, key: bytes) -> bool:
        first, second = _halves(blake2b(key, digest_size=DIGEST_BYTES).digest())
        first = first or 1
        firsts, seconds = self._first, self._second
        slot = first % self._slots
        while known := firsts[slot]:
            if known == first and seconds[slot] == second:
                return True
            slot += 1
            if slot == self._slots:
                slot = 0
        return False


KeyMap = SmallMap | LargeMap


def keys_within(bytes_max: int) -> int:
    """How many keys a map may get."""
    return max(1, int(bytes_max // SLOT_BYTES * LOAD_MAX))


def make_map(keys_max: int) -> KeyMap:
    """A map with room for `keys_max` keys."""
    if keys_max <= SMALL_KEYS_MAX:
        return SmallMap()
    return LargeMap(int(keys_max / LOAD_MAX) + 2)
