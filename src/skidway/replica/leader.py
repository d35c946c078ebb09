"""The leader's side of one partition: who is in sync, and what is committed.

`stored` is the offset up to which this node holds the log as firmly as the topic's `flush` demands; a follower says
the same of itself by the offset it fetches from. The high watermark is the lowest of these over the **maximal** in-sync
set: the committed one and whoever the controller may have added to it meanwhile. A replica that is to be removed stays
in it until that is committed. So whatever set the controller elects the next leader from, each of its members holds
everything below the high watermark.

Changes are proposed, one at a time: `proposal` is what the controller is asked for until it answers or newer metadata
says what came of it. `broker.replication.in_sync` carries it there.

While fewer replicas are in sync than `min.insync.replicas`, the high watermark stands still: the controller may then
elect replicas that left the set (the eligible leader replicas), and they have no more than they had when they left.
"""

from collections.abc import Mapping, Sequence

import msgspec

from skidway.errors import (
    ErrorCode,
    FencedLeaderEpoch,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    ProtocolError,
    StorageError,
    UnknownLeaderEpoch,
)
from skidway.replica.follower import UNKNOWN_EPOCH, Follower
from skidway.replica.role import PartitionRole

ACKS_ALL = -1
NO_EPOCH_ASKED = -1
NOT_APPLIED = (ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED)
"""The controller did not change the in-sync set, and will not obey a copy of the request that comes later: by refusing
it, it made a new partition epoch, for which that is too old."""
AWAIT_METADATA = (
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.INVALID_UPDATE_VERSION,
    ErrorCode.NEW_LEADER_ELECTED,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)
"""The controller knows better than the leader, and what it knows is on its way here."""


class Proposal(msgspec.Struct, eq=False):
    """An in-sync set the leader wants; what it takes for the committed one is said by the epochs."""

    members: list[tuple[int, int]]
    """With the broker epochs they fetched under; -1 when they have not fetched yet."""
    leader_epoch: int
    partition_epoch: int
    added: list[int] = msgspec.field(default_factory=list)
    settled: bool = False
    """Answered in a way that makes it useless to ask again; newer metadata will replace it."""


class Leader:
    __slots__ = (
        "_counted",
        "_eligible",
        "_followers",
        "_lag_ms",
        "_now_ms",
        "_others",
        "epoch",
        "high_watermark",
        "in_sync",
        "min_in_sync",
        "node_id",
        "partition_epoch",
        "proposal",
        "replicas",
        "start_of_epoch_offset",
        "stored",
    )
    leads = True

    def __init__(
        self,
        node_id: int,
        role: PartitionRole,
        stored_offset: int,
        start_of_epoch_offset: int,
        now_ms: int,
        lag_ms: int,
        min_in_sync: int = 1,
    ) -> None:
        """`start_of_epoch_offset`: where the log ended when this node became the leader."""
        self.node_id = node_id
        self.stored = stored_offset
        self.high_watermark = 0
        """As far as it follows from what was heard in this epoch."""
        self._lag_ms = lag_ms
        self.min_in_sync = min_in_sync
        """The topic's min.insync.replicas."""
        self._begin_epoch(role, start_of_epoch_offset, now_ms)

    def _begin_epoch(self, role: PartitionRole, start_of_epoch_offset: int, now_ms: int) -> None:
        assert role.leader == self.node_id, "another node leads"
        self.epoch = role.leader_epoch
        self.start_of_epoch_offset = start_of_epoch_offset
        self._now_ms = now_ms
        self._followers: dict[int, Follower] = {}
        self.in_sync: list[int] = []
        self.proposal: Proposal | None = None
        self._commit(role.in_sync, role.partition_epoch, role.replicas, role.eligible)

    # --- what clients ask ---

    @property
    def leader_id(self) -> int:
        return self.node_id

    def admit(self, acks: int) -> None:
        """Refuse what would not be committed by as many replicas as the topic asks for, or by all it has."""
        if acks == ACKS_ALL and len(self.in_sync) < min(self.min_in_sync, len(self.replicas)):
            raise NotEnoughReplicas(f"{len(self.in_sync)} in-sync replica(s), the topic asks for {self.min_in_sync}")

    def check_epoch(self, epoch: int) -> None:
        """What a client believes to be the leader's epoch; -1 asks for no check."""
        if epoch not in (NO_EPOCH_ASKED, self.epoch):
            _refuse_epoch(epoch, self.epoch)

    check_reader = check_epoch
    """The same for those who may read from any replica."""

    # --- what was stored ---

    def on_stored(self, offset: int) -> int:
        """This node holds the log up to `offset`; the answer is the high watermark that follows."""
        self.stored = offset
        return self._advance()

    def on_fetch(
        self, replica_id: int, broker_epoch: int, offset: int, leader_end: int, now_ms: int, start_offset: int = -1
    ) -> int:
        """A follower holds the log up to `offset`, and its log agrees with the leader's up to there.

        Answers the high watermark that follows. May propose to let it join the in-sync set.
        """
        follower = self._find(replica_id, broker_epoch)
        if broker_epoch == UNKNOWN_EPOCH:
            # Not registered since it was started: nobody can tell whether it still has what it had.
            return self.high_watermark
        self._now_ms = max(self._now_ms, now_ms)
        follower.fetched(offset, start_offset, broker_epoch, leader_end, now_ms)
        if self.proposal is None:
            if replica_id in self.in_sync:
                if offset < self.high_watermark:
                    # It held all of that once. Whatever happened to it, it must not be elected now.
                    self._propose_without([replica_id])
            elif self._may_join(follower):
                self._propose([*self.in_sync, replica_id], [replica_id])
        return self._advance()

    def follower(self, replica_id: int) -> Follower | None:
        return self._followers.get(replica_id)

    def low_watermark(self, start_offset: int) -> int:
        """The lowest offset that this node or a follower that is alive still has; -1 when one has not said."""
        alive = [follower.start_offset for follower in self._followers.values() if follower.id in self._eligible]
        return min([start_offset, *alive])

    @property
    def maximal(self) -> list[int]:
        """The in-sync set, and whoever may have been added to it."""
        return [*self.in_sync, *(self.proposal.added if self.proposal is not None else ())]

    def _find(self, replica_id: int, broker_epoch: int) -> Follower:
        follower = self._followers.get(replica_id)
        if follower is None:
            # It may know of a reassignment that this node has not heard of yet.
            raise UnknownLeaderEpoch(f"{replica_id} is not a replica in epoch {self.epoch}, as far as is known here")
        newest = max(self._eligible.get(replica_id, UNKNOWN_EPOCH), follower.broker_epoch)
        if UNKNOWN_EPOCH < broker_epoch < newest:
            raise NotLeaderOrFollower(f"broker {replica_id} has restarted since (epoch {newest}, not {broker_epoch})")
        return follower

    def _may_join(self, follower: Follower) -> bool:
        # Not below the start of the epoch: what an older leader committed may lie above the high watermark known here.
        return (
            follower.offset >= self.high_watermark
            and follower.offset >= self.start_of_epoch_offset
            and self._is_eligible(follower)
        )

    def _is_eligible(self, follower: Follower) -> bool:
        return self._eligible.get(follower.id) == follower.broker_epoch

    def _advance(self) -> int:
        if len(self.in_sync) < self.min_in_sync and len(self.in_sync) < len(self.replicas):
            return self.high_watermark
        offset = self.stored
        for follower in self._counted:
            if follower.offset < offset:
                offset = follower.offset
        if offset > self.high_watermark:
            for follower in self._others:
                # A busy leader's watermark would run ahead of a replica that is just about to join, for ever.
                if follower.offset < offset and self._is_about_to_join(follower):
                    offset = follower.offset
            self.high_watermark = max(offset, self.high_watermark)
        return self.high_watermark

    def _is_about_to_join(self, follower: Follower) -> bool:
        return self._now_ms - follower.caught_up_ms <= self._lag_ms and self._is_eligible(follower)

    # --- the in-sync set ---

    def check_lag(self, leader_end: int, now_ms: int) -> int:
        """Propose to do without replicas that have not caught up for too long; answers the high watermark, which need
        not wait any longer for others that seemed about to join."""
        self._now_ms = max(self._now_ms, now_ms)
        if self.proposal is None:
            late = [
                follower.id
                for follower in self._counted
                if follower.offset < leader_end and now_ms - follower.caught_up_ms > self._lag_ms
            ]
            if late:
                self._propose_without(late)
        return self._advance()

    def _propose_without(self, late: list[int]) -> None:
        self._propose([replica for replica in self.in_sync if replica not in late], [])

    def _propose(self, in_sync: Sequence[int], added: list[int]) -> None:
        members = [(replica, self._broker_epoch(replica)) for replica in in_sync]
        self.proposal = Proposal(members, self.epoch, self.partition_epoch, added)
        self._count()

    def _broker_epoch(self, replica_id: int) -> int:
        if replica_id == self.node_id:
            return self._eligible.get(replica_id, UNKNOWN_EPOCH)
        return self._followers[replica_id].broker_epoch

    def on_altered(self, proposal: Proposal, leader_epoch: int, partition_epoch: int, in_sync: Sequence[int]) -> int:
        """The controller took the proposal; answers the high watermark that follows.

        The set holds when the metadata brings it: a change of min.insync.replicas that the controller knew of when it
        judged who is eligible has come by then. Counting by the old number might commit what the eligible lack.
        """
        if proposal is self.proposal and leader_epoch == self.epoch:
            if partition_epoch > self.partition_epoch:
                proposal.settled = True
            elif partition_epoch == self.partition_epoch:
                # It is what holds already: no metadata will come.
                self._commit(in_sync, partition_epoch, self.replicas, self._eligible)
        return self._advance()

    def on_alter_failed(self, proposal: Proposal, error: int) -> int:
        """The controller refused it; or, with any other error, no answer came: then it is to be asked again."""
        if proposal is self.proposal:
            if error in NOT_APPLIED:
                self.proposal = None
                self._count()
            elif error in AWAIT_METADATA:
                proposal.settled = True
        return self._advance()

    def on_metadata(self, role: PartitionRole, leader_end: int, now_ms: int) -> int:
        """Committed metadata says that this node leads (still or again); answers the high watermark that follows."""
        before = self.high_watermark
        if role.leader_epoch > self.epoch:
            self.on_new_epoch(role, leader_end, now_ms)
        elif role.leader_epoch == self.epoch and role.partition_epoch > self.partition_epoch:
            self._now_ms = max(self._now_ms, now_ms)
            self._commit(role.in_sync, role.partition_epoch, role.replicas, role.eligible)
        else:
            self._eligible = role.eligible
        after = self._advance()
        assert after >= before, "what was committed stays committed"
        return after

    def on_new_epoch(self, role: PartitionRole, leader_end: int, now_ms: int) -> None:
        """Followers have to compare their logs with this one first, so nothing is known about them."""
        self._begin_epoch(role, leader_end, max(now_ms, self._now_ms))

    def _commit(
        self, in_sync: Sequence[int], partition_epoch: int, replicas: Sequence[int], eligible: Mapping[int, int]
    ) -> None:
        before, self.in_sync = self.in_sync, list(in_sync)
        self.partition_epoch = partition_epoch
        self.replicas = list(replicas)
        self._eligible = eligible
        self.proposal = None
        known = self._followers
        self._followers = {}
        for replica in dict.fromkeys([*replicas, *in_sync]):
            if replica != self.node_id:
                follower = self._followers[replica] = known.get(replica) or Follower(replica)
                if replica in in_sync and replica not in before:
                    # It has the time of a lag to catch up from here.
                    follower.caught_up_ms = max(follower.caught_up_ms, self._now_ms)
        self._count()

    def _count(self) -> None:
        maximal = self.maximal
        assert all(member == self.node_id or member in self._followers for member in maximal), "nobody hears of it"
        self._counted = [follower for follower in self._followers.values() if follower.id in maximal]
        self._others = [follower for follower in self._followers.values() if follower.id not in maximal]


class NotLeading:
    """In the place of a Leader where another node leads: refuses what only a leader does."""

    __slots__ = ("epoch", "in_sync", "leader_id", "min_in_sync", "partition_epoch", "replicas")
    leads = False
    proposal = None

    def __init__(
        self,
        leader_id: int,
        epoch: int,
        partition_epoch: int = -1,
        replicas: Sequence[int] = (),
        in_sync: Sequence[int] = (),
        min_in_sync: int = 1,
    ) -> None:
        self.leader_id = leader_id
        self.epoch = epoch
        self.partition_epoch = partition_epoch
        self.replicas = list(replicas)
        self.in_sync = list(in_sync)
        self.min_in_sync = min_in_sync
        """Kept for the time when this node leads."""

    def admit(self, acks: int) -> None:
        raise self._refusal()

    def check_epoch(self, epoch: int) -> None:
        self.check_reader(epoch)
        raise self._refusal()

    def check_reader(self, epoch: int) -> None:
        if epoch not in (NO_EPOCH_ASKED, self.epoch):
            _refuse_epoch(epoch, self.epoch)

    def on_stored(self, offset: int) -> int:
        """A follower's high watermark is what its leader says."""
        return 0

    def on_fetch(
        self, replica_id: int, broker_epoch: int, offset: int, leader_end: int, now_ms: int, start_offset: int = -1
    ) -> int:
        raise self._refusal()

    def check_lag(self, leader_end: int, now_ms: int) -> int:
        return 0

    def on_altered(self, proposal: Proposal, leader_epoch: int, partition_epoch: int, in_sync: Sequence[int]) -> int:
        return 0

    def on_alter_failed(self, proposal: Proposal, error: int) -> int:
        return 0

    def follower(self, replica_id: int) -> Follower | None:
        return None

    def _refusal(self) -> ProtocolError:
        return NotLeaderOrFollower(f"broker {self.leader_id} leads" if self.leader_id >= 0 else "no broker leads")


class Damaged(NotLeading):
    """In the place of a Leader where this node is to lead, its log is damaged and there are other replicas: what it
    has is neither served nor compared with what others have."""

    __slots__ = ("reason",)

    def __init__(self, role: PartitionRole, min_in_sync: int, reason: str) -> None:
        super().__init__(role.leader, role.leader_epoch, role.partition_epoch, role.replicas, role.in_sync, min_in_sync)
        self.reason = reason

    def _refusal(self) -> ProtocolError:
        return StorageError(self.reason)


Leadership = Leader | NotLeading


def _refuse_epoch(epoch: int, current: int) -> None:
    if epoch < current:
        raise FencedLeaderEpoch(f"epoch {epoch} is over, the leader's is {current}")
    raise UnknownLeaderEpoch(f"epoch {epoch} is not known here yet, the leader's is {current}")
