"""The quick walk over a batch agrees with the careful reader, and with hostile bytes it refuses what that refuses."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skidway.errors import InvalidRecord, ProtocolError
from skidway.records.batch import HEADER_BYTES, read_header
from skidway.records.record import Record, build_batch, read_records
from skidway.records.walk import retime, walk

RECORDS = st.lists(
    st.builds(
        Record,
        st.just(0),
        st.integers(0, 2**41),
        st.none() | st.binary(max_size=200),
        st.none() | st.binary(max_size=300),
        st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3).map(tuple),
    ),
    min_size=1,
    max_size=150,
)


@settings(deadline=None, max_examples=100)
@given(records=RECORDS)
def test_it_sees_what_the_reader_sees(records: list[Record]) -> None:
    batch = bytes(build_batch(records))
    header = read_header(batch)
    spots = walk(batch, HEADER_BYTES, len(batch), header.record_count, header.last_offset_delta)
    read = list(read_records(batch, decompressed_bytes_max=1 << 20))
    assert [(header.base_timestamp + s[3], s[4], s[5], s[6]) for s in spots] == [
        (r.timestamp, r.offset, r.key, r.value is not None) for r in read
    ]
    assert b"".join(batch[s[0] : s[1]] for s in spots) == batch[HEADER_BYTES:]


@settings(deadline=None, max_examples=50)
@given(records=RECORDS, shift=st.integers(-(2**41), 2**41))
def test_other_timestamps_leave_everything_else(records: list[Record], shift: int) -> None:
    batch = bytes(build_batch(records))
    spots = walk(batch, HEADER_BYTES, len(batch), len(records), len(records) - 1)
    payload = retime(batch, spots, shift)
    again = walk(payload, 0, len(payload), len(records), len(records) - 1)
    assert [(s[3] - shift, *s[4:]) for s in again] == [tuple(s[3:]) for s in spots]
    assert [payload[s[2] : s[1]] for s in again] == [batch[s[2] : s[1]] for s in spots]


def test_damaged_bytes_end_in_a_refusal_or_in_what_the_reader_says() -> None:
    draw = random.Random(3)
    records = [Record(0, i, b"key%d" % i, None if i % 3 else b"v" * i, (("h", b"x"),)) for i in range(90)]
    batch = bytes(build_batch(records))
    refused = 0
    for _ in range(3000):
        damaged = bytearray(batch)
        for _ in range(draw.randrange(1, 4)):
            damaged[draw.randrange(HEADER_BYTES, len(batch))] = draw.randrange(256)
        data = bytes(damaged)
        try:
            spots = walk(data, HEADER_BYTES, len(data), 90, 89)
        except InvalidRecord:
            refused += 1
            continue
        try:
            read = list(read_records(data, decompressed_bytes_max=1 << 20))
        except ProtocolError:
            continue  # it also looks at values and headers
        assert [(s[4], s[5], s[6]) for s in spots] == [(r.offset, r.key, r.value is not None) for r in read]
    assert refused > 500


@pytest.mark.parametrize("last_delta", [0, 1])
def test_an_offset_beyond_its_batch_is_refused(last_delta: int) -> None:
    """It would pass for newer than what really is."""
    batch = bytes(build_batch([Record(0, 0, b"k", b"v")] * 3))
    with pytest.raises(InvalidRecord):
        walk(batch, HEADER_BYTES, len(batch), 3, last_delta)
