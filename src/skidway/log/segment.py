"""One segment: a file of batches and its indexes.

A segment knows its place and its bytes, not the log around it. Its file is opened and its indexes are loaded on first
use, so that a log of a thousand segments costs a thousand small objects until somebody reads.
"""

from collections.abc import Iterator
from zlib import crc32

from skidway.errors import DamagedLog, StorageError
from skidway.limits import INT64_MAX
from skidway.log.aborted import AbortedIndex
from skidway.log.index import OffsetIndex, TimeIndex
from skidway.log.settings import LogSettings
from skidway.ports import Disk, File
from skidway.records.batch import HEADER, HEADER_BYTES, MAGIC, PREFIX_BYTES
from skidway.records.header_fields import (
    BATCH_LENGTH,
    MAGIC_BYTE,
)

NEVER = INT64_MAX
_LOOK_BYTES = 8192
_NAME_DIGITS = 20
_REBUILD_INTERVAL_BYTES = 4096

# Position, base offset, last offset, size, largest timestamp, leader epoch.
Batch = tuple[int, int, int, int, int, int]


def segment_name(base_offset: int, suffix: str) -> str:
    return f"{base_offset:020d}{suffix}"


def offset_in_name(name: str, suffix: str) -> int | None:
    """The base offset that a file's name tells; None of one that this code would not have given."""
    digits = name.removesuffix(suffix)
    if len(digits) != _NAME_DIGITS or digits + suffix != name or not (digits.isascii() and digits.isdecimal()):
        return None
    offset = int(digits)
    return offset if offset <= INT64_MAX else None


def unreadable(directory: str, error: OSError) -> StorageError:
    """What a reader is told. A file that is missing does not come back by itself; other trouble may pass."""
    kind = DamagedLog if isinstance(error, FileNotFoundError) else StorageError
    return kind(f"{directory}: {error}")


def find_segments(disk: Disk, directory: str, names: list[str], now_ms: int) -> list["Segment"]:
    """Those whose files are there, in order."""
    segments = []
    for base in sorted(offset for name in names if (offset := offset_in_name(name, ".log")) is not None):
        segment = Segment(disk, directory, base, disk.size(f"{directory}/{segment_name(base, '.log')}"), now_ms)
        if segment_name(base, ".txnindex") not in names:
            segment.aborted = AbortedIndex()
        segments.append(segment)
    return segments


class _IndexLies(Exception):
    """An index entry points at another batch than it says."""


class Segment:
    __slots__ = (
        "_aborted",
        "_file",
        "_index",
        "_times",
        "base_offset",
        "created_ms",
        "directory",
        "disk",
        "first_timestamp",
        "given_up",
        "index_due",
        "index_saved",
        "max_timestamp",
        "max_timestamp_offset",
        "pinned",
        "roll_after_ms",
        "roll_after_timestamp",
        "size",
        "synced_size",
    )

    def __init__(self, disk: Disk, directory: str, base_offset: int, size: int, created_ms: int) -> None:
        self.disk = disk
        self.directory = directory
        self.base_offset = base_offset
        self.size = size
        self.synced_size = size
        self.created_ms = created_ms
        self.first_timestamp = -1
        # It has left its log: its file may go. Workers read this, so it is set before the file is renamed or removed.
        self.given_up = False
        self.max_timestamp = -1
        self.max_timestamp_offset = -1
        # A batch that begins after this position gets an index entry.
        self.index_due = 0
        # Whether the index files hold everything; a closed segment's indexes may then be dropped from memory.
        self.index_saved = True
        # While its file has another name than it should: what is open must stay open.
        self.pinned = False
        self.roll_after_ms = NEVER
        self.roll_after_timestamp = NEVER
        self._file: File | None = None
        self._index: OffsetIndex | None = None
        self._times: TimeIndex | None = None
        self._aborted: AbortedIndex | None = None

    def path(self, suffix: str) -> str:
        return f"{self.directory}/{segment_name(self.base_offset, suffix)}"

    @property
    def file(self) -> File:
        file = self._file
        if file is None:
            file = self._file = self.disk.open(self.path(".log"))
        return file

    @property
    def index(self) -> OffsetIndex:
        if self._index is None:
            self._load()
            assert self._index is not None
        return self._index

    @property
    def times(self) -> TimeIndex:
        if self._times is None:
            self._load()
            assert self._times is not None
        return self._times

    @property
    def aborted(self) -> AbortedIndex:
        """CorruptTransactionIndex when its file cannot be believed."""
        index = self._aborted
        if index is None:
            try:
                index = AbortedIndex.from_bytes(self.disk.read(self.path(".txnindex")), self.base_offset)
            except FileNotFoundError:
                index = AbortedIndex()
            self._aborted = index
        return index

    @aborted.setter
    def aborted(self, index: AbortedIndex) -> None:
        self._aborted = index

    def create_file(self, interval: int) -> None:
        self._file = self.disk.open(self.path(".log"), create=True)
        self._aborted = AbortedIndex()
        self.begin_indexes(interval)

    def begin_indexes(self, interval: int) -> None:
        self._index = OffsetIndex()
        self._times = TimeIndex()
        self.index_due = interval
        self.max_timestamp = self.max_timestamp_offset = -1

    def unload(self) -> None:
        """Let go of the descriptor and the indexes. Slices that are still being sent keep the file open."""
        if self.pinned:
            return
        self._file = None
        if self.index_saved:
            self._index = None
            self._times = None
            if self._aborted:
                # An empty one stays: nobody should look for the file again.
                self._aborted = None

    def release_file(self) -> None:
        """Let go of the descriptor alone; it is opened again on first use."""
        # Bytes behind the end, of an append that failed, would be taken for the end of the file by whoever opens it.
        if self._file is not None and not self.pinned and self.disk.size(self.path(".log")) == self.size:
            self._file = None

    def read_index_files(self) -> bool:
        """Load the indexes as they are on disk. False when they are missing or cannot belong to this segment."""
        try:
            index = OffsetIndex.from_bytes(self.disk.read(self.path(".index")))
            times = TimeIndex.from_bytes(self.disk.read(self.path(".timeindex")))
        except FileNotFoundError:
            return False
        if not index.sane(self.size) or not times.sane():
            return False
        self._index = index
        self._times = times
        return True

    def adopt(self, file: File, index: bytes, times: bytes, aborted: bytes) -> None:
        """Use what lies under other names, until `pinned` is taken back."""
        self._aborted = AbortedIndex.from_bytes(aborted, self.base_offset)
        self._file = file
        self._index = OffsetIndex.from_bytes(index)
        self._times = TimeIndex.from_bytes(times)
        self.pinned = True

    def add_index_entry(self, last_offset: int, position: int, settings: LogSettings) -> None:
        """Of the batch there that ends with `last_offset`. A full index closes the segment."""
        self.index.append(last_offset - self.base_offset, position)
        self.times.append(self.max_timestamp, self.max_timestamp_offset - self.base_offset)
        self.index_due = position + settings.index_interval_bytes
        if (len(self.index) + 1) * 8 > settings.segment_index_bytes:
            self.roll_after_ms = -1

    def note_index_ends(self, interval: int) -> None:
        """Continue where the loaded indexes stop."""
        if self.index.positions:
            self.index_due = self.index.positions[-1] + interval
        else:
            self.index_due = interval
        if self.times.timestamps:
            self.max_timestamp = self.times.timestamps[-1]
            self.max_timestamp_offset = self.base_offset + self.times.offsets[-1]

    def _load(self) -> None:
        if not self.read_index_files():
            self.rebuild_indexes(_REBUILD_INTERVAL_BYTES)
        elif self.max_timestamp < 0:
            self.note_index_ends(_REBUILD_INTERVAL_BYTES)

    def load_max_timestamp(self) -> int:
        """The largest timestamp; a closed segment has it in the last entry of its time index."""
        if self.max_timestamp < 0 and self.size:
            self._load()
        return self.max_timestamp

    def rebuild_indexes(self, interval: int) -> None:
        """From the batches. Only for bytes that were proven before: checksums are not looked at."""
        self.begin_indexes(interval)
        for position, _, last_offset, _, timestamp, _ in self.batches(0, self.size):
            self.note_batch(position, last_offset, timestamp, interval)
        self.times.append(self.max_timestamp, self.max_timestamp_offset - self.base_offset)
        self.index_saved = False

    def note_batch(self, position: int, last_offset: int, timestamp: int, interval: int) -> None:
        if timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
            self.max_timestamp_offset = last_offset
        if position > self.index_due:
            self.index.append(last_offset - self.base_offset, position)
            self.times.append(self.max_timestamp, self.max_timestamp_offset - self.base_offset)
            self.index_due = position + interval

    def index_bytes(self) -> tuple[OffsetIndex, TimeIndex, AbortedIndex]:
        """Copies to be written to the index files, the time index closed by the largest timestamp."""
        times = self.times.copy()
        times.append(self.max_timestamp, self.max_timestamp_offset - self.base_offset)
        return self.index.copy(), times, self.aborted.copy()

    def cut(self, size: int, end_offset: int, interval: int) -> None:
        """Forget what lies at or after `size`; the file itself is cut by the caller."""
        self.aborted.cut(end_offset)
        self.index.cut(self.index.entries_before_position(size))
        self.times.cut(self.times.entries_below(end_offset - self.base_offset))
        self.size = size
        self.synced_size = min(self.synced_size, size)
        self.index_saved = False
        self.max_timestamp = self.max_timestamp_offset = -1
        self.note_index_ends(interval)
        # The largest timestamp may lie behind the last entry that is left.
        start = self.index.positions[-1] if self.index.positions else 0
        for _, _, last_offset, _, timestamp, _ in self.batches(start, size):
            if timestamp > self.max_timestamp:
                self.max_timestamp = timestamp
                self.max_timestamp_offset = last_offset

    def batches(self, position: int, end: int) -> Iterator[Batch]:
        """The batches from `position` on, by their headers. Only for bytes that were proven before."""
        for at, fields in self.headers(position, end):
            # Unpacked at once: every read that has to look for its offset walks over headers here.
            base_offset, length, epoch, _, _, _, delta, _, timestamp, _, _, _, _ = fields
            yield at, base_offset, base_offset + delta, length + PREFIX_BYTES, timestamp, epoch

    def headers(self, position: int, end: int) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Where each batch begins and all fields of its header."""
        file = self.file
        unpack = HEADER.unpack_from
        chunk = b""
        chunk_position = position
        while position < end:
            at = position - chunk_position
            if at + HEADER_BYTES > len(chunk):
                chunk = file.read_at(position, min(_LOOK_BYTES, end - position))
                chunk_position, at = position, 0
                if len(chunk) < HEADER_BYTES:
                    raise DamagedLog(f"{self.path('.log')} ends inside a batch at {position}")
            fields = unpack(chunk, at)
            size = fields[BATCH_LENGTH] + PREFIX_BYTES
            if size < HEADER_BYTES or fields[MAGIC_BYTE] != MAGIC:
                raise DamagedLog(f"{self.path('.log')} has no batch at {position}")
            yield position, fields
            position += size

    def end_offset(self) -> int:
        """The offset behind its last batch. StorageError when it does not end with a whole one."""
        try:
            return self._end_offset(self.index.positions[-1] if len(self.index) else 0)
        except StorageError:
            return self._end_offset(0)

    def _end_offset(self, position: int) -> int:
        end_offset = self.base_offset
        for at, _, last_offset, size, _, _ in self.batches(position, self.size):
            if at + size > self.size:
                raise DamagedLog(f"{self.path('.log')} ends inside a batch at {at}")
            end_offset = last_offset + 1
        return end_offset

    def find(self, offset: int) -> Batch | None:
        """The first batch that ends at or after `offset`; None when the segment has none."""
        try:
            return self._find_by_index(offset)
        except (StorageError, _IndexLies):
            return self._find_without_index(offset)

    def _find_by_index(self, offset: int) -> Batch | None:
        index = self.index
        entry = index.entries_below(offset + 1 - self.base_offset)
        if entry < len(index):
            # Readers go on where the last reply was cut, and replies are cut at indexed batches:
            # the next entry's own batch holds the offset more often than not.
            batch = self._indexed_batch(entry)
            if batch[1] <= offset:
                return batch
        position = 0
        if entry:
            position = self._indexed_batch(entry - 1)[0]
        for batch in self.batches(position, self.size):
            if batch[2] >= offset:
                return batch
        return None

    def _indexed_batch(self, entry: int) -> Batch:
        batch = next(self.batches(self.index.positions[entry], self.size))
        if batch[2] != self.index.offsets[entry] + self.base_offset:
            raise _IndexLies
        return batch

    def _find_without_index(self, offset: int) -> Batch | None:
        # An index file that lies (bit rot, foreign tools) is found out by the batch it points at.
        self.rebuild_indexes(_REBUILD_INTERVAL_BYTES)
        for batch in self.batches(0, self.size):
            if batch[2] >= offset:
                return batch
        return None

    def boundary(self, position: int, limit: int, *, at_least_one: bool) -> int:
        """The end of a run of whole batches that begins at `position` and should not reach past `limit`."""
        end = self.index.last_position_upto(limit)
        if end > position:
            return end
        end = position
        for _, _, _, size, _, _ in self.batches(position, self.size):
            if end + size > limit:
                return position + size if at_least_one and end == position else end
            end += size
        return end


def schedule_roll(segment: Segment, settings: LogSettings) -> None:
    """When it is old enough for the next one to begin: by record time, or by the clock if its first batch has none.
    Full by its bytes is the appender's affair."""
    segment.roll_after_ms = segment.roll_after_timestamp = NEVER
    if not segment.size:
        return
    wait_ms = settings.segment_ms
    if settings.segment_jitter_ms > 0:
        # Spread over the segments, not drawn: the same log rolls at the same time in every run.
        wait_ms -= crc32(segment.path(".log").encode()) % settings.segment_jitter_ms
    if segment.first_timestamp >= 0:
        segment.roll_after_timestamp = segment.first_timestamp + wait_ms
    else:
        segment.roll_after_ms = segment.created_ms + wait_ms
    if len(segment.index) * 8 >= settings.segment_index_bytes // 8 * 8:
        segment.roll_after_ms = -1
