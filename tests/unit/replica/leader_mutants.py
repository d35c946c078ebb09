"""Mistakes that leaders have been known to make, each as a change of the product's leader that the storms must find."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from unittest.mock import patch

from replication_world import World

from skidway.errors import ErrorCode
from skidway.replica.follower import Follower
from skidway.replica.leader import Leader, Proposal
from skidway.replica.role import PartitionRole


@contextmanager
def joins_before_the_epoch() -> Iterator[None]:
    """KAFKA-7128: in sync with the watermark is enough, although older leaders committed more than is known here."""

    def may_join(self: Leader, follower: Follower) -> bool:
        return follower.offset >= self.high_watermark and self._is_eligible(follower)

    with patch.object(Leader, "_may_join", may_join):
        yield


@contextmanager
def joins_below_the_watermark() -> Iterator[None]:
    """Whoever has reached the epoch joins, whatever was committed since."""

    def may_join(self: Leader, follower: Follower) -> bool:
        return follower.offset >= self.start_of_epoch_offset and self._is_eligible(follower)

    with patch.object(Leader, "_may_join", may_join):
        yield


@contextmanager
def watermark_on_committed_set() -> Iterator[None]:
    """KIP-497: the controller may have let somebody in already."""
    with patch.object(Leader, "maximal", property(lambda self: list(self.in_sync))):
        yield


@contextmanager
def watermark_on_proposed_set() -> Iterator[None]:
    """Whoever is to be removed does not count any more, although the controller may still elect it."""

    def maximal(self: Leader) -> list[int]:
        return self.in_sync if self.proposal is None else [member for member, _ in self.proposal.members]

    with patch.object(Leader, "maximal", property(maximal)):
        yield


@contextmanager
def watermark_below_min_in_sync() -> Iterator[None]:
    """KAFKA-15583: commits alone what those who may be elected then do not have."""
    original = Leader.__init__

    def init(self: Leader, node: int, role: PartitionRole, stored: int, start: int, now: int, lag: int, _: int) -> None:
        original(self, node, role, stored, start, now, lag, 1)

    with patch.object(Leader, "__init__", init):
        yield


@contextmanager
def trusts_rebooted_followers() -> Iterator[None]:
    """KAFKA-15221: a fetch from before a restart lets the broker join as it is after it."""

    def find(self: Leader, replica_id: int, broker_epoch: int) -> Follower:
        return self._followers[replica_id]

    with (
        patch.object(Leader, "_find", find),
        patch.object(Leader, "_is_eligible", lambda self, follower: follower.id in self._eligible),
        patch.object(Leader, "_broker_epoch", lambda self, replica_id: self._eligible.get(replica_id, -1)),
    ):
        yield


@contextmanager
def trusts_unregistered_followers() -> Iterator[None]:
    """A fetch that does not say under which registration counts for any."""
    with (
        patch("skidway.replica.leader.UNKNOWN_EPOCH", -2),
        patch.object(Leader, "_is_eligible", lambda self, follower: follower.id in self._eligible),
        patch.object(Leader, "_find", lambda self, replica_id, broker_epoch: self._followers[replica_id]),
    ):
        yield


@contextmanager
def takes_stale_answers() -> Iterator[None]:
    """KAFKA-12686: an answer overtakes the metadata that replaced what it answers."""

    def on_altered(self: Leader, proposal: Proposal, leader_epoch: int, epoch: int, in_sync: Sequence[int]) -> int:
        self._commit(in_sync, epoch, self.replicas, self._eligible)
        return self._advance()

    with patch.object(Leader, "on_altered", on_altered):
        yield


@contextmanager
def takes_stale_metadata() -> Iterator[None]:
    """Metadata that is older than an answer puts the old set back."""

    def on_metadata(self: Leader, role: PartitionRole, leader_end: int, now_ms: int) -> int:
        if role.leader_epoch > self.epoch:
            self.on_new_epoch(role, leader_end, now_ms)
        else:
            self._commit(role.in_sync, role.partition_epoch, role.replicas, role.eligible)
        return self._advance()

    with patch.object(Leader, "on_metadata", on_metadata):
        yield


@contextmanager
def no_rise_after_an_answer() -> Iterator[None]:
    """KAFKA-13091: what the removed replica held back stays uncommitted until somebody writes."""
    original_altered, original_metadata = Leader.on_altered, Leader.on_metadata

    def on_altered(self: Leader, proposal: Proposal, leader_epoch: int, epoch: int, in_sync: Sequence[int]) -> int:
        with patch.object(Leader, "_advance", lambda self: self.high_watermark):
            return original_altered(self, proposal, leader_epoch, epoch, in_sync)

    def on_metadata(self: Leader, role: PartitionRole, leader_end: int, now_ms: int) -> int:
        with patch.object(Leader, "_advance", lambda self: self.high_watermark):
            return original_metadata(self, role, leader_end, now_ms)

    with patch.object(Leader, "on_altered", on_altered), patch.object(Leader, "on_metadata", on_metadata):
        yield


@contextmanager
def forgets_unheard_proposals() -> Iterator[None]:
    """No answer is taken for a no."""
    original = Leader.on_alter_failed

    def on_alter_failed(self: Leader, proposal: Proposal, error: int) -> int:
        if error == ErrorCode.REQUEST_TIMED_OUT and proposal is self.proposal:
            self.proposal = None
            self._count()
        return original(self, proposal, error)

    with patch.object(Leader, "on_alter_failed", on_alter_failed):
        yield


@contextmanager
def forgets_answers_of_those_who_know_better() -> Iterator[None]:
    """A refusal as outdated is taken for a no, although it may be the proposal itself that was granted before."""
    original = Leader.on_alter_failed

    def on_alter_failed(self: Leader, proposal: Proposal, error: int) -> int:
        if error == ErrorCode.INVALID_UPDATE_VERSION:
            error = ErrorCode.INELIGIBLE_REPLICA
        return original(self, proposal, error)

    with patch.object(Leader, "on_alter_failed", on_alter_failed):
        yield


@contextmanager
def counts_diverging_followers() -> Iterator[None]:
    """KAFKA-13141: where another log ends is taken for a position in this one."""
    with patch.object(World, "counts_diverging", True):
        yield


@contextmanager
def believes_unheard_followers() -> Iterator[None]:
    """A new leader takes those in sync to have what it has."""
    original = Leader._begin_epoch

    def begin_epoch(self: Leader, role: PartitionRole, start_of_epoch_offset: int, now_ms: int) -> None:
        original(self, role, start_of_epoch_offset, now_ms)
        for follower in self._counted:
            follower.offset = start_of_epoch_offset

    with patch.object(Leader, "_begin_epoch", begin_epoch):
        yield


@contextmanager
def leader_counts_what_it_has_not_stored() -> Iterator[None]:
    """The leader's own position is its log's end."""
    original = World.write

    def write(self: World) -> None:
        original(self)
        for server in self.servers.values():
            if isinstance(server.leader, Leader) and server.up:
                self._advance(server, server.leader.on_stored(len(server.entries)))

    with patch.object(World, "write", write):
        yield


ELECTABLE = r"could be elected \(.*\), but lacks some of"
ALONE = "commits without"
UNSETTLED = "are in sync in the end"

FOUND_BY = {
    joins_before_the_epoch: (87, ELECTABLE),
    joins_below_the_watermark: (4, ELECTABLE),
    watermark_on_committed_set: (0, ALONE),
    watermark_on_proposed_set: (1, ALONE),
    watermark_below_min_in_sync: (0, ELECTABLE),
    trusts_rebooted_followers: (1_138, ELECTABLE),
    trusts_unregistered_followers: (2_505, ELECTABLE),
    takes_stale_answers: (228, UNSETTLED),
    takes_stale_metadata: (23, ALONE),
    no_rise_after_an_answer: (0, "waits with what is committed"),
    forgets_unheard_proposals: (0, ALONE),
    forgets_answers_of_those_who_know_better: (64, ALONE),
    counts_diverging_followers: (18, ELECTABLE),
    believes_unheard_followers: (15, ELECTABLE),
    leader_counts_what_it_has_not_stored: (487, ELECTABLE),
}
"""The first seed whose storm finds it, and the law that it breaks: another one does not count."""
