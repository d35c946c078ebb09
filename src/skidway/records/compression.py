"""The four codecs of a record batch, each as Java clients write and read them.

`decompress` never gives more than the bytes it was allowed and never holds much more: what would exceed them, what
is cut short and what is garbage all raise CorruptMessage. Input goes in small pieces, because the libraries copy
what they have not consumed and because a few bytes can unpack to megabytes.
"""

import zlib
from enum import IntEnum
from struct import Struct
from typing import Protocol

import cramjam
import lz4.frame
import zstandard

from skidway.errors import CorruptMessage, UnsupportedCompressionType
from skidway.ports import Buffer

XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_HEADER = XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
XERIAL_BLOCK_BYTES = 32 * 1024
SNAPPY_RATIO_MAX = 64
"""No snappy element of n bytes gives more than 64 n."""
LZ4_DEFAULT_LEVEL = 9
"""Java's default, which stands for the fast compressor; any other level is one of the slow compressor."""
ZSTD_DEFAULT_LEVEL = 3
ZSTD_WINDOW_BYTES_MAX = 2**27
"""What zstd itself accepts unasked. The window is only touched as far as output goes."""

_GZIP_WINDOW_BITS = 31
_INPUT_PIECE_BYTES = 16 * 1024
_OUTPUT_PIECE_BYTES = 256 * 1024
# A zstd block is at least 4 bytes and gives at most 128 KiB, so one piece gives at most 16 MiB.
_ZSTD_PIECE_BYTES = 512
_ZSTD_WRITE_BYTES = 64 * 1024
_BLOCK_LENGTH = Struct(">i")


class Codec(IntEnum):
    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


CODEC_NAMES = {"uncompressed": Codec.NONE, **{codec.name.lower(): codec for codec in Codec if codec}}
"""The values of `compression.type` that name a codec."""


def compress(codec: int, data: Buffer, level: int | None = None) -> Buffer:
    """The data as the codec packs it; without a codec the data itself. A level only where the codec has levels."""
    match codec:
        case Codec.NONE:
            return data
        case Codec.GZIP:
            packer = zlib.compressobj(zlib.Z_DEFAULT_COMPRESSION if level is None else level, wbits=_GZIP_WINDOW_BITS)
            return packer.compress(data) + packer.flush()
        case Codec.SNAPPY:
            return _compress_xerial(data)
        case Codec.LZ4:
            return _compress_lz4(data, LZ4_DEFAULT_LEVEL if level is None else level)
        case Codec.ZSTD:
            return zstandard.ZstdCompressor(level=ZSTD_DEFAULT_LEVEL if level is None else level).compress(data)
    raise UnsupportedCompressionType(f"there is no codec {codec}")


def decompress(codec: int, data: Buffer, bytes_max: int) -> bytes | bytearray:
    match codec:
        case Codec.NONE:
            if len(data) > bytes_max:
                raise _too_large()
            return bytes(data)
        case Codec.GZIP:
            return _decompress_gzip(data, bytes_max)
        case Codec.SNAPPY:
            return _decompress_snappy(data, bytes_max)
        case Codec.LZ4:
            return _decompress_lz4(data, bytes_max)
        case Codec.ZSTD:
            return _decompress_zstd(data, bytes_max)
    raise CorruptMessage(f"there is no codec {codec}")


class UnpackedTooLarge(CorruptMessage):
    """It would be more than was allowed; nothing else is known to be wrong with it."""


def _too_large() -> UnpackedTooLarge:
    return UnpackedTooLarge("the batch unpacks to more than it may")


def _compress_xerial(data: Buffer) -> bytearray:
    view = memoryview(data)
    packed = bytearray(XERIAL_HEADER)
    for start in range(0, len(view), XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + XERIAL_BLOCK_BYTES]))
        packed += _BLOCK_LENGTH.pack(len(block))
        packed += block
    return packed


def _compress_lz4(data: Buffer, level: int) -> bytes:
    packed: bytes = lz4.frame.compress(
        data,
        compression_level=0 if level == LZ4_DEFAULT_LEVEL else max(level, lz4.frame.COMPRESSIONLEVEL_MINHC),
        block_size=lz4.frame.BLOCKSIZE_MAX64KB,
        # Java reads independent blocks only.
        block_linked=False,
        store_size=False,
    )
    return packed


def _decompress_snappy(data: Buffer, bytes_max: int) -> bytes | bytearray:
    view = memoryview(data)
    if view[: len(XERIAL_MAGIC)] != XERIAL_MAGIC:
        return _decompress_snappy_block(view, bytes_max)
    output = bytearray()
    position = 0
    while position < len(view):
        # The header may come again: streams that were put one behind the other.
        if view[position : position + len(XERIAL_MAGIC)] == XERIAL_MAGIC:
            position += len(XERIAL_HEADER)
            continue
        if len(view) - position < _BLOCK_LENGTH.size:
            raise CorruptMessage("the snappy blocks are cut short")
        length: int = _BLOCK_LENGTH.unpack_from(view, position)[0]
        position += _BLOCK_LENGTH.size
        if not 0 < length <= len(view) - position:
            raise CorruptMessage(f"a snappy block of {length} bytes where {len(view) - position} are left")
        output += _decompress_snappy_block(view[position : position + length], bytes_max - len(output))
        position += length
    if position > len(view):
        raise CorruptMessage("the snappy header is cut short")
    return output


def _decompress_snappy_block(block: memoryview, bytes_max: int) -> bytes:
    declared = 0
    for index, byte in enumerate(block[:5]):
        declared |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            break
    else:
        raise CorruptMessage("a snappy block without a length")
    # The library makes room for the declared length before it looks at the rest.
    if declared > bytes_max:
        raise _too_large()
    if declared > len(block) * SNAPPY_RATIO_MAX:
        raise CorruptMessage(f"a snappy block of {len(block)} bytes cannot give {declared}")
    try:
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise CorruptMessage(f"snappy: {error}") from None


class _Unpacker(Protocol):
    """What gzip, lz4 and zstd have in common here: one gzip member or frame, fed piece by piece."""

    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes | None: ...


def _decompress_gzip(data: Buffer, bytes_max: int) -> bytearray:
    view = memoryview(data)
    output = bytearray()
    position = 0
    unpacker = zlib.decompressobj(_GZIP_WINDOW_BITS)
    try:
        while position < len(view):
            piece: Buffer = view[position : position + _INPUT_PIECE_BYTES]
            position += len(piece)
            while piece and not unpacker.eof:
                output += unpacker.decompress(piece, _OUTPUT_PIECE_BYTES)
                piece = unpacker.unconsumed_tail
                if len(output) > bytes_max:
                    raise _too_large()
            if unpacker.eof:
                position -= len(unpacker.unused_data)
                if position < len(view):
                    unpacker = zlib.decompressobj(_GZIP_WINDOW_BITS)
    except zlib.error as error:
        raise CorruptMessage(f"gzip: {error}") from None
    return _finished(unpacker, output, bytes_max)


def _decompress_lz4(data: Buffer, bytes_max: int) -> bytearray:
    view = memoryview(data)
    output = bytearray()
    position = 0
    unpacker = lz4.frame.LZ4FrameDecompressor()
    try:
        while position < len(view):
            piece = bytes(view[position : position + _INPUT_PIECE_BYTES])
            position += len(piece)
            output += unpacker.decompress(piece, max_length=_OUTPUT_PIECE_BYTES)
            while not unpacker.eof and not unpacker.needs_input:
                if len(output) > bytes_max:
                    raise _too_large()
                output += unpacker.decompress(b"", max_length=_OUTPUT_PIECE_BYTES)
            if len(output) > bytes_max:
                raise _too_large()
            if unpacker.eof:
                position -= len(unpacker.unused_data or b"")
                if position < len(view):
                    unpacker = lz4.frame.LZ4FrameDecompressor()
    except RuntimeError as error:
        raise CorruptMessage(f"lz4: {error}") from None
    return _finished(unpacker, output, bytes_max)


def _decompress_zstd(data: Buffer, bytes_max: int) -> bytearray:
    view = memoryview(data)
    output = bytearray()
    position = 0
    context = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW_BYTES_MAX)
    unpacker = context.decompressobj(write_size=_ZSTD_WRITE_BYTES)
    try:
        while position < len(view):
            piece = view[position : position + _ZSTD_PIECE_BYTES]
            position += len(piece)
            output += unpacker.decompress(piece)
            if len(output) > bytes_max:
                raise _too_large()
            if unpacker.eof:
                position -= len(unpacker.unused_data)
                if position < len(view):
                    unpacker = context.decompressobj(write_size=_ZSTD_WRITE_BYTES)
    except zstandard.ZstdError as error:
        raise CorruptMessage(f"zstd: {error}") from None
    return _finished(unpacker, output, bytes_max)


def _finished(unpacker: _Unpacker, output: bytearray, bytes_max: int) -> bytearray:
    if not unpacker.eof:
        raise CorruptMessage("the compressed bytes are cut short")
    if len(output) > bytes_max:
        raise _too_large()
    return output
