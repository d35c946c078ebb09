"""Records in and out of batches, and what hostile bytes lead to."""

import random
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skidway.errors import CorruptMessage, InvalidRecord
from skidway.records.batch import HEADER, HEADER_BYTES, is_packed, read_header
from skidway.records.compression import Codec
from skidway.records.record import (
    RECORD_HEADERS_MAX,
    Bookmark,
    Record,
    assemble,
    build_batch,
    open_batch,
    pick_records,
    read_keys,
    read_outlines,
    read_records,
)

SPACE = 1 << 20

field = st.none() | st.binary(max_size=200)
records = st.lists(
    st.builds(
        Record,
        offset=st.just(0),
        timestamp=st.integers(-1, 2**62),
        key=field,
        value=field,
        headers=st.lists(st.tuples(st.text(max_size=10), field), max_size=4).map(tuple),
    ),
    min_size=1,
    max_size=30,
)


def numbered(wanted: list[Record], base_offset: int = 0) -> list[Record]:
    return [record._replace(offset=base_offset + delta) for delta, record in enumerate(wanted)]


def raw_batch(payload: bytes, count: int) -> bytearray:
    """A batch around bytes that no builder would write."""
    header = read_header(build_batch([Record(0, 0, None, None)]))
    return assemble(header._replace(batch_length=49 + len(payload), record_count=count), payload)


@settings(max_examples=150, deadline=None)
@given(records, st.sampled_from(list(Codec)), st.integers(0, 2**62))
def test_what_goes_in_comes_out(wanted: list[Record], codec: Codec, base_offset: int) -> None:
    batch = build_batch(wanted, codec=codec, base_offset=base_offset)
    assert list(read_records(batch, decompressed_bytes_max=SPACE)) == numbered(wanted, base_offset)
    assert [tuple(outline) for outline in read_outlines(batch, decompressed_bytes_max=SPACE)] == [
        (record.offset, record.timestamp, record.key is not None) for record in numbered(wanted, base_offset)
    ]
    assert is_packed(batch) == (codec != Codec.NONE)
    if codec == Codec.NONE:
        assert list(read_keys(batch)) == [(each.offset, each.key) for each in numbered(wanted, base_offset)]


@settings(max_examples=100, deadline=None)
@given(records, st.sets(st.integers(95, 135), min_size=1))
def test_some_are_picked(given: list[Record], offsets: set[int]) -> None:
    opened = open_batch(build_batch(given, base_offset=100), decompressed_bytes_max=SPACE)
    assert list(pick_records(*opened, offsets)) == [each for each in numbered(given, 100) if each.offset in offsets]


@settings(max_examples=100, deadline=None)
@given(records, st.lists(st.sets(st.integers(95, 135), min_size=1), min_size=2, max_size=6))
def test_who_reads_on_begins_at_the_bookmark(given: list[Record], several: list[set[int]]) -> None:
    opened = open_batch(build_batch(given, base_offset=100), decompressed_bytes_max=SPACE)
    bookmark = Bookmark()
    for offsets in several:
        expected = [each for each in numbered(given, 100) if each.offset in offsets]
        assert list(pick_records(*opened, offsets, bookmark)) == expected, "whatever was read before"


def test_nothing_is_read_before_the_bookmark() -> None:
    header, payload = open_batch(build_batch([Record(0, 0, None, b"v")] * 4), decompressed_bytes_max=SPACE)
    bookmark = Bookmark()
    assert [each.offset for each in pick_records(header, payload, {1}, bookmark)] == [1]
    torn = b"\xff" * bookmark.position + payload[bookmark.position :]
    assert [each.offset for each in pick_records(header, torn, {2}, bookmark)] == [2]
    with pytest.raises(InvalidRecord):
        list(pick_records(header, torn, {1}, bookmark))


def test_nothing_is_read_behind_the_last_that_is_picked() -> None:
    """Else each of a million records that are taken one by one would cost a million."""
    header, payload = open_batch(build_batch([Record(0, 0, None, b"v")] * 3), decompressed_bytes_max=SPACE)
    torn = payload[: len(payload) * 2 // 3]
    assert [each.offset for each in pick_records(header, torn, {1})] == [1]
    with pytest.raises(InvalidRecord):
        list(pick_records(header, torn, {2}))


def test_header_names_that_are_not_text_survive() -> None:
    name = b"\xff\xfe".decode("utf-8", "surrogateescape")
    batch = build_batch([Record(0, 0, None, None, [(name, b"x")])])
    assert b"\xff\xfe" in batch
    (record,) = read_records(batch, decompressed_bytes_max=SPACE)
    assert record.headers == ((name, b"x"),)


def test_bytes_after_the_batch_belong_to_the_next() -> None:
    first, second = build_batch([Record(0, 5, b"k", b"v")]), build_batch([Record(0, 6, None, None)])
    assert len(list(read_records(first + second, decompressed_bytes_max=SPACE))) == 1


EMPTY = b"\x0c\x00\x00\x00\x01\x01\x00"  # length 6: attributes, deltas 0, null key, null value, no headers


@pytest.mark.parametrize(
    ("payload", "count", "why"),
    [
        (EMPTY, -1, "negative count"),
        (EMPTY, 2, "more records than bytes"),
        (EMPTY, 2**31 - 1, "absurd count"),
        (EMPTY + EMPTY, 1, "bytes after the last record"),
        (b"\x0a" + EMPTY[1:], 1, "length too small"),
        (b"\x0e" + EMPTY[1:], 1, "length beyond the end"),
        (b"\x01" + EMPTY[1:], 1, "negative length"),
        (b"\x0c\x00\x00\x00\x03\x01\x00", 1, "key length -2"),
        (b"\x0c\x00\x00\x00\x14\x01\x00", 1, "key beyond the record"),
        (b"\x0e\x00\x80\x80\x80\x80\x80\x80", 1, "number that does not end"),
        (b"\x16\x00\x00\x80\x80\x80\x80\x80\x01\x01\x01\x00", 1, "offset delta of six bytes"),
        (b"\x0c\x00\x00\x02\x01\x01\x00", 1, "offset after the last of the batch"),
        (b"\x0c\x00\x00\x01\x01\x01\x00", 1, "offset before the batch"),
        (b"\x14\x00\x00\xff\xff\xff\xff\x7f\x01\x01\x00", 1, "offset delta beyond 32 bits"),
    ],
)
def test_malformed_records_are_invalid(payload: bytes, count: int, why: str) -> None:
    batch = raw_batch(payload, count)
    with pytest.raises(InvalidRecord):
        list(read_records(batch, decompressed_bytes_max=SPACE))
    with pytest.raises(InvalidRecord):
        list(read_outlines(batch, decompressed_bytes_max=SPACE))


@pytest.mark.parametrize(
    "payload",
    [
        b"\x0c\x00\x00\x00\x01\x03\x00",  # value length -2
        b"\x0c\x00\x00\x00\x01\x14\x00",  # value beyond the record
        b"\x0c\x00\x00\x00\x01\x01\x01",  # header count -1
        b"\x0c\x00\x00\x00\x01\x01\x02",  # one header and no bytes for it
        b"\x10\x00\x00\x00\x01\x01\x02\x01\x01",  # a header without a name
        b"\x0e\x00\x00\x00\x01\x01\x00\x00",  # bytes after the headers
    ],
)
def test_malformed_values_and_headers_are_invalid(payload: bytes) -> None:
    with pytest.raises(InvalidRecord):
        list(read_records(raw_batch(payload, 1), decompressed_bytes_max=SPACE))


def test_a_record_of_countless_headers_is_not_read_into_memory() -> None:
    allowed = build_batch([Record(0, 0, None, None, [("", None)] * RECORD_HEADERS_MAX)])
    assert len(next(read_records(allowed, decompressed_bytes_max=SPACE)).headers) == RECORD_HEADERS_MAX
    refused = build_batch([Record(0, 0, None, None, [("", None)] * (RECORD_HEADERS_MAX + 1))])
    with pytest.raises(InvalidRecord):
        list(read_records(refused, decompressed_bytes_max=SPACE))


@pytest.mark.parametrize("sign", [1, -1])
def test_timestamps_wrap_around_at_64_bits(sign: int) -> None:
    """As in other clients: whoever reads the batch sees the same time."""
    batch = build_batch([Record(0, 0, None, None), Record(0, sign * 2**62, None, None)])
    HEADER.pack_into(batch, 0, *read_header(batch)._replace(base_timestamp=sign * (2**62 - 1)))
    assert list(read_outlines(batch, decompressed_bytes_max=SPACE))[-1].timestamp == sign * (2**63 - 1)
    HEADER.pack_into(batch, 0, *read_header(batch)._replace(base_timestamp=sign * 2**62))
    readers: list[Any] = [read_records, read_outlines]
    for read in readers:
        assert list(read(batch, decompressed_bytes_max=SPACE))[-1].timestamp == -(2**63)


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_codecs_that_do_not_exist_are_corrupt(codec: int) -> None:
    batch = build_batch([Record(0, 0, None, b"v")])
    batch[22] |= codec
    with pytest.raises(CorruptMessage):
        list(read_records(batch, decompressed_bytes_max=SPACE))


def mutate(batch: bytearray, rng: random.Random) -> bytearray:
    broken = bytearray(batch)
    for _ in range(rng.randint(1, 6)):
        position = rng.randrange(len(broken))
        match rng.randrange(4):
            case 0:
                broken[position] = rng.randrange(256)
            case 1:
                broken[position] ^= 1 << rng.randrange(8)
            case 2:
                broken[position:position] = rng.randbytes(rng.randint(1, 8))
            case 3:
                del broken[position : position + rng.randint(1, 8)]
        if len(broken) < 2:
            break
    if len(broken) > HEADER_BYTES and rng.random() < 0.7:
        # Let most of them through the length check, to reach what is behind it.
        broken[8:12] = (len(broken) - 12).to_bytes(4, "big")
        broken[16] = 2
    return broken


@pytest.mark.parametrize("codec", list(Codec))
def test_nothing_but_the_two_errors_comes_out_of_broken_batches(codec: Codec) -> None:
    def keys(batch: bytearray, *, decompressed_bytes_max: int) -> Iterator[tuple[int, bytes | None]]:
        return read_keys(batch)

    rng = random.Random(codec)
    outcomes = {"read": 0, "refused": 0}
    for seed in range(2_500):
        wanted = [
            Record(0, 1_000 + i, b"key %d" % i, rng.randbytes(i) + bytes(i), [("name", b"x" * i), ("", None)])
            for i in range(seed % 12 + 1)
        ]
        broken = mutate(build_batch(wanted, codec=codec), rng)
        for read in (read_records, read_outlines, keys):
            try:
                list(read(broken, decompressed_bytes_max=SPACE))
                outcomes["read"] += 1
            except (CorruptMessage, InvalidRecord):
                outcomes["refused"] += 1
    assert min(outcomes.values()) > 100, outcomes
