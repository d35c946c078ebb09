"""Writing anew what no sync has proven: after one has failed, before anything is read.

The kernel takes the pages of a failed sync for written and keeps them. A process that is started on the same boot reads
them, its own syncs succeed and prove nothing, and a loss of power takes what it believed and promised. Written once
more, the same bytes are due again, and the next sync is about them.

Only files that grow need it, from the proven offset of their log on. All others are synced under another name and then
renamed: what is missing is at most the sync of their directory.
"""

from __future__ import annotations

from skidway.errors import StorageError
from skidway.log.checkpoints import NEVER_TRUNCATED, PARTITION_METADATA, TRUNCATED, Truncated, read_truncated
from skidway.log.producers import CorruptSnapshot, Producers
from skidway.log.segment import Segment
from skidway.log.sync import snapshot_offset, snapshot_path
from skidway.ports import Disk


def write_anew(disk: Disk, directory: str, recovery_point: int) -> int:
    """Returns how many bytes of batches are written and synced. OSError when the disk refuses."""
    names = disk.list(directory)
    truncated = _read_truncated(disk, directory)
    written = 0
    if truncated.restart_at < 0:
        proven = _proven(disk, directory, names, truncated, recovery_point)
        for segment in _reaching_past(disk, directory, names, proven):
            position = _position(segment, proven)
            _write_file(disk, segment.path(".log"), position)
            written += segment.size - position
    if PARTITION_METADATA in names:
        _write_file(disk, f"{directory}/{PARTITION_METADATA}", 0)
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


def _reaching_past(disk: Disk, directory: str, names: list[str], offset: int) -> list[Segment]:
    """The segments with something at or after `offset`, as far as their names tell."""
    bases = sorted(int(name[:-4]) for name in names if name.endswith(".log") and name[:-4].isdecimal())
    last_before = max((base for base in bases if base <= offset), default=0)
    return [
        Segment(disk, directory, base, disk.size(f"{directory}/{base:020d}.log"), 0)
        for base in bases
        if base >= last_before
    ]


def _position(segment: Segment, offset: int) -> int:
    """Where the batch begins that holds `offset`; the beginning when what is there cannot be read."""
    if offset <= segment.base_offset:
        return 0
    try:
        batch = segment.find(offset)
    except StorageError:
        return 0
    return segment.size if batch is None else batch[0]


def _write_file(disk: Disk, path: str, position: int) -> None:
    file = disk.open(path)
    file.write_again(position)
    file.sync()
    file.close()
