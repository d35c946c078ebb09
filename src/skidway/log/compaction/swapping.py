"""The files of a compaction on their way into place.

A `.log.swap` file is a whole new segment, synced. It replaces every segment that begins within its offsets.
"""

from skidway.log.segment import Segment, offset_in_name, segment_name
from skidway.ports import Disk

INDEX_SUFFIXES = (".index", ".timeindex", ".txnindex")
SEGMENT_SUFFIXES = (".log", *INDEX_SUFFIXES)
SWAP = ".log.swap"


def place(disk: Disk, directory: str, base_offset: int, replaced: list[int]) -> None:
    """A `.swap` file becomes the segment it is. Can be done again after a crash at any point."""
    for replaced_offset in replaced:
        for suffix in SEGMENT_SUFFIXES if replaced_offset != base_offset else SEGMENT_SUFFIXES[1:]:
            disk.remove(f"{directory}/{segment_name(replaced_offset, suffix)}")
    disk.sync_directory(directory)
    disk.rename(f"{directory}/{segment_name(base_offset, SWAP)}", f"{directory}/{segment_name(base_offset, '.log')}")
    disk.sync_directory(directory)


def finish_swaps(disk: Disk, directory: str, names: list[str], now_ms: int) -> list[str]:
    """At load: complete what a crash interrupted; returns the names in the directory."""
    swaps = sorted(offset for name in names if (offset := offset_in_name(name, SWAP)) is not None)
    if not swaps:
        return names
    for base_offset in swaps:
        path = f"{directory}/{segment_name(base_offset, SWAP)}"
        swap = Segment(disk, directory, base_offset, disk.size(path), now_ms)
        swap.adopt(disk.open(path), b"", b"")
        end_offset = base_offset
        for batch in swap.batches(0, swap.size):
            end_offset = batch[2] + 1
        there = [offset for name in names if (offset := offset_in_name(name, ".log")) is not None]
        place(disk, directory, base_offset, [base for base in there if base_offset <= base < end_offset])
    return disk.list(directory)
