"""Frames: four bytes of length, then a message."""

from collections.abc import Callable, Iterable, Sequence
from struct import Struct

from skidway.ports import Buffer, FileSlice
from skidway.wire.primitives import DecodeError

LENGTH = Struct(">i")
LENGTH_BYTES = LENGTH.size

joined: Callable[[Iterable[Buffer | FileSlice]], bytes] = b"".join  # type: ignore[assignment]
"""What was encoded of a message without file slices, in one piece."""

# Above this, handing a buffer over as it is costs less than copying it next to its neighbours.
_COPY_BYTES_MAX = 64 * 1024


def frame_size(buffer: Buffer, position: int, frame_bytes_max: int) -> int:
    """Bytes of the frame after its length, which begins at `position` and must be there as a whole."""
    size: int = LENGTH.unpack_from(buffer, position)[0]
    if not 0 <= size <= frame_bytes_max:
        raise DecodeError(f"a frame of {size} bytes: the limit is {frame_bytes_max}")
    return size


def frame(parts: Sequence[Buffer | FileSlice]) -> list[Buffer | FileSlice]:
    """The parts behind their length, small neighbours joined. File slices and large buffers stay as they are."""
    size = sum(map(len, parts))
    prefix = LENGTH.pack(size)
    if size <= _COPY_BYTES_MAX and FileSlice not in map(type, parts):
        return [b"".join((prefix, *parts))]  # type: ignore[arg-type]
    return join_small([prefix, *parts])


def join_small(parts: list[Buffer | FileSlice]) -> list[Buffer | FileSlice]:
    """The same bytes in fewer parts."""
    framed: list[Buffer | FileSlice] = []
    small: list[Buffer] = []
    for part in parts:
        # A response may have tens of thousands of parts, and each call counts; nobody inherits from FileSlice.
        if part.__class__ is not FileSlice and len(part) <= _COPY_BYTES_MAX:
            small.append(part)  # type: ignore[arg-type]
            continue
        if small:
            framed.append(b"".join(small))
            small.clear()
        framed.append(part)
    if small:
        framed.append(b"".join(small))
    return framed
