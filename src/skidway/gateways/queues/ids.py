"""Message ids and receipts: both say where a message is, and neither is kept anywhere.

A message id has the shape of a UUID: 32 bits that stand for the topic, 18 for the partition, 44 for the offset, and a
check of 28 bits. A receipt names the topic by its id, and also says which delivery it is of and when that was; its
check has 96 bits. The checks are keyed with the cluster's id: they tell a mistake, an id of another queue or cluster,
and a guess from what this cluster gave out. They are no secret from who administers the cluster, and need not be:
a client that may receive from a queue may also settle what is in it.
"""

from __future__ import annotations

import struct
from binascii import a2b_base64, b2a_base64
from collections.abc import Iterable
from functools import lru_cache
from hashlib import blake2s
from hmac import compare_digest
from typing import NamedTuple

PARTITION_BITS, OFFSET_BITS, CHECK_BITS = 18, 44, 28
PARTITIONS_MAX = 1 << PARTITION_BITS
UUID_LENGTH = 36
RECEIPT_FORM = 1
RECEIPT_LENGTH_MAX = 200
_PLACE = struct.Struct(">IQ")
_RECEIPT = struct.Struct(">B16sIQHQ")
_CHECK_BYTES = 12
_DASHES = (8, 13, 18, 23)
_LOW_OFFSET = (1 << 34) - 1
_URL_SAFE = bytes.maketrans(b"+/", b"-_")
_FROM_URL_SAFE = bytes.maketrans(b"-_", b"+/")
assert (_RECEIPT.size + _CHECK_BYTES) % 3 == 0


class MessagePlace(NamedTuple):
    topic_id: bytes
    partition: int
    offset: int


class Receipt(NamedTuple):
    topic_id: bytes
    partition: int
    offset: int
    delivery_count: int
    received_ms: int


class Ids:
    """Of one cluster."""

    __slots__ = ("_checks", "_seals")

    def __init__(self, cluster_id: str) -> None:
        key = blake2s(cluster_id.encode(), person=b"queueids").digest()
        # With the key in them already: each use is a copy.
        self._checks = blake2s(key=key, digest_size=4)
        self._seals = blake2s(key=key, digest_size=_CHECK_BYTES)

    # --- message ids ---

    def message_id(self, topic_id: bytes, partition: int, offset: int) -> str:
        assert partition < PARTITIONS_MAX
        assert offset < 1 << OFFSET_BITS
        # 48 bits, the version, 12 bits, the variant, 62 bits. The first 48 are the mark and most of the partition.
        check = self._check(topic_id, partition, offset)
        middle = 4 << 12 | (partition & 3) << 10 | offset >> 34
        low = f"{2 << 62 | (offset & _LOW_OFFSET) << CHECK_BITS | check:016x}"
        return f"{topic_mark(topic_id):08x}-{partition >> 2:04x}-{middle:04x}-{low[:4]}-{low[4:]}"

    def mark_of(self, message_id: str) -> int | None:
        """What stands for the topic in it; None: it is no message id."""
        bits = _bits(message_id)
        return None if bits is None else bits >> OFFSET_BITS + CHECK_BITS + PARTITION_BITS

    def place_of(self, message_id: str, topic_ids: Iterable[bytes]) -> MessagePlace | None:
        """The message, if it is of one of these topics."""
        bits = _bits(message_id)
        if bits is None:
            return None
        check, offset = bits & (1 << CHECK_BITS) - 1, bits >> CHECK_BITS & (1 << OFFSET_BITS) - 1
        partition = bits >> OFFSET_BITS + CHECK_BITS & PARTITIONS_MAX - 1
        mark = bits >> OFFSET_BITS + CHECK_BITS + PARTITION_BITS
        for topic_id in topic_ids:
            if topic_mark(topic_id) == mark and self._check(topic_id, partition, offset) == check:
                return MessagePlace(topic_id, partition, offset)
        return None

    def _check(self, topic_id: bytes, partition: int, offset: int) -> int:
        check = self._checks.copy()
        check.update(topic_id + _PLACE.pack(partition, offset))
        return int.from_bytes(check.digest(), "big") >> 32 - CHECK_BITS

    # --- receipts ---

    def receipt(self, topic_id: bytes, partition: int, offset: int, delivery_count: int, received_ms: int) -> str:
        data = _RECEIPT.pack(RECEIPT_FORM, topic_id, partition, offset, delivery_count, received_ms)
        # A multiple of three bytes: it has no padding.
        return b2a_base64(data + self._seal(data), newline=False).translate(_URL_SAFE).decode("ascii")

    def read_receipt(self, text: str) -> Receipt | None:
        """None: it was not made here."""
        if len(text) > RECEIPT_LENGTH_MAX:
            return None
        try:
            whole = a2b_base64(text.encode("ascii").translate(_FROM_URL_SAFE) + b"=" * (-len(text) % 4))
        except (ValueError, UnicodeError):
            return None
        data, seal = whole[: _RECEIPT.size], whole[_RECEIPT.size :]
        if len(data) < _RECEIPT.size or not compare_digest(seal, self._seal(data)):
            return None
        form, *fields = _RECEIPT.unpack(data)
        return Receipt._make(fields) if form == RECEIPT_FORM else None

    def _seal(self, data: bytes) -> bytes:
        seal = self._seals.copy()
        seal.update(data)
        return seal.digest()


@lru_cache(maxsize=1_000)
def topic_mark(topic_id: bytes) -> int:
    return int.from_bytes(blake2s(topic_id, digest_size=4).digest(), "big")


def _bits(message_id: str) -> int | None:
    """All but the version and the variant."""
    if len(message_id) != UUID_LENGTH or any(message_id[at] != "-" for at in _DASHES):
        return None
    digits = message_id.replace("-", "")
    try:
        if len(digits) != 32 or not digits.isascii() or not digits.isalnum():
            return None
        number = int(digits, 16)
    except ValueError:
        return None
    if number >> 76 & 0xF != 4 or number >> 62 & 0x3 != 2:
        return None
    return number >> 80 << 74 | (number >> 64 & 0xFFF) << 62 | number & (1 << 62) - 1
