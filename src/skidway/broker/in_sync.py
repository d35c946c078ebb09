"""In-sync sets: carries what leaders propose to the controller, and its answers back.

One AlterPartition at a time, with everything that waits when it is sent. A proposal is asked for until it is answered
or newer metadata has replaced it; an answer to one that was replaced is ignored by the leader.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from skidway.errors import ErrorCode
from skidway.replica.leader import Proposal
from skidway.wire.message import Message
from skidway.wire.schema.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    RequestPartitionData,
    RequestTopicData,
)

if TYPE_CHECKING:
    from skidway.broker.node import Node
    from skidway.broker.partition import Partition
    from skidway.replica.role import PartitionRole

Ask = Callable[[Message, Callable[[Message | None], None], int], None]
PARTITIONS_PER_REQUEST_MAX = 1_000
RETRY_MS = 100
TOLD_AT_ONCE_MAX = 20
"""A broker that goes is in thousands of sets; nobody reads so many lines, and writing them takes its time."""


class InSync:
    def __init__(self, node: Node, ask: Ask, lag_ms: int) -> None:
        """`ask` reaches the active controller wherever it is; a follower may lag for `lag_ms`."""
        self.node = node
        self.ask = ask
        self.lag_ms = lag_ms
        self._waiting: dict[Partition, None] = {}
        self._asked: dict[Partition, Proposal] = {}
        self._armed = False
        self._changes: list[tuple[Partition, Sequence[int], Sequence[int]]] = []
        """To be told: the in-sync sets before and after."""

    def start(self, now_ms: int) -> None:
        self.node.timers.at(now_ms + self.lag_ms // 2, self._check)

    def _check(self) -> None:
        now_ms = self.node.clock.monotonic_ms()
        self.check(now_ms)
        self.start(now_ms)

    def check(self, now_ms: int) -> None:
        """Whether followers lag; at most half as late again as they may."""
        for partition in self.node.partitions:
            if partition.alone or not partition.leads:
                continue
            partition.check_lag(now_ms)
            if partition.leader.proposal is not None:
                self.propose(partition)
        self.node.replica_polls.expire(now_ms)

    def propose(self, partition: Partition) -> None:
        """The partition's leader has a proposal; said as often as one likes."""
        proposal = partition.leader.proposal
        if proposal is None or proposal.settled or self._asked.get(partition) is proposal:
            return
        self._waiting[partition] = None
        # Not at once: what the same turn brings goes along.
        self._send_after(0)

    def on_metadata(self, partition: Partition, before: PartitionRole) -> None:
        """A partition that this node leads, in the same epoch as before, has other replicas or another in-sync set."""
        if list(before.in_sync) != list(partition.role.in_sync):
            if not self._changes:
                self.node.timers.at(self.node.clock.monotonic_ms(), self._tell)
            self._changes.append((partition, before.in_sync, partition.role.in_sync))
        self.node.replica_polls.note(partition)

    def _tell(self) -> None:
        changes, self._changes = self._changes, []
        for partition, before, now in changes[:TOLD_AT_ONCE_MAX]:
            self.node.on_event(f"{partition}: in-sync set {_listed(before)} -> {_listed(now)}")
        if len(changes) > TOLD_AT_ONCE_MAX:
            self.node.on_event(f"and the in-sync sets of {len(changes) - TOLD_AT_ONCE_MAX} other partitions changed")

    def _send_after(self, wait_ms: int) -> None:
        if not self._armed and not self._asked:
            self._armed = True
            self.node.timers.at(self.node.clock.monotonic_ms() + wait_ms, self._send)

    def _send(self) -> None:
        self._armed = False
        topics: dict[bytes, RequestTopicData] = {}
        while self._waiting and len(self._asked) < PARTITIONS_PER_REQUEST_MAX:
            partition = next(iter(self._waiting))
            del self._waiting[partition]
            proposal = partition.leader.proposal
            if proposal is None or proposal.settled or partition.removed:
                continue
            self._asked[partition] = proposal
            topic = topics.setdefault(partition.topic_id, RequestTopicData(partition.topic_id, []))
            topic.partitions.append(_asked(partition.index, proposal))
        if not topics:
            return
        node = self.node
        registered = node.image.brokers.get(node.settings.node_id)
        epoch = registered.epoch if registered is not None else -1
        request = AlterPartitionRequest(node.settings.node_id, epoch, list(topics.values()))
        self.ask(request, self._answered, node.clock.monotonic_ms())

    def _answered(self, response: Message | None) -> None:
        asked, self._asked = self._asked, {}
        answers = {}
        again: dict[Partition, None] = {}
        lost = ErrorCode.REQUEST_TIMED_OUT
        if isinstance(response, AlterPartitionResponse):
            lost = ErrorCode(response.error_code) if response.error_code else lost
            answers = {
                (bytes(topic.topic_id), answer.partition_index): answer
                for topic in response.topics
                for answer in topic.partitions
            }
        for partition, proposal in asked.items():
            answer = answers.get((partition.topic_id, partition.index))
            if answer is None:
                partition.on_alter_failed(proposal, lost)
            elif answer.error_code == ErrorCode.NONE:
                partition.on_altered(proposal, answer.leader_epoch, answer.partition_epoch, answer.isr)
            else:
                partition.on_alter_failed(proposal, answer.error_code)
            if partition.leader.proposal is proposal and not proposal.settled:
                again[partition] = None
            else:
                self.propose(partition)
                self.node.replica_polls.note(partition)
        if self._waiting:
            self._send_after(0)
        if again:
            self._waiting.update(again)
            self._send_after(RETRY_MS)


def _asked(index: int, proposal: Proposal) -> RequestPartitionData:
    return RequestPartitionData(
        partition_index=index,
        leader_epoch=proposal.leader_epoch,
        new_isr_with_epochs=[BrokerState(broker_id, epoch) for broker_id, epoch in proposal.members],
        partition_epoch=proposal.partition_epoch,
    )


def _listed(replicas: Sequence[int]) -> str:
    return ",".join(map(str, replicas))
