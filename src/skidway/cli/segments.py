"""Reading the files of a partition from outside and saying what is wrong with them. Nothing is ever changed.

A segment is read once from front to back, in memory of one batch; the entries of its indexes are checked against the
batches as they pass. Damage is what a broker would stumble over or cut; notes are what it repairs without loss.
"""

import os
import re
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO

from crc32c import crc32c

from skidway.errors import ProtocolError
from skidway.limits import DEFAULT_LIMITS, MIB
from skidway.log.aborted import ENTRY_BYTES, AbortedIndex, CorruptTransactionIndex
from skidway.records.batch import HEADER_BYTES, MAGIC, BatchHeader, checksum, read_header
from skidway.records.control import read_marker
from skidway.records.record import read_records

SEGMENT_NAME = re.compile(r"\d{20}\.log")
DELETED = "-delete"
READ_BYTES = MIB

_INDEX_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")
_SNAPSHOT_PREAMBLE = struct.Struct(">hIi")
_SNAPSHOT_ENTRY = struct.Struct(">qhiqiqiq")
_SNAPSHOT_CRC_END = 6
_TRANSACTIONS = ".txnindex"


@dataclass(slots=True)
class Finding:
    file: str
    position: int
    text: str
    damage: bool = True


@dataclass(slots=True)
class ProducerEntry:
    producer_id: int
    epoch: int
    last_sequence: int
    last_offset: int
    timestamp: int
    transaction_start: int


@dataclass(slots=True)
class SegmentReport:
    path: Path
    base_offset: int
    bytes: int = 0
    batches: int = 0
    records: int = 0
    first_offset: int = -1
    last_offset: int = -1
    max_timestamp: int = -1
    leader_epoch: int = -1
    index_entries: int = 0
    time_entries: int = 0
    missing: int = 0
    """Index files that are not there. Skidway writes them at checkpoints; any broker rebuilds them."""
    codecs: Counter[int] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)

    @property
    def damaged(self) -> bool:
        return any(finding.damage for finding in self.findings)

    def found(self, text: str, position: int = -1, *, damage: bool = True, suffix: str = ".log") -> None:
        self.findings.append(Finding(str(self.path.with_suffix(suffix)), position, text, damage))


OnBatch = Callable[[int, BatchHeader, bytearray], None]
OnBytes = Callable[[int], None]


def segments_of(directory: Path) -> list[Path]:
    return sorted(path for path in directory.iterdir() if SEGMENT_NAME.fullmatch(path.name))


def partitions_of(path: Path) -> list[Path]:
    """The partition directories at or right under a path; those of deleted topics only when named themselves."""
    if segments_of(path):
        return [path]
    children = [child for child in path.iterdir() if child.is_dir() and not child.name.endswith(DELETED)]
    return sorted(child for child in children if segments_of(child))


def check_segment(
    path: Path, *, deep: bool = False, on_batch: OnBatch | None = None, on_bytes: OnBytes | None = None
) -> SegmentReport:
    """Read one segment with its indexes. `deep` also opens every record."""
    report = SegmentReport(path, int(path.stem), bytes=path.stat().st_size)
    offsets = _OffsetIndexCheck(report)
    times = _TimeIndexCheck(report)
    aborted = _TransactionIndexCheck(report)
    with path.open("rb", buffering=READ_BYTES) as file:
        for position, header, batch in _batches(file, report):
            if checksum(batch) != header.crc:
                text = f"bad checksum at offset {header.base_offset}: {header.crc:08x}, not {checksum(batch):08x}"
                report.found(text, position)
                # Nothing its header says can be believed, but its length led on so far.
                offsets.pass_damaged(position)
                times.blind = True
                continue
            _check_header(report, position, header)
            offsets.pass_batch(position, header)
            times.pass_batch(header)
            if header.is_control:
                aborted.pass_marker(header, batch)
            if deep:
                _check_records(report, position, batch)
            _count(report, header)
            if on_batch is not None:
                on_batch(position, header, batch)
            if on_bytes is not None:
                on_bytes(position + header.size)
    offsets.finish()
    times.finish()
    aborted.finish()
    return report


def _batches(file: BinaryIO, report: SegmentReport) -> Iterator[tuple[int, BatchHeader, bytearray]]:
    """Whole batches. Ends at the first place where no batch can be: lengths lead the way."""
    position = 0
    while position < report.bytes:
        left = report.bytes - position
        if left < HEADER_BYTES:
            report.found(f"{left} bytes of a torn batch at the end", position)
            return
        batch = bytearray(file.read(HEADER_BYTES))
        header = read_header(batch)
        if header.magic != MAGIC or header.size < HEADER_BYTES:
            report.found(
                f"no batch here: magic {header.magic}, length {header.batch_length}; {left} bytes unread", position
            )
            return
        if header.size > left:
            report.found(f"a batch of {header.size} bytes where {left} are left: torn at the end", position)
            return
        batch += file.read(header.size - HEADER_BYTES)
        if len(batch) < header.size:
            report.found("the file became shorter while it was read", position)
            return
        yield position, header, batch
        position += header.size


def _check_header(report: SegmentReport, position: int, header: BatchHeader) -> None:
    expected = report.base_offset if report.last_offset < 0 else report.last_offset + 1
    if header.base_offset < expected:
        report.found(f"offset {header.base_offset} where at least {expected} was expected", position)
    if header.last_offset_delta < 0 or not 0 <= header.record_count <= header.last_offset_delta + 1:
        text = f"{header.record_count} records in a batch that spans {header.last_offset_delta + 1} offsets"
        report.found(text, position)
    if header.partition_leader_epoch < report.leader_epoch:
        text = f"leader epoch {header.partition_leader_epoch} after {report.leader_epoch}"
        report.found(text, position)


def _check_records(report: SegmentReport, position: int, batch: bytearray) -> None:
    try:
        for _ in read_records(batch, decompressed_bytes_max=DEFAULT_LIMITS.decompressed_bytes_max):
            pass
    except ProtocolError as error:
        report.found(f"cannot read the records: {error}", position)


def _count(report: SegmentReport, header: BatchHeader) -> None:
    report.batches += 1
    report.records += max(0, header.record_count)
    report.codecs[header.codec] += 1
    report.first_offset = header.base_offset if report.first_offset < 0 else report.first_offset
    report.last_offset = max(report.last_offset, header.last_offset)
    report.max_timestamp = max(report.max_timestamp, header.max_timestamp)
    report.leader_epoch = max(report.leader_epoch, header.partition_leader_epoch)


class _OffsetIndexCheck:
    """Entries (last offset of a batch, where it begins), each met when its batch passes."""

    def __init__(self, report: SegmentReport) -> None:
        self.report = report
        self.entries = _read_entries(report, ".index", _INDEX_ENTRY)
        self.next = 0
        report.index_entries = len(self.entries)
        for number, (earlier, later) in enumerate(pairwise(self.entries)):
            if later[0] <= earlier[0] or later[1] <= earlier[1]:
                self._found(number + 1, f"entry {later} does not come after {earlier}")
                break

    def pass_batch(self, position: int, header: BatchHeader) -> None:
        while self.next < len(self.entries) and self.entries[self.next][1] <= position:
            relative, pointed = self.entries[self.next]
            offset = self.report.base_offset + relative
            if pointed < position:
                self._found(self.next, f"points at {pointed}, where no batch starts")
            elif not header.base_offset <= offset <= header.last_offset:
                self._found(self.next, f"says offset {offset} is at {pointed}, where {header.base_offset} is")
            self.next += 1

    def pass_damaged(self, position: int) -> None:
        while self.next < len(self.entries) and self.entries[self.next][1] < position:
            self._found(self.next, f"points at {self.entries[self.next][1]}, where no batch starts")
            self.next += 1
        if self.next < len(self.entries) and self.entries[self.next][1] == position:
            self.next += 1

    def finish(self) -> None:
        if self.next < len(self.entries):
            self._found(self.next, f"points at {self.entries[self.next][1]}, after the last whole batch")

    def _found(self, number: int, text: str) -> None:
        self.report.found(f"entry {number}: {text}", number * _INDEX_ENTRY.size, suffix=".index")


class _TimeIndexCheck:
    """Entries (largest timestamp so far, an offset in the batch that has it)."""

    def __init__(self, report: SegmentReport) -> None:
        self.report = report
        self.entries = _read_entries(report, ".timeindex", _TIME_ENTRY)
        self.next = 0
        self.max_timestamp = -1
        self.blind = False
        """A batch passed whose timestamps cannot be known: the latest so far may be later than seen."""
        report.time_entries = len(self.entries)
        for number, (earlier, later) in enumerate(pairwise(self.entries)):
            if later[0] <= earlier[0] or later[1] < earlier[1]:
                self._found(number + 1, f"entry {later} does not come after {earlier}")
                break

    def pass_batch(self, header: BatchHeader) -> None:
        while self.blind and self.next < len(self.entries) and self._offset(self.next) < header.base_offset:
            self.next += 1
        self.max_timestamp = max(self.max_timestamp, header.max_timestamp)
        while self.next < len(self.entries):
            timestamp, at = self.entries[self.next][0], self._offset(self.next)
            if at > header.last_offset:
                return
            if timestamp != self.max_timestamp and not (self.blind and timestamp > self.max_timestamp):
                self._found(self.next, f"says {timestamp} is the latest up to offset {at}, it is {self.max_timestamp}")
            self.next += 1

    def finish(self) -> None:
        if self.next < len(self.entries) and not self.blind:
            self._found(self.next, f"points at offset {self._offset(self.next)}, after the last whole batch")

    def _offset(self, number: int) -> int:
        return self.report.base_offset + self.entries[number][1]

    def _found(self, number: int, text: str) -> None:
        self.report.found(f"entry {number}: {text}", number * _TIME_ENTRY.size, suffix=".timeindex")


class _TransactionIndexCheck:
    """Entries of aborted transactions, each met when its marker passes. A missing file is right where none was."""

    def __init__(self, report: SegmentReport) -> None:
        self.report = report
        self.entries: dict[int, tuple[int, int]] = {}
        """Number and producer id, by the offset of the marker."""
        try:
            index = AbortedIndex.from_bytes(report.path.with_suffix(_TRANSACTIONS).read_bytes(), report.base_offset)
        except FileNotFoundError:
            return
        except CorruptTransactionIndex as error:
            report.found(str(error), suffix=_TRANSACTIONS)
            return
        for number, entry in enumerate(index.entries):
            self.entries[entry.last_offset] = number, entry.producer_id

    def pass_marker(self, header: BatchHeader, batch: bytearray) -> None:
        number, producer_id = self.entries.pop(header.base_offset, (-1, -1))
        marker = read_marker(batch)
        if number >= 0 and (marker is None or marker.committed or header.producer_id != producer_id):
            self._found(number, f"says that {header.base_offset} aborts a transaction of producer {producer_id}")

    def finish(self) -> None:
        for offset, (number, _) in self.entries.items():
            # Behind the end it is left of a truncation: a start drops it.
            damage = offset <= self.report.last_offset
            self._found(number, f"names a marker at offset {offset}, where none is", damage=damage)

    def _found(self, number: int, text: str, *, damage: bool = True) -> None:
        self.report.found(f"entry {number}: {text}", number * ENTRY_BYTES, suffix=_TRANSACTIONS, damage=damage)


def _read_entries(report: SegmentReport, suffix: str, entry: struct.Struct) -> list[tuple[int, int]]:
    path = report.path.with_suffix(suffix)
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        report.missing += 1
        return []
    if len(data) % entry.size:
        report.found(f"{len(data)} bytes are not a whole number of {entry.size}-byte entries", suffix=suffix)
    # Kafka lays out the file of the active segment in advance: zeros to the end are room, not entries.
    used = len(data.rstrip(b"\0"))
    whole = min(-(-used // entry.size), len(data) // entry.size) * entry.size
    return list(entry.iter_unpack(data[:whole]))


def check_snapshot(path: Path) -> tuple[list[ProducerEntry], list[Finding]]:
    """The producers in a `.snapshot` file, as Kafka writes it; what follows behind them is only checksummed."""
    data = path.read_bytes()
    if len(data) < _SNAPSHOT_PREAMBLE.size:
        return [], [Finding(str(path), 0, f"{len(data)} bytes are too few for a producer snapshot")]
    version, crc, count = _SNAPSHOT_PREAMBLE.unpack_from(data)
    if crc != crc32c(data[_SNAPSHOT_CRC_END:]):
        return [], [Finding(str(path), 2, "bad checksum")]
    if version != 1:
        return [], [Finding(str(path), 0, f"version {version} is not known here", damage=False)]
    end = _SNAPSHOT_PREAMBLE.size + count * _SNAPSHOT_ENTRY.size
    if not count >= 0 or end > len(data):
        return [], [Finding(str(path), _SNAPSHOT_CRC_END, f"{count} producers do not fit into {len(data)} bytes")]
    producers = [
        ProducerEntry(producer_id, epoch, sequence, offset, timestamp, transaction_start)
        for producer_id, epoch, sequence, offset, _, timestamp, _, transaction_start in _SNAPSHOT_ENTRY.iter_unpack(
            data[_SNAPSHOT_PREAMBLE.size : end]
        )
    ]
    return producers, []


def check_order(reports: list[SegmentReport]) -> list[Finding]:
    """Between segments: none may begin before the one in front of it ends."""
    findings: list[Finding] = []
    for earlier, later in pairwise(reports):
        end = max(earlier.base_offset, earlier.last_offset + 1)
        name = os.fspath(later.path)
        if later.base_offset < end:
            text = f"begins at {later.base_offset}, but the segment before it reaches to {end}"
            findings.append(Finding(name, 0, text))
        elif later.base_offset > end:
            # Compaction leaves holes; elsewhere something is missing. Only the topic's settings could tell.
            text = f"begins at {later.base_offset}, the segment before it ends at {end}: compacted, or missing"
            findings.append(Finding(name, 0, text, damage=False))
    return findings
