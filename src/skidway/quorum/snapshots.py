"""Snapshots of the metadata as files: `<end offset>-<epoch>.checkpoint` beside the log, in KRaft's format.

A snapshot is a file of record batches: control records first (header, version, voters), then records in the place of
all the log's below the end offset, then a footer. It is whole when its checksums hold, its offsets count from 0 and
the footer ends it. While one is written its name ends in `.part`.
"""

from collections.abc import Iterable, Iterator

from skidway.errors import CorruptMessage, ProtocolError
from skidway.limits import MIB
from skidway.ports import Disk, File
from skidway.quorum.control import (
    Control,
    control_batch,
    decode_voters,
    kraft_version,
    read_controls,
    snapshot_footer,
    snapshot_header,
    voters_record,
)
from skidway.quorum.messages import EpochEnd
from skidway.quorum.voters import Voters
from skidway.records.batch import HEADER_BYTES, MAGIC, BatchHeader, crc_matches, read_header
from skidway.records.control import ControlType
from skidway.records.record import Record, build_batch

SNAPSHOT_BYTES_MAX = 2048 * MIB
"""Of one whole file; more is neither written nor fetched."""
BATCH_BYTES_MAX = 64 * MIB
CHUNK_BYTES = MIB
"""What is read, or sent, at once."""
_BATCH_RECORDS = 1_000
_BATCH_BYTES = 512 * 1024
_SUFFIX = ".checkpoint"
PART = ".part"

KeyValue = tuple[bytes | None, bytes | None]


def snapshot_name(snapshot: EpochEnd) -> str:
    return f"{snapshot.end_offset:020d}-{snapshot.epoch:010d}{_SUFFIX}"


def parse_snapshot_name(name: str) -> EpochEnd | None:
    stem = name.removesuffix(_SUFFIX)
    offset, _, epoch = stem.partition("-")
    if stem == name or len(offset) != 20 or len(epoch) != 10 or not (offset + epoch).isdecimal():
        return None
    return EpochEnd(int(epoch), int(offset))


class SnapshotTicket:
    """Writes a snapshot: `run` on any thread, then back to `MetadataLog.finish_snapshot_of`.

    `records` is read on the thread that runs the ticket: it must not look at anything that changes meanwhile.
    """

    __slots__ = ("_records", "_timestamp_ms", "directory", "disk", "done", "size", "snapshot", "voters")

    def __init__(
        self,
        disk: Disk,
        directory: str,
        snapshot: EpochEnd,
        voters: Voters,
        records: Iterable[KeyValue],
        timestamp_ms: int,
    ) -> None:
        self.disk = disk
        self.directory = directory
        self.snapshot = snapshot
        self.voters = voters
        self._records = records
        self._timestamp_ms = timestamp_ms
        self.size = 0
        self.done = False

    @property
    def path(self) -> str:
        return f"{self.directory}/{snapshot_name(self.snapshot)}"

    def run(self) -> None:
        """OSError, or StorageError from `records`: nothing is there, and it may be tried again."""
        part = self.path + PART
        self.disk.remove(part)
        try:
            file = self.disk.open(part, create=True)
            self._write(file)
            file.sync()
            file.close()
            self.disk.rename(part, self.path)
            self.disk.sync_directory(self.directory)
        except (OSError, ProtocolError):
            self.disk.remove(part)
            raise
        self.done = True

    def _write(self, file: File) -> None:
        first = [snapshot_header(self._timestamp_ms), kraft_version(), voters_record(self.voters)]
        offset = self._append_control(file, first, 0)
        pending: list[Record] = []
        pending_bytes = 0
        for key, value in self._records:
            pending.append(Record(0, self._timestamp_ms, key, value))
            pending_bytes += len(key or b"") + len(value or b"")
            if len(pending) >= _BATCH_RECORDS or pending_bytes >= _BATCH_BYTES:
                offset = self._append(file, pending, offset)
                pending, pending_bytes = [], 0
        if pending:
            offset = self._append(file, pending, offset)
        self._append_control(file, [snapshot_footer()], offset)

    def _append(self, file: File, records: list[Record], offset: int) -> int:
        self._put(file, build_batch(records, base_offset=offset, leader_epoch=self.snapshot.epoch))
        return offset + len(records)

    def _append_control(self, file: File, controls: list[Control], offset: int) -> int:
        batch = control_batch(controls, self._timestamp_ms, base_offset=offset, epoch=self.snapshot.epoch)
        self._put(file, batch)
        return offset + len(controls)

    def _put(self, file: File, batch: bytearray) -> None:
        self.size += len(batch)
        if self.size > SNAPSHOT_BYTES_MAX or len(batch) > BATCH_BYTES_MAX:
            raise OSError(f"{self.path} would take more than {SNAPSHOT_BYTES_MAX} bytes")
        file.append(batch)


def read_batches(disk: Disk, path: str) -> Iterator[tuple[BatchHeader, bytes]]:
    """Every batch of the file, each checked; CorruptMessage where one is wrong or the file ends too early."""
    file = disk.open(path)
    size = file.size()
    position = offset = 0
    ended = False
    while position < size:
        header = read_header(file.read_at(position, HEADER_BYTES))
        if header.magic != MAGIC or not HEADER_BYTES <= header.size <= min(size - position, BATCH_BYTES_MAX):
            raise CorruptMessage(f"{path} has no whole batch at byte {position}")
        batch = file.read_at(position, header.size)
        if not crc_matches(batch):
            raise CorruptMessage(f"{path}: the batch at byte {position} has a wrong checksum")
        if header.base_offset != offset or header.last_offset_delta < 0 or ended:
            raise CorruptMessage(f"{path}: a batch at byte {position} that does not belong there")
        ended = header.is_control and position > 0
        yield header, batch
        position += header.size
        offset = header.last_offset + 1
    if not ended:
        raise CorruptMessage(f"{path} ends after {size} bytes without its footer")


def check(disk: Disk, path: str) -> Voters:
    """Read all of it; the voters it holds. CorruptMessage when it is not whole."""
    voters: Voters | None = None
    first, last = None, None
    for header, batch in read_batches(disk, path):
        if not header.is_control:
            continue
        for _, kind, value in read_controls(batch):
            first, last = first or kind, kind
            if kind is ControlType.KRAFT_VOTERS:
                voters = decode_voters(value)
    if first is not ControlType.SNAPSHOT_HEADER or last is not ControlType.SNAPSHOT_FOOTER:
        raise CorruptMessage(f"{path} starts with {first} and ends with {last}: it is not a snapshot")
    if voters is None:
        raise CorruptMessage(f"{path} does not name the voters")
    return voters


class Incoming:
    """A snapshot that is being fetched, piece by piece."""

    __slots__ = ("_disk", "_file", "_path", "size", "snapshot")

    def __init__(self, disk: Disk, directory: str, snapshot: EpochEnd) -> None:
        self._disk = disk
        self._path = f"{directory}/{snapshot_name(snapshot)}"
        self.snapshot = snapshot
        self.size = 0
        part = self._path + ".fetched" + PART
        disk.remove(part)
        self._file = disk.open(part, create=True)

    def append(self, data: bytes | bytearray | memoryview) -> int:
        if self.size + len(data) > SNAPSHOT_BYTES_MAX:
            raise CorruptMessage(f"{self._path} would take more than {SNAPSHOT_BYTES_MAX} bytes")
        self._file.append(data)
        self.size += len(data)
        return self.size

    def finish(self, directory: str) -> Voters:
        """Durable under its name on return; CorruptMessage, and nothing there, when it is not whole."""
        part = self._path + ".fetched" + PART
        voters = check(self._disk, part)
        self._file.sync()
        self._disk.rename(part, self._path)
        self._disk.sync_directory(directory)
        self._file.close()
        return voters

    def drop(self) -> None:
        self._file.close()
        self._disk.remove(self._path + ".fetched" + PART)
