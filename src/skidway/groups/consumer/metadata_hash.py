"""The hash of what a group's members subscribe to, as Kafka 4.1 and later write it into the group's record (KIP-1101).

It differs when a topic comes, goes, is made again or grows, and is the same on every node and after every restart: so
a group that is loaded knows whether its topics are what they were. Racks would be part of it; no broker has one yet.
"""

from collections.abc import Mapping
from functools import lru_cache
from struct import pack

from skidway.groups.consumer.xxh3 import xxh3_64

_FORMAT = b"\x00"
"""Of what is hashed for a topic. Another one would rebalance every group."""
NO_TOPICS = 0


def metadata_hash(topics: Mapping[str, tuple[bytes, int]]) -> int:
    """Of topics that exist, by name: id and number of partitions. Signed, as the record has it."""
    if not topics:
        return NO_TOPICS
    hashes = [_topic_hash(name, *topics[name]) for name in sorted(topics)]
    return _signed(xxh3_64(pack(f"<{len(hashes)}Q", *hashes)))


@lru_cache(maxsize=20_000)
def _topic_hash(name: str, topic_id: bytes, partitions: int) -> int:
    """Numbers are little-endian; a text is in UTF-16 and followed by its length."""
    text = name.encode("utf-16-le")
    parts = (
        _FORMAT,
        topic_id[7::-1],
        topic_id[:7:-1],
        text,
        pack("<2i", len(text) // 2, partitions),
        pack(f"<{partitions}i", *range(partitions)),
    )
    return xxh3_64(b"".join(parts))


def _signed(value: int) -> int:
    return value - 2**64 if value >= 2**63 else value
