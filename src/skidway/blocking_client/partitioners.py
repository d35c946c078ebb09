"""Which partition a record goes to: by its key as Java's default partitioner does, or sticky without one.

Records with one key from this client, from Java and from librdkafka's `murmur2_random` meet in one partition.
"""

import random
import struct
from collections.abc import Collection

_MASK = 0xFFFFFFFF
_MULTIPLIER = 0x5BD1E995
_SEED = 0x9747B28C


def murmur2(data: bytes) -> int:
    """Austin Appleby's MurmurHash2 with Kafka's seed, as an unsigned 32-bit number."""
    length = len(data)
    whole = length & ~3
    h = _SEED ^ length
    for (k,) in struct.iter_unpack("<I", data[:whole]):
        k = k * _MULTIPLIER & _MASK
        k = (k ^ k >> 24) * _MULTIPLIER & _MASK
        h = h * _MULTIPLIER & _MASK ^ k
    if whole != length:
        h = (h ^ int.from_bytes(data[whole:], "little")) * _MULTIPLIER & _MASK
    h = (h ^ h >> 13) * _MULTIPLIER & _MASK
    return h ^ h >> 15


def partition_of_key(key: bytes, partition_count: int) -> int:
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


class Sticky:
    """Fills one partition's batch after the other: few large batches instead of many small ones."""

    __slots__ = ("_current", "_random")

    def __init__(self, seed: int | None = None) -> None:
        self._random = random.Random(seed)
        self._current = -1

    def choose(self, partitions: Collection[int]) -> int:
        if self._current not in partitions:
            self._current = self._random.choice(list(partitions))
        return self._current

    def batch_full(self, partitions: Collection[int]) -> None:
        """The next batch goes elsewhere, if there is an elsewhere."""
        others = [partition for partition in partitions if partition != self._current]
        self._current = self._random.choice(others) if others else self._current
