"""The memory that partly received frames may take, for all connections together.

Reading goes into one scratch buffer that all connections share: both uvloop and asyncio ask for a buffer, read into
it and report the bytes without running anything in between. Only what is left of a frame after such a pass is kept
with its connection: a short tail as it is, a longer one in a buffer from here, which grows with the bytes received,
not with the bytes announced. Buffers are reused, because touching fresh memory is dear.
The largest buffers are views of a mapping that has room for the whole frame. The system gives it memory as bytes
arrive, and a longer view of it needs no copy: filling 100 MiB with zeros, or copying them, takes 80 ms.
"""

from collections import deque
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from typing import Protocol

from skidway.limits import KIB, MIB

SCRATCH_BYTES = 256 * KIB
SCRATCH_BYTES_SCARCE = 16 * KIB
STASH_BYTES_MAX = 8 * KIB
"""A tail up to this is kept as it is and put in front of the scratch buffer at the next read."""
BUFFER_BYTES_MIN = 64 * KIB
EAGER_BYTES = 256 * KIB
"""A frame up to this gets its whole buffer at once; a larger one starts with this much."""
POOL_BYTES_MAX = 32 * MIB
POOLED_BUFFER_BYTES_MAX = 4 * MIB
GIVEN_BYTES_MIN = MIB
"""A buffer of this size or more is given to the node where it would have to copy it."""


class Claimant(Protocol):
    def on_memory(self) -> None:
        """There may be room now."""
        ...


class ReceiveMemory:
    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.used_bytes = 0
        self.long_bytes = 0
        """Of these, in buffers of long frames."""
        self.scratch = memoryview(bytearray(SCRATCH_BYTES))
        self.waiting: deque[Claimant] = deque()
        self._scratch_scarce = self.scratch[:SCRATCH_BYTES_SCARCE]
        self._free: dict[int, list[memoryview]] = {}
        self._free_bytes = 0
        # One connection may always finish its frame, or a full memory would stay full for ever.
        self._first: Claimant | None = None

    def reading_buffer(self) -> memoryview:
        """Where a connection without a partial frame reads to. Little at a time when memory is scarce."""
        return self.scratch if self.used_bytes < self.bytes_max else self._scratch_scarce

    def has_room(self, size: int, claimant: Claimant) -> bool:
        # The last quarter is for short frames: a few long ones that never end must not keep all others waiting. Who
        # may always finish its frame may take more than all the rest, but not of that quarter.
        bytes_max = self.bytes_max if size <= EAGER_BYTES else self.bytes_max * 3 // 4
        if self.used_bytes + size <= bytes_max or self._first is claimant:
            return True
        if size <= EAGER_BYTES and self._short_bytes + size <= self.bytes_max // 4:
            return True
        if self._first is None:
            self._first = claimant
            return True
        return False

    @property
    def _short_bytes(self) -> int:
        return self.used_bytes - self.long_bytes

    def take(self, size: int, frame_bytes: int = 0) -> memoryview:
        """A buffer with room for `size` bytes, and perhaps for more of a frame of `frame_bytes` (see `grow`)."""
        capacity = capacity_for(size)
        self._count(capacity)
        if capacity > POOLED_BUFFER_BYTES_MAX:
            whole = mmap(-1, max(capacity, capacity_for(frame_bytes)), flags=MAP_PRIVATE | MAP_ANONYMOUS)
            return memoryview(whole)[:capacity]
        free = self._free.get(capacity)
        if free:
            self._free_bytes -= capacity
            return free.pop()
        return memoryview(bytearray(capacity))

    def grow(self, buffer: memoryview, size: int) -> memoryview | None:
        """The same buffer with room for `size` bytes, instead of the one given; None if it cannot grow in place."""
        whole, capacity = buffer.obj, capacity_for(size)
        if not isinstance(whole, mmap) or capacity > len(whole):
            return None
        self.give_away(buffer)
        self._count(capacity)
        return memoryview(whole)[:capacity]

    def give_away(self, buffer: memoryview) -> None:
        """It belongs to somebody else from now on."""
        self._count(len(buffer), -1)

    def give_back(self, buffer: memoryview) -> None:
        self.give_away(buffer)
        capacity = len(buffer)
        if capacity <= POOLED_BUFFER_BYTES_MAX and self._free_bytes + capacity <= POOL_BYTES_MAX:
            self._free.setdefault(capacity, []).append(buffer)
            self._free_bytes += capacity

    def _count(self, capacity: int, sign: int = 1) -> None:
        self.used_bytes += sign * capacity
        if capacity > EAGER_BYTES:
            self.long_bytes += sign * capacity

    def forget(self, claimant: Claimant) -> None:
        """It holds nothing any more: its frame is whole, or it is gone."""
        if self._first is claimant:
            self._first = None

    def wake(self) -> None:
        """Let those who wait try again, the longest waiting first."""
        for _ in range(len(self.waiting)):
            full = self.used_bytes >= self.bytes_max and self._short_bytes >= self.bytes_max // 4
            if self._first is not None and full:
                return
            self.waiting.popleft().on_memory()


def capacity_for(size: int) -> int:
    """Powers of two up to a megabyte, whole megabytes above: few sizes, little waste."""
    if size <= BUFFER_BYTES_MIN:
        return BUFFER_BYTES_MIN
    if size <= MIB:
        return 1 << (size - 1).bit_length()
    return -(-size // MIB) * MIB


def bytes_wanted(needed: int, received: int) -> int:
    """The buffer for a frame of `needed` bytes of which `received` are here: doubling, never more than the frame."""
    return min(needed, max(EAGER_BYTES, 2 * received))
