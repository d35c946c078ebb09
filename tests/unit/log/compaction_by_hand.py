"""A log that is written, settled and compacted by hand, on a simulated disk."""

from skidway.limits import Limits
from skidway.log.compaction import cleaning
from skidway.log.compaction.cleaning import Compaction, DirectCompactor
from skidway.log.compaction.compaction import CompactionResult
from skidway.log.durability import checkpointing
from skidway.log.log import Log
from skidway.log.recovery import opening
from skidway.log.settings import LogSettings
from skidway.records.batch import BatchHeader, crc_matches, iter_headers, read_header
from skidway.records.record import Record, build_batch, read_records
from skidway.sim.world.disk import SimDisk

NOW = 1_700_000_000_000
DAY = 24 * 3600 * 1000
DIRECTORY = "state-0"
SETTINGS = LogSettings(compact=True, cleanup_delete=False, min_cleanable_dirty_ratio=0.0, segment_bytes=10_000)

Pair = tuple[str, str | None]


def open_log(disk: SimDisk, settings: LogSettings = SETTINGS, limits: Limits | None = None) -> Log:
    disk.make_directory(DIRECTORY)
    return opening.open_log(
        disk,
        DIRECTORY,
        settings,
        clean=False,
        recovery_point=0,
        start_offset=None,
        now_ms=NOW,
        limits=limits or Limits(),
    )


def write(log: Log, *pairs: Pair, timestamp: int = NOW, codec: int = 0, epoch: int = 0, **batch_settings: int) -> int:
    records = [
        Record(0, timestamp + i, key.encode(), None if value is None else value.encode(), [("h", b"1")])
        for i, (key, value) in enumerate(pairs)
    ]
    batch = build_batch(records, codec=codec, **batch_settings)  # type: ignore[arg-type]
    return log.append(batch, read_header(batch), epoch, timestamp)


def settle(log: Log) -> None:
    """Everything on disk, committed, covered by a snapshot."""
    ticket = checkpointing.begin(log)
    if ticket is not None:
        ticket.run()
        log.finish_sync(ticket)
    log.advance_high_watermark(log.synced_offset)


def close_segment(log: Log) -> None:
    log.roll(NOW)
    settle(log)


def compact(log: Log, now_ms: int = NOW, token: str = "t1") -> CompactionResult:
    running = cleaning.begin(log, now_ms, token)
    assert running is not None
    return finish(log, running)


def finish(log: Log, running: Compaction) -> CompactionResult:
    clean = running.clean(DirectCompactor(log.disk))
    clean.run()
    assert clean.result is not None, clean.damage
    ticket = running.on_cleaned(clean.result)
    while ticket is not None:
        ticket.run()
        ticket = running.on_swapped(ticket)
    assert log.compaction is None
    return clean.result


def contents(log: Log) -> list[tuple[int, str, str | None]]:
    return [
        (record.offset, (record.key or b"").decode(), None if record.value is None else record.value.decode())
        for record in read(log)
    ]


def read(log: Log) -> list[Record]:
    return [
        record
        for _, batch in raw(log)
        for record in read_records(batch, decompressed_bytes_max=1 << 20)
        if record.offset >= log.start_offset
    ]


def raw(log: Log) -> list[tuple[BatchHeader, bytes]]:
    """Every batch a reader gets, each with a checksum that fits."""
    offset, found = log.start_offset, []
    while (slice_ := log.read(offset, 1)) is not None:
        data = slice_.read()
        ((_, header),) = iter_headers(data)
        assert crc_matches(data)
        assert header.last_offset >= offset
        found.append((header, data))
        offset = header.last_offset + 1
    assert offset == log.high_watermark
    return found


def files(log: Log) -> list[str]:
    return [name for name in log.disk.list(DIRECTORY) if not name.endswith((".snapshot", "checkpoint"))]
