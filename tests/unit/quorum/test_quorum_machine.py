"""Single steps of the machine that storms pass by too quickly to see."""

from random import Random

import pytest
from metadata_logs import member, voter_set
from quorum_disks import Disk, DiskMemory, MemoryLog

from skidway.errors import ErrorCode, StorageError
from skidway.limits import INT32_MAX
from skidway.quorum.followers import REPLICAS_MAX
from skidway.quorum.machine import Quorum
from skidway.quorum.messages import (
    NO_LEADER,
    BeginEpoch,
    EndEpoch,
    EpochAnswer,
    EpochEnd,
    Fetch,
    FetchAnswer,
    FetchSnapshot,
    SnapshotAnswer,
    Vote,
    VoteAnswer,
)
from skidway.quorum.role import Role
from skidway.quorum.settings import QuorumSettings
from skidway.quorum.storage import Remembered
from skidway.quorum.voters import Member, VoterHistory

SETTINGS = QuorumSettings()


class Notes(DiskMemory):
    """Counts what is saved; may be out of room."""

    saves = 0
    full = False

    def save(self, remembered: Remembered) -> None:
        if self.full:
            raise StorageError("no space left")
        self.saves += 1
        super().save(remembered)


def build(me: int = 1, disk: Disk | None = None) -> tuple[Quorum, MemoryLog, Notes]:
    disk = disk or Disk()
    log, notes = MemoryLog(disk, 100), Notes(disk)
    quorum = Quorum(member(me), VoterHistory(voter_set(1, 2, 3)), log, notes, Random(1), SETTINGS, 0)
    return quorum, log, notes


def elect(quorum: Quorum, now_ms: int = 10_000) -> None:
    """Two rounds: would you, and will you."""
    quorum.on_time(now_ms)
    while not quorum.leads:
        ask = next(ask for ask in quorum.outbox if isinstance(ask.request, Vote))
        quorum.outbox.clear()
        quorum.on_answer(ask.to, ask.request, VoteAnswer(quorum.epoch, -1, granted=True), now_ms)
    quorum.outbox.clear()


def fetch(node_id: int, epoch: int, offset: int, last_epoch: int) -> Fetch:
    return Fetch(member(node_id), epoch, offset, last_epoch, 0)


def test_records_of_earlier_epochs_are_committed_only_through_one_of_its_own() -> None:
    """Figure 8 of the Raft paper: a majority has the old record, and still it may be replaced."""
    disk = Disk(remembered=Remembered(epoch=1))
    quorum, log, _ = build(disk=disk)
    log.append("old", 1)
    log.append("older still", 1)
    log.sync()
    elect(quorum)
    log.sync()
    quorum.on_synced(10_001)
    assert quorum.epoch == 2
    answer = quorum.on_fetch(fetch(2, 2, 2, 1), 10_002)
    assert answer.high_watermark == 0
    assert quorum.high_watermark == 0
    quorum.on_fetch(fetch(2, 2, 3, 2), 10_003)
    assert quorum.high_watermark == 3


def test_epoch_and_vote_are_saved_at_once_before_the_answer() -> None:
    quorum, _, notes = build(2)
    answer = quorum.on_vote(Vote(member(2), member(1), 5, 0, 0, pre_vote=False), 10)
    assert answer == VoteAnswer(5, -1, granted=True)
    assert (notes.saves, notes.load()) == (1, Remembered(5, -1, member(1)))
    again = quorum.on_vote(Vote(member(2), member(1), 5, 0, 0, pre_vote=False), 20)
    assert again.granted
    other = quorum.on_vote(Vote(member(2), member(3), 5, 0, 0, pre_vote=False), 30)
    assert not other.granted
    assert notes.saves == 1


def test_an_epoch_begun_with_another_voter_is_none_of_ours() -> None:
    quorum, _, _ = build(2)
    for other in (member(3), Member(2, b"x" * 16)):
        refused = quorum.on_begin_epoch(BeginEpoch(other, 1, 5), 10)
        assert refused == EpochAnswer(0, NO_LEADER, ErrorCode.INVALID_VOTER_KEY)
    assert quorum.on_begin_epoch(BeginEpoch(Member(2), 1, 5), 20) == EpochAnswer(5, 1)


@pytest.mark.parametrize("said", [BeginEpoch(member(2), 77, 5), EndEpoch(77, 5, (member(2),))])
def test_a_leader_that_nobody_knows_is_not_followed(said: BeginEpoch | EndEpoch) -> None:
    """Its epoch counts, as that of a vote does. Whether it leads, others say when they are asked."""
    quorum, _, _ = build(2)
    quorum.on_begin_epoch(BeginEpoch(member(2), 1, 4), 10)
    quorum.outbox.clear()
    for _ in range(2):
        tell = quorum.on_begin_epoch if isinstance(said, BeginEpoch) else quorum.on_end_epoch
        assert tell(said, 20) == EpochAnswer(5, NO_LEADER)  # type: ignore[arg-type]
    assert (quorum.role, quorum.remembered.leader, quorum.outbox) == (Role.UNATTACHED, NO_LEADER, [])
    quorum.on_time(10_000)
    asked = quorum.outbox[0]
    quorum.on_answer(asked.to, asked.request, VoteAnswer(5, 4, granted=False), 10_010)
    assert (quorum.role, quorum.leader, quorum.outbox[-1].to) == (Role.FOLLOWER, 4, 4)


def test_a_vote_that_cannot_be_saved_is_not_given() -> None:
    quorum, _, notes = build(2)
    notes.full = True
    with pytest.raises(StorageError):
        quorum.on_vote(Vote(member(2), member(1), 5, 0, 0, pre_vote=False), 10)
    assert (quorum.epoch, quorum.voted) == (0, None)
    notes.full = False
    assert quorum.on_vote(Vote(member(2), member(3), 5, 0, 0, pre_vote=False), 20).granted


def test_who_cannot_save_does_not_stand_and_tries_again_later() -> None:
    quorum, _, notes = build()
    quorum.on_time(2_000)
    assert quorum.role is Role.PROSPECTIVE
    notes.full = True
    ask = quorum.outbox[0]
    quorum.on_answer(ask.to, ask.request, VoteAnswer(0, -1, granted=True), 2_010)
    assert quorum.role == Role.UNATTACHED  # type: ignore[comparison-overlap]
    assert quorum.trouble == "no space left"
    notes.full = False
    quorum.outbox.clear()
    elect(quorum, 5_000)
    assert quorum.trouble is None


def test_whoever_fetches_a_snapshot_counts_as_heard_of() -> None:
    """Otherwise a leader with one follower, busy with a long snapshot, would resign again and again."""
    quorum, log, _ = build()
    elect(quorum)
    for number in range(20):
        log.append(number, quorum.epoch)
    log.sync()
    quorum.on_synced(10_001)
    quorum.on_fetch(fetch(2, quorum.epoch, 21, quorum.epoch), 10_002)
    log.take_snapshot(15, voter_set(1, 2, 3))
    now_ms = 10_002
    for _ in range(20):
        now_ms += 400
        asked = FetchSnapshot(member(3), quorum.epoch, EpochEnd(quorum.epoch, 15), 0)
        assert quorum.on_fetch_snapshot(asked, now_ms).error is ErrorCode.NONE
        quorum.on_time(now_ms)
        assert quorum.leads
    quorum.on_time(now_ms + SETTINGS.check_quorum_ms)
    quorum.on_time(quorum.deadline_ms)
    assert not quorum.leads


def test_a_follower_whose_own_disk_is_slow_does_not_blame_its_leader() -> None:
    quorum, _, _ = build(2)
    quorum.on_answer(1, fetch(2, 0, 0, 0), FetchAnswer(3, 1), 10)
    ask = quorum.outbox[-1]
    leaders_log = MemoryLog(Disk(), 100)
    leaders_log.append("a", 3)
    quorum.on_answer(1, ask.request, FetchAnswer(3, 1, 0, leaders_log.read(0)), 20)
    assert quorum.log.end_offset == 1
    for now_ms in range(1_000, 20_000, 500):
        quorum.on_time(now_ms)
    assert quorum.role is Role.FOLLOWER


def test_observers_without_number_do_not_fill_the_memory() -> None:
    quorum, log, _ = build()
    elect(quorum)
    log.sync()
    quorum.on_synced(10_001)
    for number in range(REPLICAS_MAX + 500):
        quorum.on_fetch(fetch(2, quorum.epoch, 1, quorum.epoch), 10_002 + number)
        stranger = Fetch(Member(100 + number, bytes(15) + b"x"), quorum.epoch, 0, 0, 0)
        quorum.on_fetch(stranger, 10_002 + number)
    assert quorum.followers is not None
    assert len(list(quorum.followers)) <= REPLICAS_MAX
    assert quorum.followers.find(member(2)) is not None
    assert quorum.leads


def test_a_snapshot_that_brings_nothing_is_given_up() -> None:
    """Not asked for again and again at once: that would keep both sides busy for nothing."""
    quorum, _, _ = build(2)
    quorum.on_answer(1, fetch(2, 0, 0, 0), FetchAnswer(3, 1), 10)
    ask = quorum.outbox[-1]
    quorum.on_answer(1, ask.request, FetchAnswer(3, 1, 0, snapshot=EpochEnd(2, 50)), 20)
    ask = quorum.outbox[-1]
    assert isinstance(ask.request, FetchSnapshot)
    quorum.outbox.clear()
    quorum.on_answer(1, ask.request, SnapshotAnswer(3, 1, EpochEnd(2, 50), 1_000, 0, b""), 30)
    assert quorum.fetching_snapshot is None
    assert not quorum.outbox
    quorum.on_time(30 + SETTINGS.retry_ms)
    assert isinstance(quorum.outbox[-1].request, Fetch)


def test_an_answer_held_back_must_not_look_like_silence() -> None:
    with pytest.raises(ValueError, match="fetch_wait_ms"):
        QuorumSettings(fetch_wait_ms=800)


def test_committed_records_are_not_cut_off_whatever_a_leader_says() -> None:
    quorum, log, _ = build(2)
    leaders_log = MemoryLog(Disk(), 100)
    for number in range(3):
        leaders_log.append(number, 3)
    quorum.on_answer(1, fetch(2, 0, 0, 0), FetchAnswer(3, 1), 10)
    quorum.on_answer(1, quorum.outbox[-1].request, FetchAnswer(3, 1, 3, leaders_log.read(0)), 20)
    assert quorum.high_watermark == 3
    log.sync()
    quorum.on_synced(30)
    quorum.on_answer(1, quorum.outbox[-1].request, FetchAnswer(3, 1, 3, diverging=EpochEnd(3, 1)), 40)
    assert log.end_offset == 3
    assert quorum.trouble is not None
    assert "would be truncated" in quorum.trouble


def test_an_epoch_in_the_log_is_never_led_again() -> None:
    """The state file may be missing: a log from before the quorum was one, or a copy."""
    disk = Disk()
    log = MemoryLog(disk, 100)
    log.append("a", 7)
    log.sync()
    quorum, _, notes = build(disk=disk)
    assert (quorum.epoch, notes.load().epoch) == (7, 7)
    elect(quorum)
    assert quorum.epoch == 8


def test_after_the_last_epoch_there_is_none() -> None:
    """An epoch has 31 bits. One more could be neither written nor sent, so nobody stands any more."""
    disk = Disk()
    DiskMemory(disk).save(Remembered(INT32_MAX))
    quorum, _, notes = build(disk=disk)
    quorum.on_time(10_000)
    while quorum.role is Role.PROSPECTIVE:
        ask = next(ask for ask in quorum.outbox if isinstance(ask.request, Vote))
        quorum.outbox.clear()
        quorum.on_answer(ask.to, ask.request, VoteAnswer(quorum.epoch, -1, granted=True), 10_000)
    assert (quorum.role, quorum.epoch) == (Role.UNATTACHED, INT32_MAX)
    assert "used up" in str(quorum.trouble)
    assert notes.saves == 0
