"""Reading batches back at start: what proves a log's tail, and what rebuilds the state that hangs on it.

Below `proven` the bytes were synced and are believed by their headers; from there on every batch must carry its
checksum. The first one that does not, or whose offset goes back, ends the log: a torn write.
"""

from skidway.log import markers
from skidway.log.epochs import LeaderEpochs
from skidway.log.producers import Producers
from skidway.log.segment import Segment
from skidway.ports import File
from skidway.records.batch import CHECKED_POSITION, CONTROL_BIT, HEADER, HEADER_BYTES, MAGIC, PREFIX_BYTES
from skidway.records.checksum import crc32c
from skidway.records.header_fields import (
    ATTRIBUTES,
    BASE_OFFSET,
    BATCH_LENGTH,
    CRC,
    LAST_OFFSET_DELTA,
    LEADER_EPOCH,
    MAGIC_BYTE,
    MAX_TIMESTAMP,
    PRODUCER_ID,
)

_CHUNK_BYTES = 1 << 20


class Replay:
    """Walks segments in order and feeds what it finds to the indexes, the producers and the epochs."""

    __slots__ = ("epochs", "interval", "next_offset", "now_ms", "producers", "producers_from", "proven")

    def __init__(
        self,
        *,
        next_offset: int,
        proven: int,
        producers: Producers,
        producers_from: int,
        epochs: LeaderEpochs,
        interval: int,
        now_ms: int,
    ) -> None:
        self.next_offset = next_offset
        self.proven = proven
        self.producers = producers
        self.producers_from = producers_from
        self.epochs = epochs
        self.interval = interval
        self.now_ms = now_ms

    def read(self, segment: Segment, position: int) -> int:
        """Replay a segment from `position`; returns where the last good batch ends."""
        file = segment.file
        size = segment.size
        unpack = HEADER.unpack_from
        proven = self.proven
        while size - position >= HEADER_BYTES:
            chunk = memoryview(file.read_at(position, min(_CHUNK_BYTES, size - position)))
            length = len(chunk)
            at = 0
            while length - at >= HEADER_BYTES:
                fields = unpack(chunk, at)
                batch_bytes = fields[BATCH_LENGTH] + PREFIX_BYTES
                last = fields[BASE_OFFSET] + fields[LAST_OFFSET_DELTA]
                if (
                    batch_bytes < HEADER_BYTES
                    or fields[MAGIC_BYTE] != MAGIC
                    or fields[BASE_OFFSET] < self.next_offset
                    or fields[LAST_OFFSET_DELTA] < 0
                    or position + at + batch_bytes > size
                ):
                    return position + at
                end = at + batch_bytes
                if end > length:
                    if at:
                        break
                    if last >= proven and file_crc(file, position, batch_bytes) != fields[CRC]:
                        return position
                elif last >= proven and crc32c(chunk[at + CHECKED_POSITION : end]) != fields[CRC]:
                    return position + at
                if fields[MAX_TIMESTAMP] > segment.max_timestamp or position + at > segment.index_due:
                    segment.note_batch(position + at, last, fields[MAX_TIMESTAMP], self.interval)
                if (
                    fields[PRODUCER_ID] >= 0 or fields[LEADER_EPOCH] > self.epochs.latest
                ) and last >= self.producers_from:
                    self._state(fields, chunk[at:end], segment)
                self.next_offset = last + 1
                at = end
            if at == 0:
                break
            position += at
        return position

    def _state(self, fields: tuple[int, ...], batch: memoryview, segment: Segment) -> None:
        if fields[LEADER_EPOCH] > self.epochs.latest:
            self.epochs.assign(fields[LEADER_EPOCH], fields[BASE_OFFSET])
        if fields[PRODUCER_ID] < 0:
            return
        if fields[ATTRIBUTES] & CONTROL_BIT:
            markers.note(self.producers, segment.aborted, batch, fields, self.now_ms)
        else:
            markers.record(self.producers, fields, self.now_ms)


def file_crc(file: File, position: int, size: int) -> int:
    """The checksum of a batch that may be too large to hold in memory."""
    crc = 0
    end = position + size
    position += CHECKED_POSITION
    while position < end:
        piece = file.read_at(position, min(_CHUNK_BYTES, end - position))
        if not piece:
            return -1
        crc = crc32c(piece, crc)
        position += len(piece)
    return crc
