"""A log held against itself: its state must be what its own batches say.

Run where it matters: after every recovery and at the end. Offsets rise, checksums fit, the epoch cache and the
producers' state are what a replay gives, lookups through the index find what a scan finds.
"""

from __future__ import annotations

from skidway.broker.events import Event
from skidway.errors import CorruptMessage, StorageError
from skidway.log import markers
from skidway.log.aborted import AbortedIndex
from skidway.log.bounds import Bound
from skidway.log.durability.checkpoints import DAMAGED, TRUNCATED
from skidway.log.epochs import LeaderEpochs
from skidway.log.log import Log
from skidway.log.producers import Producers
from skidway.records.batch import BatchHeader, crc_matches, iter_headers
from skidway.replica.news import DirectoryMissing, LogCut, LogSetAside
from skidway.sim.world.disk import SimDisk
from skidway.sim.world.events import Violation

PROBES = 8


def batches_of(log: Log, start: int = 0, end: int | None = None) -> list[tuple[BatchHeader, bytes]]:
    """Every batch with its bytes, from the files themselves."""
    found = []
    for segment in log.segments:
        data = segment.file.read_at(0, segment.size)
        view = memoryview(data)
        for position, header in iter_headers(view):
            if header.base_offset >= start and (end is None or header.last_offset < end):
                found.append((header, bytes(view[position : position + header.size])))
    return found


def check_log(who: str, log: Log) -> None:
    if log.quarantined:
        return
    try:
        batches = batches_of(log)
    except CorruptMessage as error:
        raise Violation("log-checksum", f"{who} {log.directory}: {error}") from error
    _check_offsets(who, log, batches)
    _check_epochs(who, log, batches)
    _check_producers(who, log, batches)
    _check_index(who, log)
    _check_lookups(who, log, batches)


def stored_bytes(disk: SimDisk) -> dict[str, int]:
    """The size of each log's files, by directory; without those that are in the middle of a cut, or damaged."""
    sizes = {}
    for directory in disk.list(""):
        names = disk.list(directory) if disk.is_directory(directory) else []
        if TRUNCATED not in names and DAMAGED not in names:
            sizes[directory] = sum(disk.size(f"{directory}/{name}") for name in names if name.endswith(".log"))
    return sizes


def check_told(who: str, log: Log, stored: int, reported: list[Event]) -> None:
    """A start that shortens a log reports it, but for segments below a beginning that was deleted."""
    left = sum(segment.size for segment in log.segments)
    shortened = {event.directory for event in reported if isinstance(event, LogCut | LogSetAside | DirectoryMissing)}
    trimmed = bool(log.segments) and log.segments[0].base_offset > 0
    if left < stored and not trimmed and not log.settings.compact and log.directory not in shortened:
        raise Violation(
            "silent-cut",
            f"{who} {log.directory}: {stored - left} of {stored} bytes are gone, no event says so; events: {reported}",
        )


def _check_offsets(who: str, log: Log, batches: list[tuple[BatchHeader, bytes]]) -> None:
    where = f"{who} {log.directory}"
    if not log.start_offset <= log.high_watermark <= log.end_offset or log.synced_offset > log.end_offset:
        raise Violation(
            "log-bounds",
            f"{where}: start {log.start_offset}, watermark {log.high_watermark}, synced {log.synced_offset}, "
            f"end {log.end_offset}",
        )
    next_offset, epoch = -1, -1
    for header, data in batches:
        if header.base_offset < next_offset or header.partition_leader_epoch < epoch:
            raise Violation("log-order", f"{where}: {header} after offset {next_offset - 1} of epoch {epoch}")
        if not crc_matches(data):
            raise Violation("log-checksum", f"{where}: the batch at {header.base_offset} is damaged")
        next_offset, epoch = header.last_offset + 1, header.partition_leader_epoch
    if batches and next_offset != log.end_offset:
        raise Violation("log-order", f"{where}: the batches end at {next_offset}, the log at {log.end_offset}")


def _check_epochs(who: str, log: Log, batches: list[tuple[BatchHeader, bytes]]) -> None:
    expected = LeaderEpochs()
    for header, _ in batches:
        if header.last_offset >= log.start_offset:
            expected.assign(header.partition_leader_epoch, max(header.base_offset, log.start_offset))
    told = expected.entries()
    actual = [entry for entry in log.epochs.entries() if entry[1] < log.end_offset]
    if log.settings.compact:
        # Of the first epoch of all nothing need be left: nobody asks where it began.
        told, actual = ([entry for entry in entries if entry[0] > 0] for entries in (told, actual))
    if told != actual and log.start_offset == 0:
        raise Violation("epoch-cache", f"{who} {log.directory}: the cache has {actual}, the log has {told}")


def _check_producers(who: str, log: Log, batches: list[tuple[BatchHeader, bytes]]) -> None:
    if log.start_offset or log.settings.compact:
        return  # what was deleted may still be remembered
    replayed = Producers(count_max=log.producers.count_max, expiry_ms=log.producers.expiry_ms)
    aborted = AbortedIndex()
    for header, data in batches:
        if header.is_control and header.producer_id >= 0:
            markers.note(replayed, aborted, data, header, 0)
        elif header.producer_id >= 0:
            markers.record(replayed, header, 0)
    if replayed.state() != log.producers.state():
        raise Violation(
            "producer-state",
            f"{who} {log.directory}: producers are {log.producers.state()}; a replay gives {replayed.state()}",
        )
    indexed = [entry for segment in log.segments for entry in segment.aborted.entries]
    if indexed != aborted.entries:
        raise Violation("aborted", f"{who} {log.directory}: the index has {indexed}; a replay gives {aborted.entries}")


def _check_index(who: str, log: Log) -> None:
    """Every entry that is in memory: a reader would find out and build it anew, and yet it must not lie."""
    for segment in log.segments:
        if segment._index is None or not len(segment.index):
            continue
        view = memoryview(segment.file.read_at(0, segment.size))
        ends = {position: header.last_offset - segment.base_offset for position, header in iter_headers(view)}
        for offset, position in zip(segment.index.offsets, segment.index.positions, strict=True):
            if ends.get(position) != offset:
                raise Violation(
                    "lookup",
                    f"{who} {log.directory}: the index of {segment.base_offset} has {offset} at {position}, where "
                    f"{ends.get(position)} is",
                )


def _check_lookups(who: str, log: Log, batches: list[tuple[BatchHeader, bytes]]) -> None:
    if not batches:
        return
    for probe in range(PROBES + 1):
        header, data = batches[probe * (len(batches) - 1) // PROBES]
        if header.base_offset < log.start_offset:
            continue
        try:
            found = log.read(header.base_offset, 1, Bound.END)
        except StorageError as error:
            raise Violation("lookup", f"{who} {log.directory}: offset {header.base_offset}: {error}") from error
        if found is None or found.read()[: header.size] != data:
            raise Violation("lookup", f"{who} {log.directory}: offset {header.base_offset} is not found where it is")
