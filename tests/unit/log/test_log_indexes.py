"""Index files are Kafka's, byte for byte, and look-ups in them agree with common sense."""

from skidway.log.index import OffsetIndex, TimeIndex


def test_an_offset_index_is_pairs_of_big_endian_int32() -> None:
    index = OffsetIndex()
    index.append(9, 4200)
    index.append(0x01020304, 0x7FFFFFFF)
    data = index.to_bytes()
    assert data == bytes.fromhex("00000009 00001068 01020304 7fffffff")
    assert list(OffsetIndex.from_bytes(data).positions) == [4200, 0x7FFFFFFF]
    assert list(OffsetIndex.from_bytes(data).offsets) == [9, 0x01020304]


def test_a_time_index_is_an_int64_and_an_int32() -> None:
    index = TimeIndex()
    index.append(0x0000018BCFE56800, 5)
    index.append(0x0102030405060708, 0x0A0B0C0D)
    data = index.to_bytes()
    assert data == bytes.fromhex("0000018bcfe56800 00000005 0102030405060708 0a0b0c0d")
    loaded = TimeIndex.from_bytes(data)
    assert list(loaded.timestamps) == [0x0000018BCFE56800, 0x0102030405060708]
    assert list(loaded.offsets) == [5, 0x0A0B0C0D]


def test_only_later_timestamps_get_an_entry() -> None:
    index = TimeIndex()
    for timestamp, offset in [(10, 1), (10, 2), (9, 3), (11, 4), (-1, 5)]:
        index.append(timestamp, offset)
    assert (list(index.timestamps), list(index.offsets)) == ([10, 11], [1, 4])


def test_a_half_written_entry_is_ignored() -> None:
    index = OffsetIndex()
    index.append(1, 10)
    index.append(2, 20)
    assert len(OffsetIndex.from_bytes(index.to_bytes()[:-1])) == 1
    assert len(TimeIndex.from_bytes(b"\0" * 23)) == 1


def test_zeros_and_disorder_are_found_out() -> None:
    good = OffsetIndex.from_bytes(bytes.fromhex("00000001 0000000a 00000002 00000014"))
    assert good.sane(21)
    assert not good.sane(20)
    assert not OffsetIndex.from_bytes(bytes.fromhex("00000001 0000000a 00000000 00000000")).sane(100)
    assert not OffsetIndex.from_bytes(bytes.fromhex("ffffffff 0000000a")).sane(100)
    assert not TimeIndex.from_bytes(bytes.fromhex("000000000000000a 00000001 0000000000000000 00000000")).sane()
    assert OffsetIndex().sane(0)
    assert TimeIndex().sane()


def test_look_ups() -> None:
    index = OffsetIndex()
    for offset, position in [(4, 100), (9, 200), (12, 300)]:
        index.append(offset, position)
    assert [index.entries_below(offset) for offset in (0, 4, 5, 9, 10, 99)] == [0, 0, 1, 1, 2, 3]
    assert [index.last_position_upto(position) for position in (99, 100, 250, 300, 999)] == [0, 100, 200, 300, 300]
    times = TimeIndex()
    times.append(1000, 4)
    times.append(2000, 9)
    assert [times.offset_before(timestamp) for timestamp in (999, 1000, 1999, 2000, 5000)] == [0, 4, 4, 9, 9]
