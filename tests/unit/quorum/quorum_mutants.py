"""Mistakes that quorums have been known to make, each as a change of the machine that the storms must find."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from quorum_disks import DiskMemory, MemoryLog, RealLog

from skidway.quorum import elections, replication, snapshots, state_file
from skidway.quorum.followers import Followers
from skidway.quorum.machine import Quorum
from skidway.quorum.member import QuorumMember
from skidway.quorum.messages import EpochEnd, Fetch, FetchAnswer, Vote
from skidway.quorum.requests import Requests
from skidway.quorum.role import Role
from skidway.quorum.state_file import StateFile
from skidway.quorum.storage import Remembered
from skidway.quorum.voters import VoterHistory, Voters


@contextmanager
def vote_not_persisted() -> Iterator[None]:
    """A member votes, forgets it in a crash, and votes again."""

    def save(self: DiskMemory, remembered: Remembered) -> None:
        self.disk.remembered = Remembered(remembered.epoch, remembered.leader, None)

    with patch.object(DiskMemory, "save", save):
        yield


@contextmanager
def epoch_not_persisted() -> Iterator[None]:
    """An epoch is forgotten in a crash, so one may be led twice."""

    def save(self: DiskMemory, remembered: Remembered) -> None:
        pass

    with patch.object(DiskMemory, "save", save):
        yield


@contextmanager
def grants_any_log() -> Iterator[None]:
    """A vote for somebody who lacks committed records."""

    def may_grant(quorum: QuorumMember, request: Vote) -> bool:
        if request.pre_vote:
            return quorum.role is not Role.LEADER and not quorum.fetched_from_leader
        if request.epoch > quorum.epoch:
            return True
        return quorum.leader == -1 and quorum.voted in (None, request.candidate)

    with patch.object(elections, "may_grant", may_grant):
        yield


@contextmanager
def votes_twice() -> Iterator[None]:
    """A vote for whoever asks last in an epoch."""
    original = elections.may_grant

    def may_grant(quorum: QuorumMember, request: Vote) -> bool:
        if request.pre_vote:
            return original(quorum, request)
        return (request.last_epoch, request.end_offset) >= (quorum.log.last_epoch, quorum.log.end_offset)

    with patch.object(elections, "may_grant", may_grant):
        yield


@contextmanager
def leader_counts_unsynced() -> Iterator[None]:
    """The leader's own position is its log's end, not what it synced."""
    original = Followers.high_watermark

    def high_watermark(self: Followers, voters: Voters, synced_offset: int) -> int:
        return original(self, voters, 2**40)

    with patch.object(Followers, "high_watermark", high_watermark):
        yield


@contextmanager
def follower_promises_unsynced() -> Iterator[None]:
    """A follower asks for more before what it has is durable."""
    with patch.object(MemoryLog, "synced_offset", property(lambda self: self.end_offset)):
        yield


@contextmanager
def commits_older_epochs() -> Iterator[None]:
    """A leader takes records of earlier epochs for committed once a majority has them."""

    def high_watermark(self: Followers, voters: Voters, synced_offset: int) -> int:
        positions = sorted((self._position(v.member, voters, synced_offset) for v in voters), reverse=True)
        return positions[voters.majority - 1]

    with patch.object(Followers, "high_watermark", high_watermark):
        yield


@contextmanager
def minority_commits() -> Iterator[None]:
    """One too few."""
    with patch.object(Voters, "majority", property(lambda self: max(len(self) // 2, 1))):
        yield


@contextmanager
def divergence_ignored() -> Iterator[None]:
    """The leader appends to whatever the follower has."""
    original = replication.fetch_answer

    def fetch_answer(quorum: Quorum, request: Fetch) -> FetchAnswer:
        answer = original(quorum, request)
        if answer.diverging is not None and request.offset <= quorum.log.end_offset:
            records = quorum.log.read(request.offset)
            return FetchAnswer(answer.epoch, answer.leader, answer.high_watermark, records)
        return answer

    with patch.object(replication, "fetch_answer", fetch_answer):
        yield


@contextmanager
def truncates_too_little() -> Iterator[None]:
    """The follower cuts where its own epoch ends, not where the leader's does."""

    def truncate(quorum: Quorum, diverging: EpochEnd, now_ms: int) -> None:
        end = quorum.log.end_of_epoch(diverging.epoch).end_offset
        quorum.log.truncate_to(end)
        quorum.history.truncate_to(end)

    with patch.object(replication, "_truncate", truncate):
        yield


@contextmanager
def leads_on_after_restart() -> Iterator[None]:
    """A leader that comes back takes up its epoch where it left it."""
    original = Quorum._resume

    def resume(self: Quorum, now_ms: int) -> None:
        if self.remembered.leader == self.me.node_id and self.is_voter:
            self.become_leader([self.me], now_ms)
        else:
            original(self, now_ms)

    with patch.object(Quorum, "_resume", resume):
        yield


@contextmanager
def watermark_beyond_log() -> Iterator[None]:
    """A follower takes the leader's watermark for its own, whatever it has."""
    original = replication.on_fetch_answer

    def on_fetch_answer(quorum: Quorum, request: Fetch, answer: FetchAnswer, now_ms: int) -> None:
        original(quorum, request, answer, now_ms)
        if not answer.error:
            quorum.high_watermark = max(quorum.high_watermark, answer.high_watermark)

    with patch.object(replication, "on_fetch_answer", on_fetch_answer):
        yield


@contextmanager
def two_changes_at_once() -> Iterator[None]:
    """The voters are changed again before the last change is committed."""

    def may_change_voters(self: Quorum) -> str | None:
        return None if self.role is Role.LEADER else "not the leader"

    with patch.object(Quorum, "may_change_voters", property(may_change_voters)):
        yield


@contextmanager
def voters_survive_truncation() -> Iterator[None]:
    """A set of voters stays although its record was cut off."""
    with patch.object(VoterHistory, "truncate_to", lambda self, end_offset: None):
        yield


@contextmanager
def leader_counts_itself_when_removed() -> Iterator[None]:
    """A leader that is no voter any more counts itself towards the majority."""

    def high_watermark(self: Followers, voters: Voters, synced_offset: int) -> int:
        positions = [self._position(v.member, voters, synced_offset) for v in voters]
        if self.me not in voters:
            positions.append(synced_offset)
        held = sorted(positions, reverse=True)[voters.majority - 1]
        return held if held > self.epoch_start else -1

    with patch.object(Followers, "high_watermark", high_watermark):
        yield


@contextmanager
def no_check_quorum() -> Iterator[None]:
    """A cut-off leader goes on for ever."""

    def heard_ms(self: Followers, voters: Voters, now_ms: int) -> int:
        return now_ms

    with patch.object(Followers, "heard_ms", heard_ms):
        yield


@contextmanager
def takes_late_answers() -> Iterator[None]:
    """What a fetch that was given up brings is appended all the same."""
    original = Requests.finish

    def finish(self: Requests, node_id: int, request: Any) -> bool:
        original(self, node_id, request)
        return True

    original_fetch = replication.on_fetch_answer

    def on_fetch_answer(quorum: Quorum, request: Fetch, answer: FetchAnswer, now_ms: int) -> None:
        forged = Fetch(request.replica, quorum.epoch, quorum.log.end_offset, quorum.log.last_epoch, 0)
        original_fetch(quorum, forged, answer, now_ms)

    with (
        patch.object(Requests, "finish", finish),
        patch.object(replication, "on_fetch_answer", on_fetch_answer),
    ):
        yield


@contextmanager
def state_not_synced() -> Iterator[None]:
    """The file with epoch and vote is replaced, but neither it nor its name is made durable."""

    def save(self: StateFile, remembered: Remembered) -> None:
        self._disk.make_directory("__cluster_metadata-0")
        file = self._disk.open(self._path + ".tmp", create=True)
        file.truncate(0)
        file.append(state_file._encode(remembered))
        self._disk.rename(self._path + ".tmp", self._path)

    with patch.object(StateFile, "save", save):
        yield


@contextmanager
def promises_what_is_not_on_disk() -> Iterator[None]:
    """A follower asks for more before the files of what it has are synced."""
    with patch.object(RealLog, "synced_offset", property(lambda self: self.end_offset)):
        yield


@contextmanager
def log_behind_its_snapshot() -> Iterator[None]:
    """After a crash the log goes on where it ends, though a snapshot goes further."""
    with patch.object(RealLog, "_log_continues", lambda self, snapshot: True):
        yield


@contextmanager
def log_begun_anew_too_early() -> Iterator[None]:
    """A log begins anew before the snapshot that takes its place is on disk for certain."""

    def finish(self: snapshots.Incoming, directory: str) -> Voters:
        part = self._path + ".fetched" + snapshots.PART
        voters = snapshots.check(self._disk, part)
        self._disk.rename(part, self._path)
        return voters

    with patch.object(snapshots.Incoming, "finish", finish):
        yield


FOUND_ON_DISK_BY: dict[Any, tuple[int, str]] = {
    state_not_synced: (0, "quorum-state cannot be read"),
    promises_what_is_not_on_disk: (0, "commits .*: only"),
    log_behind_its_snapshot: (12, "tell different stories"),
    log_begun_anew_too_early: (12, "has no complete snapshot below"),
}
"""The same for mistakes with files, found by storms over the product's own."""

FOUND_BY = {
    epoch_not_persisted: (0, "forgot (its vote|epoch)"),
    vote_not_persisted: (0, "forgot its vote"),
    grants_any_log: (10, "lost Entry|was committed"),
    votes_twice: (5, "votes twice|forgot its vote|both lead"),
    leader_counts_unsynced: (0, "commits .*: only"),
    follower_promises_unsynced: (0, "commits .*: only"),
    commits_older_epochs: (0, "commits .* in epoch"),
    minority_commits: (0, "both lead"),
    divergence_ignored: (1, "was committed"),
    truncates_too_little: (6, "is behind"),
    leads_on_after_restart: (0, "nobody leads at once"),
    watermark_beyond_log: (0, "commits what it does not have"),
    two_changes_at_once: (3, "several changes of the voters"),
    voters_survive_truncation: (7, "believes in voters"),
    leader_counts_itself_when_removed: (3, "commits .*: only"),
    no_check_quorum: (13, "leads, unheard"),
    takes_late_answers: (5, "a gap or an overlap"),
}
"""A seed whose storm finds it, and the law that it breaks: another one does not count."""
