"""What becomes of one partition when its replicas, or who of them is in sync, shall change: one record, or none.

A leader is one that has everything that was acknowledged: a member of the in-sync set; when that is empty, one of the
eligible leader replicas (KIP-966): those that left the in-sync set while it was, or fell, below min.insync.replicas,
since when nothing more was acknowledged without them. When both are empty because all of them stopped uncleanly, the
last known leader. Anybody else only where unclean elections are allowed.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum

from skidway.metadata.image import LOST_DIRECTORY, NO_CHANGE, NO_LEADER, Partition
from skidway.wire.message import ZERO_UUID
from skidway.wire.schema.metadata_records import PartitionChangeRecord

RECOVERED = 0
RECOVERING = 1
"""Elected uncleanly, and nobody else in sync yet."""


class Election(Enum):
    ONLINE = "online"
    """Only where the leader can no longer lead."""
    PREFERRED = "preferred"
    UNCLEAN = "unclean"
    """Rather one that lost records than none."""


@dataclass(slots=True)
class PartitionChange:
    """Set what shall change, then `record`."""

    topic_id: bytes
    before: Partition
    min_in_sync: int
    """As configured; more than there are replicas cannot be asked."""
    active: Callable[[int], bool]
    """Whether a broker is alive and stays."""
    holds: Callable[[int], bool]
    """Whether a broker still has the disk that its replica was on."""
    election: Election = Election.ONLINE
    directory_of: Callable[[int], bytes] = lambda broker_id: ZERO_UUID
    """Where a broker puts a new replica."""
    unclean: Collection[int] = ()
    """Brokers that may have lost records: they neither lead nor stay eligible."""
    assigned: Mapping[int, bytes] = field(default_factory=dict)
    """Brokers that say where their copy is now. One whose copy is lost does not lead."""
    isr: list[int] = field(init=False)
    replicas: list[int] = field(init=False)
    adding: list[int] = field(init=False)
    removing: list[int] = field(init=False)
    recovery_state: int = field(init=False)
    _eligible: list[int] = field(init=False)
    _leader: int = field(init=False)
    _last_known: list[int] = field(init=False)

    def __post_init__(self) -> None:
        before = self.before
        self.isr, self.replicas = before.isr, before.replicas
        self.adding, self.removing = before.adding_replicas, before.removing_replicas
        self.recovery_state = before.leader_recovery_state
        self._eligible, self._leader = before.eligible_leader_replicas, before.leader
        self._last_known = before.last_known_elr

    def record(self) -> PartitionChangeRecord | None:
        """None when nothing changes."""
        self._complete_reassignment()
        self._follow_eligible()
        self._elect()
        self._remember_leader()
        before, leader = self.before, NO_CHANGE
        # Naming the leader begins an epoch: replicas that are none any more have to be told that what they hold is old.
        if self._leader != before.leader or not set(before.replicas) <= set(self.replicas):
            leader = self._leader
        record = PartitionChangeRecord(
            partition_id=before.index,
            topic_id=self.topic_id,
            isr=_if_changed(self.isr, before.isr),
            leader=leader,
            replicas=_if_changed(self.replicas, before.replicas),
            removing_replicas=_if_changed(self.removing, before.removing_replicas),
            adding_replicas=_if_changed(self.adding, before.adding_replicas),
            leader_recovery_state=-1 if self.recovery_state == before.leader_recovery_state else self.recovery_state,
            directories=self._directories(),
            eligible_leader_replicas=_if_changed(self._eligible, before.eligible_leader_replicas),
            last_known_elr=_if_changed(self._last_known, before.last_known_elr),
        )
        unchanged = PartitionChangeRecord(partition_id=before.index, topic_id=self.topic_id)
        return None if record == unchanged else record

    @property
    def has_eligible(self) -> bool:
        """After `record`."""
        return bool(self._eligible)

    def _complete_reassignment(self) -> None:
        """When every replica that is to stay is in sync, not before: the others are needed until then."""
        if not self.adding and not self.removing:
            return
        staying = [broker_id for broker_id in self.replicas if broker_id not in self.removing]
        if staying and set(staying) <= set(self.isr):
            self.isr = [broker_id for broker_id in self.isr if broker_id in staying]
            self.replicas, self.adding, self.removing = staying, [], []

    def _follow_eligible(self) -> None:
        if len(self.isr) >= min(self.min_in_sync, len(self.replicas)):
            self._eligible = []
            return
        had_all = {*self.before.isr, *self._eligible} - set(self.isr) - set(self.unclean)
        self._eligible = [broker_id for broker_id in self.replicas if broker_id in had_all]

    def _elect(self) -> None:
        leader = self._complete_leader()
        if leader == NO_LEADER:
            leader = self._lossy_leader()
            if leader != NO_LEADER:
                self.isr, self._eligible, self.recovery_state = [leader], [], RECOVERING
        elif not self.isr:
            self.isr = [leader]
            # It may be enough by itself, and acknowledge what the others lack.
            self._follow_eligible()
        self._leader = leader

    def _complete_leader(self) -> int:
        """One that lacks nothing."""
        complete = self.isr or self._eligible
        able = [each for each in self.replicas if each in complete and self._may_lead(each)]
        if self.election is Election.PREFERRED and self.replicas[0] in able:
            return self.replicas[0]
        if self.before.leader in able:
            return self.before.leader
        return able[0] if able else NO_LEADER

    def _lossy_leader(self) -> int:
        if not self.isr and not self._eligible:
            for broker_id in self.before.last_known_elr:
                if broker_id in self.replicas and self._may_lead(broker_id):
                    return broker_id
        if self.election is Election.UNCLEAN:
            return next(filter(self._may_lead, self.replicas), NO_LEADER)
        return NO_LEADER

    def _may_lead(self, broker_id: int) -> bool:
        if not self.active(broker_id) or broker_id in self.unclean:
            return False
        if broker_id in self.assigned:
            return self.assigned[broker_id] != LOST_DIRECTORY
        # Who gets in sync now was seen to have everything, on whatever disk.
        joined = broker_id in self.isr and broker_id not in self.before.isr
        return joined or self.holds(broker_id)

    def _remember_leader(self) -> None:
        """The field of the last known eligible replicas holds the last leader, as long as there is no other."""
        if self._leader != NO_LEADER:
            self._last_known = []
        elif self.before.leader != NO_LEADER:
            self._last_known = [self.before.leader]

    def _directories(self) -> list[bytes] | None:
        """Whoever gets in sync has the replica where it is now, which need not be where it was."""
        before = self.before
        joined = set(self.isr) - set(before.isr)
        if self.replicas == before.replicas and not joined and not self.assigned:
            return None
        known = dict(zip(before.replicas, before.directories, strict=True))
        known = {each: directory for each, directory in known.items() if each not in joined} | dict(self.assigned)
        directories = [known[each] if each in known else self.directory_of(each) for each in self.replicas]
        return None if directories == before.directories else directories


def _if_changed(now: list[int], before: list[int]) -> list[int] | None:
    return None if now == before else now
