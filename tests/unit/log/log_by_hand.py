"""A log on a simulated disk and the few things that stories do with it."""

from skidway.log.durability import checkpointing
from skidway.log.log import Log
from skidway.log.recovery import opening
from skidway.log.settings import LogSettings
from skidway.ports import Disk, FileSlice
from skidway.records.batch import BatchHeader, iter_headers, read_header
from skidway.records.record import Record, build_batch

NOW = 1_700_000_000_000
DIRECTORY = "orders-0"


def open_log(
    disk: Disk,
    settings: LogSettings | None = None,
    *,
    clean: bool = True,
    recovery_point: int = 0,
    start_offset: int | None = None,
) -> Log:
    disk.make_directory(DIRECTORY)
    settings = settings or LogSettings()
    return opening.open_log(
        disk,
        DIRECTORY,
        settings,
        clean=clean,
        recovery_point=recovery_point,
        start_offset=start_offset,
        now_ms=NOW,
    )


def append(log: Log, count: int = 1, *, timestamp: int = NOW, size: int = 40, epoch: int = 0, codec: int = 0) -> int:
    records = [Record(i, timestamp + i, b"key", b"v" * size, []) for i in range(count)]
    batch = build_batch(records, codec=codec)
    return log.append(batch, read_header(batch), epoch, NOW)


def commit(log: Log) -> None:
    sync(log)
    log.advance_high_watermark(log.synced_offset)


def sync(log: Log) -> None:
    ticket = log.begin_sync()
    if ticket is not None:
        ticket.run()
        log.finish_sync(ticket)


def checkpoint(log: Log) -> None:
    ticket = checkpointing.begin(log)
    assert ticket is not None
    ticket.run()
    log.finish_sync(ticket)


def headers(slice_: FileSlice | None) -> list[BatchHeader]:
    assert slice_ is not None
    data = slice_.read()
    found = [header for _, header in iter_headers(data)]
    assert sum(header.size for header in found) == len(data) == len(slice_)
    return found


def offsets(slice_: FileSlice | None) -> list[int]:
    return [header.base_offset for header in headers(slice_)]
