"""The metadata partition's log as the quorum uses it, and its snapshots.

`log` is the log underneath: its syncs stay with the node (`begin_sync`, `finish_sync`), which then calls the machine's
`on_synced`. Its high watermark begins where the newest snapshot ends, whatever the log's end: what is committed, only
the quorum knows, and the node moves the mark as the quorum's moves.

The latest two snapshots are kept, and the log from where the older of them ends: when the newer one turns out to be
damaged, the older one and the log hold the same. `log.start_offset` is therefore 0 or the end of a whole snapshot.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from skidway.errors import CorruptMessage, StorageError
from skidway.limits import MIB
from skidway.log import following, retention, truncation
from skidway.log.bounds import Bound
from skidway.log.log import Log
from skidway.ports import Buffer, Clock
from skidway.quorum.control import Control, control_batch, decode_voters, leader_change, read_controls, voters_record
from skidway.quorum.messages import EpochEnd
from skidway.quorum.news import MetadataCut, SnapshotTaken, TailDropped
from skidway.quorum.snapshots import (
    CHUNK_BYTES,
    PART,
    Incoming,
    KeyValue,
    SnapshotTicket,
    check,
    parse_snapshot_name,
    read_batches,
    snapshot_name,
)
from skidway.quorum.voters import Member, VoterHistory, Voters
from skidway.records.batch import BatchHeader, crc_matches, iter_headers, read_header
from skidway.records.control import ControlType

READ_BYTES = MIB
SNAPSHOTS_KEPT = 2
_DAMAGED = ".damaged"


class MetadataLog:
    """Implements `storage.QuorumLog`."""

    __slots__ = (
        "_base_epoch",
        "_clock",
        "_incoming",
        "_read_bytes",
        "_snapshots",
        "_writing",
        "bytes_since_snapshot",
        "log",
        "on_cut",
    )

    def __init__(self, log: Log, clock: Clock, read_bytes: int = READ_BYTES) -> None:
        """StorageError when log and snapshots together do not hold the metadata."""
        self.log: Final = log
        self._clock = clock
        self._read_bytes = read_bytes
        self._snapshots: list[tuple[EpochEnd, Voters]] = []
        """The whole ones, oldest first."""
        self._base_epoch = 0
        """Of the record before the log's first."""
        self._incoming: Incoming | None = None
        self._writing: SnapshotTicket | None = None
        self.bytes_since_snapshot = 0
        """What a start would have to read again, about: when to write the next one."""
        self.on_cut: Callable[[MetadataCut], None] = lambda cut: None
        """Hears what the leader of the quorum had cut off, and why."""
        if log.quarantined:
            raise StorageError(f"the metadata log is damaged: {log.failure}. {_WAY_OUT}")
        try:
            self._open_snapshots()
        except OSError as error:
            raise StorageError(f"{log.directory}: {error}") from error

    # Opening.

    def _open_snapshots(self) -> None:
        log = self.log
        for name in log.disk.list(log.directory):
            if name.endswith(PART):
                log.disk.remove(f"{log.directory}/{name}")
        named = [found for name in log.disk.list(log.directory) if (found := parse_snapshot_name(name)) is not None]
        for snapshot in sorted(named, key=_by_end):
            self._open_snapshot(snapshot)
        if self._snapshots and not self._log_continues(self._snapshots[-1][0]):
            # A crash took the log's tail, or came between a fetched snapshot and the log that begins after it.
            truncation.restart(log, self._snapshots[-1][0].end_offset, self._clock.wall_ms())
        log.begin_at(self._snapshots[-1][0].end_offset if self._snapshots else 0)
        if log.start_offset > 0 and not self._snapshots:
            raise StorageError(
                f"{log.directory} starts at offset {log.start_offset} and has no complete snapshot below it. {_WAY_OUT}"
            )
        self._drop_old()
        newest = self._snapshots[-1][0].end_offset if self._snapshots else 0
        self.bytes_since_snapshot = sum(segment.size for segment in log.segments if segment.base_offset >= newest)

    def _open_snapshot(self, snapshot: EpochEnd) -> None:
        path = self._path(snapshot)
        if snapshot.end_offset < self.log.start_offset:
            # Between its end and the log's start something is missing.
            self.log.disk.remove(path)
            return
        try:
            self._snapshots.append((snapshot, check(self.log.disk, path)))
        except CorruptMessage:
            # Kept for whoever wants to know what happened.
            self.log.disk.rename(path, path + _DAMAGED)

    def _log_continues(self, snapshot: EpochEnd) -> bool:
        """Whether the log holds what comes after the snapshot, and what it has below is the same."""
        log = self.log
        if log.end_offset < snapshot.end_offset:
            return False
        if log.start_offset >= snapshot.end_offset:
            return True
        return log.epochs.epoch_at(snapshot.end_offset - 1) == snapshot.epoch

    def _path(self, snapshot: EpochEnd) -> str:
        return f"{self.log.directory}/{snapshot_name(snapshot)}"

    def _drop_old(self) -> None:
        """Keep the latest snapshots, and the log from the oldest of them on."""
        log = self.log
        for snapshot, _ in self._snapshots[:-SNAPSHOTS_KEPT]:
            log.disk.remove(self._path(snapshot))
        # Those below the log's start belong to one that was begun anew.
        for snapshot, _ in [known for known in self._snapshots if known[0].end_offset < log.start_offset]:
            log.disk.remove(self._path(snapshot))
        kept = [known for known in self._snapshots if known[0].end_offset >= log.start_offset]
        self._snapshots = kept[-SNAPSHOTS_KEPT:]
        if self._snapshots:
            oldest = self._snapshots[0][0]
            if log.start_offset > 0 or len(self._snapshots) == SNAPSHOTS_KEPT:
                retention.delete_before(log, oldest.end_offset)
                self._base_epoch = oldest.epoch

    # What is there.

    @property
    def start_offset(self) -> int:
        return self.log.start_offset

    @property
    def end_offset(self) -> int:
        return self.log.end_offset

    @property
    def synced_offset(self) -> int:
        return self.log.synced_offset

    @property
    def last_epoch(self) -> int:
        return self.epoch_before(self.end_offset)

    def epoch_before(self, offset: int) -> int:
        """Of the record before `offset`."""
        if offset <= self.log.start_offset:
            return self._base_epoch
        return max(self.log.epochs.epoch_at(offset - 1), 0)

    @property
    def snapshot(self) -> EpochEnd | None:
        return self._snapshots[-1][0] if self._snapshots else None

    @property
    def base(self) -> EpochEnd:
        return EpochEnd(self._base_epoch, self.log.start_offset)

    def end_of_epoch(self, epoch: int) -> EpochEnd:
        known = self.log.epochs
        found = bisect_right(known.epochs, epoch)
        if found == 0 or self.end_offset == self.start_offset:
            return self.base
        end = known.starts[found] if found < len(known.starts) else self.log.end_offset
        return EpochEnd(known.epochs[found - 1], end)

    # Appending.

    def append_records(self, batch: bytearray | memoryview, header: BatchHeader, epoch: int, now_ms: int) -> int:
        """A batch of metadata records, as leader; returns its base offset. `now_ms` is the wall clock's."""
        self.bytes_since_snapshot += len(batch)
        return self.log.append(batch, header, epoch, now_ms)

    def append_leader_change(self, leader: Member, voters: Voters, granted: list[Member], epoch: int) -> int:
        return self._append_control(leader_change(leader, voters, granted), epoch)

    def append_voters(self, voters: Voters, epoch: int) -> int:
        return self._append_control(voters_record(voters), epoch)

    def _append_control(self, record: Control, epoch: int) -> int:
        now_ms = self._clock.wall_ms()
        batch = control_batch([record], now_ms)
        return self.append_records(batch, read_header(batch), epoch, now_ms)

    def append_fetched(self, records: Buffer) -> list[tuple[int, Voters]]:
        view = memoryview(records)
        found = self._voters_in_order(view)
        before = self.end_offset
        try:
            following.append(self.log, view, self._clock.wall_ms())
        except StorageError:
            if self.end_offset > before:
                # Several segments, and the disk took only some: all or nothing.
                truncation.truncate(self.log, before, self._clock.wall_ms())
            raise
        self.bytes_since_snapshot += len(view)
        return found

    def _voters_in_order(self, view: memoryview) -> list[tuple[int, Voters]]:
        """The sets of voters in whole batches without gaps; the log itself looks at the rest."""
        position, offset = 0, self.end_offset
        found: list[tuple[int, Voters]] = []
        for position, header in iter_headers(view):
            if header.base_offset != offset or header.last_offset_delta < 0:
                raise CorruptMessage(f"a batch at offset {header.base_offset} where {offset} should be")
            batch = view[position : position + header.size]
            if header.is_control:
                found += _voters_in(batch)
            offset = header.last_offset + 1
            position += header.size
        if position != len(view):
            raise CorruptMessage(f"{len(view) - position} bytes after the last whole batch")
        return found

    def truncate_to(self, offset: int) -> None:
        end_offset = self.end_offset
        truncation.truncate(self.log, offset, self._clock.wall_ms())
        if offset < end_offset:
            self.on_cut(TailDropped(offset, end_offset))

    # Reading.

    def read(self, offset: int) -> Buffer:
        found = self.log.read(offset, self._read_bytes, Bound.END)
        return b"" if found is None else found.read()

    def voters_from(self, offset: int) -> Iterator[tuple[int, Voters]]:
        """The sets of voters at or after `offset`, in order. StorageError where the log cannot be read."""
        while offset < self.end_offset:
            data = memoryview(self.read(offset))
            if not data:
                raise StorageError(f"{self.log.directory} has nothing at offset {offset}, below its end")
            for position, header in iter_headers(data):
                batch = data[position : position + header.size]
                if header.is_control:
                    yield from _stored_voters(batch)
                offset = header.last_offset + 1

    def voters_at_start(self) -> Voters | None:
        """The voters in the snapshot that ends where the log starts; None when the log starts at offset 0."""
        found = [voters for snapshot, voters in self._snapshots if snapshot.end_offset == self.start_offset]
        return found[0] if found else None

    def snapshot_batches(self) -> Iterator[bytes]:
        """The batches of metadata records in the newest snapshot, which stand for the log below its end."""
        assert self.snapshot is not None, "there is no snapshot"
        for header, batch in read_batches(self.log.disk, self._path(self.snapshot)):
            if not header.is_control:
                yield batch

    # Writing snapshots.

    def begin_snapshot_of(
        self, end_offset: int, voters: Voters, records: Iterable[KeyValue], timestamp_ms: int
    ) -> SnapshotTicket | None:
        """A snapshot of everything below `end_offset`, which must be committed: `records` give the same metadata (see
        `SnapshotTicket` on which thread). None when one is being written, or there is nothing new."""
        newest = self.snapshot
        if self._writing is not None or end_offset <= (newest.end_offset if newest is not None else 0):
            return None
        assert end_offset <= self.end_offset, "what is not there cannot be committed"
        snapshot = EpochEnd(self.epoch_before(end_offset), end_offset)
        # Whole segments leave the log, so one has to end about here.
        self.log.roll(self._clock.wall_ms())
        self._writing = SnapshotTicket(self.log.disk, self.log.directory, snapshot, voters, records, timestamp_ms)
        self.bytes_since_snapshot = 0
        return self._writing

    def finish_snapshot_of(self, ticket: SnapshotTicket) -> None:
        """The ticket ran, be it in vain: then the next one takes its place."""
        assert ticket is self._writing
        self._writing = None
        if not ticket.done:
            return
        newest = self.snapshot
        if newest is not None and newest.end_offset >= ticket.snapshot.end_offset:
            # A later one was fetched meanwhile.
            self.log.disk.remove(ticket.path)
            return
        self._snapshots.append((ticket.snapshot, ticket.voters))
        self.log.advance_high_watermark(ticket.snapshot.end_offset)
        self._drop_old()

    # Snapshots for others, and from others.

    def read_snapshot(self, snapshot: EpochEnd, position: int) -> tuple[int, Buffer] | None:
        if all(known != snapshot for known, _ in self._snapshots):
            return None
        try:
            file = self.log.disk.open(self._path(snapshot))
            size = file.size()
            return size, file.read_at(position, CHUNK_BYTES) if 0 <= position < size else b""
        except OSError as error:
            raise StorageError(f"{self._path(snapshot)}: {error}") from error

    def begin_snapshot(self, snapshot: EpochEnd) -> None:
        try:
            if self._incoming is not None:
                self._incoming.drop()
            self._incoming = Incoming(self.log.disk, self.log.directory, snapshot)
        except OSError as error:
            raise StorageError(f"{self._path(snapshot)}: {error}") from error

    def append_snapshot(self, data: Buffer) -> int:
        assert self._incoming is not None, "nothing was begun"
        try:
            return self._incoming.append(data)
        except OSError as error:
            raise StorageError(f"{self._path(self._incoming.snapshot)}: {error}") from error

    def finish_snapshot(self) -> Voters:
        incoming, self._incoming = self._incoming, None
        assert incoming is not None, "nothing was begun"
        snapshot = incoming.snapshot
        try:
            voters = incoming.finish(self.log.directory)
        except (CorruptMessage, OSError) as error:
            incoming.drop()
            if isinstance(error, OSError):
                raise StorageError(f"{self._path(snapshot)}: {error}") from error
            raise
        start_offset, end_offset = self.start_offset, self.end_offset
        truncation.restart(self.log, snapshot.end_offset, self._clock.wall_ms())
        if end_offset > start_offset:
            self.on_cut(SnapshotTaken(snapshot.end_offset, start_offset, end_offset))
        self._snapshots = [
            *(known for known in self._snapshots if known[0].end_offset < snapshot.end_offset),
            (snapshot, voters),
        ]
        self._base_epoch = snapshot.epoch
        self._drop_old()
        self.bytes_since_snapshot = 0
        return voters


def load_voter_history(log: MetadataLog, initial: Voters) -> VoterHistory:
    """The sets of voters in the log; `initial` is what the node was started with, and holds until the first of them."""
    history = VoterHistory(initial)
    first = log.voters_at_start()
    if first is not None:
        history.add(log.start_offset - 1, first)
    for offset, voters in log.voters_from(log.start_offset):
        history.add(offset, voters)
    return history


def _by_end(snapshot: EpochEnd) -> tuple[int, int]:
    return snapshot.end_offset, snapshot.epoch


def _voters_in(batch: Buffer) -> Iterator[tuple[int, Voters]]:
    for offset, kind, value in read_controls(batch):
        if kind is ControlType.KRAFT_VOTERS:
            yield offset, decode_voters(value)


def _stored_voters(batch: Buffer) -> list[tuple[int, Voters]]:
    try:
        if not crc_matches(batch):
            raise CorruptMessage("the batch fails its checksum")
        return list(_voters_in(batch))
    except CorruptMessage as error:
        raise StorageError(f"a control batch of the metadata log cannot be read: {error}") from error


_WAY_OUT = (
    "Restore the directory from a copy, or start the node with a new data directory and, if it was a voter, remove the "
    "old voter and add the new one. Do not remove this directory alone: a voter must not forget what it has promised"
)
