"""A member's part in its share group: it joins, sends heartbeats, is assigned partitions, leaves.

Its heartbeats go by connections of their own: a fetch that waits must not hold them up.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Protocol

from skidway.errors import ErrorCode
from skidway.sim.clients.base import KnownTopic
from skidway.sim.clients.members import ELSEWHERE
from skidway.sim.clients.share_holds import Place
from skidway.sim.clients.wires import Brokers
from skidway.sim.share_plan import ShareGroupPlan
from skidway.sim.world.events import Violation, World
from skidway.sim.world.network import Address, Network
from skidway.wire.schema.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from skidway.wire.schema.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)

RETRY_MS = 80
ANSWER_MS = 2_000
LEAVING = -1
FENCED = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND)


class Joins(Protocol):
    """Who is the member."""

    world: World
    place: str
    random: Random
    brokers: Brokers
    known: dict[str, KnownTopic]
    stopped: bool
    life: int

    @property
    def member_id(self) -> str: ...

    def after(self, delay_ms: float, step: Callable[[], None]) -> None: ...

    def refresh(self) -> None: ...

    def leader_of(self, topic: str, partition: int) -> tuple[int, int]: ...

    def on_assigned(self) -> None: ...


class Membership:
    def __init__(self, member: Joins, network: Network, seeds: list[Address], plan: ShareGroupPlan) -> None:
        self._member = member
        self._plan = plan
        self._brokers = Brokers(member.world, network, member.place, seeds)
        self._coordinator = -1
        self._epoch = 0
        self._unheard = False
        """Whether an answer was lost, and an assignment with it: only who says everything is told everything."""
        self._assigned: list[TopicPartitions] | None = None
        self.assigned: set[Place] = set()
        self.is_member = False

    def join(self) -> None:
        if not self.is_member and not self._member.stopped:
            self.is_member = True
            self._epoch, self._assigned, self.assigned = 0, None, set()
            self._beat(self._member.life)

    def leave(self) -> None:
        if self._coordinator >= 0 and self._epoch > 0:
            request = ShareGroupHeartbeatRequest(
                group_id=self._plan.name, member_id=self._member.member_id, member_epoch=LEAVING
            )
            self._brokers.ask(self._coordinator, request, lambda reply: None, ANSWER_MS)

    def drop(self) -> None:
        """As a member it is no more."""
        self.is_member = False
        self.assigned = set()
        self._member.world.after(1_000, self._brokers.drop)

    def on_metadata(self) -> None:
        self._brokers.addresses = dict(self._member.brokers.addresses)
        self._name()

    # --- heartbeats ---

    def _find(self, life: int) -> None:
        def answered(reply: FindCoordinatorResponse | None) -> None:
            found = None if reply is None else reply.coordinators[0]
            if found is None or found.error_code or found.node_id < 0:
                self._again(life, RETRY_MS)
                return
            self._coordinator = found.node_id
            self._brokers.addresses[found.node_id] = (found.host, found.port)
            self._beat(life)

        request = FindCoordinatorRequest(key_type=0, coordinator_keys=[self._plan.name])
        self._brokers.ask(-1, request, answered, ANSWER_MS)

    def _again(self, life: int, wait_ms: float) -> None:
        self._member.after(wait_ms, lambda: self._beat(life))

    def _beat(self, life: int) -> None:
        member = self._member
        if life != member.life or not self.is_member or member.stopped:
            return
        if self._coordinator < 0:
            self._find(life)
            return
        whole, self._unheard = self._epoch == 0 or self._unheard, False
        request = ShareGroupHeartbeatRequest(
            group_id=self._plan.name,
            member_id=member.member_id,
            member_epoch=self._epoch,
            subscribed_topic_names=list(self._plan.topics) if whole else None,
        )
        epoch = self._epoch
        self._brokers.ask(self._coordinator, request, lambda reply: self._on_beat(life, epoch, reply), ANSWER_MS)

    def _on_beat(self, life: int, epoch: int, reply: ShareGroupHeartbeatResponse | None) -> None:
        member = self._member
        if life != member.life or not self.is_member or member.stopped:
            return
        wait_ms: float = RETRY_MS
        if reply is None or reply.error_code in ELSEWHERE:
            self._coordinator = -1
            self._unheard = True
        elif reply.error_code in FENCED and epoch:
            self._epoch = 0
        elif reply.error_code:
            name = ErrorCode(reply.error_code).name
            raise Violation("client-errors", f"{member.place} got {name} for a heartbeat: {reply.error_message}")
        else:
            if reply.member_epoch < epoch:
                raise Violation("member-epochs", f"{member.place} was in {epoch} and got {reply.member_epoch}")
            self._epoch = reply.member_epoch
            wait_ms = reply.heartbeat_interval_ms * (0.7 + 0.6 * member.random.random())
            if reply.assignment is not None:
                self._assigned = reply.assignment.topic_partitions
                self._name()
        self._again(life, wait_ms)

    def _name(self) -> None:
        """Topics are assigned by their ids."""
        if self._assigned is None:
            return
        member = self._member
        names = {known.topic_id: name for name, known in member.known.items()}
        if any(each.topic_id not in names for each in self._assigned):
            member.refresh()
            return
        assigned = {(names[each.topic_id], index) for each in self._assigned for index in each.partitions}
        if any(member.leader_of(*place)[0] < 0 for place in assigned):
            member.refresh()
        if assigned != self.assigned:
            self.assigned = assigned
            member.on_assigned()
