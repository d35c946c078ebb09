"""What the members of a quorum in memory keep: lists that forget, or the product's own files on simulated disks."""

import json
from dataclasses import dataclass, field
from random import Random
from typing import Any, Protocol

from metadata_logs import SETTINGS, WallClock

from skidway.errors import CorruptMessage
from skidway.log.durability import checkpointing
from skidway.log.log import Log
from skidway.log.recovery.opening import open_log
from skidway.ports import Buffer
from skidway.quorum.control import decode_voters, read_controls, voters_record
from skidway.quorum.log import MetadataLog, load_voter_history
from skidway.quorum.messages import EpochEnd
from skidway.quorum.state_file import METADATA_DIRECTORY, StateFile
from skidway.quorum.storage import Memory, QuorumLog, Remembered
from skidway.quorum.voters import Member, VoterHistory, Voters
from skidway.records.batch import iter_headers, read_header
from skidway.records.control import ControlType
from skidway.records.record import Record, build_batch, read_records
from skidway.sim.world.disk import SimDisk


@dataclass(frozen=True)
class Entry:
    epoch: int
    value: object
    """A number written by the workload, a set of voters, or the name of the leader whose epoch began."""


class StoredLog(QuorumLog, Protocol):
    """What the world asks of a log beside what the machine does."""

    @property
    def kept(self) -> list[Entry]: ...

    def whole(self) -> list[Entry]: ...

    def append(self, value: object, epoch: int) -> int: ...

    def history(self, initial: Voters) -> VoterHistory: ...

    def sync(self) -> None: ...

    def snapshot_end(self, high_watermark: int) -> int:
        """Up to where a snapshot may be taken."""
        ...

    def take_snapshot(self, end_offset: int, voters: Voters) -> None: ...


class Store(Protocol):
    """One node's disk."""

    def open(self, batch: int) -> StoredLog: ...

    def memory(self) -> Memory: ...

    def crash(self, log: Any, random: Random) -> None: ...

    def damaged(self, records: Any) -> Any: ...


@dataclass
class Disk:
    """What a node has on disk: the durable part, and what would be lost now."""

    remembered: Remembered = field(default_factory=Remembered)
    durable: list[Entry] = field(default_factory=list)
    start: int = 0
    snapshot: tuple[EpochEnd, list[Entry], Voters] | None = None


class MemoryLog:
    """The log as a list; batches travel as tuples of entries with their base offset, in the place of bytes."""

    def __init__(self, disk: Disk, batch: int) -> None:
        self.disk = disk
        self.entries = list(disk.durable)
        self.synced = len(self.entries)
        self.batch = batch
        self.coming: list[Entry] = []
        self.coming_id: EpochEnd | None = None

    @property
    def start_offset(self) -> int:
        return self.disk.start

    @property
    def end_offset(self) -> int:
        return self.disk.start + len(self.entries)

    @property
    def synced_offset(self) -> int:
        return self.disk.start + self.synced

    @property
    def last_epoch(self) -> int:
        if self.entries:
            return self.entries[-1].epoch
        return self.disk.snapshot[0].epoch if self.disk.snapshot else 0

    @property
    def snapshot(self) -> EpochEnd | None:
        return self.disk.snapshot[0] if self.disk.snapshot else None

    @property
    def base(self) -> EpochEnd:
        return EpochEnd(self.disk.snapshot[0].epoch, self.disk.start) if self.disk.snapshot else EpochEnd(0, 0)

    def end_of_epoch(self, epoch: int) -> EpochEnd:
        found, end = (self.disk.snapshot[0].epoch, self.disk.start) if self.disk.snapshot else (0, 0)
        for offset, entry in enumerate(self.entries, self.disk.start):
            if entry.epoch > epoch:
                break
            found, end = entry.epoch, offset + 1
        return EpochEnd(found, end)

    def append(self, value: object, epoch: int) -> int:
        self.entries.append(Entry(epoch, value))
        return self.end_offset - 1

    @property
    def kept(self) -> list[Entry]:
        """What a crash would leave in any case."""
        return (self.disk.snapshot[1] if self.disk.snapshot else []) + self.disk.durable

    def history(self, initial: Voters) -> VoterHistory:
        history = VoterHistory(initial)
        if self.disk.snapshot is not None:
            history.add(self.disk.snapshot[0].end_offset - 1, self.disk.snapshot[2])
        for offset, entry in enumerate(self.entries, self.disk.start):
            if isinstance(entry.value, Voters):
                history.add(offset, entry.value)
        return history

    def append_leader_change(self, leader: Member, voters: Voters, granted: list[Member], epoch: int) -> int:
        return self.append(f"leader {leader.node_id}", epoch)

    def append_voters(self, voters: Voters, epoch: int) -> int:
        return self.append(voters, epoch)

    def append_fetched(self, records: Any) -> list[tuple[int, Voters]]:
        base, entries = records
        if base == "corrupt":
            raise CorruptMessage("bits were flipped")
        assert base == self.end_offset, "a gap or an overlap in what was fetched"
        found = []
        for entry in entries:
            self.entries.append(entry)
            if isinstance(entry.value, Voters):
                found.append((self.end_offset - 1, entry.value))
        return found

    def truncate_to(self, offset: int) -> None:
        """Durable on return, as the product's is."""
        del self.entries[max(offset - self.disk.start, 0) :]
        self.synced = min(self.synced, len(self.entries))
        self.disk.durable = list(self.entries[: self.synced])

    def read(self, offset: int) -> Any:
        entries = self.entries[offset - self.disk.start : offset - self.disk.start + self.batch]
        return (offset, entries) if entries else ()

    def read_snapshot(self, snapshot: EpochEnd, position: int) -> tuple[int, Any] | None:
        if self.disk.snapshot is None or self.disk.snapshot[0] != snapshot:
            return None
        entries = self.disk.snapshot[1]
        # Position 0 is a header with the voters, so that an empty snapshot has bytes too.
        data = [self.disk.snapshot[2], *entries][position : position + 10 * self.batch]
        return len(entries) + 1, data

    def begin_snapshot(self, snapshot: EpochEnd) -> None:
        self.coming_id, self.coming = snapshot, []

    def append_snapshot(self, data: Any) -> int:
        self.coming += data
        return len(self.coming)

    def finish_snapshot(self) -> Voters:
        assert self.coming_id is not None
        voters = self.coming[0]
        assert isinstance(voters, Voters)
        self.disk.snapshot = (self.coming_id, self.coming[1:], voters)
        self.disk.start = self.coming_id.end_offset
        self.entries = []
        self.synced = 0
        self.disk.durable = []
        return voters

    def snapshot_end(self, high_watermark: int) -> int:
        return min(high_watermark, self.synced_offset)

    def take_snapshot(self, end_offset: int, voters: Voters) -> None:
        """Keep what is below in a snapshot, and the log from there on."""
        kept = end_offset - self.disk.start
        before = self.disk.snapshot[1] if self.disk.snapshot else []
        epoch = self.entries[kept - 1].epoch
        self.disk.snapshot = (EpochEnd(epoch, end_offset), before + self.entries[:kept], voters)
        self.disk.start = end_offset
        del self.entries[:kept]
        self.synced -= kept
        self.disk.durable = self.entries[: self.synced]

    def sync(self) -> None:
        self.synced = len(self.entries)
        self.disk.durable = list(self.entries)

    def whole(self) -> list[Entry]:
        return (self.disk.snapshot[1] if self.disk.snapshot else []) + self.entries


class DiskMemory:
    def __init__(self, disk: Disk) -> None:
        self.disk = disk

    def load(self) -> Remembered:
        return self.disk.remembered

    def save(self, remembered: Remembered) -> None:
        self.disk.remembered = remembered


class MemoryStore:
    def __init__(self) -> None:
        self.disk = Disk()

    def open(self, batch: int) -> MemoryLog:
        return MemoryLog(self.disk, batch)

    def memory(self) -> DiskMemory:
        return DiskMemory(self.disk)

    def crash(self, log: MemoryLog | None, random: Random) -> None:
        if log is not None:
            unsynced = log.entries[log.synced :]
            self.disk.durable = log.entries[: log.synced] + unsynced[: random.randrange(len(unsynced) + 1)]

    def damaged(self, records: Any) -> Any:
        return ("corrupt", [])


# --- the product's files ---


def write_entry(entry: Entry) -> bytes:
    value = entry.value
    kind = "voters" if isinstance(value, Voters) else "leader" if isinstance(value, str) else "number"
    text = voters_record(value)[1].hex() if isinstance(value, Voters) else value
    return json.dumps([entry.epoch, kind, text]).encode()


def read_entry(data: bytes) -> Entry:
    epoch, kind, text = json.loads(data)
    return Entry(epoch, decode_voters(bytes.fromhex(text)) if kind == "voters" else text)


def read_entries(records: Buffer) -> list[Entry]:
    """Batches of the metadata log, as entries."""
    found = []
    view = memoryview(records)
    for position, header in iter_headers(records):
        batch = view[position : position + header.size]
        epoch = header.partition_leader_epoch
        if not header.is_control:
            found += [
                Entry(epoch, int(record.value or b"")) for record in read_records(batch, decompressed_bytes_max=9999)
            ]
            continue
        for _, kind, value in read_controls(batch):
            voters = kind is ControlType.KRAFT_VOTERS
            found.append(
                Entry(epoch, decode_voters(value) if voters else f"leader {int.from_bytes(value[2:6], 'big')}")
            )
    return found


class RealLog(MetadataLog):
    """The product's log, and beside it what it should hold."""

    __slots__ = ("_all", "_promised")

    def __init__(self, log: Log, clock: WallClock, read_bytes: int) -> None:
        super().__init__(log, clock, read_bytes)
        snapshot = self.snapshot
        self._all: list[Entry] = []
        if snapshot is not None:
            for batch in self.snapshot_batches():
                self._all += [read_entry(r.value or b"") for r in read_records(batch, decompressed_bytes_max=1 << 24)]
            assert len(self._all) == snapshot.end_offset, "a snapshot that does not stand for the log below it"
        in_log: list[Entry] = []
        while self.start_offset + len(in_log) < self.end_offset:
            in_log += read_entries(self.read(self.start_offset + len(in_log)))
        known = self._all[self.start_offset :]
        assert known == in_log[: len(known)], "the snapshot and the log tell different stories"
        self._all = self._all[: self.start_offset] + in_log
        self._promised = self.synced_offset

    @property
    def kept(self) -> list[Entry]:
        return self._all[: self._promised]

    def whole(self) -> list[Entry]:
        return self._all

    def history(self, initial: Voters) -> VoterHistory:
        return load_voter_history(self, initial)

    def append(self, value: object, epoch: int) -> int:
        batch = build_batch([Record(0, self._clock.wall_ms(), None, str(value).encode())])
        offset = self.append_records(batch, read_header(batch), epoch, self._clock.wall_ms())
        self._all.append(Entry(epoch, value))
        return offset

    def append_leader_change(self, leader: Member, voters: Voters, granted: list[Member], epoch: int) -> int:
        offset = super().append_leader_change(leader, voters, granted, epoch)
        self._all.append(Entry(epoch, f"leader {leader.node_id}"))
        return offset

    def append_voters(self, voters: Voters, epoch: int) -> int:
        offset = super().append_voters(voters, epoch)
        self._all.append(Entry(epoch, voters))
        return offset

    def append_fetched(self, records: Buffer) -> list[tuple[int, Voters]]:
        found = super().append_fetched(records)
        self._all += read_entries(records)
        return found

    def truncate_to(self, offset: int) -> None:
        self._promised = min(self._promised, offset)
        super().truncate_to(offset)
        del self._all[offset:]
        assert self.end_offset == len(self._all), "cut elsewhere than asked for"

    def sync(self) -> None:
        ticket = self.log.begin_sync()
        if ticket is not None:
            ticket.run()
            self.log.finish_sync(ticket)
        self._promised = self.synced_offset

    def snapshot_end(self, high_watermark: int) -> int:
        """A follower may know as committed what it has not synced itself."""
        return high_watermark

    def take_snapshot(self, end_offset: int, voters: Voters) -> None:
        self.log.advance_high_watermark(end_offset)
        records = ((None, write_entry(entry)) for entry in self._all[:end_offset])
        ticket = self.begin_snapshot_of(end_offset, voters, records, self._clock.wall_ms())
        if ticket is not None:
            ticket.run()
            self.finish_snapshot_of(ticket)
        # It would sync the log: a snapshot that is ahead of it should stay so for a while.
        checkpoint = checkpointing.begin(self.log) if end_offset <= self.synced_offset else None
        if checkpoint is not None:
            checkpoint.run()
            self.log.finish_sync(checkpoint)
            self._promised = self.synced_offset

    def finish_snapshot(self) -> Voters:
        self._promised = 0
        voters = super().finish_snapshot()
        self._all = []
        for batch in self.snapshot_batches():
            self._all += [read_entry(r.value or b"") for r in read_records(batch, decompressed_bytes_max=1 << 24)]
        assert len(self._all) == self.end_offset
        self._promised = self.end_offset
        return voters


class RealStore:
    def __init__(self) -> None:
        self.disk = SimDisk()

    def open(self, batch: int) -> RealLog:
        self.disk.make_directory(METADATA_DIRECTORY)
        self.disk.sync_directory("")
        clock = WallClock()
        log = open_log(
            self.disk,
            METADATA_DIRECTORY,
            SETTINGS,
            clean=False,
            recovery_point=0,
            start_offset=None,
            now_ms=clock.now_ms,
        )
        return RealLog(log, clock, batch * 75)

    def memory(self) -> StateFile:
        return StateFile(self.disk)

    def crash(self, log: RealLog | None, random: Random) -> None:
        self.disk.crash(random)

    def damaged(self, records: Any) -> Any:
        data = bytearray(records)
        data[len(data) // 2] ^= 0x10
        return bytes(data)
