"""Nothing in a batch is trusted: whatever is wrong ends in CorruptData that says where, and both readers agree."""

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from decoded import SPACE, batch_of, decode, outcome
from hostile_batches import hostile

from skidway.errors import ProtocolError
from skidway.records.batch import HEADER_BYTES, iter_headers, read_header
from skidway.records.compression import Codec, compress
from skidway.records.record import Record, assemble, build_batch, read_records
from skidway.spark.codec.decoding import CorruptData, Decoder, Kernel

SEEDS = 4_000
CHECKED_SEEDS = 1_500
HERE = Path(__file__).parent
kernels = pytest.mark.parametrize("kernel", ["numba", "python"])


def readable(data: bytes) -> bool:
    """Whether the broker's own reader takes every batch."""
    try:
        for position, header in iter_headers(data):
            if header.is_control:
                continue
            for _ in read_records(data[position : position + header.size], decompressed_bytes_max=SPACE):
                pass
    except ProtocolError:
        return False
    return True


def test_both_readers_agree_on_every_lie() -> None:
    corrupt = 0
    for seed in range(SEEDS):
        data = hostile(seed)
        compiled, plain = outcome(data, "numba"), outcome(data, "python")
        assert compiled == plain, f"seed {seed}"
        if isinstance(plain[1], str):
            corrupt += 1
        elif plain[0]:
            assert readable(data), f"seed {seed}"
    # Most mutants must get as far as the records, and many must still be good.
    assert SEEDS // 4 < corrupt < SEEDS


def test_no_access_out_of_bounds(tmp_path: Path) -> None:
    environment = {**os.environ, "NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, str(HERE / "hostile_batches.py"), str(CHECKED_SEEDS)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr[-2_000:]
    assert done.stdout.endswith(f"of {CHECKED_SEEDS} were corrupt\n")


def batch_around(payload: bytes, count: int, **changes: int) -> bytes:
    """A batch with a fitting checksum around bytes that no builder would write."""
    header = read_header(build_batch([Record(0, 0, None, None)], base_offset=40))
    changed = header._replace(batch_length=49 + len(payload), record_count=count, **changes)
    return bytes(assemble(changed, payload))


NUMBER_WITHOUT_END = b"\xff" * 12
RECORD = b"\x0c\0\0\0\x01\x01\0"

LIES = {
    "a length past the end": b"\x7e\0\0\0\x01\x01\0",
    "a negative length": b"\x01\0\0\0\x01\x01\0",
    "a length without end": NUMBER_WITHOUT_END,
    "the largest length": b"\xfe\xff\xff\xff\x0f\0\0\0\x01\x01\0",
    "a timestamp without end": b"\x1c\0" + NUMBER_WITHOUT_END + b"\0",
    "an offset without end": b"\x1e\0\0" + NUMBER_WITHOUT_END + b"\0",
    "an offset past the last": b"\x0c\0\0\x02\x01\x01\0",
    "a negative offset": b"\x0c\0\0\x01\x01\x01\0",
    "a key past the record": b"\x0c\0\0\0\x7e\x01\0",
    "a key of -2 bytes": b"\x0c\0\0\0\x03\x01\0",
    "a value past the record": b"\x0c\0\0\0\x01\x7e\0",
    "a value of -2 bytes": b"\x0c\0\0\0\x01\x03\0",
    "headers past the record": b"\x0c\0\0\0\x01\x01\x7e",
    "a negative number of headers": b"\x0c\0\0\0\x01\x01\x01",
    "a header without a name": b"\x10\0\0\0\x01\x01\x02\x01\x01",
    "a name past the record": b"\x10\0\0\0\x01\x01\x02\x7e\x01",
    "a header value past the record": b"\x10\0\0\0\x01\x01\x02\0\x7e",
    "bytes left in the record": b"\x10\0\0\0\x01\x01\0\0\0",
    "bytes after the records": RECORD + b"\0",
}


@kernels
@pytest.mark.parametrize("lie", LIES)
def test_lies_about_records(kernel: Kernel, lie: str) -> None:
    payload = LIES[lie]
    with pytest.raises(CorruptData) as caught:
        decode(bytes(batch_of([b"fine"])) + batch_around(payload, 1), kernel)
    error = caught.value
    assert (error.topic, error.partition, error.offset) == ("orders", 7, 40)
    assert str(error) == f"corrupt data in orders-7 at offset 40: {error.reason}"
    assert len(error.reason) > 10
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.offset) == (str(error), 40)


@kernels
@pytest.mark.parametrize(
    ("payload", "count", "changes"),
    [
        pytest.param(RECORD, 2, {}, id="more records than fit"),
        pytest.param(RECORD, 0, {}, id="fewer records than there are"),
        pytest.param(RECORD, -1, {}, id="a negative number of records"),
        pytest.param(RECORD, 2**31 - 1, {}, id="the largest number of records"),
        pytest.param(RECORD, 1, {"last_offset_delta": -1}, id="a negative span"),
        pytest.param(RECORD, 1, {"base_offset": -5}, id="a negative offset"),
        pytest.param(RECORD, 1, {"base_offset": 2**63 - 1}, id="offsets past the last there can be"),
        pytest.param(RECORD, 1, {"attributes": 5}, id="an unknown codec"),
        pytest.param(RECORD, 1, {"attributes": 4}, id="bytes that do not unpack"),
    ],
)
def test_lies_of_headers(kernel: Kernel, payload: bytes, count: int, changes: dict[str, int]) -> None:
    with pytest.raises(CorruptData):
        decode(batch_around(payload, count, **changes), kernel)


@kernels
def test_a_timestamp_beyond_64_bits_wraps_around(kernel: Kernel) -> None:
    data = batch_around(b"\x0c\0\x02\0\x01\x01\0", 1, base_timestamp=2**63 - 1)
    (row,), _ = decode(data, kernel, columns=["timestamp"])
    assert row["timestamp"] < 0, "held at Spark's first one"


@kernels
def test_a_flipped_bit_breaks_the_checksum(kernel: Kernel) -> None:
    good = bytes(batch_of([b"hello"] * 20, base_offset=3))
    for at in range(21, len(good), 7):
        bad = bytearray(good)
        bad[at] ^= 4
        with pytest.raises(CorruptData, match="offset 3: the checksum in the batch"):
            decode(bytes(bad), kernel)


@kernels
def test_batches_that_go_back_are_no_log(kernel: Kernel) -> None:
    data = bytes(batch_of([b"a", b"b"], base_offset=5) + batch_of([b"c"], base_offset=6))
    with pytest.raises(CorruptData, match="at offset 6: a batch that begins before 7"):
        decode(data, kernel)


@kernels
def test_a_batch_that_is_shorter_than_its_header(kernel: Kernel) -> None:
    data = bytearray(batch_of([b"a"]))
    data[8:12] = (20).to_bytes(4, "big")
    with pytest.raises(CorruptData, match="32 bytes is shorter than its header"):
        decode(bytes(data), kernel)


@kernels
@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_bombs_do_not_go_off(kernel: Kernel, codec: Codec) -> None:
    header = read_header(build_batch([Record(0, 0, None, None)], codec=codec))
    body = compress(codec, bytes(2 * SPACE))
    bomb = assemble(header._replace(batch_length=HEADER_BYTES - 12 + len(body)), body)
    with pytest.raises(CorruptData, match="unpacks to more than it may"):
        decode(bytes(bomb), kernel)


def test_rows_before_the_corrupt_batch_of_a_later_table_come_out() -> None:
    data = bytes(batch_of([b"a"] * 10) + batch_of([b"b"] * 10, base_offset=10)) + batch_around(RECORD[:-1] + b"\1", 1)
    decoder = Decoder("orders", 7, ["value"], rows_max=10)
    tables = decoder.decode(data, 0, 100)
    assert [next(tables).num_rows, next(tables).num_rows] == [10, 10]
    with pytest.raises(CorruptData):
        next(tables)
    assert decoder.next_offset == 20
