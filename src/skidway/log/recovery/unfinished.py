"""What a killed process can leave at the end of a file, told from damage.

A kill loses nothing that was written as long as the machine runs on. So the only thing it can leave incomplete is the
append that was under way: the last bytes of the last file, fewer than their header says. Everything else that cannot be
read was changed after it was written, and other records may lie behind it.
"""

import re

from skidway.log.recovery.replay import file_crc
from skidway.log.segment import Segment
from skidway.records.batch import HEADER, HEADER_BYTES, MAGIC, PREFIX_BYTES
from skidway.records.header_fields import BASE_OFFSET, BATCH_LENGTH, CRC, LAST_OFFSET_DELTA, MAGIC_BYTE

_SEARCH_BYTES_MAX = 64 << 20
_CHUNK_BYTES = 1 << 20
_OFFSETS_AHEAD_MAX = 1 << 31
# The first 17 bytes of a batch: offset (below 2^48), length (below 2^28), leader epoch, magic.
_PERHAPS_A_BATCH = re.compile(rb"(?s)(?=\x00\x00.{6}[\x00-\x0f].{3}[\x00-\x7f].{3}\x02)")


def is_unfinished_append(segment: Segment, position: int, next_offset: int) -> bool:
    """Whether the bytes from `position` to the end of the last segment are an append that a kill interrupted."""
    rest = segment.size - position
    if rest < HEADER_BYTES:
        return True
    fields = HEADER.unpack_from(segment.file.read_at(position, HEADER_BYTES))
    batch_bytes = fields[BATCH_LENGTH] + PREFIX_BYTES
    if (
        fields[MAGIC_BYTE] != MAGIC
        or batch_bytes <= rest
        or fields[BASE_OFFSET] < next_offset
        or fields[LAST_OFFSET_DELTA] < 0
    ):
        return False
    # It says that it is longer than the file. If it is whole all the same, its length is what was changed.
    if file_crc(segment.file, position, rest) == fields[CRC]:
        return False
    return not _has_batch_behind(segment, position, next_offset)


def _has_batch_behind(segment: Segment, position: int, next_offset: int) -> bool:
    """Whether a whole batch with a later offset begins anywhere after `position`."""
    end = min(segment.size, position + _SEARCH_BYTES_MAX)
    at = position + 1
    while end - at >= HEADER_BYTES:
        chunk = segment.file.read_at(at, min(_CHUNK_BYTES + HEADER_BYTES, end - at))
        if len(chunk) < HEADER_BYTES:
            return False
        for match in _PERHAPS_A_BATCH.finditer(chunk, 0, len(chunk)):
            found = match.start()
            if found + HEADER_BYTES > len(chunk):
                break
            fields = HEADER.unpack_from(chunk, found)
            size = fields[BATCH_LENGTH] + PREFIX_BYTES
            is_later = 0 <= fields[BASE_OFFSET] - next_offset < _OFFSETS_AHEAD_MAX and fields[LAST_OFFSET_DELTA] >= 0
            if not is_later or size < HEADER_BYTES or at + found + size > segment.size:
                continue
            if file_crc(segment.file, at + found, size) == fields[CRC]:
                return True
        at += len(chunk) - HEADER_BYTES + 1
    return False
