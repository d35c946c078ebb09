"""A coordinator over a real log on a simulated disk: an acknowledged commit is there after a crash."""

import random
from typing import Any

import pytest

from skidway.errors import ErrorCode
from skidway.groups.coordinator import GroupCoordinator
from skidway.groups.expiry import EXPIRED_RECORDS_PER_TICK_MAX
from skidway.groups.operations import (
    CommitOffsets,
    CommitOffsetsInTransaction,
    DeleteOffsets,
    EndOffsetsTransaction,
    FetchOffsets,
    ListGroups,
    OffsetToCommit,
    Tick,
)
from skidway.groups.records import FORMAT, GroupRecord
from skidway.groups.settings import GroupSettings
from skidway.log.compaction import cleaning
from skidway.log.compaction.cleaning import DirectCompactor
from skidway.log.durability import checkpointing
from skidway.log.log import Log
from skidway.log.recovery.opening import open_log
from skidway.log.settings import LogSettings
from skidway.records.control import EndTransaction
from skidway.runtime.log_store import LogStore, Marker, Producer
from skidway.runtime.replicated import Now, Operation, Replicated
from skidway.sim.world.disk import SimDisk

DIRECTORY = "__consumer_offsets-3"
WALL_MS = 1_700_000_000_000


class Topics:
    epoch = 0

    def partition_count(self, name: str) -> int | None:
        return None

    def id_of(self, name: str) -> bytes | None:
        return None

    def name_of(self, topic_id: bytes) -> str | None:
        return None

    def names(self) -> list[str]:
        return []


class Broker:
    def __init__(self, disk: SimDisk, *, clean: bool = True, compact: bool = False) -> None:
        self.now_ms = 0
        self.replies: list[Any] = []
        disk.make_directory(DIRECTORY)
        settings = LogSettings(segment_bytes=100_000, compact=compact, min_cleanable_dirty_ratio=0.0)
        self.log = open_log(disk, DIRECTORY, settings, clean=clean, recovery_point=0, start_offset=None, now_ms=WALL_MS)
        self.store = LogStore(self.log, self, FORMAT, compacted=True)
        self.host: Replicated[GroupCoordinator, GroupRecord] = Replicated(self.machine, self.store)
        self.ask(Tick())

    def machine(self) -> GroupCoordinator:
        return GroupCoordinator(GroupSettings(), Topics(), random.Random(1))

    @property
    def now(self) -> Now:
        return Now(self.now_ms, self.wall_ms())

    def wall_ms(self) -> int:
        return WALL_MS + self.now_ms

    def monotonic_ms(self) -> int:
        return self.now_ms

    def submit(self, operation: Operation[Any]) -> None:
        self.host.submit(operation, self.now, self.replies.append)

    def sync(self) -> None:
        ticket = self.log.begin_sync()
        if ticket is not None:
            ticket.run()
            self.log.finish_sync(ticket)
        self.log.advance_high_watermark(self.log.synced_offset)
        self.host.on_committed(self.log.high_watermark)

    def ask(self, operation: Operation[Any]) -> Any:
        self.submit(operation)
        self.sync()
        return self.replies[-1]


def commit(group_id: str, *offsets: int) -> CommitOffsets:
    return CommitOffsets(group_id, [OffsetToCommit("t", place, offset) for place, offset in enumerate(offsets)])


@pytest.mark.parametrize("seed", range(20))
def test_an_acknowledged_commit_survives_a_crash_and_others_are_whole_or_not_there(seed: int) -> None:
    disk = SimDisk()
    broker = Broker(disk)
    assert broker.ask(commit("g", 1, 2, 3)) == [ErrorCode.NONE] * 3
    answered = len(broker.replies)
    broker.submit(commit("g", 10, 20, 30))
    assert len(broker.replies) == answered
    disk.crash(random.Random(seed))

    fetched = Broker(disk, clean=False).ask(FetchOffsets("g"))
    assert [each.offset for each in fetched] in ([1, 2, 3], [10, 20, 30])


def test_a_restart_finds_every_group_across_segments() -> None:
    disk = SimDisk()
    broker = Broker(disk)
    for number in range(1_000):
        broker.ask(commit(f"group-{number}", number))
    assert len(broker.log.segments) > 1
    checkpointing.save(broker.log)
    broker.log.close()
    again = Broker(disk)
    assert len(again.ask(ListGroups())) == 1_000
    assert [each.offset for each in again.ask(FetchOffsets("group-999"))] == [999]


def test_much_that_expires_at_once_is_written_in_pieces() -> None:
    broker = Broker(SimDisk())
    groups = EXPIRED_RECORDS_PER_TICK_MAX + 10
    for number in range(groups):
        broker.ask(commit(f"group-{number}", number))
    broker.now_ms += GroupSettings().retention_ms
    start = broker.log.end_offset
    broker.ask(Tick())
    # Each has an offset and itself to give up.
    assert broker.log.end_offset - start == EXPIRED_RECORDS_PER_TICK_MAX
    assert broker.host.machine.deadline_ms == broker.now_ms
    while broker.host.machine.deadline_ms <= broker.now_ms:
        broker.ask(Tick())
    assert broker.ask(ListGroups()) == []
    assert broker.log.end_offset - start == 2 * groups


def compact(log: Log, now_ms: int) -> None:
    log.roll(now_ms)
    saved = checkpointing.begin(log)
    assert saved is not None
    saved.run()
    log.finish_sync(saved)
    log.advance_high_watermark(log.synced_offset)
    running = cleaning.begin(log, now_ms, "token")
    if running is None:
        return
    clean = running.clean(DirectCompactor(log.disk))
    clean.run()
    assert clean.result is not None
    ticket = running.on_cleaned(clean.result)
    while ticket is not None:
        ticket.run()
        ticket = running.on_swapped(ticket)


@pytest.mark.parametrize("seed", range(4))
def test_a_compacted_log_leads_to_the_same_offsets_pending_ones_too(seed: int) -> None:
    broker, choose = Broker(SimDisk(), compact=True), random.Random(seed)
    lost = 0
    for number in range(300):
        producer_id, group_id = choose.randrange(3), choose.choice("abc")
        offsets = [OffsetToCommit("t", choose.randrange(4), number)]
        end = EndTransaction(choose.random() < 0.5, 0)
        match choose.randrange(6):
            case 0 | 1:
                broker.ask(CommitOffsets(group_id, offsets))
            case 2 | 3:
                broker.ask(CommitOffsetsInTransaction(group_id, offsets, Producer(producer_id, 0)))
            case 4:
                broker.ask(EndOffsetsTransaction(Marker(Producer(producer_id, 0), end)))
            case 5:
                broker.ask(DeleteOffsets(group_id, [("t", choose.randrange(4))]))
        if number % 50 == 49:
            records = len(list(broker.store.read_all()))
            # Days later: tombstones and markers that are not needed any more go, too.
            broker.now_ms += 3 * 24 * 3_600_000
            compact(broker.log, broker.wall_ms())
            lost += records - len(list(broker.store.read_all()))
            again: Replicated[GroupCoordinator, GroupRecord] = Replicated(broker.machine, broker.store)
            assert again.machine.offsets == broker.host.machine.offsets
    assert lost > 50
