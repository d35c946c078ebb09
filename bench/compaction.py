"""How fast a log is compacted, and in how much memory: `python -m bench.compaction --keys 10000000`.

Writes segments with that many distinct keys, some of them again, compacts them in a child process as a broker does,
and prints MB/s, records/s and the child's largest resident size.
"""

import argparse
import resource
import tempfile
import time
from dataclasses import dataclass

from msgspec.structs import replace

from skidway.limits import MIB
from skidway.log.compaction import cleaning
from skidway.log.compaction.compaction import CompactionResult
from skidway.log.durability import checkpointing
from skidway.log.log import Log
from skidway.log.recovery.opening import open_log
from skidway.log.settings import LogSettings
from skidway.records.batch import read_header
from skidway.records.record import Record, build_batch
from skidway.server.compactor import ChildCompactor
from skidway.server.disk import RealDisk

NOW = 1_700_000_000_000
BATCH_RECORDS = 500
SETTINGS = LogSettings(compact=True, cleanup_delete=False, min_cleanable_dirty_ratio=0.0, segment_bytes=256 * MIB)


@dataclass(slots=True)
class Measured:
    size: int  # bytes before
    left: int  # bytes after
    elapsed_s: float
    resident_mib: float
    result: CompactionResult


def fill(log: Log, keys: int, repeated: int, value_bytes: int, codec: int = 0) -> int:
    """Distinct keys, then `repeated` of them again; returns the bytes written."""
    value = b"v" * value_bytes
    numbers = [*range(keys), *range(0, keys, max(1, keys // repeated) if repeated else keys)]
    for start in range(0, len(numbers), BATCH_RECORDS):
        chunk = numbers[start : start + BATCH_RECORDS]
        batch = build_batch([Record(0, NOW, b"customer-%011d" % n, value, ()) for n in chunk], codec=codec)
        log.append(batch, read_header(batch), 0, NOW)
    log.roll(NOW)
    ticket = checkpointing.begin(log)
    assert ticket is not None
    ticket.run()
    log.finish_sync(ticket)
    log.advance_high_watermark(log.synced_offset)
    return log.size()


def compact(log: Log, root: str) -> tuple[CompactionResult, float]:
    compaction = cleaning.begin(log, NOW, "bench")
    assert compaction is not None
    started = time.perf_counter()
    ticket = compaction.clean(ChildCompactor(root))
    ticket.run()
    assert ticket.result is not None, ticket.damage
    elapsed_s = time.perf_counter() - started
    swap = compaction.on_cleaned(ticket.result)
    while swap is not None:
        swap.run()
        swap = compaction.on_swapped(swap)
    return ticket.result, elapsed_s


def measured(
    keys: int, repeated: int, value_bytes: int = 100, codec: int = 0, directory: str | None = None
) -> Measured:
    """Fill a log, compact it once, and throw it away."""
    with tempfile.TemporaryDirectory(dir=directory) as root:
        disk = RealDisk(root)
        try:
            disk.make_directory("bench-0")
            log = open_log(
                disk, "bench-0", replace(SETTINGS), clean=True, recovery_point=0, start_offset=None, now_ms=NOW
            )
            size = fill(log, keys, repeated, value_bytes, codec)
            result, elapsed_s = compact(log, root)
            resident = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
            return Measured(size, log.size(), elapsed_s, resident, result)
        finally:
            disk.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--repeated", type=int, default=None, help="keys that are written twice (half of them)")
    parser.add_argument("--value-bytes", type=int, default=100)
    parser.add_argument("--codec", type=int, default=0)
    parser.add_argument("--directory", default=None)
    options = parser.parse_args()
    repeated = options.keys // 2 if options.repeated is None else options.repeated
    found = measured(options.keys, repeated, options.value_bytes, options.codec, options.directory)
    result, size, elapsed_s = found.result, found.size, found.elapsed_s
    records = result.records_kept + result.records_dropped
    print(f"{size / 1e6:,.0f} MB, {records:,} records, {result.keys:,} keys: {elapsed_s:.1f} s")
    rates = f"{size / 1e6 / elapsed_s:.1f} MB/s, {records / elapsed_s:,.0f} records/s"
    print(f"{rates}, {found.resident_mib:,.0f} MiB resident")
    print(f"{result.records_dropped:,} records dropped, {found.left / 1e6:,.0f} MB left")


if __name__ == "__main__":
    main()
