"""The metadata partition's log as the quorum uses it.

`log` is the log underneath: its syncs stay with the node (`begin_sync`, `finish_sync`), which then calls the machine's
`on_synced`. Its high watermark begins at its start, whatever its end: what is committed, only the quorum knows, and
the node moves the mark as the quorum's moves.
"""

from bisect import bisect_right
from collections.abc import Iterator
from typing import Final

from skidway.errors import CorruptMessage, StorageError
from skidway.limits import MIB
from skidway.log.log import Log
from skidway.ports import Buffer, Clock
from skidway.quorum.control import Control, control_batch, decode_voters, leader_change, read_controls, voters_record
from skidway.quorum.messages import EpochEnd
from skidway.quorum.voters import Member, VoterHistory, Voters
from skidway.records.batch import BatchHeader, crc_matches, iter_headers, read_header
from skidway.records.control import ControlType

READ_BYTES = MIB


class MetadataLog:
    """Implements `storage.QuorumLog`."""

    __slots__ = ("_clock", "log")

    def __init__(self, log: Log, clock: Clock) -> None:
        self.log: Final = log
        self._clock = clock
        _forget_watermark(log)

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
        return max(self.log.epochs.latest, 0)

    @property
    def snapshot(self) -> EpochEnd | None:
        return None

    def end_of_epoch(self, epoch: int) -> EpochEnd:
        known = self.log.epochs
        found = bisect_right(known.epochs, epoch)
        if found == 0:
            return EpochEnd(0, self.log.start_offset)
        end = known.starts[found] if found < len(known.starts) else self.log.end_offset
        return EpochEnd(known.epochs[found - 1], end)

    # Appending.

    def append_records(self, batch: bytearray | memoryview, header: BatchHeader, epoch: int, now_ms: int) -> int:
        """A batch of metadata records, as leader; returns its base offset. `now_ms` is the wall clock's."""
        return self.log.append(batch, header, epoch, now_ms)

    def append_leader_change(self, leader: Member, voters: Voters, granted: list[Member], epoch: int) -> int:
        return self._append_control(leader_change(leader, voters, granted), epoch)

    def append_voters(self, voters: Voters, epoch: int) -> int:
        return self._append_control(voters_record(voters), epoch)

    def _append_control(self, record: Control, epoch: int) -> int:
        now_ms = self._clock.wall_ms()
        batch = control_batch([record], now_ms)
        return self.log.append(batch, read_header(batch), epoch, now_ms)

    def append_fetched(self, records: Buffer) -> list[tuple[int, Voters]]:
        view = memoryview(records)
        batches = list(self._checked(view))
        found: list[tuple[int, Voters]] = []
        now_ms = self._clock.wall_ms()
        for number, (header, batch) in enumerate(batches):
            voters = list(_voters_in(batch)) if header.is_control else []
            try:
                self.log.append(bytearray(batch), header, header.partition_leader_epoch, now_ms)
            except StorageError:
                if number == 0:
                    raise
                break  # those before it are there, and whose voters they name must be known; the rest is asked again
            found += voters
        return found

    def _checked(self, view: memoryview) -> Iterator[tuple[BatchHeader, memoryview]]:
        position, offset, epoch = 0, self.end_offset, self.last_epoch
        for position, header in iter_headers(view):
            batch = view[position : position + header.size]
            if not crc_matches(batch):
                raise CorruptMessage(f"the batch at offset {header.base_offset} fails its checksum")
            if header.base_offset != offset or header.last_offset_delta < 0:
                raise CorruptMessage(f"a batch at offset {header.base_offset} where {offset} should be")
            if header.partition_leader_epoch < epoch:
                raise CorruptMessage(f"epoch {header.partition_leader_epoch} after {epoch} at offset {offset}")
            offset, epoch = header.last_offset + 1, header.partition_leader_epoch
            yield header, batch
            position += header.size
        if position != len(view):
            raise CorruptMessage(f"{len(view) - position} bytes after the last whole batch")

    def truncate_to(self, offset: int) -> None:
        self.log.truncate_to(offset, self._clock.wall_ms())

    # Reading.

    def read(self, offset: int) -> Buffer:
        found = self.log.read(offset, READ_BYTES, committed=False)
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

    # Snapshots.

    def read_snapshot(self, snapshot: EpochEnd, position: int) -> tuple[int, Buffer] | None:
        return None

    def begin_snapshot(self, snapshot: EpochEnd) -> None:
        pass

    def append_snapshot(self, data: Buffer) -> int:
        return 0

    def finish_snapshot(self) -> Voters:
        raise StorageError("snapshots cannot be fetched yet")


def load_voter_history(log: MetadataLog, initial: Voters) -> VoterHistory:
    """The sets of voters in the log; `initial` is what the node was started with, and holds until the first of them."""
    history = VoterHistory(initial)
    for offset, voters in log.voters_from(log.start_offset):
        history.add(offset, voters)
    return history


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


def _forget_watermark(log: Log) -> None:
    log.high_watermark = log.start_offset
    log._watermark_segment, log._watermark_position = log.locate(log.start_offset)
