"""Bytes that one connection received and that are not handled yet: the beginning of a frame, or frames that wait.

They are in `stash`, if they are few, or in `holding` from `start` to `end`, or nowhere. The memory for them is shared
(see `receiving`).
"""

from __future__ import annotations

from skidway.server.receiving import EAGER_BYTES, SCRATCH_BYTES, STASH_BYTES_MAX, Claimant, ReceiveMemory, bytes_wanted


class Tail:
    __slots__ = ("_claimant", "end", "holding", "memory", "start", "stash")

    def __init__(self, memory: ReceiveMemory, claimant: Claimant) -> None:
        """`claimant` hears when there may be room again."""
        self.memory = memory
        self._claimant = claimant
        self.stash: bytearray | None = None
        self.holding: memoryview | None = None
        self.start = self.end = 0

    def __len__(self) -> int:
        if self.holding is not None:
            return self.end - self.start
        return len(self.stash) if self.stash is not None else 0

    def keep(self, view: memoryview, position: int, end: int, needed: int, *, waits: bool) -> bool:
        """Keep a part of what was read, with room for more of a frame of `needed` bytes; 0: nobody knows yet. False if
        memory is short: kept, but without room. Whole frames that wait need no room."""
        size = end - position
        if size <= STASH_BYTES_MAX:
            self._put_aside(view, position, end)
        elif waits:
            self._hold(view, position, end, size, needed)
        else:
            wanted = bytes_wanted(max(needed, size + 1), size)
            if end == len(view):
                wanted = max(wanted, EAGER_BYTES)  # the buffer was full: this peer sends faster than we read
            return self._make_room(view, position, end, wanted, needed)
        return True

    def give_away(self) -> None:
        """The buffer belongs to the node from now on."""
        if self.holding is not None:
            self.memory.give_away(self.holding)
            self.holding = None

    def let_go(self) -> None:
        if self.holding is not None:
            self.memory.give_back(self.holding)
            self.holding = None
        if self.stash is not None:
            self.memory.used_bytes -= len(self.stash)
            self.stash = None

    def _make_room(self, view: memoryview, position: int, end: int, wanted: int, needed: int) -> bool:
        """Hold it with room for `wanted` bytes in all."""
        holding = self.holding
        if holding is not None and wanted <= len(holding):
            size = end - position
            if position:
                holding[:size] = holding[position:end]
            self.start, self.end = 0, size
            return True
        if not self.memory.has_room(wanted, self._claimant):
            if holding is None and end - position < SCRATCH_BYTES:
                self._put_aside(view, position, end)
            elif holding is None:
                # A large buffer was given away: not more than this.
                self._hold(view, position, end, end - position, needed)
            else:
                self.start, self.end = position, end
            return False
        self._hold(view, position, end, wanted, needed)
        return True

    def _hold(self, view: memoryview, position: int, end: int, wanted: int, needed: int) -> None:
        if view is self.holding and wanted <= end - position:
            self.start, self.end = position, end
            return
        size = end - position
        if view is self.holding and not position and (grown := self.memory.grow(view, wanted)) is not None:
            self.holding, self.start, self.end = grown, 0, size
            return
        buffer = self.memory.take(wanted, needed)
        buffer[:size] = view[position:end]
        self.let_go()
        self.holding, self.start, self.end = buffer, 0, size

    def _put_aside(self, view: memoryview, position: int, end: int) -> None:
        stash = bytearray(view[position:end])
        self.let_go()
        self.stash = stash
        self.memory.used_bytes += len(stash)
