"""The files of a compaction on their way into place.

A `.log.swap` file is a whole new segment, synced. It replaces every segment that begins within its offsets. If one of
those has aborted transactions, a `.txnindex.swap` came before it, with those of the new one, perhaps none.
"""

from skidway.log.segment import Segment, offset_in_name, segment_name
from skidway.ports import Disk

REBUILT_SUFFIXES = (".index", ".timeindex")
"""Files that may go at any time: they are made again from the batches."""
INDEX_SUFFIXES = (*REBUILT_SUFFIXES, ".txnindex")
SEGMENT_SUFFIXES = (".log", *INDEX_SUFFIXES)
SWAP = ".log.swap"
ABORTED_SWAP = ".txnindex.swap"


def place(disk: Disk, directory: str, base_offset: int, replaced: list[int]) -> None:
    """A `.swap` file becomes the segment it is. Can be done again after a crash at any point."""
    aborted = f"{directory}/{segment_name(base_offset, ABORTED_SWAP)}"
    if disk.exists(aborted):
        disk.rename(aborted, f"{directory}/{segment_name(base_offset, '.txnindex')}")
        disk.sync_directory(directory)
    for replaced_offset in replaced:
        for suffix in SEGMENT_SUFFIXES if replaced_offset != base_offset else REBUILT_SUFFIXES:
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
        swap.adopt(disk.open(path), b"", b"", b"")
        end_offset = base_offset
        for batch in swap.batches(0, swap.size):
            end_offset = batch[2] + 1
        there = [offset for name in names if (offset := offset_in_name(name, ".log")) is not None]
        place(disk, directory, base_offset, [base for base in there if base_offset <= base < end_offset])
    return disk.list(directory)
