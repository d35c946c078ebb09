"""Mistakes that metadata quorums and group coordinators have been known to make."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from skidway.broker.coordinators.host import Coordinators
from skidway.groups.consumer.group import ConsumerGroup
from skidway.groups.consumer.reconciliation import ConsumerMember
from skidway.groups.offsets import Offsets
from skidway.quorum import elections, replication
from skidway.quorum.followers import Followers
from skidway.quorum.log import MetadataLog
from skidway.quorum.machine import Quorum
from skidway.quorum.member import QuorumMember
from skidway.quorum.messages import Fetch, FetchAnswer, Vote
from skidway.quorum.role import Role
from skidway.quorum.state_file import StateFile
from skidway.quorum.storage import Remembered
from skidway.quorum.voters import Voters


@contextmanager
def vote_not_persisted() -> Iterator[None]:
    """A member votes, forgets it in a crash, and may vote again."""
    original = StateFile.save

    def save(self: StateFile, remembered: Remembered) -> None:
        original(self, Remembered(remembered.epoch, remembered.leader, None))

    with patch.object(StateFile, "save", save):
        yield


@contextmanager
def epoch_not_persisted() -> Iterator[None]:
    """Epochs after the first are forgotten in a crash (KAFKA-15412's cousin). Without any a node would not start."""
    original = StateFile.save

    def save(self: StateFile, remembered: Remembered) -> None:
        if not self.exists:
            original(self, remembered)

    with patch.object(StateFile, "save", save):
        yield


@contextmanager
def metadata_not_flushed() -> Iterator[None]:
    """Members promise what they have not synced (KAFKA-10533)."""
    with patch.object(MetadataLog, "synced_offset", property(lambda self: self.end_offset)):
        yield


@contextmanager
def minority_commits() -> Iterator[None]:
    """One too few must have a record."""
    original = Followers.high_watermark

    def high_watermark(self: Followers, voters: Voters, synced_offset: int) -> int:
        with patch.object(Voters, "majority", property(lambda self: max(len(self) // 2, 1))):
            return original(self, voters, synced_offset)

    with patch.object(Followers, "high_watermark", high_watermark):
        yield


@contextmanager
def minority_elects() -> Iterator[None]:
    """One too few must vote."""
    with patch.object(Voters, "majority", property(lambda self: max(len(self) // 2, 1))):
        yield


@contextmanager
def grants_any_log() -> Iterator[None]:
    """A vote for somebody who lacks committed records."""

    def may_grant(quorum: QuorumMember, request: Vote) -> bool:
        if request.pre_vote:
            return quorum.role is not Role.LEADER and not quorum.fetched_from_leader
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
def leads_on_after_restart() -> Iterator[None]:
    """A leader that comes back takes up its epoch where it left it (KAFKA-10527)."""
    original = Quorum._resume

    def resume(self: Quorum, now_ms: int) -> None:
        if self.remembered.leader == self.me.node_id and self.is_voter:
            self.become_leader([self.me], now_ms)
        else:
            original(self, now_ms)

    with patch.object(Quorum, "_resume", resume):
        yield


@contextmanager
def commits_older_epochs() -> Iterator[None]:
    """A leader commits records of earlier epochs before one of its own (KAFKA-12619)."""

    def high_watermark(self: Followers, voters: Voters, synced_offset: int) -> int:
        positions = sorted((self._position(v.member, voters, synced_offset) for v in voters), reverse=True)
        return positions[voters.majority - 1]

    with patch.object(Followers, "high_watermark", high_watermark):
        yield


@contextmanager
def metadata_divergence_ignored() -> Iterator[None]:
    """The leader of the quorum appends to whatever a follower has."""
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
def commits_lost_at_load() -> Iterator[None]:
    """A coordinator that takes over knows nothing of committed offsets (KAFKA-10614, KAFKA-16371)."""
    original = Coordinators._load_some

    def load_some(self: Coordinators[Any, Any], partition: Any) -> Any:
        coordinator = original(self, partition)
        coordinator.host.machine.offsets = Offsets()
        return coordinator

    with patch.object(Coordinators, "_load_some", load_some):
        yield


@contextmanager
def coordinator_never_unloaded() -> Iterator[None]:
    """A coordinator whose partition is led elsewhere by now goes on (KAFKA-10614)."""
    original = Coordinators.on_role_changed

    def on_role_changed(self: Coordinators[Any, Any], partition: Any) -> None:
        if partition.leads and partition not in self._loaded:
            original(self, partition)

    with patch.object(Coordinators, "on_role_changed", on_role_changed):
        yield


@contextmanager
def old_members_commit() -> Iterator[None]:
    """Whoever was a member once may commit (a zombie's offsets)."""
    with patch.object(ConsumerGroup, "check_commit", lambda self, *arguments: None):
        yield


@contextmanager
def partitions_given_twice() -> Iterator[None]:
    """A partition is given on before its owner has let go of it (KIP-848, C1)."""
    with (
        patch.object(ConsumerGroup, "held_by_others", lambda self, member, wanted: frozenset()),
        patch.object(ConsumerMember, "held", property(lambda self: self.assigned)),
    ):
        yield
