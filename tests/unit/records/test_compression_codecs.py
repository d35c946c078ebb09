"""The codecs: what other implementations write is read, and bombs cost a bounded amount of memory."""

import gzip
import random
import subprocess
import sys
import zlib

import cramjam
import lz4.frame
import pytest
import zstandard

from skidway.errors import CorruptMessage, UnsupportedCompressionType
from skidway.records.compression import XERIAL_HEADER, Codec, compress, decompress

PACKED = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
MIB = 1 << 20


def text(size: int) -> bytes:
    rng = random.Random(size)
    words = [rng.randbytes(rng.randint(1, 12)) for _ in range(200)]
    data = bytearray()
    while len(data) < size:
        data += rng.choice(words)
    return bytes(data[:size])


@pytest.mark.parametrize("codec", PACKED)
@pytest.mark.parametrize("size", [1, 100, 32 * 1024, 32 * 1024 + 1, 300_000, 3 * MIB])
def test_round_trip(codec: Codec, size: int) -> None:
    data = text(size)
    for source in (data, random.Random(1).randbytes(size), bytes(size)):
        packed = compress(codec, source)
        assert decompress(codec, memoryview(packed), size) == source
        with pytest.raises(CorruptMessage, match="more than"):
            decompress(codec, packed, size - 1)


@pytest.mark.parametrize(("codec", "levels"), [(Codec.GZIP, (1, 9)), (Codec.LZ4, (1, 17)), (Codec.ZSTD, (-5, 19))])
def test_levels(codec: Codec, levels: tuple[int, int]) -> None:
    data = text(200_000)
    quick, small = (compress(codec, data, level) for level in levels)
    assert len(small) < len(quick)
    assert decompress(codec, small, len(data)) == decompress(codec, quick, len(data)) == data


def test_what_other_implementations_write() -> None:
    data = text(100_000)
    half = len(data) // 2
    chunks = [data[:half], data[half:]]
    assert decompress(Codec.GZIP, gzip.compress(data), len(data)) == data
    assert decompress(Codec.GZIP, b"".join(map(gzip.compress, chunks)), len(data)) == data
    assert decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(data)), len(data)) == data
    xerial = b"".join(bytes(compress(Codec.SNAPPY, chunk)) for chunk in chunks)
    assert decompress(Codec.SNAPPY, xerial, len(data)) == data
    for linked in (True, False):
        for block_size in (4, 5, 6, 7):
            frame = lz4.frame.compress(data, block_linked=linked, block_size=block_size, content_checksum=True)
            assert decompress(Codec.LZ4, frame, len(data)) == data
    assert decompress(Codec.LZ4, b"".join(map(lz4.frame.compress, chunks)), len(data)) == data
    unsized = zstandard.ZstdCompressor(write_content_size=False, write_checksum=True)
    assert decompress(Codec.ZSTD, unsized.compress(data), len(data)) == data
    assert decompress(Codec.ZSTD, b"".join(map(unsized.compress, chunks)), len(data)) == data


def test_the_output_is_what_java_expects() -> None:
    data = text(100_000)
    assert bytes(compress(Codec.SNAPPY, data)).startswith(XERIAL_HEADER)
    info = lz4.frame.get_frame_info(compress(Codec.LZ4, data))
    assert (info["block_linked"], info["block_size_id"], info["content_size"]) == (False, 4, 0)
    assert zlib.decompress(compress(Codec.GZIP, data), 31) == data
    assert zstandard.ZstdDecompressor().decompress(compress(Codec.ZSTD, data)) == data


@pytest.mark.parametrize("codec", PACKED)
def test_cut_or_broken_streams_are_corrupt(codec: Codec) -> None:
    data = text(5_000)
    packed = bytes(compress(codec, data))
    # Between the xerial blocks a cut cannot be seen; this stream has one block only.
    for cut in [*range(1, 40), len(packed) // 2]:
        if codec is Codec.SNAPPY and len(packed) - cut == len(XERIAL_HEADER):
            continue
        with pytest.raises(CorruptMessage):
            decompress(codec, packed[:-cut], len(data))
    with pytest.raises(CorruptMessage):
        decompress(codec, packed + b"garbage", len(data))
    with pytest.raises(CorruptMessage):
        decompress(codec, b"", len(data))


@pytest.mark.parametrize("codec", PACKED)
def test_garbage_is_corrupt_and_nothing_else(codec: Codec) -> None:
    rng = random.Random(codec)
    packed = bytes(compress(codec, text(3_000) + bytes(3_000)))
    for _ in range(2_000):
        broken = bytearray(packed)
        for _ in range(rng.randint(1, 4)):
            broken[rng.randrange(min(len(broken), rng.choice((20, len(broken)))))] = rng.randrange(256)
        try:
            decompress(codec, broken, 100_000)
        except CorruptMessage:
            pass


def test_unknown_codecs() -> None:
    with pytest.raises(UnsupportedCompressionType):
        compress(5, b"x")
    with pytest.raises(CorruptMessage):
        decompress(5, b"x", 10)
    assert decompress(Codec.NONE, b"abc", 3) == b"abc"
    with pytest.raises(CorruptMessage):
        decompress(Codec.NONE, b"abcd", 3)


def test_a_snappy_block_cannot_claim_more_than_it_could_hold() -> None:
    claim = b"\xff\xff\xff\x7f" + b"\x00a"
    with pytest.raises(CorruptMessage, match="cannot give"):
        decompress(Codec.SNAPPY, claim, 1 << 30)


BOMB = """
import sys
from skidway.errors import CorruptMessage
from skidway.records.compression import decompress

def peak_kib():
    # Unlike getrusage this begins anew with the program, whatever its parent was.
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))

codec, allowed = int(sys.argv[1]), int(sys.argv[2])
bomb = sys.stdin.buffer.read()
before = peak_kib()
try:
    decompress(codec, bomb, allowed)
    print("unpacked", (peak_kib() - before) // 1024)
except CorruptMessage:
    print("refused", (peak_kib() - before) // 1024)
"""


def explode(codec: Codec, allowed: int) -> tuple[str, int]:
    """What a process of its own made of some 400 MiB in disguise, and by how many MiB its peak grew."""
    done = subprocess.run(
        [sys.executable, "-c", BOMB, str(int(codec)), str(allowed)], input=bomb(codec), capture_output=True, check=True
    )
    verdict, grown = done.stdout.split()
    return verdict.decode(), int(grown)


def zstd_bomb() -> bytes:
    """A frame of nothing but run-length blocks: four bytes for 128 KiB each."""
    header = b"\x28\xb5\x2f\xfd\x00\x38"  # no content size, no checksum, window 128 KiB
    block = (128 * 1024 << 3 | 1 << 1).to_bytes(3, "little") + b"\x00"
    last = (1 << 3 | 1 << 1 | 1).to_bytes(3, "little") + b"\x00"
    return header + block * 4_000 + last


def bomb(codec: Codec) -> bytes:
    match codec:
        case Codec.GZIP:
            return zlib.compress(bytes(400 * MIB), 9, 31)
        case Codec.SNAPPY:
            return bytes(compress(codec, bytes(400 * MIB)))
        case Codec.LZ4:
            return bytes(lz4.frame.compress(bytes(400 * MIB), block_size=7))
        case Codec.ZSTD:
            return zstd_bomb()
        case _:
            raise AssertionError


@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak from /proc")
@pytest.mark.parametrize("codec", PACKED)
def test_a_bomb_costs_bounded_memory(codec: Codec) -> None:
    verdict, grown = explode(codec, 4 * MIB)
    assert verdict == "refused"
    assert grown < 48


@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak from /proc")
def test_the_bomb_would_be_seen_if_it_went_off() -> None:
    verdict, grown = explode(Codec.ZSTD, 1 << 30)
    assert verdict == "unpacked"
    assert grown > 400
