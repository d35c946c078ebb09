"""A log that follows another: it takes batches as the leader stamped them, or none of them."""

import random

import pytest
from log_by_hand import checkpoint

from skidway.errors import CorruptMessage, StorageError
from skidway.log import following, truncation
from skidway.log.bounds import Bound
from skidway.log.durability import checkpointing
from skidway.log.log import Log
from skidway.log.recovery import opening
from skidway.log.settings import LogSettings
from skidway.records.batch import CONTROL_BIT, read_header, set_crc, stamp
from skidway.records.record import Record, build_batch
from skidway.sim.world.disk import SimDisk

NOW = 1_700_000_000_000


def open_log(
    disk: SimDisk,
    directory: str = "orders-0",
    settings: LogSettings | None = None,
    *,
    clean: bool = True,
    recovery_point: int = 0,
) -> Log:
    disk.make_directory(directory)
    settings = settings or LogSettings()
    return opening.open_log(
        disk, directory, settings, clean=clean, recovery_point=recovery_point, start_offset=None, now_ms=NOW
    )


def batch(
    base_offset: int,
    count: int = 1,
    epoch: int = 0,
    *,
    producer_id: int = -1,
    sequence: int = -1,
    size: int = 40,
    timestamp: int = NOW,
) -> bytearray:
    records = [Record(i, timestamp + i, b"key", b"v" * size, []) for i in range(count)]
    epoch_of_producer = 0 if producer_id >= 0 else -1
    data = build_batch(records, producer_id=producer_id, producer_epoch=epoch_of_producer, base_sequence=sequence)
    stamp(data, base_offset, epoch)
    return data


def sync(log: Log) -> None:
    ticket = log.begin_sync()
    assert ticket is not None
    ticket.run()
    log.finish_sync(ticket)


def facts(log: Log) -> tuple[object, ...]:
    return (
        log.start_offset,
        log.end_offset,
        log.batches(),
        log.epochs.entries(),
        log.producers.state(),
        [(s.base_offset, s.size, s.index.offsets, s.index.positions, s.times.timestamps) for s in log.segments],
        [(s.max_timestamp, s.max_timestamp_offset, s.roll_after_ms, s.roll_after_timestamp) for s in log.segments],
    )


# Appending what was fetched.


def test_batches_arrive_as_they_were_sent() -> None:
    log = open_log(SimDisk())
    sent = batch(0, 3, 4) + batch(3, 1, 4) + batch(4, 2, 5)
    appended = following.append(log, sent, NOW)
    assert (appended.base_offset, appended.end_offset, appended.size, appended.count) == (0, 6, len(sent), 3)
    assert (log.end_offset, log.high_watermark) == (6, 0)
    assert log.epochs.entries() == [(4, 0), (5, 4)]
    slice_ = log.read(0, 1 << 20, Bound.END)
    assert slice_ is not None
    assert slice_.read() == sent
    log.advance_high_watermark(4)
    committed = log.read(0, 1 << 20)
    assert committed is not None
    assert committed.read() == sent[: len(batch(0, 3)) + len(batch(0))]


@pytest.mark.parametrize("seed", range(30))
def test_a_follower_looks_as_if_it_had_appended_one_by_one(seed: int) -> None:
    """However many batches come at once: segments, indexes, producers and epochs are the leader's."""
    draw = random.Random(seed)
    settings = LogSettings(
        segment_bytes=draw.choice([400, 1000, 5000]),
        index_interval_bytes=draw.choice([0, 150, 4096]),
        segment_index_bytes=draw.choice([8, 24, 1000]),
        segment_ms=draw.choice([50, 1_000_000]),
    )
    disk = SimDisk()
    leader, follower = (open_log(disk, name, settings) for name in ("leader-0", "follower-0"))
    epoch = sequence = 0
    for _ in range(60):
        epoch += draw.randrange(10) == 0
        count = draw.randrange(1, 4)
        producer_id = draw.choice([-1, 7])
        data = batch(
            0,
            count,
            producer_id=producer_id,
            sequence=sequence if producer_id == 7 else -1,
            size=draw.randrange(80),
            timestamp=draw.choice([-1, NOW + draw.randrange(100)]),
        )
        sequence += count if producer_id == 7 else 0
        leader.append(data, read_header(data), epoch, NOW)
    while follower.end_offset < leader.end_offset:
        slice_ = leader.read(follower.end_offset, draw.randrange(1, 2000), Bound.END)
        assert slice_ is not None
        appended = following.append(follower, slice_.read(), NOW)
        assert appended.size == len(slice_)
    assert facts(follower) == facts(leader)


def test_one_write_for_all_batches_that_fit() -> None:
    disk = SimDisk()
    log = open_log(disk)
    following.append(log, batch(0), NOW)
    before = disk.operations
    following.append(log, b"".join(batch(offset) for offset in range(1, 500)), NOW)
    assert disk.operations == before + 1


def test_a_batch_that_was_cut_off_comes_again() -> None:
    log = open_log(SimDisk())
    whole = batch(0, 2)
    assert following.append(log, whole + batch(2)[:-1], NOW).end_offset == 2
    assert following.append(log, batch(2)[:40], NOW).count == 0
    assert following.append(log, b"", NOW).end_offset == 2
    assert log.size() == len(whole)


def test_offsets_may_leave_gaps_where_the_leader_was_compacted() -> None:
    disk = SimDisk()
    log = open_log(disk, settings=LogSettings(segment_bytes=250))
    sent = [batch(3), batch(10, 2), batch(50), batch(51)]
    for data in sent:
        following.append(log, data, NOW)
    sync(log)
    for again in (log, open_log(disk, settings=log.settings, clean=False)):
        again.advance_high_watermark(52)
        assert [b[1] for b in again.batches()] == [3, 10, 50, 51]
        slice_ = again.read(12, 1000)
        assert slice_ is not None
        assert read_header(slice_.read()).base_offset == 50


@pytest.mark.parametrize("clean", [True, False])
def test_an_epoch_that_wrote_nothing_is_forgotten_for_good_when_the_log_goes_on_without_it(clean: bool) -> None:
    """This node led epoch 6 for a moment. The next leader has more of epoch 5, from before: after another start here
    that must not be taken for epoch 6, of which no leader knows, or all of it would be cut off again."""
    disk = SimDisk()
    log = open_log(disk)
    following.append(log, batch(0, 2, epoch=5), NOW)
    log.begin_epoch(6)
    checkpoint(log)
    following.append(log, batch(2, 3, epoch=5), NOW)
    checkpoint(log)
    assert log.epochs.entries() == [(5, 0)]
    again = open_log(disk, clean=clean)
    assert (again.end_offset, again.epochs.entries()) == (5, [(5, 0)])


def test_control_batches_are_batches() -> None:
    log = open_log(SimDisk())
    control = batch(0, producer_id=7, sequence=-1)
    control[22] |= CONTROL_BIT
    set_crc(control)
    following.append(log, control, NOW)
    assert log.end_offset == 1
    assert log.producers.entries[7].batches == []


def damaged(data: bytearray) -> bytearray:
    data[-1] ^= 1
    return data


def renamed(data: bytearray) -> bytearray:
    data[16] = 1
    return data


@pytest.mark.parametrize(
    "bad",
    [
        damaged(batch(5, epoch=3)),
        renamed(batch(5, epoch=3)),
        batch(4, epoch=3),
        batch(3, 3, epoch=3),
        batch(5, epoch=2),
        bytes(100),
    ],
    ids=["checksum", "format", "offset again", "offset inside", "epoch of the past", "zeros"],
)
def test_one_bad_batch_and_nothing_is_written(bad: bytes) -> None:
    disk = SimDisk()
    log = open_log(disk)
    following.append(log, batch(0, 4, epoch=2), NOW)
    before, operations = facts(log), disk.operations
    with pytest.raises(CorruptMessage):
        following.append(log, batch(4, epoch=3) + bad + batch(6, epoch=3), NOW)
    assert facts(log) == before
    assert disk.operations == operations
    following.append(log, batch(4, epoch=3), NOW)


def test_a_full_disk_leaves_what_fitted() -> None:
    disk = SimDisk()
    log = open_log(disk, settings=LogSettings(segment_bytes=250))
    sent = b"".join(batch(offset) for offset in range(6))
    disk.capacity = len(sent) // 2 + 20
    with pytest.raises(StorageError):
        following.append(log, sent, NOW)
    assert log.failure is None
    assert 0 < log.end_offset < 4
    disk.capacity = None
    following.append(log, b"".join(batch(offset) for offset in range(log.end_offset, 6)), NOW)
    assert [b[1] for b in log.batches()] == list(range(6))


def test_a_batch_larger_than_a_segment_gets_one_of_its_own() -> None:
    """The leader took it before the topic's segments were made smaller."""
    log = open_log(SimDisk(), settings=LogSettings(segment_bytes=300))
    following.append(log, batch(0) + batch(1, size=2000) + batch(2), NOW)
    assert [s.base_offset for s in log.segments] == [0, 1, 2]


def test_a_log_may_begin_inside_a_batch() -> None:
    """Records before the leader's start were deleted; the batch they were in is still whole."""
    disk = SimDisk()
    log = open_log(disk)
    truncation.restart(log, 5, NOW)
    following.append(log, batch(0, 10, 3) + batch(10, 1, 3), NOW)
    assert (log.start_offset, log.high_watermark, log.end_offset) == (5, 5, 11)
    checkpoint(log)
    disk.crash(random.Random(1))
    log = open_log(disk, clean=False)
    assert (log.start_offset, log.end_offset) == (5, 11)
    with pytest.raises(CorruptMessage):
        following.append(log, batch(9, 10, 3), NOW)


# The high watermark.


def test_a_replica_begins_with_what_is_known_to_be_committed() -> None:
    disk = SimDisk()
    log = open_log(disk, settings=LogSettings(segment_bytes=250))
    following.append(log, b"".join(batch(offset, 2) for offset in range(0, 12, 2)), NOW)
    checkpointing.save(log)
    log.close()
    log = open_log(disk, settings=log.settings)
    assert log.high_watermark == 12
    for known, expected in ((4, 4), (0, 0), (100, 12), (-1, 0)):
        log.begin_at(known)
        assert log.high_watermark == expected
    log.begin_at(5)
    assert log.read(4, 1000) is None
    log.advance_high_watermark(8)
    slice_ = log.read(4, 1000)
    assert slice_ is not None
    assert read_header(slice_.read()).base_offset == 4


# Beginning anew.


def test_a_follower_too_far_behind_begins_anew() -> None:
    disk = SimDisk()
    log = open_log(disk, settings=LogSettings(segment_bytes=250))
    for offset in range(8):
        following.append(log, batch(offset, producer_id=7, sequence=offset), NOW)
    checkpoint(log)
    truncation.restart(log, 100, NOW)
    offsets = (log.start_offset, log.high_watermark, log.synced_offset, log.end_offset)
    assert offsets == (100, 100, 100, 100)
    assert (log.epochs.entries(), log.producers.state(), log.size()) == ([], {}, 0)
    following.append(log, batch(100, 2, 5), NOW)
    sync(log)
    disk.crash(random.Random(3))
    # The offset files of the data directory still speak of the old log.
    log = open_log(disk, settings=log.settings, clean=False, recovery_point=8)
    assert not log.quarantined
    assert (log.start_offset, log.end_offset, log.epochs.entries()) == (100, 102, [(5, 100)])


def test_a_quarantined_replica_is_fetched_again() -> None:
    disk = SimDisk()
    log = open_log(disk)
    following.append(log, batch(0, 4) + batch(4, 4), NOW)
    checkpoint(log)
    disk.corrupt("orders-0/00000000000000000000.log", 16)
    log = open_log(disk, clean=False)
    assert log.quarantined
    with pytest.raises(StorageError):
        following.append(log, batch(8), NOW)
    with pytest.raises(StorageError):
        truncation.truncate(log, 4, NOW)
    truncation.restart(log, 2, NOW)
    assert not log.quarantined
    following.append(log, batch(2), NOW)
    sync(log)
    disk.crash(random.Random(0))
    log = open_log(disk, clean=False)
    assert (log.quarantined, log.start_offset, log.end_offset) == (False, 2, 3)


def test_a_log_whose_disk_failed_stays_failed() -> None:
    log = open_log(SimDisk())
    log.fail("the disk is broken")
    for act in (truncation.restart, truncation.truncate):
        with pytest.raises(StorageError, match="broken"):
            act(log, 0, NOW)
