"""One leader, told what happens: who counts, who joins, who leaves, and what is committed."""

import pytest

from skidway.errors import (
    ErrorCode,
    FencedLeaderEpoch,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    UnknownLeaderEpoch,
)
from skidway.replica.leader import ACKS_ALL, Leader, NotLeading
from skidway.replica.role import PartitionRole

LAG_MS = 1_000
EPOCHS = {1: 11, 2: 12, 3: 13}


def role(*in_sync: int, epoch: int = 5, partition_epoch: int = 7, eligible: dict[int, int] = EPOCHS) -> PartitionRole:
    return PartitionRole(1, epoch, partition_epoch, [1, 2, 3], list(in_sync), eligible)


def leader(*in_sync: int, stored: int = 10, min_in_sync: int = 1, eligible: dict[int, int] = EPOCHS) -> Leader:
    return Leader(1, role(*in_sync, eligible=eligible), stored, 10, 0, LAG_MS, min_in_sync)


def fetch(subject: Leader, replica: int, offset: int, end: int = 10, now_ms: int = 0, epoch: int | None = None) -> int:
    return subject.on_fetch(replica, EPOCHS[replica] if epoch is None else epoch, offset, end, now_ms)


def proposed(subject: Leader) -> list[int]:
    assert subject.proposal is not None
    return [member for member, _ in subject.proposal.members]


def test_committed_is_what_everybody_in_sync_has() -> None:
    subject = leader(1, 2, 3)
    assert subject.on_stored(10) == 0, "nothing is known of the followers yet"
    assert fetch(subject, 2, 8) == 0
    assert fetch(subject, 3, 9) == 8
    assert fetch(subject, 2, 10) == 9
    assert subject.on_stored(12) == 9
    assert fetch(subject, 3, 12, end=12) == 10


def test_it_never_goes_back() -> None:
    subject = leader(1, 2)
    assert fetch(subject, 2, 10) == 10
    assert fetch(subject, 2, 4) == 10


def test_a_follower_joins_when_it_has_what_is_committed_and_all_of_older_epochs() -> None:
    subject = leader(1, 2)
    fetch(subject, 2, 5)
    fetch(subject, 3, 9)
    assert subject.proposal is None, "9 is above the watermark, but below the start of the epoch"
    fetch(subject, 3, 10)
    assert proposed(subject) == [1, 2, 3]
    assert subject.proposal is not None
    assert subject.proposal.members == [(1, 11), (2, 12), (3, 13)]
    assert subject.in_sync == [1, 2], "until the controller says so"


def test_who_may_have_joined_counts_before_the_answer_comes() -> None:
    subject = leader(1, 2)
    fetch(subject, 3, 10)
    fetch(subject, 2, 10)
    subject.on_stored(12)
    assert fetch(subject, 2, 12, end=12) == 10
    assert subject.proposal is not None
    subject.on_altered(subject.proposal, 5, 8, [1, 2, 3])
    assert (subject.in_sync, subject.maximal) == ([1, 2], [1, 2, 3]), "until the metadata says so"
    subject.on_metadata(role(1, 2, 3, partition_epoch=8), 12, 0)
    assert subject.in_sync == [1, 2, 3]
    assert fetch(subject, 3, 12, end=12) == 12


def test_who_is_to_leave_counts_until_that_is_committed() -> None:
    subject = leader(1, 2, 3)
    fetch(subject, 2, 10, now_ms=1)
    fetch(subject, 3, 4, now_ms=1)
    fetch(subject, 2, 10, now_ms=1_500)
    subject.check_lag(10, 1_501)
    assert proposed(subject) == [1, 2]
    assert subject.high_watermark == 4
    assert subject.proposal is not None
    assert subject.on_altered(subject.proposal, 5, 8, [1, 2]) == 4, "until the metadata says so"
    assert subject.on_metadata(role(1, 2, partition_epoch=8), 10, 1_501) == 10


def test_one_that_is_always_a_little_behind_a_busy_leader_is_in_sync() -> None:
    subject = leader(1, 2)
    end = 10
    for now_ms in range(0, 5_000, 100):
        subject.on_stored(end + 5)
        fetch(subject, 2, end, end=end + 5, now_ms=now_ms)
        end += 5
        subject.check_lag(end, now_ms)
    assert subject.proposal is None


def test_one_that_has_everything_is_in_sync_however_long_ago_it_was_heard_of() -> None:
    subject = leader(1, 2)
    fetch(subject, 2, 10, now_ms=0)
    subject.check_lag(10, 10**6)
    assert subject.proposal is None


def test_one_that_lost_what_it_had_is_not_left_to_be_elected() -> None:
    subject = leader(1, 2, 3)
    fetch(subject, 2, 10)
    fetch(subject, 3, 10)
    fetch(subject, 3, 0)
    assert proposed(subject) == [1, 2]


@pytest.mark.parametrize("error", [ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED])
def test_a_refusal_that_proves_nothing_was_changed_ends_the_proposal(error: ErrorCode) -> None:
    subject = leader(1, 2)
    fetch(subject, 3, 10)
    assert subject.proposal is not None
    subject.on_alter_failed(subject.proposal, error)
    assert subject.proposal is None
    assert subject.maximal == [1, 2]


@pytest.mark.parametrize("error", [ErrorCode.INVALID_UPDATE_VERSION, ErrorCode.FENCED_LEADER_EPOCH])
def test_a_refusal_by_one_who_knows_better_leaves_it_to_the_metadata(error: ErrorCode) -> None:
    subject = leader(1, 2)
    fetch(subject, 3, 10)
    assert subject.proposal is not None
    subject.on_alter_failed(subject.proposal, error)
    assert subject.proposal.settled
    assert subject.maximal == [1, 2, 3]
    subject.on_metadata(role(1, partition_epoch=8), 10, 0)
    assert subject.proposal is None
    assert subject.maximal == [1]


def test_no_answer_means_nothing() -> None:
    subject = leader(1, 2)
    fetch(subject, 3, 10)
    asked = subject.proposal
    assert asked is not None
    subject.on_alter_failed(asked, ErrorCode.REQUEST_TIMED_OUT)
    assert subject.proposal is asked
    assert not asked.settled
    assert subject.maximal == [1, 2, 3]


def test_newer_metadata_wins_over_an_answer_and_older_metadata_says_nothing() -> None:
    subject = leader(1, 2)
    fetch(subject, 3, 10)
    first = subject.proposal
    assert first is not None
    subject.on_metadata(role(1, partition_epoch=9), 10, 0)
    subject.on_altered(first, 5, 8, [1, 2, 3])
    assert (subject.in_sync, subject.partition_epoch) == ([1], 9)
    fetch(subject, 2, 10)
    assert subject.proposal is not None
    subject.on_altered(subject.proposal, 5, 10, [1, 2])
    subject.on_metadata(role(1, partition_epoch=9), 10, 0)
    assert (subject.in_sync, subject.maximal) == ([1], [1, 2])
    subject.on_metadata(role(1, 2, partition_epoch=10), 10, 0)
    assert (subject.in_sync, subject.partition_epoch) == ([1, 2], 10)


def test_an_answer_that_nothing_changed_ends_the_proposal() -> None:
    subject = leader(1, 2)
    fetch(subject, 3, 10)
    assert subject.proposal is not None
    subject.on_altered(subject.proposal, 5, 7, [1, 2])
    assert subject.in_sync == [1, 2]
    assert subject.proposal is None


def test_metadata_that_says_nothing_new_leaves_the_proposal_alone() -> None:
    subject = leader(1, 2)
    fetch(subject, 3, 10)
    asked = subject.proposal
    subject.on_metadata(role(1, 2, eligible={1: 11}), 10, 0)
    assert subject.proposal is asked


def test_a_new_epoch_forgets_where_followers_were() -> None:
    subject = leader(1, 2)
    fetch(subject, 2, 10)
    subject.on_stored(20)
    subject.on_metadata(role(1, 2, epoch=6, partition_epoch=8), 20, 0)
    assert (subject.epoch, subject.start_of_epoch_offset) == (6, 20)
    assert subject.on_stored(20) == 10
    assert fetch(subject, 2, 20, end=20) == 20


def test_too_few_in_sync_commit_nothing() -> None:
    subject = leader(1, min_in_sync=2)
    assert subject.on_stored(12) == 0
    fetch(subject, 2, 12, end=12)
    assert subject.on_stored(12) == 0, "who may have joined is not in sync yet"
    assert subject.proposal is not None
    assert subject.on_altered(subject.proposal, 5, 8, [1, 2]) == 0
    assert subject.on_metadata(role(1, 2, partition_epoch=8), 12, 0) == 12
    with pytest.raises(NotEnoughReplicas):
        leader(1, min_in_sync=2).admit(ACKS_ALL)


def test_a_topic_with_fewer_replicas_than_it_asks_for_is_content_with_all_of_them() -> None:
    only = PartitionRole(1, 5, 7, [1], [1], EPOCHS)
    subject = Leader(1, only, 10, 10, 0, LAG_MS, 2)
    subject.admit(ACKS_ALL)
    assert subject.on_stored(11) == 11


def test_followers_that_are_fenced_or_another_run_do_not_join() -> None:
    eligible = {1: 11, 3: 14}
    subject = leader(1, eligible=eligible)
    fetch(subject, 2, 10)
    with pytest.raises(NotLeaderOrFollower, match="has restarted since"):
        fetch(subject, 3, 10)
    fetch(subject, 3, 10, epoch=-1)
    assert subject.proposal is None
    eligible[2] = 12
    fetch(subject, 2, 10)
    assert proposed(subject) == [1, 2]


def test_the_watermark_waits_for_one_that_is_about_to_join() -> None:
    """Otherwise a busy leader would always be ahead of it."""
    subject = leader(1, 2)
    fetch(subject, 2, 10)
    fetch(subject, 3, 9, end=9, now_ms=1)
    subject.on_stored(20)
    assert fetch(subject, 2, 20, end=20, now_ms=2) == 10
    assert subject.check_lag(20, 2_000) == 20, "it took too long"


def test_strangers_and_epochs() -> None:
    subject = leader(1, 2)
    with pytest.raises(UnknownLeaderEpoch):
        subject.on_fetch(9, 19, 10, 10, 0)
    with pytest.raises(FencedLeaderEpoch):
        subject.check_epoch(4)
    with pytest.raises(UnknownLeaderEpoch):
        subject.check_epoch(6)
    subject.check_epoch(-1)


def test_who_does_not_lead_says_who_does() -> None:
    other = NotLeading(2, 5)
    with pytest.raises(NotLeaderOrFollower, match="broker 2 leads"):
        other.admit(1)
    with pytest.raises(NotLeaderOrFollower):
        other.check_epoch(5)
    with pytest.raises(FencedLeaderEpoch):
        other.check_epoch(4)
    other.check_reader(5)
    assert other.on_stored(10) == 0
