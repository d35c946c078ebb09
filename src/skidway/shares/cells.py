"""A state and a delivery count for each offset of a window, in chunks of bytes.

An offset that nothing was written for is available and was never delivered. Work on a range costs a few slices of bytes
for each chunk that it touches, whatever is in them. A count has two bytes; a chunk has the higher ones only if one of
its offsets was ever delivered more than 255 times.
"""

from collections.abc import Iterable, Iterator

from skidway.shares.records import StateBatch
from skidway.shares.states import AVAILABLE, COUNT_MAX, TERMINAL

CHUNK = 4096
_ONE = [bytes((value,)) for value in range(256)]
_TERMINAL_ONLY = bytes(1 if value in TERMINAL else 0 for value in range(256))


class Cells:
    __slots__ = ("_counts", "_highs", "_states", "changed")

    def __init__(self) -> None:
        self._states: dict[int, bytearray] = {}
        self._counts: dict[int, bytearray] = {}
        self._highs: dict[int, bytearray] = {}
        self.changed: list[tuple[int, int]] | None = None
        """Ranges whose states were written, if somebody follows them."""

    @property
    def chunks(self) -> int:
        """For metrics: each takes 8 KiB, 12 with high counts."""
        return len(self._states)

    def state_at(self, offset: int) -> int:
        chunk = self._states.get(offset // CHUNK)
        return AVAILABLE if chunk is None else chunk[offset % CHUNK]

    def states_at(self, offsets: Iterable[int]) -> list[int]:
        get = self._states.get
        return [AVAILABLE if (chunk := get(at // CHUNK)) is None else chunk[at % CHUNK] for at in offsets]

    def count_at(self, offset: int) -> int:
        number, at = divmod(offset, CHUNK)
        chunk = self._counts.get(number)
        if chunk is None:
            return 0
        high = self._highs.get(number)
        return chunk[at] if high is None else chunk[at] | high[at] << 8

    def set_state(self, first: int, end: int, state: int) -> None:
        if self.changed is not None:
            self.changed.append((first, end))
        for number, begin, stop in pieces(first, end):
            self._chunk(number)[begin:stop] = _ONE[state] * (stop - begin)

    def states_in(self, number: int, begin: int, stop: int) -> bytes:
        """Of a piece of a chunk."""
        chunk = self._states.get(number)
        return bytes(stop - begin) if chunk is None else bytes(chunk[begin:stop])

    def put_state(self, offsets: Iterable[int], state: int) -> None:
        """Of each, without a word to who follows the changes."""
        for at in offsets:
            self._chunk(at // CHUNK)[at % CHUNK] = state

    def set_count(self, first: int, end: int, count: int) -> None:
        assert 0 <= count <= COUNT_MAX, f"a delivery count of {count}"
        for number, begin, stop in pieces(first, end):
            self._chunk(number)
            self._counts[number][begin:stop] = _ONE[count & 255] * (stop - begin)
            if count > 255 and number not in self._highs:
                self._highs[number] = bytearray(CHUNK)
            if (high := self._highs.get(number)) is not None:
                high[begin:stop] = _ONE[count >> 8] * (stop - begin)

    def find(self, state: int, first: int, end: int) -> int:
        """The first offset in this state, or `end`."""
        for number, begin, stop in pieces(first, end):
            chunk = self._states.get(number)
            at = chunk.find(state, begin, stop) if chunk is not None else begin if state == AVAILABLE else -1
            if at >= 0:
                return number * CHUNK + at
        return end

    def run_end(self, first: int, end: int) -> int:
        """Up to where all is as at `first`: the same state, the same count."""
        state, count = self.state_at(first), self.count_at(first)
        for number, begin, stop in pieces(first, end):
            chunk = self._states.get(number)
            if chunk is None:
                if state != AVAILABLE or count:
                    return number * CHUNK + begin
                continue
            same = min(_same(chunk, begin, stop, state), _same(self._counts[number], begin, stop, count & 255))
            if count > 255 or number in self._highs:
                same = min(same, _same(self._highs.get(number), begin, stop, count >> 8))
            if same < stop - begin:
                return number * CHUNK + begin + same
        return end

    def runs(self, first: int, end: int) -> Iterator[StateBatch]:
        while first < end:
            stop = self.run_end(first, end)
            yield StateBatch(first, stop, self.state_at(first), self.count_at(first))
            first = stop

    def count(self, state: int, first: int, end: int) -> int:
        """How many offsets are in this state."""
        found = 0
        for number, begin, stop in pieces(first, end):
            chunk = self._states.get(number)
            if chunk is not None:
                found += chunk.count(state, begin, stop)
            elif state == AVAILABLE:
                found += stop - begin
        return found

    def count_terminal(self, first: int, end: int) -> int:
        found = 0
        for number, begin, stop in pieces(first, end):
            chunk = self._states.get(number)
            if chunk is not None:
                found += sum(chunk.count(state, begin, stop) for state in TERMINAL)
        return found

    def terminal_end(self, first: int, end: int) -> int:
        """Up to where everything from `first` on is settled."""
        for number, begin, stop in pieces(first, end):
            chunk = self._states.get(number)
            if chunk is None:
                return number * CHUNK + begin
            settled = chunk[begin:stop].translate(_TERMINAL_ONLY)
            open_at = settled.find(0)
            if open_at >= 0:
                return number * CHUNK + begin + open_at
        return end

    def drop_below(self, offset: int) -> None:
        """Nobody asks for less any more."""
        for number in [number for number in self._states if (number + 1) * CHUNK <= offset]:
            del self._states[number], self._counts[number]
            self._highs.pop(number, None)

    def _chunk(self, number: int) -> bytearray:
        chunk = self._states.get(number)
        if chunk is None:
            chunk = self._states[number] = bytearray(CHUNK)
            self._counts[number] = bytearray(CHUNK)
        return chunk


def _same(plane: bytearray | None, begin: int, stop: int, value: int) -> int:
    """How many bytes from `begin` on have the value."""
    if plane is None:
        return 0
    return stop - begin - len(plane[begin:stop].lstrip(_ONE[value]))


def pieces(first: int, end: int) -> Iterable[tuple[int, int, int]]:
    """The chunks that a range touches: number, and where it begins and ends in each."""
    if first >= end:
        return ()
    number, begin = divmod(first, CHUNK)
    stop = begin + end - first
    return ((number, begin, stop),) if stop <= CHUNK else _pieces(first, end)


def _pieces(first: int, end: int) -> Iterator[tuple[int, int, int]]:
    while first < end:
        number, begin = divmod(first, CHUNK)
        stop = min(CHUNK, begin + end - first)
        yield number, begin, stop
        first += stop - begin
