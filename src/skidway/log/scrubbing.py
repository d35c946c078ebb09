"""Looking at what lies on the disk: the batches of one segment, slice by slice, whether they are what was written.

A disk does not always give back what it got, and nobody looks at an old segment before somebody wants to read it. A
`SegmentCheck` belongs to the log's owner and goes once over the synced part of a segment: `begin`, `ticket.run()` on
any thread, `finish`, until it `is_done`. Files are only read. What a ticket found counts only if the segment is still
the same afterwards: one that was replaced, given up or cut meanwhile tells nothing.

Beside each checksum the offsets and leader epochs are looked at, which it does not cover: they never go back, and a
segment's first batch does not begin before the segment. A log goes on in another segment only when the one before has
something, so an empty one that is not the last was emptied.
"""

import errno

from skidway.errors import DamagedLog
from skidway.log.health import SOUND
from skidway.log.log import Log
from skidway.log.segment import Segment
from skidway.ports import Disk, File
from skidway.records.batch import CHECKED_POSITION, HEADER, HEADER_BYTES, MAGIC, PREFIX_BYTES
from skidway.records.checksum import crc32c
from skidway.records.header_fields import BASE_OFFSET, BATCH_LENGTH, CRC, LAST_OFFSET_DELTA, LEADER_EPOCH, MAGIC_BYTE

SLICE_BYTES = 1 << 20
READ_BYTES = 256 << 10
SLICE_BATCHES = 1_000
"""After so many it ends with what was read at once: the event loop waits while a thread works in Python."""
UNREADABLE = (
    errno.EIO,
    errno.ENOENT,
    errno.ENXIO,
    errno.EBADMSG,
    getattr(errno, "EUCLEAN", errno.EIO),
    # Something else has its name: a directory, a link that leads nowhere, a pipe.
    errno.EISDIR,
    errno.ENOTDIR,
    errno.ELOOP,
    errno.ESPIPE,
)
"""What a disk or a file system says whose bytes, or names, are gone. Anything else may be otherwise later."""


class Progress:
    """How far a segment is checked. A batch may end in a later slice than the one it begins in."""

    __slots__ = ("crc", "epoch", "expected_crc", "missing", "next_offset", "position")

    def __init__(self, base_offset: int) -> None:
        self.position = 0
        self.missing = 0
        """Bytes of the batch under way, from `position` on."""
        self.crc = 0
        self.expected_crc = 0
        self.next_offset = base_offset
        self.epoch = -1


class CheckTicket:
    """Reads one slice. `damage` says what is wrong with it; an OSError, that it could not be read now."""

    __slots__ = ("_batches", "_disk", "_end", "_end_offset", "_path", "_progress", "bytes_read", "damage")

    def __init__(self, disk: Disk, path: str, end: int, end_offset: int, progress: Progress) -> None:
        self._disk = disk
        self._path = path
        self._end = end
        self._end_offset = end_offset
        self._progress = progress
        self._batches = 0
        self.bytes_read = 0
        self.damage: str | None = None

    def run(self) -> None:
        progress = self._progress
        try:
            if not self._end:
                raise DamagedLog(f"{self._path} is empty, and had batches: the next segment is at {self._end_offset}")
            file = self._disk.open(self._path)
            while progress.position < self._end:
                self._read_on(file, progress.position)
                if self._batches >= SLICE_BATCHES or self.bytes_read + READ_BYTES > SLICE_BYTES:
                    return
        except DamagedLog as error:
            self.damage = str(error)
        except OSError as error:
            if error.errno not in UNREADABLE:
                raise
            self.damage = f"{self._path} cannot be read at byte {progress.position}: {error}"

    def _read_on(self, file: File, position: int) -> None:
        wanted = min(READ_BYTES, self._end - position)
        data = file.read_at(position, wanted)
        self.bytes_read += len(data)
        if len(data) < wanted:
            raise DamagedLog(f"{self._path} ends at byte {position + len(data)}, and had {self._end} bytes")
        self._check(memoryview(data), position)

    def _check(self, data: memoryview, start: int) -> None:
        progress = self._progress
        missing, crc, expected_crc = progress.missing, progress.crc, progress.expected_crc
        at, size = 0, len(data)
        while at < size:
            if not missing:
                if size - at < HEADER_BYTES:
                    break
                missing, expected_crc = self._begin_batch(data, at, start + at)
                at, crc = at + CHECKED_POSITION, 0
            here = min(missing, size - at)
            crc = crc32c(data[at : at + here], crc)
            at += here
            missing -= here
            if not missing and crc != expected_crc:
                raise DamagedLog(
                    f"{self._path} has a damaged batch that ends at byte {start + at}: its checksum is wrong"
                )
        if not at:
            raise DamagedLog(f"{self._path} ends inside a batch at byte {start}")
        progress.position, progress.missing = start + at, missing
        progress.crc, progress.expected_crc = crc, expected_crc

    def _begin_batch(self, data: memoryview, at: int, position: int) -> tuple[int, int]:
        """How many of its bytes the checksum covers, and the checksum."""
        progress = self._progress
        fields = HEADER.unpack_from(data, at)
        size = fields[BATCH_LENGTH] + PREFIX_BYTES
        if fields[MAGIC_BYTE] != MAGIC or size < HEADER_BYTES or position + size > self._end:
            raise DamagedLog(f"{self._path} has no batch at byte {position}")
        last_offset = fields[BASE_OFFSET] + fields[LAST_OFFSET_DELTA]
        if fields[BASE_OFFSET] < progress.next_offset or not fields[BASE_OFFSET] <= last_offset < self._end_offset:
            raise DamagedLog(
                f"{self._path} has a batch at byte {position} with offsets that belong elsewhere "
                f"({fields[BASE_OFFSET]})"
            )
        if fields[LEADER_EPOCH] < progress.epoch:
            raise DamagedLog(
                f"{self._path} has a batch at byte {position} with the leader epoch {fields[LEADER_EPOCH]}, "
                "an older one"
            )
        progress.next_offset, progress.epoch = last_offset + 1, fields[LEADER_EPOCH]
        self._batches += 1
        return size - CHECKED_POSITION, fields[CRC]


class SegmentCheck:
    """Of one segment, as far as it is synced when this begins."""

    __slots__ = ("_cuts", "_end", "_end_offset", "_log", "_progress", "is_done", "segment")

    def __init__(self, log: Log, segment: Segment, end_offset: int) -> None:
        self._log = log
        self._cuts = log.saved.truncated.count
        self._end = segment.synced_size
        self._end_offset = end_offset
        self._progress = Progress(segment.base_offset)
        self.is_done = False
        self.segment = segment

    @property
    def is_void(self) -> bool:
        """The segment is not what it was when this began, or nobody believes its log any more."""
        log = self._log
        changed = log.saved.truncated.count != self._cuts or self.segment not in log.segments
        return changed or log.health is not SOUND

    def begin(self) -> CheckTicket:
        segment = self.segment
        return CheckTicket(segment.disk, segment.path(".log"), self._end, self._end_offset, self._progress)

    def finish(self, ticket: CheckTicket) -> str | None:
        """The ticket ran: what is damaged, if anything is. The rest of a damaged segment is left alone."""
        if self.is_void:
            return None
        self.is_done = ticket.damage is not None or self._progress.position >= self._end
        return ticket.damage

    def give_up(self) -> None:
        """A ticket could not read now: the segment is left for another time."""
        self.is_done = True


def next_check(log: Log, after: int = -1) -> SegmentCheck | None:
    """The first segment with something to check that begins behind this offset; None when there is none."""
    if log.health is not SOUND:
        return None
    segments = log.segments
    for number, segment in enumerate(segments):
        # While it is pinned its file has another name, and was written a moment ago.
        if segment.base_offset <= after or segment.pinned:
            continue
        is_last = number + 1 == len(segments)
        is_emptied = not is_last and not segment.size
        if segment.synced_size or is_emptied:
            return SegmentCheck(log, segment, log.end_offset if is_last else segments[number + 1].base_offset)
    return None
