"""Where in a log's files offsets lie: any by search, and without one those that are asked for again and again.

Known are the high watermark, the ends of the batches above it, and the tails: where readers go on that have read all
there was. What is searched is loaded; only a few closed segments stay so.
"""

from bisect import bisect_right
from collections import deque

from skidway.log.bounds import END, Bound
from skidway.log.segment import Segment
from skidway.ports import File

ENDS_MAX = 65_536
"""Ends of appended batches that wait for the high watermark; past that their positions are looked up in the index."""
LOADED_MAX = 4
"""Closed segments of one log that keep their descriptor and indexes after a read."""
# Where followers went on reading lately.
_TAILS_MAX = 8


class Positions:
    __slots__ = ("_loaded", "_segments", "ends", "places", "tail", "tails", "watermark", "watermark_segment")

    def __init__(self, segments: list[Segment]) -> None:
        """`segments` is the log's own list, and never empty."""
        self._segments = segments
        self._loaded: dict[Segment, None] = {}
        active = segments[-1]
        # Where the high watermark lies, and the ends of the batches above it: (end offset, position, segment).
        self.watermark_segment = active
        self.watermark = active.size
        self.ends: deque[tuple[int, int, Segment]] = deque()
        # Where the batch begins that follows the last read up to the watermark or the end.
        self.tail: tuple[int, Segment, int] = (-1, active, 0)
        # The same for reads up to the end: followers are not all at the same place.
        self.tails: dict[int, tuple[int, Segment, int]] = {}
        # Where others said that they will go on.
        self.places: dict[int, tuple[int, Segment, int]] = {}

    def locate(self, offset: int) -> tuple[Segment, int]:
        """The segment and position of the batch that holds `offset`, or of the first one after it."""
        segments = self._segments
        number = len(segments) - 1
        if offset < segments[number].base_offset:
            number = bisect_right(segments, offset, key=_base_offset) - 1
        while number < len(segments):
            segment = segments[number]
            self.note_loaded(segment)
            if offset <= segment.base_offset:
                return segment, 0
            batch = segment.find(offset)
            if batch is not None:
                return segment, batch[0]
            number += 1
        return segments[-1], segments[-1].size

    def note_loaded(self, segment: Segment) -> None:
        """It is in use, or was until now; others that are not may be unloaded."""
        if segment is self._segments[-1] or segment in self._loaded:
            return
        self._loaded[segment] = None
        self.unload(LOADED_MAX)

    def unload(self, kept: int) -> None:
        """Let go of closed segments, the oldest first, until so many are left that keep a descriptor."""
        if len(self._loaded) <= kept:
            return
        # What is not synced keeps its descriptor: a new one might not be told of a failed write.
        idle = [segment for segment in self._loaded if segment.synced_size >= segment.size]
        for segment in idle[: len(self._loaded) - kept]:
            del self._loaded[segment]
            segment.unload()

    def keep_tail(self, tail: tuple[int, Segment, int], upto: Bound) -> None:
        if upto is not END:
            self.tail = tail
            return
        self.tails[tail[0]] = tail
        if len(self.tails) > _TAILS_MAX:
            del self.tails[next(iter(self.tails))]

    def note_place(self, offset: int, file: File, position: int) -> None:
        """Somebody will go on reading at `offset`, and the batch that holds it begins here in the file."""
        active = self._segments[-1]
        if active.file is file:
            self.places[offset] = (offset, active, position)
            if len(self.places) > _TAILS_MAX:
                del self.places[next(iter(self.places))]

    def move_watermark(self, offset: int, end_offset: int) -> int:
        """Forward to `offset`, or to the log's end if that comes first; returns how many bytes lie between."""
        before, position = self.watermark_segment, self.watermark
        ends = self.ends
        if offset >= end_offset:
            self.watermark_segment = self._segments[-1]
            self.watermark = self.watermark_segment.size
            ends.clear()
        else:
            found = None
            while ends and ends[0][0] <= offset:
                found = ends.popleft()
            if found is not None and found[0] == offset:
                self.watermark, self.watermark_segment = found[1], found[2]
            else:
                self.watermark_segment, self.watermark = self.locate(offset)
        if self.watermark_segment is before:
            return self.watermark - position
        return _bytes_between(self._segments, before, self.watermark_segment) + self.watermark - position

    def place_watermark(self, offset: int) -> None:
        """Wherever it was before."""
        self.watermark_segment, self.watermark = self.locate(offset)

    def cut(self) -> None:
        """The log ends earlier now; where the watermark lies is told next."""
        left = set(self._segments[:-1])
        self._loaded = {segment: None for segment in self._loaded if segment in left}
        self.tail = (-1, self._segments[-1], 0)
        self.tails.clear()
        self.places.clear()
        self.ends.clear()

    def forget(self, segment: Segment) -> None:
        """It has left the log: nothing may lead to it any more."""
        self._loaded.pop(segment, None)
        self.tails.clear()
        self.places.clear()
        if self.tail[1] is segment:
            self.tail = (-1, self._segments[-1], 0)
        if self.watermark_segment is segment:
            # Nothing above the watermark is given up, so it lies where the next segment begins.
            after = bisect_right(self._segments, segment.base_offset, key=_base_offset)
            self.watermark_segment, self.watermark = self._segments[after], 0


def _base_offset(segment: Segment) -> int:
    return segment.base_offset


def _bytes_between(segments: list[Segment], first: Segment, last: Segment) -> int:
    """From the beginning of one segment to that of another."""
    return sum(segment.size for segment in segments if first.base_offset <= segment.base_offset < last.base_offset)
