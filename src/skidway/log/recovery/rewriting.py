"""Writing anew what no sync has proven: after one has failed, before anything is read.

The kernel takes the pages of a failed sync for written and keeps them. A process that is started on the same boot reads
them, its own syncs succeed and prove nothing, and a loss of power takes what it believed and promised. To write the
same bytes to the same place is not enough: ext4 may go on taking the blocks for empty. So they go to new files.

Only segments need it, from the proven offset of their log on. The tail of one that is proven in part becomes a segment
of its own: the new file is synced and gets its name, then the old one is cut. A crash in between leaves the tail in
both, which the next start, as it does all this again, finds and ends. All other files are synced under another name
and then renamed: what is missing is at most the sync of their directory.
"""

from __future__ import annotations

from contextlib import suppress

from skidway.errors import StorageError
from skidway.limits import MIB
from skidway.log.aborted import CorruptTransactionIndex
from skidway.log.compaction.swapping import REBUILT_SUFFIXES
from skidway.log.durability.checkpoints import NEVER_TRUNCATED, PARTITION_METADATA, TRUNCATED, Truncated, read_truncated
from skidway.log.durability.sync import snapshot_offset, snapshot_path
from skidway.log.producers import CorruptSnapshot, Producers
from skidway.log.segment import Segment, find_segments, segment_name
from skidway.ports import Disk


def write_anew(disk: Disk, directory: str, recovery_point: int) -> int:
    """Returns how many bytes of batches are written and synced. OSError when the disk refuses."""
    names = disk.list(directory)
    truncated = _read_truncated(disk, directory)
    written = 0
    if truncated.restart_at < 0:
        proven = _proven(disk, directory, names, truncated, recovery_point)
        segments = find_segments(disk, directory, names, 0)
        first = max((number for number, segment in enumerate(segments) if segment.base_offset <= proven), default=0)
        if first:
            _end_before(segments[first - 1], segments[first].base_offset)
        for segment in segments[first:]:
            written += _move(segment, proven)
    if PARTITION_METADATA in names:
        path = f"{directory}/{PARTITION_METADATA}"
        disk.write_atomic(path, disk.read(path))
    disk.sync_directory(directory)
    return written


def _read_truncated(disk: Disk, directory: str) -> Truncated:
    try:
        return read_truncated(disk.read(f"{directory}/{TRUNCATED}"))
    except FileNotFoundError:
        return NEVER_TRUNCATED


def _proven(disk: Disk, directory: str, names: list[str], truncated: Truncated, recovery_point: int) -> int:
    """Everything below was synced before a file was written that says so."""
    # What speaks of offsets above a cut may speak of what is gone.
    offsets = [offset for name in names if (offset := snapshot_offset(name)) is not None and offset <= truncated.offset]
    recovery_point = min(recovery_point, truncated.offset)
    for offset in sorted(offsets, reverse=True):
        if offset <= recovery_point:
            break
        try:
            taken = Producers().load_snapshot(disk.read(snapshot_path(directory, offset)), 0)
        except CorruptSnapshot:
            continue
        if taken.start_offset is not None:
            return offset
    return recovery_point


def _find(segment: Segment, offset: int) -> tuple[int, int]:
    """Where the batch begins that holds `offset` or is the first after it, and its own offset; the beginning of the
    segment when what is there cannot be read, its end when it has none."""
    if offset <= segment.base_offset:
        return 0, segment.base_offset
    try:
        batch = segment.find(offset)
    except StorageError:
        return 0, segment.base_offset
    return (segment.size, offset) if batch is None else (batch[0], batch[1])


def _end_before(segment: Segment, offset: int) -> None:
    """What `segment` has of the one after it was moved there by a start that did not come to its end."""
    try:
        batch = segment.find(offset)
        if batch is not None and batch[1] >= offset:
            _cut(segment, batch[0], offset)
    except StorageError:
        # Power was lost then, and left what it wanted of the tail.
        _cut(segment, _end_of_batches_upto(segment, offset), offset)
    # It may have been cut already, by a start that did not come as far as this.
    segment.file.sync()


def _end_of_batches_upto(segment: Segment, offset: int) -> int:
    """The size of the whole file when they do not lead up to there: that is another kind of damage."""
    position, next_offset = 0, segment.base_offset
    try:
        for batch in segment.batches(0, segment.size):
            if batch[1] >= offset:
                break
            position, next_offset = batch[0] + batch[3], batch[2] + 1
    except StorageError:
        pass
    return position if next_offset == offset else segment.size


def _move(segment: Segment, proven: int) -> int:
    """Everything at or after the proven offset into a new file. Returns how much that is."""
    position, found = _find(segment, proven)
    if position == segment.size:
        # It may have been cut, and the sync of that have failed: the file's length is journalled as names are.
        segment.file.sync()
        return 0
    disk, directory = segment.disk, segment.directory
    offset = min(found, proven) if position else segment.base_offset
    path = f"{directory}/{segment_name(offset, '.log')}"
    disk.remove(f"{path}.tmp")
    file = disk.open(f"{path}.tmp", create=True)
    for start in range(position, segment.size, MIB):
        file.append(segment.file.read_at(start, min(MIB, segment.size - start)))
    file.sync()
    file.close()
    disk.rename(f"{path}.tmp", path)
    disk.sync_directory(directory)
    written = segment.size - position
    if position:
        _cut(segment, position, offset)
    return written


def _cut(segment: Segment, position: int, offset: int) -> None:
    if position < segment.size:
        # They may speak of what goes, and are made again from what stays.
        for suffix in REBUILT_SUFFIXES:
            segment.disk.remove(segment.path(suffix))
        _cut_aborted(segment, offset)
        segment.disk.sync_directory(segment.directory)
        segment.file.truncate(position)
        segment.file.sync()


def _cut_aborted(segment: Segment, offset: int) -> None:
    """Its transaction index cannot be made again: what is below the offset is proven by a snapshot, as the log is."""
    path = segment.path(".txnindex")
    if segment.disk.exists(path):
        with suppress(CorruptTransactionIndex):
            segment.aborted.cut(offset)
            segment.disk.write_atomic(path, segment.aborted.to_bytes())
