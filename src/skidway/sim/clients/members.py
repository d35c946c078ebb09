"""Members of a group, by the consumer protocol (KIP-848): heartbeats, partitions that come and go, commits.

A member gives a partition up only after what it read there is committed, and begins a new one where the group's
committed offset says. Fenced, it drops everything and joins anew. What it commits and what it is told of committed
offsets goes to the laws of groups.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from skidway.errors import ErrorCode
from skidway.sim.clients.readers import Partition, Position, Reader, Reads
from skidway.sim.laws.groups import GroupLaws
from skidway.sim.world.events import Violation, World
from skidway.sim.world.network import Address, Network
from skidway.wire.schema.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from skidway.wire.schema.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from skidway.wire.schema.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from skidway.wire.schema.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)

RETRY_MS = 80
BEAT_MS = 300
COMMIT_MS = 400
REBALANCE_TIMEOUT_MS = 4_000
ELSEWHERE = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS,
)
FENCED = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH)


class Member(Reader):
    def __init__(
        self,
        world: World,
        network: Network,
        place: str,
        seeds: list[Address],
        group: str,
        topics: dict[str, int],
        reads: Reads,
        laws: GroupLaws,
        *,
        mixed: bool = False,
    ) -> None:
        """`mixed`: others of the group speak the classic protocol, and when only they are left, it is theirs."""
        super().__init__(world, network, place, seeds, topics, reads)
        self.positions = {}
        self.counts = topics
        self.mixed = mixed
        self.group = group
        self.laws = laws
        self.member_id = f"{place}-{self.random.randrange(1 << 30)}"
        self.epoch = 0
        self.coordinator = -1
        self.owned: dict[Partition, None] = {}
        self.target: list[Partition] | None = None
        self._committing = False
        self._reconciling = False
        self._unheard = False
        """Whether an answer was lost, and an assignment with it: only who says everything is told everything."""
        self._life = 0
        """Counts joins: answers that were meant for an earlier one are not heard."""

    def start(self) -> None:
        super().start()
        self.after(BEAT_MS * self.random.random(), self._beat)
        self.every(COMMIT_MS, self._commit_now)

    # --- where ---

    def _find(self, then: Callable[[], None]) -> None:
        def answered(reply: FindCoordinatorResponse | None) -> None:
            found = None if reply is None else reply.coordinators[0]
            if found is None or found.error_code or found.node_id < 0:
                self.after(RETRY_MS, lambda: self._find(then))
                return
            self.coordinator = found.node_id
            self.brokers.addresses.setdefault(found.node_id, (found.host, found.port))
            then()

        self.ask(-1, FindCoordinatorRequest(key_type=0, coordinator_keys=[self.group]), answered, 2_000)

    # --- heartbeats ---

    def _beat(self) -> None:
        if self.coordinator < 0:
            self._find(self._beat)
            return
        joining, whole = self.epoch == 0, self.epoch == 0 or self._unheard
        self._unheard = False
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=self.epoch,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS if whole else -1,
            subscribed_topic_names=list(self.topics) if whole else None,
            topic_partitions=[] if joining else self._owned_on_wire(),
        )
        epoch = self.epoch
        self.ask(self.coordinator, request, lambda reply: self._on_beat(epoch, reply), 2_000)

    def _owned_on_wire(self) -> list[TopicPartitions]:
        by_topic: dict[str, list[int]] = {}
        for topic, index in sorted(self.owned):
            by_topic.setdefault(topic, []).append(index)
        return [TopicPartitions(self.known[topic].topic_id, indexes) for topic, indexes in by_topic.items()]

    def _on_beat(self, epoch: int, reply: ConsumerGroupHeartbeatResponse | None) -> None:
        wait_ms = BEAT_MS * (0.7 + 0.6 * self.random.random())
        if reply is None or reply.error_code in ELSEWHERE:
            self.coordinator = -1
            self._unheard = True
            wait_ms = RETRY_MS
        elif reply.error_code in FENCED or (self.mixed and reply.error_code == ErrorCode.GROUP_ID_NOT_FOUND):
            self._rejoin(ErrorCode(reply.error_code).name)
            wait_ms = RETRY_MS
        elif reply.error_code:
            name = ErrorCode(reply.error_code).name
            raise Violation("client-errors", f"{self.place} got {name} for a heartbeat: {reply.error_message}")
        else:
            if reply.member_epoch < epoch:
                raise Violation(
                    "member-epochs", f"{self.place} was in epoch {epoch} and got the older epoch {reply.member_epoch}"
                )
            self.epoch = reply.member_epoch
            if reply.assignment is not None:
                self._assign(reply.assignment.topic_partitions)
        self.after(wait_ms, self._beat)

    def _rejoin(self, why: str) -> None:
        self.say(f"{self.group}: {why}, rejoins")
        self._life += 1
        self.epoch = 0
        self.owned = {}
        self.target = None
        self.positions = {}
        self._committing = self._reconciling = False

    # --- partitions that come and go ---

    def _assign(self, assigned: list[TopicPartitions]) -> None:
        names = {known.topic_id: name for name, known in self.known.items()}
        if any(entry.topic_id not in names for entry in assigned):
            self.refresh()
            self._unheard = True
            return
        self.target = [(names[entry.topic_id], index) for entry in assigned for index in entry.partitions]
        self._reconcile()

    def _reconcile(self) -> None:
        if self._reconciling or self.target is None:
            return
        target = self.target
        revoked = [key for key in self.owned if key not in target]
        added = [key for key in target if key not in self.owned]
        if revoked:
            self._reconciling = True
            self._commit(revoked, lambda: self._revoke(revoked))
        elif added:
            self._reconciling = True
            self._begin(added)

    def _revoke(self, revoked: list[Partition]) -> None:
        for key in revoked:
            self.owned.pop(key, None)
            self.positions.pop(key, None)
        self._reconciling = False
        self._reconcile()

    def _begin(self, added: list[Partition]) -> None:
        topics: dict[str, list[int]] = {}
        for topic, index in added:
            topics.setdefault(topic, []).append(index)
        member_id, member_epoch = self._asks_as()
        request = OffsetFetchRequest(
            groups=[
                OffsetFetchRequestGroup(
                    group_id=self.group,
                    member_id=member_id,
                    member_epoch=member_epoch,
                    topics=[
                        OffsetFetchRequestTopics(name=name, partition_indexes=list(i)) for name, i in topics.items()
                    ],
                )
            ],
            require_stable=True,
        )
        asked = (self._life, self.epoch, self.world.now_us)
        self.ask(self.coordinator, request, lambda reply: self._on_offsets(asked, added, reply), 2_000)

    def _asks_as(self) -> tuple[str | None, int]:
        """Who asks for committed offsets."""
        return self.member_id, self.epoch

    def _on_offsets(
        self, asked: tuple[int, int, int], added: list[Partition], reply: OffsetFetchResponse | None
    ) -> None:
        life, epoch, asked_us = asked
        if life != self._life:
            return
        self._reconciling = False
        group = None if reply is None else reply.groups[0]
        if group is None or group.error_code or self.target is None:
            self.after(RETRY_MS, self._reconcile)
            return
        for topic in group.topics:
            for found in topic.partitions:
                key = (topic.name, found.partition_index)
                if found.error_code or key not in self.target or key not in added:
                    continue
                self.laws.fetched(self.place, self.group, key, found.committed_offset, asked_us)
                self.laws.took(self.place, epoch, self.group, key)
                self.owned[key] = None
                self.positions[key] = Position(max(0, found.committed_offset), found.committed_leader_epoch)
        self._pump()
        self.after(1, self._reconcile)

    # --- commits ---

    def _commit_now(self) -> None:
        if self.owned and not self._committing and not self._reconciling:
            self._commit(list(self.owned), lambda: None)

    def _commit(self, partitions: list[Partition], then: Callable[[], None]) -> None:
        """`then` when the coordinator has answered; again and again until it has."""
        self._committing = True
        topics: dict[str, list[OffsetCommitRequestPartition]] = {}
        offsets: dict[Partition, int] = {}
        for key in partitions:
            position = self.positions.get(key)
            if position is None or position.offset == 0:
                continue
            offsets[key] = position.offset
            topics.setdefault(key[0], []).append(
                OffsetCommitRequestPartition(key[1], position.offset, position.epoch, "")
            )
        if not offsets:
            self._committing = False
            self.after(0, then)
            return
        if self.coordinator < 0:
            life = self._life
            self.after(RETRY_MS, lambda: self._commit(partitions, then) if life == self._life else None)
            return
        request = OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=self.epoch,
            member_id=self.member_id,
            topics=[OffsetCommitRequestTopic(name=name, partitions=parts) for name, parts in topics.items()],
        )
        life = self._life
        tokens = {
            key: self.laws.committing(self.place, self.epoch, self.group, key, offset)
            for key, offset in offsets.items()
        }
        self.ask(
            self.coordinator,
            request,
            lambda reply: self._on_commit(life, tokens, partitions, then, reply),
            2_000,
        )

    def _on_commit(
        self,
        life: int,
        tokens: dict[Partition, Any],
        partitions: list[Partition],
        then: Callable[[], None],
        reply: OffsetCommitResponse | None,
    ) -> None:
        codes: dict[Partition, int] = {}
        for topic in [] if reply is None else reply.topics:
            for answer in topic.partitions:
                codes[topic.name, answer.partition_index] = answer.error_code
        for key, token in tokens.items():
            self.laws.answered(token, codes.get(key))
        if life == self._life:
            self._committing = False
            self._committed(codes, partitions, then)

    def _committed(self, codes: dict[Partition, int], partitions: list[Partition], then: Callable[[], None]) -> None:
        """No codes: nobody answered."""
        life = self._life
        if codes and all(code == ErrorCode.NONE for code in codes.values()):
            then()
        elif any(code in FENCED for code in codes.values()):
            self._rejoin("a commit was refused")
        else:
            if not codes or any(code in ELSEWHERE for code in codes.values()):
                self.coordinator = -1 if not codes else self.coordinator
            self.after(RETRY_MS, lambda: self._again(life, partitions, then))

    def _again(self, life: int, partitions: list[Partition], then: Callable[[], None]) -> None:
        if life == self._life and not self._committing:
            self._commit(partitions, then)
