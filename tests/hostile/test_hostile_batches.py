"""Record batches that lie: refused with a code, or stored without harm to whoever reads the log."""

import struct
import time

import pytest
from attack import LIST_OFFSETS, MIB, PRODUCE, Peer, batch_of, create_topic, good_client, part_of, produce_frame
from crc32c import crc32c

from skidway.records.compression import Codec, compress
from skidway.testing import Broker

pytestmark = pytest.mark.xdist_group("hostile-batches")
RESIDENT_MIB_MAX = 500
HEADER = struct.Struct(">qiibIhiqqqhii")
FIELDS = (
    "base_offset length epoch magic crc attributes last_delta first_ts max_ts producer_id producer_epoch sequence count"
)
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
NOT_ACCEPTED = {2, 10, 32, 35, 42, 43, 48, 53, 56, 76, 87}
"""Corrupt, too large, invalid timestamp, and their kin: never 0 and never -1 (a bug)."""


def altered(payload: bytes | None = None, **changes: int) -> bytes:
    """A good batch with other fields or payload, its checksum right unless it is given."""
    batch = batch_of(b"value")
    fields = dict(zip(FIELDS.split(), HEADER.unpack_from(batch), strict=True))
    body = batch[HEADER.size :] if payload is None else payload
    fields["length"] = HEADER.size - 12 + len(body)
    fields.update(changes)
    if "crc" not in changes:
        fields["crc"] = crc32c(HEADER.pack(*fields.values())[21:] + body)
    return HEADER.pack(*fields.values()) + body


def produce(peer: Peer, topic: str, batch: bytes, version: int = 8) -> int:
    answer = peer.ask(PRODUCE, version, produce_frame(topic, batch, version=version, acks=-1))
    return int(answer.responses[0].partition_responses[0].error_code)


LIES: dict[str, bytes] = {
    "wrong checksum": altered(crc=12345),
    "magic 0": altered(magic=0),
    "magic 1": altered(magic=1),
    "magic 3": altered(magic=3),
    "magic -1": altered(magic=-1),
    "negative length": altered(length=-1),
    "smallest length": altered(length=-(2**31)),
    "length 0": altered(length=0),
    "length of a header and no more": altered(length=HEADER.size - 13),
    "length beyond the end": altered(length=10_000),
    "largest length": altered(length=2**31 - 1),
    "two batches": altered() + altered(),
    "last offset beyond the count": altered(last_delta=7),
    "last offset negative": altered(last_delta=-1),
    "last offset largest": altered(last_delta=2**31 - 1, count=2**31 - 1),
    "count 0": altered(count=0, last_delta=-1),
    "count negative": altered(count=-5),
    "count beyond the bytes": altered(count=1000, last_delta=999),
    "base offset not 0": altered(base_offset=5),
    "codec 5": altered(attributes=5),
    "codec 7": altered(attributes=7),
    "a control batch": altered(attributes=0x20),
    "a delete horizon": altered(attributes=0x40),
    "transactional without a producer": altered(attributes=0x10),
    "transactional": altered(attributes=0x10, producer_id=9, producer_epoch=0, sequence=0),
    "producer without epoch": altered(producer_id=9),
    "producer with a negative sequence": altered(producer_id=9, producer_epoch=0, sequence=-4),
    "a timestamp at the end of time": altered(max_ts=INT64_MAX, first_ts=INT64_MAX),
    "half a header": altered()[:40],
    "one byte": b"\0",
    "nothing": b"",
    "one record more than a batch may have": altered(attributes=1, count=500_001, last_delta=500_000),
    "larger than max.message.bytes": batch_of(bytes(1_100_000)),
}


def test_batches_that_lie_are_refused(broker: Broker) -> None:
    topic = create_topic(broker, "lies")
    with good_client(broker, "batches that lie", RESIDENT_MIB_MAX), Peer(broker) as peer:
        codes = {name: produce(peer, topic, batch) for name, batch in LIES.items()}
    assert {name: code for name, code in codes.items() if code not in NOT_ACCEPTED} == {}


def test_timestamps_at_the_beginning_of_time(broker: Broker) -> None:
    """Older than any record may be true; it must not confuse lookups by time or retention."""
    topic = create_topic(broker, "old", retention_ms="-1")
    with Peer(broker) as peer:
        for first, last in ((-1, -1), (0, 0), (INT64_MIN, INT64_MIN), (INT64_MIN, 0), (-5, -2)):
            assert produce(peer, topic, altered(first_ts=first, max_ts=last)) in (0, 32), (first, last)
        assert offset_at(peer, topic, 0) in (-1, *range(10))
        assert offset_at(peer, topic, -3) in (-1, *range(10))


def offset_at(peer: Peer, topic: str, timestamp: int) -> int:
    partition = part_of(LIST_OFFSETS, "ListOffsetsPartition")(0, timestamp=timestamp)
    asked = part_of(LIST_OFFSETS, "ListOffsetsTopic")(topic, [partition])
    (found,) = peer.call(LIST_OFFSETS, 7, replica_id=-1, topics=[asked]).topics[0].partitions
    assert found.error_code == 0, found
    return int(found.offset)


def varint(value: int) -> bytes:
    value = (value << 1) ^ (value >> 63)
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def record(delta: int, tail: bytes) -> bytes:
    body = b"\0" + varint(0) + varint(delta) + tail
    return varint(len(body)) + body


MALFORMED: dict[str, bytes] = {
    "garbage": b"\xff" * 50,
    "zeros": bytes(50),
    "a key longer than the record": record(0, varint(10_000)),
    "a key of negative length": record(0, varint(-9) + varint(-1) + varint(0)),
    "two billion headers": record(0, varint(-1) + varint(-1) + varint(2**31 - 1)),
    "minus one headers": record(0, varint(-1) + varint(-1) + varint(-1)),
    "a header without a name": record(0, varint(-1) + varint(-1) + varint(1) + varint(-1) + varint(-1)),
    "an offset beyond the batch": record(99, varint(-1) + varint(-1) + varint(0)),
    "a length that does not end": b"\x80" * 11 + bytes(20),
    "bytes behind the last record": record(0, varint(-1) + varint(-1) + varint(0)) + b"more",
}


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_records_that_are_none(broker: Broker, codec: Codec) -> None:
    """A topic that has to open batches refuses them. One that need not stores them; then nobody trips over them."""
    opened = create_topic(broker, f"opened-{codec}", compression_type="lz4")
    stored = create_topic(broker, f"stored-{codec}")
    now_ms = time.time_ns() // 1_000_000
    with good_client(broker, f"malformed records ({codec.name.lower()})", RESIDENT_MIB_MAX), Peer(broker) as peer:
        for name, payload in MALFORMED.items():
            batch = altered(bytes(compress(codec, payload)), attributes=int(codec), max_ts=now_ms)
            code = produce(peer, opened, batch)
            assert code in NOT_ACCEPTED or "header" in name, (name, code)
            assert produce(peer, stored, batch) == 0, name
            assert offset_at(peer, stored, now_ms) == 0
            assert offset_at(peer, stored, -3) == 0


def bomb(codec: Codec, payload: bytes) -> bytes:
    return altered(bytes(compress(codec, payload)), attributes=int(codec))


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD], ids=lambda codec: codec.name)
def test_bombs_do_not_go_off(broker: Broker, codec: Codec) -> None:
    """A megabyte at most on the wire, hundreds unpacked. Topics that open batches stop early and refuse."""
    other = "gzip" if codec != Codec.GZIP else "zstd"
    recompresses = create_topic(broker, f"recompresses-{codec}", compression_type=other)
    by_broker = create_topic(broker, f"by-broker-{codec}", message_timestamp_type="LogAppendTime")
    # Snappy cannot be packed as tightly: 20 MiB of zeros is what still fits into a message.
    packed = bomb(codec, bytes((20 if codec == Codec.SNAPPY else 150) * MIB))
    assert len(packed) < 1_048_588
    now_ms = time.time_ns() // 1_000_000
    with good_client(broker, f"compression bombs ({codec.name.lower()})", RESIDENT_MIB_MAX), Peer(broker) as peer:
        for _ in range(5):
            assert produce(peer, recompresses, packed) in NOT_ACCEPTED
        assert produce(peer, by_broker, packed) == 0
        # Looking for a time has to open it.
        assert offset_at(peer, by_broker, now_ms - 1000) == 0


def test_as_many_records_as_a_batch_may_have(broker: Broker) -> None:
    """All are well-formed, so they have to be looked at one by one."""
    topic = create_topic(broker, "tiny", compression_type="gzip")
    count = 500_000
    payload = b"".join(record(delta, b"\1\1\0") for delta in range(count))
    packed = bytes(compress(Codec.ZSTD, payload))
    batch = altered(packed, attributes=int(Codec.ZSTD), count=count, last_delta=count - 1)
    with good_client(broker, "500,000 records in one batch", RESIDENT_MIB_MAX), Peer(broker) as peer:
        assert produce(peer, topic, batch) in (0, 10)


def test_compression_inside_compression(broker: Broker) -> None:
    topic = create_topic(broker, "nested", compression_type="zstd")
    inner = bytes(compress(Codec.GZIP, bytes(30 * MIB)))
    for _ in range(4):
        inner = bytes(compress(Codec.GZIP, inner))
    value = record(0, varint(-1) + varint(len(inner)) + inner + varint(0))
    with Peer(broker) as peer:
        assert produce(peer, topic, bomb(Codec.GZIP, value)) == 0  # one layer is taken off, the rest is a value
        assert produce(peer, topic, bomb(Codec.GZIP, bomb(Codec.GZIP, value))) in NOT_ACCEPTED
