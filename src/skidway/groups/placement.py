"""Which partition of `__consumer_offsets` a group lives in: Kafka's own sum, since its tools compute it too."""

from functools import lru_cache

_INT32_MIN = -(2**31)


@lru_cache(maxsize=1_000)
def partition_of(group_id: str, partitions: int) -> int:
    """Java's hash of a string: over its UTF-16 units, in 32 bits that wrap."""
    units = group_id.encode("utf-16-be")
    total = 0
    for position in range(0, len(units), 2):
        total = (31 * total + (units[position] << 8 | units[position + 1])) & 0xFFFFFFFF
    signed = total - 2**32 if total >= 2**31 else total
    return 0 if signed == _INT32_MIN else abs(signed) % partitions
